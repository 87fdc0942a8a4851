"""The list of the nine keys as a slide has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from viewer.state.lesson_table import HEADINGS

if TYPE_CHECKING:
    from viewer.export.sheet import Sheet, Style
    from viewer.state.lesson_table import Row, Table

_ROW = 1.3  # height of a row, in ems
_SWATCH = 0.85  # side of a patch, in ems
_PATCH = 5.0  # width of the first column, in ems
_COLUMN = 5.4  # width of each other column, in ems, at most


@dataclass(frozen=True)
class TablePart:
    """A row for each key, and their sum.

    Attributes
    ----------
    table
        What to draw.
    style
        Colours and type.
    width
        In pixels at scale 1, at most.
    """

    table: Table
    style: Style
    width: int

    @property
    def height(self) -> int:
        """Height in pixels at scale 1."""
        return round((len(self.table.rows) + 2) * _ROW * self.style.em)

    def _right(self, column: int) -> float:
        """Return the right edge of a column, counted from 0."""
        em = self.style.em
        each = min(_COLUMN * em, (self.width - _PATCH * em) / len(self.table.columns))
        return _PATCH * em + each * (column + 1)

    def draw(self, sheet: Sheet, left: int, top: int) -> None:
        """Draw it with its upper left corner there."""
        em, faint, small = self.style.em, self.style.palette.faint, self.style.small
        y = top + _ROW * em / 2
        sheet.text(left, y, "patch", small, faint, v="center")
        for column, name in enumerate(self.table.columns):
            words = HEADINGS[name]
            sheet.text(left + self._right(column), y, words, small, faint, h="right", v="center")
        for row in self.table.rows:
            y += _ROW * em
            self._draw_row(sheet, left, y, row)
        if any(self.table.sums):
            y += _ROW * em
            sheet.text(left, y, "sum", small, faint, v="center")
            for column, text in enumerate(self.table.sums):
                right = left + self._right(column)
                sheet.text(right, y, text, self.style.points, h="right", v="center")

    def _draw_row(self, sheet: Sheet, left: int, y: float, row: Row) -> None:
        em, colours = self.style.em, self.style.palette
        ink = colours.accent if row.asks else colours.text if row.reached else colours.faint
        grey = f"#{bytes([round(255 * row.brightness)] * 3).hex()}"
        side = _SWATCH * em
        edge, thick = (colours.accent, 2.0) if row.asks else (colours.faint, 0.8)
        sheet.frame((left + 2, y - side / 2, side, side), edge, thick, fill=grey)
        points = self.style.points
        sheet.text(left + 1.3 * em, y, row.name, points, ink, row.asks, v="center")
        for column, text in enumerate(row.texts):
            sheet.text(left + self._right(column), y, text, points, ink, bold=row.asks, h="right", v="center")
