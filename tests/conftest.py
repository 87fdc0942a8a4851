"""What every test gets: settings of its own, and no thread or window left over."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
# Two threads are enough for small models, and leave room for the window's own.
os.environ.setdefault("OMP_NUM_THREADS", "2")
# What a shell starts in the background ignores Ctrl+C, and so would the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_settings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep every test away from the person's own settings."""
    home = tmp_path_factory.mktemp("config")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("APPDATA", str(home))
    if sys.platform == "darwin":
        monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a working thread or a window behind."""
    yield
    left = [thread.name for thread in threading.enumerate() if thread.name == "patchreach-jobs"]
    assert not left, f"a working thread was left running by {request.node.nodeid}"
    if "qapp" in request.fixturenames:
        _clear_clipboard()
    # Looking for windows collects garbage, which takes long once torch is loaded.
    for widget in _windows() if "qapp" in request.fixturenames else ():
        pytest.fail(f"{request.node.nodeid} left {type(widget).__name__} {widget.windowTitle()!r} behind")


def _clear_clipboard() -> None:
    """Drop what a test has copied: Qt would destroy it after the interpreter is gone, and crash."""
    from PySide6.QtGui import QGuiApplication

    QGuiApplication.clipboard().clear()


def _windows() -> list[object]:
    """Return windows and loose widgets that Qt still holds; tool tips are Qt's, loose menus pyqtgraph's."""
    if "PySide6.QtWidgets" not in sys.modules:
        return []
    from PySide6.QtCore import QCoreApplication, QEvent
    from PySide6.QtWidgets import QApplication

    if QApplication.instance() is None:
        return []
    gc.collect()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    return [
        widget
        for widget in QApplication.topLevelWidgets()
        if widget.parent() is None and not widget.inherits("QTipLabel") and not widget.inherits("QMenu")
    ]
