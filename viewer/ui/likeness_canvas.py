"""A square of cosines with its numbers and colour bar."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QGuiApplication, QPainter, QPen
from PySide6.QtWidgets import QMenu, QSizePolicy, QWidget

from viewer.state.colormaps import rgba
from viewer.state.likeness import ALL_POSITIVE, PROTOCOL
from viewer.state.palette import palette as palette_of
from viewer.ui.marks import bar_image, font, hatch, rgba_image

if TYPE_CHECKING:
    from PySide6.QtGui import QContextMenuEvent, QMouseEvent, QPaintEvent

    from viewer.state.likeness import Likeness
    from viewer.state.palette import Palette

_LEAST_WORDS = 13.0  # ems of room beside the square that words need


@dataclass(frozen=True)
class _Places:
    """Where things are, in pixels."""

    square: QRectF
    bar: QRectF
    words: QRectF

    def cell(self, row: int, column: int, count: int) -> QRectF:
        side = self.square.width() / count
        return QRectF(self.square.left() + column * side, self.square.top() + row * side, side, side)


class LikenessCanvas(QWidget):
    """Paints a `Likeness`.

    Signals
    -------
    chosen
        The row that was clicked on.
    """

    chosen = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self._palette = palette_of("light")
        self._likeness: Likeness | None = None
        self._under_mouse: tuple[int, int] | None = None
        self.setMouseTracking(True)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Expanding)
        self.setAccessibleName("How alike layers or heads are")

    def tell(self, likeness: Likeness | None) -> None:
        """Take another description."""
        before, self._likeness = self._likeness, likeness
        if before is None or likeness is None or _looks(before) != _looks(likeness):
            count = 0 if likeness is None or likeness.values is None else len(likeness.values)
            if self._under_mouse is not None and max(self._under_mouse) >= count:
                self._under_mouse = None
            self.update()

    def set_theme(self, palette: Palette) -> None:
        """Take other colours and another type size."""
        self._palette = palette
        self.update()

    @property
    def hovered(self) -> tuple[int, int] | None:
        """Row and column under the mouse."""
        return self._under_mouse

    def places(self) -> _Places:
        """Return where square, bar and words are."""
        metrics = QFontMetricsF(font(self._palette))
        line = metrics.height()
        left = metrics.horizontalAdvance("000") + 1.4 * line
        ends = max((metrics.horizontalAdvance(text) for _, text in self._ticks()), default=0)
        bar = 1.2 * line + ends + 1.8 * line
        side = min(self.height() - 2.9 * line, self.width() - left - bar - 0.4 * line)
        side = max(math.floor(side), 20)
        square = QRectF(left, 0.5 * line, side, side)
        beside = QRectF(square.right() + 0.5 * line, square.top(), 0.7 * line, side)
        start = square.right() + bar + line
        room = QRectF(start, square.top(), self.width() - start - line, self.height() - square.top())
        return _Places(square, beside, room)

    def _ticks(self) -> tuple[tuple[float, str], ...]:
        return () if self._likeness is None else self._likeness.ticks

    # -- the mouse ---------------------------------------------------------------------------------------

    def pair_at(self, position: QPointF) -> tuple[int, int] | None:
        """Return row and column of the cell at a position."""
        likeness, square = self._likeness, self.places().square
        if likeness is None or likeness.values is None or not square.contains(position):
            return None
        count = len(likeness.values)
        row = (position.y() - square.top()) / square.height() * count
        column = (position.x() - square.left()) / square.width() * count
        return min(int(row), count - 1), min(int(column), count - 1)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Name the pair under the mouse, with its number."""
        self._point(self.pair_at(event.position()))

    def leaveEvent(self, event: QEvent) -> None:
        """Name none."""
        self._point(None)
        super().leaveEvent(event)

    def _point(self, pair: tuple[int, int] | None) -> None:
        if pair != self._under_mouse:
            self._under_mouse = pair
            self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Tell which row was clicked on."""
        pair = self.pair_at(event.position())
        if event.button() == Qt.MouseButton.LeftButton and pair is not None:
            self.chosen.emit(pair[0])

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """Offer the words on the pair under the mouse, as sentences that say what they are of."""
        pair = self.pair_at(QPointF(event.pos()))
        if pair is None:
            return
        words, menu = self._likeness.told(*pair), QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        copy = menu.addAction("Copy these words")
        copy.triggered.connect(lambda _=False: QGuiApplication.clipboard().setText(words))
        menu.popup(event.globalPos())

    # -- painting ----------------------------------------------------------------------------------------

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint all of it."""
        painter = QPainter(self)
        painter.fillRect(self.rect(), QColor(self._palette.ground))
        painter.setFont(font(self._palette))
        painter.setPen(QColor(self._palette.text))
        likeness = self._likeness
        if likeness is None:
            return
        if likeness.values is None:
            way = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
            painter.drawText(QRectF(self.rect()).adjusted(12, 4, -12, -4), way, likeness.blank)
            return
        places = self.places()
        self._paint_cells(painter, likeness, places)
        self._paint_numbers(painter, likeness, places.square)
        self._paint_bar(painter, likeness, places)
        self._paint_words(painter, likeness, places)

    def _paint_cells(self, painter: QPainter, likeness: Likeness, places: _Places) -> None:
        count, square = len(likeness.values), places.square
        scaled = ((likeness.values - likeness.low) / (1 - likeness.low)).astype(np.float32)
        missing = np.argwhere(~np.isfinite(likeness.values))
        if len(missing):
            hatch(painter, [places.cell(*map(int, pair), count) for pair in missing], self._palette)
        painter.drawImage(square, rgba_image(rgba(scaled, 1.0, likeness.colormap)))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(QColor(self._palette.faint), 0))
        painter.drawRect(square)
        if likeness.shown >= 0:
            ends = (places.cell(likeness.shown, place, count) for place in (0, count - 1))
            painter.setPen(QPen(QColor(self._palette.accent), 2.0))
            painter.drawRect(next(ends).united(next(ends)))
        if self._under_mouse is not None:
            for colour, width in (("#ffffff", 3.0), ("#000000", 1.0)):
                painter.setPen(QPen(QColor(colour), width))
                painter.drawRect(places.cell(*self._under_mouse, count))

    def _paint_numbers(self, painter: QPainter, likeness: Likeness, square: QRectF) -> None:
        """Write the numbers of rows and columns, the shown one always and in bold, and what they are."""
        metrics = QFontMetricsF(font(self._palette))
        line, count = metrics.height(), len(likeness.values)
        side = square.width() / count
        step = next((n for n in (1, 2, 5, 10) if n * side >= 1.1 * line), 20)
        for place in range(count):
            shown = place == likeness.shown
            near = likeness.shown >= 0 and abs(place - likeness.shown) < step
            if not shown and (place % step or (near and step > 1)):
                continue
            painter.setFont(font(self._palette, bold=shown))
            painter.setPen(QColor(self._palette.accent if shown else self._palette.text))
            middle = (place + 0.5) * side
            row = QRectF(0, square.top() + middle - line / 2, square.left() - 0.4 * line, line)
            painter.drawText(row, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, str(place))
            column = QRectF(square.left() + middle - line, square.bottom() + 0.15 * line, 2 * line, line)
            painter.drawText(column, Qt.AlignmentFlag.AlignCenter, str(place))
        painter.setFont(font(self._palette))
        painter.setPen(QColor(self._palette.faint))
        what = likeness.of.removesuffix("s")
        below = QRectF(square.left(), square.bottom() + 1.1 * line, square.width(), line)
        painter.drawText(below, Qt.AlignmentFlag.AlignCenter, what)
        self._paint_upwards(painter, QRectF(0, square.top(), line, square.height()), what)

    def _paint_upwards(self, painter: QPainter, box: QRectF, words: str) -> None:
        painter.save()
        painter.translate(box.left(), box.bottom())
        painter.rotate(-90)
        along = QRectF(0, 0, box.height(), box.width())
        painter.drawText(along, Qt.AlignmentFlag.AlignCenter, words)
        painter.restore()

    def _paint_bar(self, painter: QPainter, likeness: Likeness, places: _Places) -> None:
        bar, metrics = places.bar, QFontMetricsF(font(self._palette))
        line = metrics.height()
        painter.drawImage(bar, bar_image(likeness.colormap, upright=True))
        painter.setPen(QPen(QColor(self._palette.faint), 0))
        painter.drawRect(bar)
        painter.setPen(QColor(self._palette.text))
        long = 0.0
        # In a low bar, numbers that would touch their neighbours give way; the ends stay.
        close = bar.height() / len(likeness.ticks) < 1.1 * line
        for share, text in (likeness.ticks[0], likeness.ticks[-1]) if close else likeness.ticks:
            long = max(long, metrics.horizontalAdvance(text))
            middle = min(max(bar.bottom() - share * bar.height(), bar.top() + 0.35 * line), bar.bottom())
            box = QRectF(bar.right() + 0.3 * line, middle - line / 2, 10 * line, line)
            painter.drawText(box, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, text)
        label = QRectF(bar.right() + 0.4 * line + long, bar.top(), 1.2 * line, bar.height())
        forms = (likeness.label, likeness.label.replace(" of attention maps", ""), "cosine")
        words = next((form for form in forms if metrics.horizontalAdvance(form) <= bar.height()), "cosine")
        self._paint_upwards(painter, label, words)

    def _paint_words(self, painter: QPainter, likeness: Likeness, places: _Places) -> None:
        """Say what is seen beside the square; where there is no room, the pair alone, upon it."""
        line = QFontMetricsF(font(self._palette)).height()
        pair = "" if self._under_mouse is None else likeness.pair_words(*self._under_mouse)
        way = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop | Qt.TextFlag.TextWordWrap
        if places.words.width() >= _LEAST_WORDS * line:
            words = [likeness.title, f"{likeness.label}; {PROTOCOL}", ALL_POSITIVE, pair]
            box = QRectF(places.words)
            for place, text in enumerate(filter(None, words)):
                aside = place > 0 and text != pair
                painter.setFont(font(self._palette, 0.9 if aside else 1.0, bold=not aside))
                painter.setPen(QColor(self._palette.faint if aside else self._palette.text))
                metrics = QFontMetricsF(painter.font())
                needed = metrics.boundingRect(box, way, text).height()
                if needed > box.height() and text != pair:
                    continue
                painter.drawText(box, way, text)
                box.setTop(box.top() + needed + 0.4 * line)
        elif pair:
            self._paint_tip(painter, places.square, pair)

    def _paint_tip(self, painter: QPainter, square: QRectF, words: str) -> None:
        """Write the pair on a ground of its own, away from the mouse."""
        metrics = QFontMetricsF(font(self._palette))
        way = Qt.AlignmentFlag.AlignLeft | Qt.TextFlag.TextWordWrap
        room = QRectF(0, 0, max(self.width() - 8.0, 40.0), 10_000)
        box = metrics.boundingRect(room, way, words).adjusted(-4, -2, 8, 2)
        upper = self._under_mouse[0] < len(self._likeness.values) / 2
        top = square.bottom() - box.height() if upper else square.top()
        left = min(square.left(), max(self.width() - box.width() - 2, 0))
        box.moveTo(left, top)
        painter.setFont(font(self._palette))
        painter.setPen(QPen(QColor(self._palette.faint), 0))
        painter.setBrush(QColor(self._palette.ground))
        painter.drawRect(box)
        painter.setPen(QColor(self._palette.text))
        painter.drawText(box.adjusted(4, 2, -2, -2), way, words)


def _looks(likeness: Likeness) -> tuple[object, ...]:
    """Return all of a description that decides what is painted; the values count as one while the same."""
    parts = (likeness.of, likeness.refs, likeness.shown, likeness.colormap, likeness.title, likeness.label)
    return (id(likeness.values), likeness.blank, *parts)
