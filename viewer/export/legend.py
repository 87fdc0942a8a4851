"""The legend of a scatter: marks with their words, as many on a row as fit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from viewer.export.typesetting import text_width, wrap, wrap_clauses

if TYPE_CHECKING:
    from viewer.export.sheet import Sheet, Style

_ROW, _LEAD = 1.7, 1.3  # from row to row, and from line to line of one entry, in ems
_MARK, _GAP = 2.4, 1.5  # from a mark's left end to its words, and from words to the next mark, in ems


class Entry(NamedTuple):
    """One of the legend: its words, and Matplotlib's line properties of its mark."""

    text: str
    marks: dict[str, Any]


class _Placed(NamedTuple):
    x: float
    lines: list[str]
    marks: dict[str, Any]


@dataclass(frozen=True)
class LegendPart:
    """Rows of entries; words that are wider than the legend are broken.

    Attributes
    ----------
    entries
        In their order.
    style
        Colours and type.
    width
        In pixels at scale 1.
    """

    entries: tuple[Entry, ...]
    style: Style
    width: int

    @cached_property
    def _rows(self) -> list[list[_Placed]]:
        em, small = self.style.em, self.style.small
        rows: list[list[_Placed]] = []
        x = float(self.width)
        for text, marks in self.entries:
            lines = self._broken(text)
            needed = _MARK * em + max(text_width(line, small) for line in lines)
            if x + needed > self.width:
                rows.append([])
                x = 0.0
            rows[-1].append(_Placed(x, lines, marks))
            x += needed + _GAP * em
        return rows

    def _broken(self, text: str) -> list[str]:
        """Return the words in lines, broken between clauses where that takes no more of them."""
        room, small = self.width - _MARK * self.style.em, self.style.small
        clauses, lines = wrap_clauses(text, room, small), wrap(text, room, small)
        return clauses if len(clauses) <= len(lines) else lines

    def _height_of(self, row: list[_Placed]) -> float:
        return (_ROW + _LEAD * (max(len(placed.lines) for placed in row) - 1)) * self.style.em

    @property
    def height(self) -> int:
        """Height in pixels at scale 1."""
        return round(sum(map(self._height_of, self._rows)))

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        """Draw it with its upper left corner there."""
        em = self.style.em
        for row in self._rows:
            middle = top + 0.7 * em
            for x, lines, marks in row:
                start = left + x
                dots = marks.get("linestyle") == "none"
                ends = [start + 0.9 * em] if dots else [start, start + 1.8 * em]
                sheet.line(ends, [middle] * len(ends), **marks)
                for i, line in enumerate(lines):
                    y = middle + _LEAD * em * i
                    sheet.text(start + _MARK * em, y, line, self.style.small, v="center")
            top += self._height_of(row)
