"""The marks of the selected query in the scatter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter, QPen

if TYPE_CHECKING:
    import numpy.typing as npt


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
        there = np.isfinite(x) & np.isfinite(y)
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
