"""A list whose choice is written in as many words as there is room for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QComboBox, QStyle, QStyleOptionComboBox, QStylePainter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from PySide6.QtGui import QPaintEvent

_FORMS = Qt.ItemDataRole.UserRole + 1
_SLACK = 3  # pixels that styles leave free beside the words


class ShortBox(QComboBox):
    """Shows whole words where they fit, else shorter ones, never half ones; opened, it shows all words.

    Parameters
    ----------
    name
        What is chosen.
    options
        Each value with its words, the longest first.
    """

    def __init__(self, name: str, options: Iterable[tuple[str, tuple[str, ...]]]) -> None:
        super().__init__()
        self._name = name
        self.setAccessibleName(name)
        for value, forms in options:
            self.addItem(forms[0], value)
            self.setItemData(self.count() - 1, forms, _FORMS)
        self.currentIndexChanged.connect(self._say)
        self._say()

    def setCurrentIndex(self, index: int) -> None:
        """Choose, and take the room that the words need, also while signals are blocked."""
        super().setCurrentIndex(index)
        self._say()

    def _say(self) -> None:
        self.setToolTip(f"{self._name}: {self.currentText()}")
        self.updateGeometry()

    @property
    def _forms(self) -> tuple[str, ...]:
        return tuple(self.currentData(_FORMS) or ("",))

    def sizeHint(self) -> QSize:
        """Return the size for all words of the choice."""
        return self._size_for(self._forms[0])

    def minimumSizeHint(self) -> QSize:
        """Return the size for its shortest words."""
        return self._size_for(min(self._forms, key=len))

    def _size_for(self, words: str) -> QSize:
        option = QStyleOptionComboBox()
        self.initStyleOption(option)
        metrics = self.fontMetrics()
        inside = QSize(metrics.horizontalAdvance(words) + _SLACK, metrics.height())
        return self.style().sizeFromContents(QStyle.ContentsType.CT_ComboBox, option, inside, self)

    def words(self) -> str:
        """Return the words that are shown now."""
        option = QStyleOptionComboBox()
        self.initStyleOption(option)
        control, field = QStyle.ComplexControl.CC_ComboBox, QStyle.SubControl.SC_ComboBoxEditField
        room = self.style().subControlRect(control, option, field, self).width()
        advance = self.fontMetrics().horizontalAdvance
        return next((form for form in self._forms if advance(form) <= room), min(self._forms, key=len))

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the list, closed."""
        option = QStyleOptionComboBox()
        self.initStyleOption(option)
        option.currentText = self.words()
        painter = QStylePainter(self)
        painter.drawComplexControl(QStyle.ComplexControl.CC_ComboBox, option)
        painter.drawControl(QStyle.ControlElement.CE_ComboBoxLabel, option)

    def showPopup(self) -> None:
        """Open the list, as wide as its longest words."""
        self.view().setMinimumWidth(self.view().sizeHintForColumn(0) + 2 * self.fontMetrics().height())
        super().showPopup()
