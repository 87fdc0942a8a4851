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
        self._before: list[int] = []
        self.splitterMoved.connect(self._moved)

    def propose(self, sizes: list[int]) -> None:
        """Divide the room, unless a person has done it."""
        if not self.by_hand and not self._before:
            self.setSizes(sizes)

    @property
    def division(self) -> tuple[int, ...]:
        """Sizes of the parts, while one is alone those before."""
        return tuple(self._before or self.sizes())

    @property
    def has_alone(self) -> bool:
        """Whether one part has all the room."""
        return bool(self._before)

    def show_alone(self, part: QWidget | None) -> None:
        """Give one part all the room; with None, all of them theirs again."""
        before, self._before = self._before, [] if part is None else list(self.division)
        for place in range(self.count()):
            self.widget(place).setVisible(part is None or self.widget(place) is part)
        if part is None and before:
            self.setSizes(before)

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
