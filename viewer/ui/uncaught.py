"""Errors nobody caught, and Ctrl+C in the terminal, while the window is open."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from types import TracebackType
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal

if TYPE_CHECKING:
    from viewer.ui.window import Window

# Python sees a signal only when it gets to run; Qt's loop alone would sleep on.
_TICK_MS = 250


class Uncaught(QObject):
    """While entered, shows uncaught errors of every thread quietly in the window, and closes it on Ctrl+C."""

    told = Signal(str, str)

    def __init__(self, window: Window) -> None:
        super().__init__()
        self._window = window
        self._ticks = QTimer(self)
        self._ticks.timeout.connect(lambda: None)
        # Through a signal: the error may have happened on another thread.
        self.told.connect(window.report_bug)

    def __enter__(self) -> None:
        self._before = (sys.excepthook, threading.excepthook, signal.getsignal(signal.SIGINT))
        sys.excepthook = self._report
        threading.excepthook = lambda arguments: self._report(*arguments[:3])
        signal.signal(signal.SIGINT, lambda *_: self._window.close())
        self._ticks.start(_TICK_MS)

    def __exit__(self, *_: object) -> None:
        self._ticks.stop()
        sys.excepthook, threading.excepthook, interrupt = self._before
        signal.signal(signal.SIGINT, interrupt)

    def _report(self, kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        details = "".join(traceback.format_exception(kind, error, where))
        print(f"patchreach: uncaught error\n{details}", file=sys.stderr)
        self.told.emit("Something", details)
