"""Words at the right end of the levels that dots are read against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyqtgraph as pg
from PySide6.QtGui import QFont, QFontMetricsF

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEPTH = -1  # below lines and dots: words hide nothing that was measured


class LevelNotes:
    """Text items of a plot, made as they are needed; in a low plot some have no room and are left out.

    Parameters
    ----------
    plot
        Where they are.
    """

    def __init__(self, plot: pg.PlotItem) -> None:
        self._plot = plot
        self._items: list[pg.TextItem] = []
        self._notes: tuple[tuple[float, str], ...] = ()
        self._told: object = None
        self._right, self._line = 0.0, 1.0
        plot.getViewBox().sigResized.connect(self._place)

    def put(self, notes: Sequence[tuple[float, str]], right: float, colour: str, font: QFont) -> None:
        """Show these words, each above its level and ending at `right`; no others."""
        told = (tuple(notes), right, colour, font.toString())
        if told == self._told:
            return  # every hover comes by here
        self._told = told
        while len(self._items) < len(notes):
            item = pg.TextItem(anchor=(1, 0.85))
            item.setZValue(_DEPTH)
            self._plot.addItem(item, ignoreBounds=True)
            self._items.append(item)
        self._notes, self._right, self._line = tuple(notes), right, QFontMetricsF(font).height()
        for item, (_, words) in zip(self._items, self._notes, strict=False):
            item.setFont(font)
            item.setText(words, color=colour)
        self._place()

    def _place(self, *_: object) -> None:
        """Show from the highest level down what does not lie on words that are shown already."""
        box = self._plot.getViewBox()
        low, high = box.viewRange()[1]
        scale = box.height() / (high - low) if high > low else 0.0
        free = float("inf")
        for item in self._items[len(self._notes) :]:
            item.setVisible(False)
        for place in sorted(range(len(self._notes)), key=lambda place: -self._notes[place][0]):
            level = self._notes[place][0]
            fits = (free - level) * scale >= self._line
            self._items[place].setVisible(fits)
            if fits:
                self._items[place].setPos(self._right, level)
                free = level
