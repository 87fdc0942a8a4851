"""Words at the right end of the levels that dots are read against."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtGui import QFontMetricsF

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyqtgraph as pg
    from PySide6.QtGui import QFont


class LevelNotes:
    """The right axis of a plot, on which levels have their words; where room is short some have none.

    Parameters
    ----------
    plot
        Whose axis it is.
    """

    def __init__(self, plot: pg.PlotItem) -> None:
        self._plot, self._axis = plot, plot.getAxis("right")
        self._notes: tuple[tuple[float, str], ...] = ()
        self._told: object = None
        self._line = 1.0
        plot.hideAxis("right")
        plot.getViewBox().sigResized.connect(self._place)
        plot.getViewBox().sigYRangeChanged.connect(self._place)

    def put(self, notes: Sequence[tuple[float, str]], colour: str, font: QFont) -> None:
        """Show these words beside their levels, and no others."""
        told = (tuple(notes), colour, font.toString())
        if told == self._told:
            return  # every hover comes by here
        self._told, self._notes, self._line = told, tuple(notes), QFontMetricsF(font).height()
        self._plot.showAxis("right", bool(notes))
        if notes:
            self._axis.setStyle(tickLength=0, maxTickLevel=0, hideOverlappingLabels=False)
            self._axis.setPen(colour)
            self._axis.setTextPen(colour)
            self._axis.setTickFont(font)
            self._place()

    @property
    def shown(self) -> tuple[tuple[float, str], ...]:
        """Those that have room: from the highest level down what does not lie on words that are shown."""
        low, high = self._plot.getViewBox().viewRange()[1]
        scale = self._plot.getViewBox().height() / (high - low) if high > low else 0.0
        found, free = [], float("inf")
        for level, words in sorted(self._notes, reverse=True):
            if (free - level) * scale >= self._line:
                found.append((level, words))
                free = level
        return tuple(found)

    def _place(self, *_: object) -> None:
        if self._notes:
            self._axis.setTicks([self.shown])
