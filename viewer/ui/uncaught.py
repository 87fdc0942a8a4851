"""Errors nobody caught, and signals that end the program, while the window is open."""

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
_ENDING = (signal.SIGINT, signal.SIGTERM)


class Uncaught(QObject):
    """While entered, shows uncaught errors of every thread in the window; SIGINT and SIGTERM close it.

    It is entered before there is a window, and left after that is taken apart: a signal that Python would
    raise as an exception in between is lost inside Qt, or leaves half of the window behind.
    """

    told = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self._ending = False
        self._watching = False
        self._closing = QTimer(self, singleShot=True, interval=0)
        self._ticks = QTimer(self)
        self._ticks.timeout.connect(lambda: None)

    def __enter__(self) -> Uncaught:
        self._before = (sys.excepthook, threading.excepthook)
        sys.excepthook = self._report
        threading.excepthook = lambda arguments: self._report(*arguments[:3])
        self._handlers = {number: signal.signal(number, self._close) for number in _ENDING}
        return self

    def watch(self, window: Window) -> None:
        """Show errors in this window, and close it when a signal comes or has come."""
        # Later: a signal comes anywhere in Python code, and a window that closes while it paints is undone.
        self._closing.timeout.connect(window.close)
        # Through a signal: the error may have happened on another thread.
        self.told.connect(window.report_bug)
        self._ticks.start(_TICK_MS)
        self._watching = True
        if self._ending:
            self._closing.start()

    def __exit__(self, *_: object) -> None:
        self._ticks.stop()
        sys.excepthook, threading.excepthook = self._before
        for number, before in self._handlers.items():
            signal.signal(number, before)

    def _close(self, *_: object) -> None:
        self._ending = True
        if self._watching:
            self._closing.start()

    def _report(self, kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        details = "".join(traceback.format_exception(kind, error, where))
        print(f"patchreach: uncaught error\n{details}", file=sys.stderr)
        self.told.emit("Something", details)
