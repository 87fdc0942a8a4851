"""Before, after and difference, as a table: measures, classes, final features."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, get_args

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableWidget, QTableWidgetItem, QWidget

from viewer.state.before_after import class_rows, features, measure_rows
from viewer.state.display import Unit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from PySide6.QtGui import QResizeEvent

    from viewer.state.before_after import ClassRow
    from viewer.state.display import DisplayValue
    from viewer.state.selection import HeadRef
    from viewer.state.what_if import WhatIfResult

_HEADINGS = ("", "before", "after", "diff.")
_ROOMY = 44  # letters of width at which there is room for all columns
_SIDES = ("before", "after")
_UNDEFINED = "not defined"


class WhatIfTable(QTableWidget):
    """A row for each number; what is not defined is a dash, never a zero."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(0, len(_HEADINGS), parent)
        self.setHorizontalHeaderLabels(_HEADINGS)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        # Arrow keys move the query.
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setShowGrid(False)
        self.setWordWrap(False)
        # The unit stands at the end.
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.setAlternatingRowColors(True)
        self.verticalHeader().hide()
        self.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.horizontalHeaderItem(3).setToolTip("Difference: after minus before")
        header = self.horizontalHeader()
        header.setHighlightSections(False)
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Leave out the differences, which tool tips tell too, where names could not be read beside them."""
        super().resizeEvent(event)
        self.setColumnHidden(3, self.width() < _ROOMY * self.fontMetrics().averageCharWidth())

    def tell(self, result: WhatIfResult | None, head: HeadRef | None, display: DisplayValue) -> None:
        """Show a result for a head; see `measure_rows` for what `head` may be."""
        rows = [] if result is None else [*_rows(result, head, display)]
        self.setRowCount(len(rows))
        for row, cells in enumerate(rows):
            for column, text in enumerate(cells[: len(_HEADINGS)]):
                item = QTableWidgetItem(text)
                side = Qt.AlignmentFlag.AlignRight if column else Qt.AlignmentFlag.AlignLeft
                item.setTextAlignment(side | Qt.AlignmentFlag.AlignVCenter)
                told = f"{cells[-1]}, difference {cells[3]}" if cells[3] else cells[-1]
                item.setToolTip(_UNDEFINED if text == "–" else told)
                self.setItem(row, column, item)


def _rows(result: WhatIfResult, head: HeadRef | None, display: DisplayValue) -> Iterator[tuple[str, ...]]:
    """Yield cells, and each row in full: features, best class of either side, measures, other classes."""
    alike = features(result.before, result.after)
    of = f"Cosine of the final features before and after: {alike.of}"
    yield "final features, cosine", "", _number(alike.cosine), "", of
    classes = class_rows(result.before, result.after)
    best = {max(classes, key=lambda row: getattr(row, side)) for side in _SIDES} if classes else set()
    yield from (_class_cells(row) for row in classes if row in best)
    for row in measure_rows(result, head, display.protocol):
        if row.unit in get_args(Unit) and row.unit != display.unit:
            continue
        name = f"{row.words} ({row.unit})" if row.unit else row.words
        numbers = _number(row.before), _number(row.after), _number(row.difference, "+")
        yield name, *numbers, f"{name[0].upper()}{name[1:]}"
    yield from (_class_cells(row) for row in classes if row not in best)


def _class_cells(row: ClassRow) -> tuple[str, ...]:
    """Return the cells of a class, in per cent."""
    brief = row.label.partition(",")[0]
    shares = (f"{100 * getattr(row, side):.2f} %" for side in _SIDES)
    return f"P({brief})", *shares, f"{100 * row.difference:+.2f} %", f"Probability of {row.label}"


def _number(value: float, sign: str = "") -> str:
    """Write a number with four digits, small ones with four after the point."""
    if not math.isfinite(value):
        return "–"
    digits = max(0, 3 - max(0, math.floor(math.log10(abs(value))))) if abs(value) >= 1 else 4
    return f"{value:{sign}.{digits}f}"
