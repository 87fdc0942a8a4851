"""Before, after and difference, as a table: measures, classes, final features."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QTableWidget, QTableWidgetItem, QWidget

from viewer.state.before_after import class_rows, features, measure_rows

if TYPE_CHECKING:
    from viewer.state.display import Protocol
    from viewer.state.selection import HeadRef
    from viewer.state.what_if import WhatIfResult

_HEADINGS = ("", "before", "after", "difference")
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
        self.setAlternatingRowColors(True)
        self.verticalHeader().hide()
        self.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header = self.horizontalHeader()
        header.setHighlightSections(False)
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)

    def tell(self, result: WhatIfResult | None, head: HeadRef | None, protocol: Protocol) -> None:
        """Show a result for a head; see `measure_rows` for what `head` may be."""
        rows = [] if result is None else list(_rows(result, head, protocol))
        self.setRowCount(len(rows))
        for row, cells in enumerate(rows):
            for column, text in enumerate(cells):
                item = QTableWidgetItem(text)
                side = Qt.AlignmentFlag.AlignRight if column else Qt.AlignmentFlag.AlignLeft
                item.setTextAlignment(side | Qt.AlignmentFlag.AlignVCenter)
                item.setToolTip(_UNDEFINED if text == "–" else text if column == 0 else "")
                self.setItem(row, column, item)


def _rows(result: WhatIfResult, head: HeadRef | None, protocol: Protocol) -> list[tuple[str, ...]]:
    """Return the cells, best first: what became of the answer, then the attention."""
    alike = features(result.before, result.after)
    found = [(f"final features, cosine of before and after ({alike.of})", "", _number(alike.cosine), "")]
    found += [
        (f"{row.label} (probability)", *(f"{100 * share:.1f} %" for share in (row.before, row.after)), points)
        for row in class_rows(result.before, result.after)
        for points in [f"{100 * row.difference:+.1f}"]
    ]
    found += [
        (
            f"{row.words} ({row.unit})" if row.unit else row.words,
            _number(row.before),
            _number(row.after),
            _number(row.difference, "+"),
        )
        for row in measure_rows(result, head, protocol)
    ]
    return found


def _number(value: float, sign: str = "") -> str:
    """Write a number with four digits, small ones with four after the point."""
    if not math.isfinite(value):
        return "–"
    digits = max(0, 3 - max(0, math.floor(math.log10(abs(value))))) if abs(value) >= 1 else 4
    return f"{value:{sign}.{digits}f}"
