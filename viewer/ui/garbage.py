"""Python's garbage collected on the window's thread alone."""

from __future__ import annotations

import gc

from PySide6.QtCore import QObject, QTimer

_TICK_MS = 500


def pass_over_libraries() -> None:
    """Let searches for garbage pass over all there is by now; only the first call does anything.

    Libraries leave some hundred thousand objects that live as long as the program. To look through them takes
    a quarter of a second each time, while the window stands still.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


class Garbage(QObject):
    """Collects garbage now and then on the thread it lives on, and keeps it from being collected elsewhere.

    Python looks for garbage on whichever thread happens to make objects. On a working thread that takes apart
    widgets and timers which only the window's thread may touch, and the program crashes.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._was_on = gc.isenabled()
        gc.disable()
        self._ticks = QTimer(self)
        self._ticks.timeout.connect(self._collect)
        self._ticks.start(_TICK_MS)

    def stop(self) -> None:
        """Leave it to Python again; only once no other thread runs."""
        self._ticks.stop()
        if self._was_on:
            gc.enable()

    def _collect(self) -> None:
        """Collect the oldest generation that is due, by Python's own thresholds."""
        due = [
            generation
            for generation, (count, threshold) in enumerate(
                zip(gc.get_count(), gc.get_threshold(), strict=True)
            )
            if count > threshold > 0
        ]
        if due:
            gc.collect(due[-1])
