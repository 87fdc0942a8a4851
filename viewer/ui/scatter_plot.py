"""The plot of the scatter panel: dots, error bars, references, and the head under the mouse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPointF, Qt, Signal
from PySide6.QtGui import QBrush, QColor, QFontMetricsF, QPainterPath, QPen

from viewer.state.axes import LAYER_AXIS, Axis
from viewer.state.kinds import mark_of
from viewer.state.ranges import nice_range, widened
from viewer.state.references import colour_of
from viewer.state.selection import HeadRef
from viewer.ui.axis_labels import fitting, one_line
from viewer.ui.dot_name import DotName
from viewer.ui.level_notes import LevelNotes
from viewer.ui.marks import font
from viewer.ui.query_marks import QueryMarks

if TYPE_CHECKING:
    import numpy.typing as npt
    from PySide6.QtGui import QMouseEvent, QResizeEvent

    from viewer.state.palette import Palette
    from viewer.state.scatter import Scatter

# Pixels, and lines of type where that is large; lower, and distances can't be told apart.
_LEAST, _LEAST_LINES = 140, 6.7
_REACH = 12.0  # pixels from a dot within which the mouse means it
_ANY = Axis("", "")
# Width in pixels and dashes of each kind of reference.
_DASHES = {
    "uniform": (1.5, Qt.PenStyle.DashLine),
    "uniform query": (1.0, Qt.PenStyle.DotLine),
    "convolution": (1.5, Qt.PenStyle.DashDotLine),
    "network": (1.0, Qt.PenStyle.SolidLine),
    "network effective": (1.0, Qt.PenStyle.DotLine),
    "effective": (1.5, Qt.PenStyle.SolidLine),
    "before": (1.0, Qt.PenStyle.SolidLine),
}


class ScatterPlot(pg.PlotWidget):
    """Paints a `Scatter`.

    Signals
    -------
    pointed
        The head under the mouse, or None.
    chosen
        The head that was clicked on.
    """

    pointed = Signal(object)
    chosen = Signal(object)

    def __init__(self, palette: Palette) -> None:
        super().__init__(background=palette.panel)
        self._palette = palette
        self._scatter: Scatter | None = None
        self._range: dict[str, tuple[float, float]] = {}
        self._under_mouse: HeadRef | None = None
        plot = self.getPlotItem()
        plot.setMenuEnabled(False)
        plot.hideButtons()
        plot.setMouseEnabled(x=False, y=False)
        plot.getViewBox().disableAutoRange()
        self._lines = {kind: pg.PlotCurveItem(connect="finite", antialias=True) for kind in _DASHES}
        self._points = {kind: pg.ScatterPlotItem(pxMode=True, symbol="+", brush=None) for kind in _DASHES}
        self._bars = pg.PlotCurveItem(connect="pairs")
        self._heads = pg.ScatterPlotItem(pxMode=True)
        # Over a dot that is hollow then; hollow alone are the dots of before.
        self._crosses = pg.ScatterPlotItem(pxMode=True, symbol=_cross())
        self._query = QueryMarks()
        self._shown = pg.ScatterPlotItem(pxMode=True)
        self._name = DotName(plot)
        self._name.setZValue(100)
        self._notes = LevelNotes(plot)
        lines = (*self._lines.values(), *self._points.values(), self._bars)
        for depth, item in enumerate((*lines, self._heads, self._crosses, self._query, self._shown)):
            item.setZValue(depth)
            plot.addItem(item, ignoreBounds=True)
        self.setMouseTracking(True)
        self.viewport().setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.set_theme(palette)

    def set_theme(self, palette: Palette) -> None:
        """Take other colours and another type size."""
        self._palette = palette
        self.setBackground(palette.panel)
        type_ = font(palette)
        for side in ("left", "bottom"):
            axis = self.getPlotItem().getAxis(side)
            axis.enableAutoSIPrefix(False)
            axis.setPen(palette.faint)
            axis.setTextPen(palette.text)
            axis.setTickFont(type_)
            axis.setStyle(tickLength=-4, maxTickLevel=0)
        # Half a line above, since the highest number may stand at the very top.
        self.getPlotItem().setContentsMargins(0, palette.points, palette.points, 0)
        self.setMinimumHeight(self.least_height())
        self._label_axes()
        for kind, (width, style) in _DASHES.items():
            self._lines[kind].setPen(self._pen(colour_of(kind, palette), width, style))
            self._points[kind].setPen(None)
            self._points[kind].setBrush(colour_of(kind, palette))
            self._points[kind].setSize((0.9 + 0.6 * width) * self.dot_size)
        # The same dots, but hollow: what the model as it is gives.
        self._points["before"].setSymbol("o")
        self._points["before"].setPen(self._pen(palette.dot, 1.0))
        self._points["before"].setBrush(None)
        self._points["before"].setSize(self.dot_size)
        self._bars.setPen(self._pen(palette.dot, 1.0))
        self._query.dress(self._pen(palette.query, 1.3), 0.9 * self.dot_size)
        self._name.setFont(font(palette, 0.9))
        self._name.setColor(palette.text)
        self._name.fill = pg.mkBrush(palette.ground)
        self._name.border = pg.mkPen(palette.faint)
        scatter, self._scatter = self._scatter, None
        self.tell(scatter)

    def least_height(self) -> int:
        """Return the height at which dots can be told apart: with numbers and words below them."""
        line = QFontMetricsF(font(self._palette)).height()
        return max(_LEAST, round(_LEAST_LINES * line + self._palette.points))

    def _pen(self, colour: str, width: float, style: Qt.PenStyle = Qt.PenStyle.SolidLine) -> QPen:
        """Return a pen as wide as `width` pixels of the window: pyqtgraph counts the screen's, finer ones."""
        return pg.mkPen(colour, width=width * self.devicePixelRatioF(), style=style)

    @property
    def dot_size(self) -> float:
        """Diameter of a dot in pixels."""
        return 0.75 * self._palette.points

    def tell(self, scatter: Scatter | None) -> None:
        """Take another description; only what differs is drawn anew."""
        before, self._scatter = self._scatter, scatter
        self.getPlotItem().setVisible(scatter is not None and not scatter.blank)
        if scatter is None:
            return
        other = before is None or before.y is not scatter.y or before.x is not scatter.x
        other = other or before.kinds is not scatter.kinds
        if other:
            self._range = {}
        if other or before.x_axis != scatter.x_axis or before.y_axis != scatter.y_axis:
            self._label_axes()
        wider = self._fit(scatter)
        if other:
            self._draw_heads(scatter)
        self._draw_references(scatter, None if other or wider else before)
        self._draw_query(scatter)
        if other or before.shown != scatter.shown:
            self._draw_shown(scatter)

    def _label_axes(self) -> None:
        """Name quantity and unit beside the axes, in as many words as there is room for."""
        metrics = QFontMetricsF(font(self._palette))
        x, y = self._axes
        words, scale = fitting(y, metrics, self.height() - 3.5 * metrics.height())
        self._set_label("left", words, scale)
        self._set_label("bottom", one_line(x, metrics, self.width() - 6 * metrics.height()), 1.0)

    def _set_label(self, side: str, words: str, scale: float) -> None:
        size = {"font-size": f"{self._palette.points * scale}pt"}
        self.setLabel(side, words, color=self._palette.text, **size)
        # pyqtgraph 0.14 scales to a prefix for each new label, although prefixes are switched off.
        self.getPlotItem().getAxis(side).autoSIPrefixScale = 1.0

    @property
    def _axes(self) -> tuple[Axis, Axis]:
        scatter = self._scatter
        return (LAYER_AXIS, _ANY) if scatter is None else (scatter.x_axis, scatter.y_axis)

    def _draw_heads(self, scatter: Scatter) -> None:
        pens, brushes, symbols = self._dot_looks(scatter)
        self._heads.setData(
            x=scatter.x, y=scatter.y, size=self._dot_sizes(scatter), brush=brushes, pen=pens, symbol=symbols
        )
        crossed = np.flatnonzero(scatter.unused)
        self._crosses.setData(
            x=scatter.x[crossed],
            y=scatter.y[crossed],
            size=1.5 * self.dot_size,
            pen=[pens[place] for place in crossed],
        )
        self._bars.setVisible(scatter.spread is not None)
        if scatter.spread is not None:
            self._bars.setData(np.repeat(scatter.x, 2), scatter.spread.ravel())
        bottom = self.getPlotItem().getAxis("bottom")
        if scatter.x_axis.counts_layers:
            room = self.width() / (3.2 * self._palette.points)
            ticks = range(0, scatter.layers, _every(scatter.layers, room))
            bottom.setTicks([[(layer, str(layer)) for layer in ticks]])
        else:
            bottom.setTicks(None)

    def _dot_sizes(self, scatter: Scatter) -> npt.NDArray[np.float64]:
        """Return diameters: where shapes are to be told apart, all are a little larger."""
        return np.full(len(scatter.x), self.dot_size * (1.0 if scatter.kinds is None else 1.2))

    def _dot_looks(self, scatter: Scatter) -> tuple[list[QPen], list[QBrush], list[str]]:
        """Return line, filling and shape of every dot."""
        marks = [None] * len(scatter.x) if scatter.kinds is None else [mark_of(k) for k in scatter.kinds]
        colours = [self._palette.dot if mark is None else mark.colour(self._palette) for mark in marks]
        pens = {colour: self._pen(colour, 1.0) for colour in set(colours)}
        brushes = []
        opacities = np.where(scatter.unused, 0.0, scatter.opacity).tolist()
        for colour, opacity in zip(colours, opacities, strict=True):
            filling = QColor(colour)
            filling.setAlphaF(opacity)
            brushes.append(pg.mkBrush(filling))
        return [pens[colour] for colour in colours], brushes, ["o" if m is None else m.symbol for m in marks]

    def _draw_references(self, scatter: Scatter, before: Scatter | None) -> None:
        """Draw what differs from before of the lines and points that dots are read against."""
        (left, right), (low, high) = self._range["x"], self._range["y"]
        for kind in _DASHES:
            reference = scatter.reference(kind)
            self._lines[kind].setVisible(reference is not None and not reference.points)
            self._points[kind].setVisible(reference is not None and reference.points)
            if reference is None or (before is not None and before.reference(kind) is reference):
                continue
            item = self._points[kind] if reference.points else self._lines[kind]
            item.setData(np.clip(reference.x, left, right), np.clip(reference.y, low, high))
        self._draw_notes(scatter)

    def _draw_notes(self, scatter: Scatter) -> None:
        """Write beside levels what they are; the small type leaves the dots in sight."""
        noted = [reference for reference in scatter.references if reference.notes]
        notes = tuple(note for reference in noted for note in reference.notes)
        # Theoretical and effective levels have one colour.
        colour = noted[0].colour(self._palette) if noted else ""
        self._notes.put(notes, colour, font(self._palette, 0.85))

    def _draw_query(self, scatter: Scatter) -> None:
        there = scatter.query_y is not None
        self._query.setVisible(there)
        if there:
            self._query.put(scatter.query_x, scatter.query_y)

    def _draw_shown(self, scatter: Scatter) -> None:
        picked = scatter.picked
        self._shown.setData(
            x=scatter.x[picked],
            y=scatter.y[picked],
            size=1.7 * self.dot_size,
            brush=None,
            pen=self._pen(self._palette.accent, 2.0),
        )
        # Elsewhere the read-out names the head: here the words would only hide dots.
        self._name.setVisible(self._under_mouse == scatter.shown and bool(picked.any()))
        if self._name.isVisible():
            place = int(np.flatnonzero(picked)[0])
            words = scatter.head_words(place)
            # In a low plot without what decided its kind.
            first = words.split("\n")[0]
            brief = [] if scatter.kinds is None else [f"{first}, {scatter.kinds[place].kind}"]
            dot = QPointF(scatter.x[place], scatter.y[place])
            self._name.put([words, *brief], dot)

    def _fit(self, scatter: Scatter) -> bool:
        """Make room for all there is, and return whether it is another.

        The range grows while the mouse moves, and never shrinks under it.
        """
        before = dict(self._range)
        for along in ("x", "y"):
            self._range[along] = widened(before.get(along), nice_range(scatter, along))
        if self._range != before:
            ranges = {f"{along}Range": ends for along, ends in self._range.items()}
            self.getPlotItem().getViewBox().setRange(**ranges, padding=0)
        return self._range != before

    # -- the mouse ---------------------------------------------------------------------------------------

    def positions(self) -> npt.NDArray[np.float64]:
        """Return where the dots are in pixels of the widget, float64 (dots, 2) as (x, y)."""
        if self._scatter is None:
            return np.empty((0, 2))
        box, (x, y) = self.getPlotItem().getViewBox(), self.getPlotItem().getViewBox().viewRange()
        origin = self.mapFromScene(box.mapViewToScene(QPointF(x[0], y[0])))
        corner = self.mapFromScene(box.mapViewToScene(QPointF(x[1], y[1])))
        across = (self._scatter.x - x[0]) / (x[1] - x[0]) * (corner.x() - origin.x()) + origin.x()
        down = (self._scatter.y - y[0]) / (y[1] - y[0]) * (corner.y() - origin.y()) + origin.y()
        return np.stack([across, down], axis=-1)

    def _head_at(self, position: QPointF) -> HeadRef | None:
        places = self.positions()
        if not len(places) or self._scatter is None:
            return None
        apart = np.hypot(places[:, 0] - position.x(), places[:, 1] - position.y())
        nearest = int(np.argmin(np.where(np.isnan(apart), np.inf, apart)))
        if apart[nearest] > _REACH:
            return None
        return HeadRef(int(self._scatter.layer[nearest]), int(self._scatter.head[nearest]))

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Tell which head is under the mouse."""
        self._point(self._head_at(event.position()))

    def _point(self, head: HeadRef | None) -> None:
        self._under_mouse = head
        self.pointed.emit(head)
        if self._scatter is not None:
            # The head may have been shown before, and then nobody paints again.
            self._draw_shown(self._scatter)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Tell which head was clicked on."""
        head = self._head_at(event.position())
        if event.button() == Qt.MouseButton.LeftButton and head is not None:
            self.chosen.emit(head)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Do nothing: there is nothing to drag."""

    def wheelEvent(self, event: QEvent) -> None:
        """Do nothing: the whole model stays in sight."""

    def leaveEvent(self, event: QEvent) -> None:
        """Tell that no head is under the mouse."""
        self._point(None)
        super().leaveEvent(event)

    def event(self, event: QEvent) -> bool:
        """Take other pens on a screen with finer or coarser pixels."""
        if event.type() == QEvent.Type.DevicePixelRatioChange:
            self.set_theme(self._palette)
        return super().event(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Find anew how many layer numbers fit."""
        super().resizeEvent(event)
        # pyqtgraph resizes once while it is being made.
        if getattr(self, "_scatter", None) is not None:
            self._label_axes()
            self._draw_heads(self._scatter)
            self._fit(self._scatter)


def _cross() -> QPainterPath:
    """Return two lines across a dot of diameter 1."""
    path = QPainterPath()
    for sign in (1, -1):
        path.moveTo(-0.5, -0.5 * sign)
        path.lineTo(0.5, 0.5 * sign)
    return path


def _every(count: int, room: float) -> int:
    """Return 1, 2, 5, ...: each how many-th layer's number fits."""
    return next((step for step in (1, 2, 5, 10) if count / step <= room), 20)
