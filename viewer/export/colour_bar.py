"""The colour bar beside maps of attention: the colours, numbers and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from viewer.export.typesetting import text_width, wrap_clauses
from viewer.state.colormaps import lut
from viewer.state.scale import ticks

if TYPE_CHECKING:
    from viewer.export.sheet import Sheet, Style


@dataclass(frozen=True)
class ColourBar:
    """A vertical colour bar.

    Attributes
    ----------
    colormap
        A cmap name.
    ticks
        Share of the bar's height (0 at the bottom, 1 at the top) and number of each tick.
    label
        What the numbers are.
    height
        Of the bar, in pixels.
    style
        Colours and type.
    """

    colormap: str
    ticks: tuple[tuple[float, str], ...]
    label: str
    height: int
    style: Style

    @classmethod
    def of_range(
        cls, colormap: str, vmax: float, largest: float, label: str, height: int, style: Style
    ) -> ColourBar:
        """Make the bar of a colour scale from 0 to `vmax`; the end is marked if `largest` lies beyond it."""
        most = max(2, min(6, int(height / (2 * style.em))))
        return cls(colormap, ticks(vmax, largest, most), label, height, style)

    @property
    def _bar(self) -> int:
        return round(1.2 * self.style.em)

    @property
    def _numbers(self) -> float:
        return max(text_width(text, self.style.small) for _, text in self.ticks)

    @property
    def _label_lines(self) -> list[str]:
        return wrap_clauses(self.label, self.height, self.style.small)

    @property
    def width(self) -> int:
        """Width with numbers and label, in pixels."""
        em = self.style.em
        return round(self._bar + 0.6 * em + self._numbers + 0.4 * em + 1.2 * em * len(self._label_lines))

    def draw(self, sheet: Sheet, left: int, top: int) -> None:
        """Draw it with its upper left corner there."""
        em, palette = self.style.em, self.style.palette
        colours = lut(self.colormap)[::-1, np.newaxis, :]
        box = (left, top, self._bar, self.height)
        sheet.image(box, colours)
        sheet.frame(box, palette.faint, 0.6)
        edge = left + self._bar
        for share, text in self.ticks:
            y = top + self.height * (1 - share)
            sheet.line([edge, edge + 0.3 * em], [y, y], palette.faint, linewidth=0.8)
            sheet.text(edge + 0.5 * em, y, text, self.style.small, v="center")
        x = edge + 0.9 * em + self._numbers
        for i, line in enumerate(self._label_lines):
            middle = top + self.height / 2
            sheet.text(x + 1.2 * em * i, middle, line, self.style.small, h="center", v="top", upwards=True)
