"""None, True and False outlive any number of signals."""

from __future__ import annotations

import subprocess
import sys

import pytest

EMITS = """
from PySide6.QtCore import QCoreApplication, QObject, Qt, Signal
{guard}

class Source(QObject):
    told = Signal(int)

application = QCoreApplication([])
source, count = Source(), 0
def slot(number):
    global count
    count += 1
source.told.connect(slot, Qt.ConnectionType.QueuedConnection)
for number in range(60_000):
    source.told.emit(number)
    if number % 100 == 0:
        application.processEvents()
application.processEvents()
print(count)
"""


def run(guard):
    return subprocess.run(
        [sys.executable, "-c", EMITS.format(guard=guard)], capture_output=True, text=True, timeout=120
    )


def test_sixty_thousand_signals_are_survived():
    found = run("import viewer.ui")
    assert (found.stdout, found.stderr, found.returncode) == ("60000\n", "", 0)


def test_the_guard_is_still_needed_here():
    import PySide6

    if sys.version_info >= (3, 12) or not PySide6.__version__.startswith("6.12."):
        pytest.skip("these constants are immortal, or this PySide6 counts them")
    assert run("").returncode < 0, "PySide6 counts references again: constants_guard.py can go"
