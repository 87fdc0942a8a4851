"""The likeness of layers, or of the heads of one, as a figure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from viewer.export.colour_bar import ColourBar
from viewer.export.heads_figure import every
from viewer.export.typesetting import text_width, wrap
from viewer.state.colormaps import rgba
from viewer.state.likeness import ALL_POSITIVE, PROTOCOL

if TYPE_CHECKING:
    from viewer.export.sheet import Box, Sheet, Style
    from viewer.state.likeness import Likeness

_SIDE = 24  # of the square, in `Style.room`
_CELL = (0.9, 3.0)  # the same of the smallest and the largest cell


@dataclass(frozen=True)
class LikenessPart:
    """A square of cosines with numbers, colour bar and protocol.

    Attributes
    ----------
    likeness
        What to draw; its values are there.
    style
        Colours and type.
    """

    likeness: Likeness
    style: Style

    @cached_property
    def _cell(self) -> int:
        """Pixels at scale 1 of a cell's side."""
        side = _SIDE / len(self.likeness.refs)
        return round(min(max(side, _CELL[0]), _CELL[1]) * self.style.room)

    @property
    def _side(self) -> int:
        return self._cell * len(self.likeness.refs)

    @property
    def _left(self) -> int:
        """Pixels left of the square, for numbers and what they count."""
        return round(text_width("000", self.style.small) + 1.8 * self.style.em)

    @cached_property
    def _bar(self) -> ColourBar:
        likeness = self.likeness
        height = max(self._side, round(10 * self.style.em))
        return ColourBar(likeness.colormap, likeness.ticks, likeness.label, height, self.style)

    @cached_property
    def _words(self) -> list[str]:
        words = f"Cosines {PROTOCOL}. {ALL_POSITIVE}"
        return wrap(words, self.width, self.style.small)

    @property
    def width(self) -> int:
        """Width in pixels at scale 1."""
        return self._left + self._side + round(1.2 * self.style.em) + self._bar.width

    @property
    def height(self) -> int:
        """Height in pixels at scale 1."""
        above = max(self._side + 2.6 * self.style.em, self._bar.height)
        return round(above + (0.8 + 1.3 * len(self._words)) * self.style.em)

    def draw(self, sheet: Sheet, left: int, top: int) -> None:
        """Draw it with its upper left corner there."""
        likeness, em, palette = self.likeness, self.style.em, self.style.palette
        box: Box = (left + self._left, top, self._side, self._side)
        missing = np.argwhere(~np.isfinite(likeness.values)).tolist()
        sheet.hatch([self._box_of(box, row, column) for row, column in missing], under_images=True)
        scaled = ((likeness.values - likeness.low) / (1 - likeness.low)).astype(np.float32)
        sheet.image(box, rgba(scaled, 1.0, likeness.colormap), name="likeness")
        sheet.frame(box, palette.faint, 0.6)
        if likeness.shown >= 0:
            x, y, cell, _ = self._box_of(box, likeness.shown, 0)
            sheet.frame((x, y, self._side, cell), palette.accent, 1.5)
        self._draw_numbers(sheet, box)
        self._bar.draw(sheet, round(box[0] + self._side + 1.2 * em), top)
        under = top + max(self._side + 2.6 * em, self._bar.height) + 0.8 * em
        for i, line in enumerate(self._words):
            sheet.text(left, under + 1.3 * em * i, line, self.style.small, palette.faint)

    def _box_of(self, box: Box, row: int, column: int) -> Box:
        return (box[0] + column * self._cell, box[1] + row * self._cell, self._cell, self._cell)

    def _draw_numbers(self, sheet: Sheet, box: Box) -> None:
        """Write the numbers of rows and columns, and what they count."""
        em, small, count = self.style.em, self.style.small, len(self.likeness.refs)
        left, top, side, _ = box
        needed = max(text_width(str(count - 1), small), em) + 0.3 * em
        for place in range(0, count, every(count, self._cell, needed)):
            middle = (place + 0.5) * self._cell
            sheet.text(left - 0.5 * em, top + middle, str(place), small, h="right", v="center")
            sheet.text(left + middle, top + side + 0.8 * em, str(place), small, h="center", v="center")
        what = self.likeness.of.removesuffix("s")
        sheet.text(left + side / 2, top + side + 2.1 * em, what, small, h="center", v="center")
        across = left - self._left
        sheet.text(across, top + side / 2, what, small, h="center", v="top", upwards=True)
