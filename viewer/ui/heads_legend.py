"""What the colours and the hatching of the heads panel mean."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen
from PySide6.QtWidgets import QWidget

from viewer.state.palette import palette as palette_of
from viewer.state.places import UNREACHABLE
from viewer.state.scale import ticks
from viewer.ui.marks import bar_image, bar_numbers, font, hatch

if TYPE_CHECKING:
    from collections.abc import Iterable

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
        for left, right, text in self.numbers():
            box = QRectF(left, bar.bottom(), right - left + 1, line)
            painter.drawText(box, Qt.AlignmentFlag.AlignCenter, text)
        words = f"{heads.label}, {heads.scale_label}"
        if metrics.horizontalAdvance(words) > self.width() - 8:
            # The title says what the weights are of.
            words = metrics.elidedText(heads.scale_label, Qt.TextElideMode.ElideRight, self.width() - 8)
        below = QRectF(4, bar.bottom() + line, self.width() - 8, line)
        painter.drawText(below, Qt.AlignmentFlag.AlignCenter, words)
        if heads.hatched:
            self._paint_unreachable(painter, metrics, below.bottom() + 0.2 * line)

    def numbers(self) -> list[tuple[float, float, str]]:
        """Return the numbers below the bar, as (left, right, text): fewer where they would touch."""
        heads = self._heads
        if heads is None or heads.maps is None:
            return []
        if not heads.shared:
            return self._placed(((0.0, "0"), (1.0, "own max.")))
        end = float(str(heads.vmax.flat[0]))
        apart = 0.5 * QFontMetricsF(font(self._palette, 0.9)).height()
        for most in range(bar_numbers(self._palette), 1, -1):
            placed = self._placed(ticks(end, heads.largest, most))
            if all(right + apart <= left for (_, right, _), (left, _, _) in pairwise(placed)):
                break
        return placed

    def _placed(self, shares: Iterable[tuple[float, str]]) -> list[tuple[float, float, str]]:
        """Put each number under its place on the bar, the outer ones inside the panel."""
        metrics = QFontMetricsF(font(self._palette, 0.9))
        start, room = 0.6 * metrics.height(), self.width() - 1.2 * metrics.height()
        placed = []
        for share, text in shares:
            long = metrics.horizontalAdvance(text)
            left = min(max(start + share * room - long / 2, 4), self.width() - 4 - long)
            placed.append((left, left + long, text))
        return placed

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
