"""One line of numbers in words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from viewer.ui.marks import font

if TYPE_CHECKING:
    from PySide6.QtGui import QResizeEvent

    from viewer.state.palette import Palette

_WORST = (
    "Layer 10, mean of 12 heads: on average these heads look 200 px (14.3 patches) away, 100 % of what "
    "uniform attention would (original protocol, prefix tokens count as 0); 0.1 % goes to the class token "
    "and 4 registers; its attention is spread as over 1000 tokens (entropy 6.71 nats).\nPatch (10, 12): "
    "200 px (14.3 patches) away, 100 % of what uniform attention would; 0.1 % goes to the class token and 4 "
    "registers; spread as over 1000 tokens, most on patch (10, 12) with 0.1 %."
)


class ReadoutLine(QLabel):
    """Says what the selected head and query do; as high as its longest sentences need, so nothing jumps."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWordWrap(True)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.setAlignment(Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setMargin(4)
        self.setAccessibleName("Numbers of the selected head and query")

    def paint(self, words: str) -> None:
        """Show the words of a `SceneValue.readout`."""
        # A number stays on the line of its unit.
        words = re.sub(r"(\d) (?=px|patches|%|tokens|nats)", "\\1\u00a0", words)
        if words != self.text():
            self.setText(words)

    def set_theme(self, palette: Palette) -> None:
        """Take other colours and another type size."""
        self.setFont(font(palette))
        self.setStyleSheet(f"color: {palette.text}; background: {palette.ground};")
        self._fit()

    def sizeHint(self) -> QSize:
        """Return any width, and the height the longest sentences take at the width there is."""
        return QSize(400, self.height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Find the height anew."""
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        width = max(self.width() - 2 * self.margin(), 100)
        metrics = QFontMetricsF(self.font())
        room = metrics.boundingRect(QRectF(0, 0, width, 10_000), Qt.TextFlag.TextWordWrap, _WORST)
        height = int(room.height() + metrics.height() * 0.4) + 2 * self.margin()
        if height != self.height():
            self.setFixedHeight(height)
