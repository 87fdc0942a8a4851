"""A row of controls over a view, with words between them where there is room for words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QSize
from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget

if TYPE_CHECKING:
    from PySide6.QtGui import QResizeEvent

_SPACING = 4  # pixels


class ChoiceRow(QWidget):
    """Controls side by side; texts among `parts` become labels, which go first where room is short."""

    def __init__(self, *parts: QWidget | str) -> None:
        super().__init__()
        self.setObjectName("choices")
        self._words = [QLabel(part) for part in parts if isinstance(part, str)]
        labels = iter(self._words)
        row = QHBoxLayout(self)
        row.setContentsMargins(_SPACING, 2, _SPACING, 2)
        row.setSpacing(_SPACING)
        self._parts = [next(labels) if isinstance(part, str) else part for part in parts]
        for part in self._parts:
            row.addWidget(part)
        row.addStretch(1)

    def minimumSizeHint(self) -> QSize:
        """Return the size of all controls at their smallest, without the words between them."""
        sizes = [p.minimumSizeHint() for p in self._parts if p not in self._words and not p.isHidden()]
        width = sum(size.width() + _SPACING for size in sizes) + 2 * _SPACING
        return QSize(width, max((size.height() for size in sizes), default=0) + 4)

    def event(self, event: QEvent) -> bool:
        """Look again for room when a control needs more or less of it."""
        done = super().event(event)
        if event.type() == QEvent.Type.LayoutRequest:
            self._fit()
        return done

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Look again for room."""
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        words = sum(label.sizeHint().width() + _SPACING for label in self._words)
        there = self.minimumSizeHint().width() + words <= self.width()
        for label in self._words:
            label.setVisible(there)
