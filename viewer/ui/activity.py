"""What is being done, how far it is, and a way to stop it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QHBoxLayout, QProgressBar, QPushButton, QWidget

from viewer.ui.elided import ElidedLabel

if TYPE_CHECKING:
    from viewer.ui.jobs import Jobs

# Short work shows nothing: a bar that flashes by is noise.
PATIENCE_MS = 500


class Activity(QWidget):
    """Progress of the work that runs; it appears only when the work takes more than a moment."""

    def __init__(self, jobs: Jobs, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._words = ElidedLabel()
        self._bar = QProgressBar()
        self._bar.setFixedWidth(160)
        self._bar.setTextVisible(False)
        self._bar.setAccessibleName("Progress")
        self.cancel = QPushButton("Cancel")
        self.cancel.setToolTip("Stop what is being done")
        self.cancel.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.cancel.clicked.connect(jobs.cancel)
        row = QHBoxLayout(self)
        row.setContentsMargins(6, 0, 6, 0)
        row.addWidget(self._words)
        row.addWidget(self._bar)
        row.addWidget(self.cancel)
        self._patience = QTimer(self)
        self._patience.setSingleShot(True)
        self._patience.setInterval(PATIENCE_MS)
        self._patience.timeout.connect(lambda: self._show(True))
        jobs.started.connect(self._begin)
        jobs.progressed.connect(self._tell)
        jobs.idle.connect(self._end)
        self._show(False)

    @property
    def doing(self) -> str:
        """What is being done now; empty if nothing is."""
        return self._words.whole

    def _begin(self, title: str) -> None:
        self._tell(title, -1.0)
        # One piece of work after the other is one wait for a person: the bar stays once it is there.
        if self._bar.isHidden() and not self._patience.isActive():
            self._patience.start()

    def _tell(self, doing: str, share: float) -> None:
        self._words.say(doing)
        self._words.setToolTip(doing)
        self._bar.setRange(0, 0 if share < 0 else 1000)
        self._bar.setValue(round(share * 1000))

    def _end(self) -> None:
        self._patience.stop()
        self._words.say("")
        self._show(False)

    def _show(self, on: bool) -> None:
        for part in (self._words, self._bar, self.cancel, self):
            part.setVisible(on)
