"""Words at the right end of the levels that dots are read against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyqtgraph as pg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PySide6.QtGui import QFont

_DEPTH = 20  # above dots, whose names come above these


class LevelNotes:
    """Text items of a plot, made as they are needed.

    Parameters
    ----------
    plot
        Where they are.
    """

    def __init__(self, plot: pg.PlotItem) -> None:
        self._plot = plot
        self._items: list[pg.TextItem] = []

    def put(self, notes: Sequence[tuple[float, str]], right: float, colour: str, font: QFont) -> None:
        """Show these words, each above its level and ending at `right`; no others."""
        while len(self._items) < len(notes):
            item = pg.TextItem(anchor=(1, 0.9))
            item.setZValue(_DEPTH)
            self._plot.addItem(item, ignoreBounds=True)
            self._items.append(item)
        for place, item in enumerate(self._items):
            item.setVisible(place < len(notes))
            if place < len(notes):
                level, words = notes[place]
                item.setFont(font)
                item.setText(words, color=colour)
                item.setPos(right, level)
