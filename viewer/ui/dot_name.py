"""The words beside a dot of a plot, which stay inside the plot however long they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QFontMetricsF

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDEST, _HIGHEST = 0.9, 0.6  # shares of the plot
_GAP = 0.4  # between dot and words, in lines of type


class DotName(pg.TextItem):
    """Words above a low dot and below a high one, shifted so that all of them are seen.

    They may lie over the numbers of an axis: in a narrow plot there is room nowhere else.

    Parameters
    ----------
    plot
        What they stay inside.
    """

    def __init__(self, plot: pg.PlotItem) -> None:
        super().__init__()
        self._plot = plot
        # Not in the view, which would cut them off.
        self.setParentItem(plot)

    def put(self, forms: Sequence[str], place: QPointF) -> None:
        """Write beside a dot.

        Parameters
        ----------
        forms
            What to say, the longest first: the first that is not too high for the plot is taken, else the
            last.
        place
            Of the dot, in the units of the axes.
        """
        area = self._plot.boundingRect().adjusted(1, 1, -1, -1)
        for words in forms:
            self._write(words, _WIDEST * area.width())
            if self.boundingRect().height() <= _HIGHEST * area.height():
                break
        height = self.boundingRect().height()
        dot = self._plot.mapFromScene(self._plot.getViewBox().mapViewToScene(place))
        top = self._top(dot, area, height)
        self.setAnchor(((dot.x() - area.left()) / area.width(), (dot.y() - top) / height))
        self.setPos(dot)

    def _write(self, words: str, widest: float) -> None:
        """Break lines where they are longer than that, in pixels."""
        self.setTextWidth(-1)
        self.setText(words)
        if self.boundingRect().width() > widest:
            self.setTextWidth(widest)

    def _top(self, dot: QPointF, area: QRectF, height: float) -> float:
        line = QFontMetricsF(self.textItem.font()).height()
        high = dot.y() < area.top() + 0.4 * area.height()
        if height > 2.5 * line:
            # Many lines: at the border where the dot is not.
            return area.bottom() - height if high else area.top()
        wished = dot.y() + _GAP * line if high else dot.y() - _GAP * line - height
        return max(min(wished, area.bottom() - height), area.top())
