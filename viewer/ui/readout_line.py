"""One line of numbers in words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QAction, QColor, QFontMetricsF, QGuiApplication, QPainter
from PySide6.QtWidgets import QSizePolicy, QWidget

from viewer.state.palette import palette as palette_of
from viewer.ui.marks import font

if TYPE_CHECKING:
    from PySide6.QtGui import QPaintEvent, QResizeEvent

    from viewer.state.palette import Palette

_WORST = (
    "Layer 10, mean of 12 heads: on average these heads look 200 px (14.3 patches) away, 100 % of what "
    "uniform attention would (original protocol, prefix tokens count as 0); 0.1 % goes to the class token "
    "and 4 registers; its attention is spread as over 1000 tokens (entropy 6.71 nats).\nPatch (10, 12): "
    "200 px (14.3 patches) away, 100 % of what uniform attention would; 0.1 % goes to the class token and 4 "
    "registers; spread as over 1000 tokens, most on patch (10, 12) with 0.1 %."
)
_MARGIN = 4


class ReadoutLine(QWidget):
    """Says what the selected head and query do; as high as its longest sentences need, so nothing jumps.

    A label would lay out the whole window anew for each text, which a hover can't wait for.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._palette = palette_of("light")
        self._words = ""
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Numbers of the selected head and query")
        copy = QAction("Copy these words", self)
        copy.triggered.connect(self._copy)
        self.addAction(copy)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.ActionsContextMenu)

    def text(self) -> str:
        """Return what is said now."""
        return self._words

    def paint(self, words: str) -> None:
        """Show the words of a `SceneValue.readout`."""
        if words != self._words:
            self._words = words
            self.setAccessibleDescription(words)
            self.update()

    def set_theme(self, palette: Palette) -> None:
        """Take other colours and another type size."""
        self._palette = palette
        self._fit()
        self.update()

    def sizeHint(self) -> QSize:
        """Return any width, and the height the longest sentences take at the width there is."""
        return QSize(400, self.height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Find the height anew."""
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        metrics = QFontMetricsF(font(self._palette))
        room = QRectF(0, 0, max(self.width() - 2 * _MARGIN, 100), 10_000)
        needed = metrics.boundingRect(room, Qt.TextFlag.TextWordWrap, _WORST).height()
        height = int(needed + 0.4 * metrics.height()) + 2 * _MARGIN
        if height != self.height():
            self.setFixedHeight(height)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Write the words."""
        painter = QPainter(self)
        painter.fillRect(self.rect(), QColor(self._palette.ground))
        painter.setFont(font(self._palette))
        painter.setPen(QColor(self._palette.text))
        # A number stays on the line of its unit.
        words = re.sub(r"(\d) (?=px|patches|%|tokens|nats)", "\\1\u00a0", self._words)
        box = QRectF(self.rect()).adjusted(_MARGIN, _MARGIN, -_MARGIN, -_MARGIN)
        painter.drawText(box, Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextWordWrap, words)

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self._words)
