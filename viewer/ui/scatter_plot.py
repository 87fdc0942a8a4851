"""The plot of the scatter panel: dots, reference lines, and the head under the mouse."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen

from viewer.state.selection import HeadRef
from viewer.ui.marks import font

if TYPE_CHECKING:
    import numpy.typing as npt
    from PySide6.QtGui import QMouseEvent, QResizeEvent

    from viewer.state.palette import Palette
    from viewer.state.scatter import Scatter

LEAST_PLOT = 144  # pixels; lower, and distances can't be told apart
_REACH = 12.0  # pixels from a dot within which the mouse means it
_QUANTITY = ("mean attention distance", "mean distance", "distance")
_SPREAD = 0.62  # share of a layer's column over which its heads lie side by side
_FAINTEST = 0.15  # opacity of a dot whose head attends to prefix tokens only


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
        self._x = np.empty(0)
        self._top = 0.0
        self._under_mouse: HeadRef | None = None
        plot = self.getPlotItem()
        plot.setMenuEnabled(False)
        plot.hideButtons()
        plot.setMouseEnabled(x=False, y=False)
        plot.getViewBox().disableAutoRange()
        self._uniform = pg.PlotCurveItem(connect="finite", antialias=True)
        self._uniform_query = pg.PlotCurveItem(connect="finite", antialias=True)
        self._convolution = pg.PlotCurveItem()
        self._heads = pg.ScatterPlotItem(pxMode=True)
        self._query = QueryMarks()
        self._shown = pg.ScatterPlotItem(pxMode=True)
        self._name = pg.TextItem(anchor=(0, 1))
        for depth, item in enumerate(
            (
                self._uniform,
                self._uniform_query,
                self._convolution,
                self._heads,
                self._query,
                self._shown,
                self._name,
            )
        ):
            item.setZValue(depth)
            plot.addItem(item, ignoreBounds=True)
        self.setMouseTracking(True)
        self.setMinimumHeight(LEAST_PLOT)
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
        self.setLabel("bottom", "layer", color=palette.text, **{"font-size": f"{palette.points}pt"})
        self._label_distance()
        self._uniform.setPen(self._pen(palette.uniform, 1.5, Qt.PenStyle.DashLine))
        self._uniform_query.setPen(self._pen(palette.query, 1.0, Qt.PenStyle.DotLine))
        self._convolution.setPen(self._pen(palette.convolution, 1.5, Qt.PenStyle.DashDotLine))
        self._query.dress(self._pen(palette.query, 1.3), 0.9 * self.dot_size)
        self._name.setFont(type_)
        self._name.setColor(palette.text)
        self._name.fill = pg.mkBrush(palette.ground)
        self._name.border = pg.mkPen(palette.faint)
        scatter, self._scatter = self._scatter, None
        self.tell(scatter)

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
        if before is None or before.distance is not scatter.distance:
            self._draw_heads(scatter)
        if before is None or before.unit != scatter.unit:
            self._label_distance()
        self._draw_query(scatter)
        if before is None or before.distance is not scatter.distance or before.shown != scatter.shown:
            self._draw_shown(scatter)
        self._fit(scatter)

    def _label_distance(self) -> None:
        """Name quantity and unit beside the axis, in as many words as the height has room for."""
        unit = "px" if self._scatter is None else self._scatter.unit
        metrics = QFontMetricsF(font(self._palette))
        room = self.height() - 3.5 * metrics.height()
        whole = [f"{words} ({unit})" for words in _QUANTITY]
        words = next((text for text in whole if metrics.horizontalAdvance(text) <= room), None)
        # In a low plot with large type not even the shortest fits on one line.
        size = {"font-size": f"{self._palette.points * (1.0 if words else 0.8)}pt"}
        self.setLabel("left", words or f"distance<br>({unit})", color=self._palette.text, **size)

    def _draw_heads(self, scatter: Scatter) -> None:
        most = int(scatter.head.max(initial=0)) + 1
        self._x = scatter.layer + ((scatter.head + 0.5) / most - 0.5) * _SPREAD
        self._top = 0.0
        dot = QColor(self._palette.dot)
        brushes = []
        for mass in scatter.prefix_mass:
            dot.setAlphaF(max(1.0 - float(mass), _FAINTEST))
            brushes.append(pg.mkBrush(QColor(dot)))
        pen = self._pen(self._palette.dot, 1.0)
        self._heads.setData(
            x=self._x, y=scatter.distance, size=self.dot_size, brush=brushes, pen=[pen] * len(brushes)
        )
        self._uniform.setData(*scatter.steps(scatter.uniform))
        self._convolution.setData(np.arange(len(scatter.convolution), dtype=float), scatter.convolution)
        ticks = range(0, scatter.layers, _every(scatter.layers, self.width() / (3.2 * self._palette.points)))
        self.getPlotItem().getAxis("bottom").setTicks([[(layer, str(layer)) for layer in ticks]])
        self.getPlotItem().setXRange(-0.6, scatter.layers - 0.4, padding=0)

    def _draw_query(self, scatter: Scatter) -> None:
        there = scatter.query_distance is not None
        self._query.setVisible(there)
        self._uniform_query.setVisible(there)
        if there:
            self._query.put(self._x, scatter.query_distance)
            self._uniform_query.setData(*scatter.steps(scatter.uniform_query))

    def _draw_shown(self, scatter: Scatter) -> None:
        layer, head = scatter.shown
        picked = scatter.layer == layer
        if head is not None:
            picked &= scatter.head == head
        self._shown.setData(
            x=self._x[picked],
            y=scatter.distance[picked],
            size=1.7 * self.dot_size,
            brush=None,
            pen=self._pen(self._palette.accent, 2.0),
        )
        # Elsewhere the read-out names the head: here the words would only hide dots.
        self._name.setVisible(self._under_mouse == scatter.shown and bool(picked.any()))
        if self._name.isVisible():
            place = int(np.flatnonzero(picked)[0])
            self._name.setText(head_text(scatter, place))
            self._put_name(scatter, place)

    def _put_name(self, scatter: Scatter, place: int) -> None:
        """Write above the dot, or below a high one, shifted so that the words stay inside the plot."""
        low, high = self.getPlotItem().getViewBox().viewRange()[0]
        up = scatter.distance[place] > 0.6 * self._top
        self._name.setAnchor(((self._x[place] - low) / (high - low), -0.4 if up else 1.4))
        self._name.setPos(self._x[place], scatter.distance[place])

    def _fit(self, scatter: Scatter) -> None:
        """Make room for all there is; the range grows while the mouse moves, and never shrinks under it."""
        parts = [scatter.uniform, scatter.distance, scatter.convolution]
        if scatter.query_distance is not None:
            parts += [scatter.uniform_query, scatter.query_distance]
        found = _finite(np.concatenate(parts))
        needed = 1.06 * float(found.max(initial=0.0)) or 1.0
        if needed > self._top:
            step = 10.0 ** math.floor(math.log10(needed)) / 2
            self._top = math.ceil(needed / step) * step
            self.getPlotItem().setYRange(0, self._top, padding=0)

    # -- the mouse ---------------------------------------------------------------------------------------

    def positions(self) -> npt.NDArray[np.float64]:
        """Return where the dots are in pixels of the widget, float64 (dots, 2) as (x, y)."""
        if self._scatter is None:
            return np.empty((0, 2))
        box, (x, y) = self.getPlotItem().getViewBox(), self.getPlotItem().getViewBox().viewRange()
        origin = self.mapFromScene(box.mapViewToScene(QPointF(x[0], y[0])))
        corner = self.mapFromScene(box.mapViewToScene(QPointF(x[1], y[1])))
        across = (self._x - x[0]) / (x[1] - x[0]) * (corner.x() - origin.x()) + origin.x()
        down = (self._scatter.distance - y[0]) / (y[1] - y[0]) * (corner.y() - origin.y()) + origin.y()
        return np.stack([across, down], axis=-1)

    def _head_at(self, position: QPointF) -> HeadRef | None:
        places = self.positions()
        if not len(places) or self._scatter is None:
            return None
        apart = np.hypot(places[:, 0] - position.x(), places[:, 1] - position.y())
        nearest = int(np.nanargmin(np.where(np.isnan(apart), np.inf, apart)))
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
            self._label_distance()
            self._draw_heads(self._scatter)
            self._fit(self._scatter)


class QueryMarks(pg.GraphicsObject):
    """Open diamonds, one a head, that move with every hover.

    A general scatter item sorts symbols and pens of each of its points anew for new data, which took longer
    than painting them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._x = self._y = np.empty(0)
        self._pen = pg.mkPen("k")
        self._half = 3.0

    def dress(self, pen: QPen, size: float) -> None:
        """Take a pen and a diameter in pixels."""
        self._pen = pen
        self._half = size / 2
        self.update()

    def put(self, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> None:
        """Take other places; what has no number is not drawn."""
        there = np.isfinite(y)
        self._x, self._y = x[there], y[there]
        self.update()

    def boundingRect(self) -> QRectF:
        """Return what is in sight: any of it may be painted on."""
        return QRectF(self.viewRect())

    def viewRangeChanged(self) -> None:
        """Forget the bounds: they follow what is in sight."""
        self.prepareGeometryChange()

    def paint(self, painter: QPainter, *_: object) -> None:
        """Paint the diamonds, of one size on the screen whatever the axes' range."""
        transform = painter.worldTransform()
        painter.resetTransform()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(self._pen)
        half = self._half
        across = self._x * transform.m11() + transform.dx()
        down = self._y * transform.m22() + transform.dy()
        for x, y in zip(across.tolist(), down.tolist(), strict=True):
            painter.drawConvexPolygon(
                [QPointF(x, y - half), QPointF(x + half, y), QPointF(x, y + half), QPointF(x - half, y)]
            )


def head_text(scatter: Scatter, place: int) -> str:
    """Return the name and numbers of one dot: "layer 3, head 2: 84.1 px, prefix 12 %".

    The prefix is left out where no head of the model attends to any.
    """
    name = f"layer {scatter.layer[place]}, head {scatter.head[place]}"
    distance = f"{scatter.distance[place]:.1f} {scatter.unit}"
    prefix = f", prefix {100 * scatter.prefix_mass[place]:.0f} %" if scatter.pales else ""
    return f"{name}: {distance}{prefix}"


def _finite(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return values[np.isfinite(values)]


def _every(count: int, room: float) -> int:
    """Return 1, 2, 5, ...: each how many-th layer's number fits."""
    return next((step for step in (1, 2, 5, 10) if count / step <= room), 20)
