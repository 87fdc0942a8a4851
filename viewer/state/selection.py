"""The one selection that every view follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from psygnal import Signal

Query = tuple[int, int] | str
"""A patch as (row, column) of the record's patch grid, or a prefix token by name."""

Fusion = Literal["mean", "max", "min"]
Direction = Literal["from", "to"]


class HeadRef(NamedTuple):
    """A layer and one of its heads; head None is all heads of the layer, fused."""

    layer: int
    head: int | None


@dataclass(frozen=True)
class SelectionValue:
    """What is selected; what the views paint is `query` and `shown`.

    Attributes
    ----------
    hovered
        Query under the mouse (or moved by arrow keys), None when it is nowhere.
    pins
        Pinned queries; the last is the active one.
    head
        Selected layer and head.
    hovered_head
        Head under the mouse in the heads panel or the scatter; looks, does not select.
    fusion
        How heads are fused where `head.head` is None.
    direction
        "from": what the query attends to. "to": which patches attend to it (a column of the matrix).
    """

    hovered: Query | None = None
    pins: tuple[Query, ...] = ()
    head: HeadRef = HeadRef(0, None)
    hovered_head: HeadRef | None = None
    fusion: Fusion = "mean"
    direction: Direction = "from"

    @property
    def query(self) -> Query | None:
        """The query that views show: the active pin, else what is hovered."""
        return self.pins[-1] if self.pins else self.hovered

    @property
    def shown(self) -> HeadRef:
        """The head that views show: what is hovered, else what is selected."""
        return self.hovered_head or self.head


class Selection:
    """The observable selection. `changed` carries the new value and speaks only when it differs."""

    changed = Signal(SelectionValue)

    def __init__(self) -> None:
        self._value = SelectionValue()

    @property
    def value(self) -> SelectionValue:
        """What is selected now."""
        return self._value

    def set(self, value: SelectionValue) -> None:
        """Select, and tell every view if anything differs."""
        if value != self._value:
            self._value = value
            self.changed.emit(value)
