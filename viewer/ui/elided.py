"""A label whose text ends in dots where there is no room for all of it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLabel, QWidget


class ElidedLabel(QLabel):
    """One line of plain text that asks for the room of all of it, and makes do with less."""

    _whole = ""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setTextFormat(Qt.TextFormat.PlainText)

    @property
    def whole(self) -> str:
        """The text, all of it."""
        return self._whole

    def say(self, text: str) -> None:
        """Take another text."""
        self._whole = text
        self._fit()
        self.updateGeometry()

    def sizeHint(self) -> QSize:
        """Ask for room for the whole text."""
        return QSize(self.fontMetrics().horizontalAdvance(self._whole) + 2, super().sizeHint().height())

    def minimumSizeHint(self) -> QSize:
        """Make do with any width."""
        return QSize(0, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Break the text off where the room ends now."""
        super().resizeEvent(event)
        self._fit()

    def changeEvent(self, event: QEvent) -> None:
        """Break the text off where the room ends in another type."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self.say(self._whole)

    def _fit(self) -> None:
        self.setText(self.fontMetrics().elidedText(self._whole, Qt.TextElideMode.ElideRight, self.width()))
