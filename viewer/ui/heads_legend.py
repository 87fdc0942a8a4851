"""What the colours and the hatching of the heads panel mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen
from PySide6.QtWidgets import QWidget

from viewer.state.palette import palette as palette_of
from viewer.state.places import UNREACHABLE
from viewer.state.scale import ticks
from viewer.ui.marks import bar_image, bar_numbers, font, hatch

if TYPE_CHECKING:
    from PySide6.QtGui import QPaintEvent

    from viewer.state.heads import Heads
    from viewer.state.palette import Palette


class HeadsLegend(QWidget):
    """The colour bar below the maps, with numbers and what they are, and what hatching means."""

    def __init__(self) -> None:
        super().__init__()
        self._palette = palette_of("light")
        self._heads: Heads | None = None
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)

    def tell(self, heads: Heads | None) -> None:
        """Take another description."""
        self._heads = heads
        self._fit()
        self.update()

    def set_theme(self, palette: Palette) -> None:
        """Take other colours and another type size."""
        self._palette = palette
        self._fit()
        self.update()

    def _fit(self) -> None:
        """Take a line more where hatching is to be explained."""
        lines = 4.4 if self._heads is not None and self._heads.hatched else 3.2
        height = int(QFontMetricsF(font(self._palette)).height() * lines)
        if height != self.height():
            self.setFixedHeight(height)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint bar, numbers and words."""
        painter = QPainter(self)
        painter.fillRect(self.rect(), QColor(self._palette.ground))
        heads = self._heads
        if heads is None or heads.maps is None:
            return
        painter.setFont(font(self._palette, 0.9))
        metrics = QFontMetricsF(painter.font())
        line = metrics.height()
        bar = QRectF(0.6 * line, 0.3 * line, self.width() - 1.2 * line, 0.7 * line)
        painter.drawImage(bar, bar_image(heads.colormap, upright=False))
        painter.setPen(QPen(QColor(self._palette.faint), 0))
        painter.drawRect(bar)
        painter.setPen(QColor(self._palette.text))
        end = float(str(heads.vmax.flat[0]))
        most = bar_numbers(self._palette)
        numbers = ticks(end, heads.largest, most) if heads.shared else ((0.0, "0"), (1.0, "own max."))
        for share, text in numbers:
            long = metrics.horizontalAdvance(text)
            left = min(max(bar.left() + share * bar.width() - long / 2, 4), self.width() - 4 - long)
            painter.drawText(QRectF(left, bar.bottom(), long + 1, line), Qt.AlignmentFlag.AlignCenter, text)
        words = f"{heads.label}, {heads.scale_label}"
        if metrics.horizontalAdvance(words) > self.width() - 8:
            # The title says what the weights are of.
            words = metrics.elidedText(heads.scale_label, Qt.TextElideMode.ElideRight, self.width() - 8)
        below = QRectF(4, bar.bottom() + line, self.width() - 8, line)
        painter.drawText(below, Qt.AlignmentFlag.AlignCenter, words)
        if heads.hatched:
            self._paint_unreachable(painter, metrics, below.bottom() + 0.2 * line)

    def _paint_unreachable(self, painter: QPainter, metrics: QFontMetricsF, top: float) -> None:
        """Say what hatching means."""
        line = metrics.height()
        swatch = QRectF(0.6 * line, top, 1.6 * line, 0.8 * line)
        room = self.width() - swatch.right() - 0.8 * line
        words = UNREACHABLE if metrics.horizontalAdvance(UNREACHABLE) <= room else "not reachable"
        spare = self.width() - 1.2 * line - swatch.width() - 0.4 * line - metrics.horizontalAdvance(words)
        swatch.translate(max(spare / 2, 0.0), 0.0)
        hatch(painter, [swatch], self._palette)
        painter.setPen(QPen(QColor(self._palette.faint), 0))
        painter.drawRect(swatch)
        painter.setPen(QColor(self._palette.text))
        box = QRectF(swatch.right() + 0.4 * line, top - 0.1 * line, self.width(), line)
        painter.drawText(box, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, words)
