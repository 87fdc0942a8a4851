"""A splitter that knows whether a person has divided it."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QSplitter, QWidget


class Splitter(QSplitter):
    """Divides room between parts; proposals hold until a person moves the handle.

    Parameters
    ----------
    name
        Under which its sizes are remembered.
    orientation
        Along which the parts lie.

    Signals
    -------
    resized
        There is more or less room to divide.
    """

    resized = Signal()

    def __init__(self, name: str, orientation: Qt.Orientation, *parts: QWidget) -> None:
        super().__init__(orientation)
        self.setObjectName(name)
        self.setChildrenCollapsible(False)
        for part in parts:
            self.addWidget(part)
        self.by_hand = False
        self.splitterMoved.connect(self._moved)

    def propose(self, sizes: list[int]) -> None:
        """Divide the room, unless a person has done it."""
        if not self.by_hand:
            self.setSizes(sizes)

    def restore(self, sizes: tuple[int, ...]) -> None:
        """Divide the room as a person did in an earlier session."""
        if len(sizes) == self.count() and sum(sizes) > 0:
            self.by_hand = True
            self.setSizes(list(sizes))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Say that the room changed."""
        super().resizeEvent(event)
        self.resized.emit()

    def _moved(self) -> None:
        self.by_hand = True
