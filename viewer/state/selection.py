"""The one selection that every view follows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from psygnal import Signal

if TYPE_CHECKING:
    from viewer.attention.record import AttentionRecord

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
    head: HeadRef = HeadRef(0, None)  # noqa: RUF009 - a tuple, and so immutable
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


def fitted(value: SelectionValue, record: AttentionRecord) -> SelectionValue:
    """Return the selection without what a record does not have.

    Queries outside the patch grid, prefix tokens of another model and heads that a layer lacks are dropped
    (a patch of another grid would be another place); a layer too far on becomes the last one.
    """

    def known(query: Query | None) -> bool:
        if isinstance(query, tuple):
            return 0 <= query[0] < record.grid[0] and 0 <= query[1] < record.grid[1]
        return query in record.prefix_names

    def there(head: HeadRef) -> HeadRef:
        layer = min(max(head.layer, 0), len(record.layers) - 1)
        lacking = head.head is not None and not 0 <= head.head < record.layers[layer].heads
        return HeadRef(layer, None if lacking else head.head)

    hovered_head = value.hovered_head
    if hovered_head is not None and there(hovered_head) != hovered_head:
        hovered_head = None
    return replace(
        value,
        hovered=value.hovered if known(value.hovered) else None,
        pins=tuple(pin for pin in value.pins if known(pin)),
        head=there(value.head),
        hovered_head=hovered_head,
    )


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

    def hover(self, query: Query | None) -> None:
        """Look at a query, or at none."""
        self.set(replace(self._value, hovered=query))

    def pin(self, query: Query) -> None:
        """Keep one query in sight, in place of all pinned before."""
        self.set(replace(self._value, pins=(query,)))

    def add_pin(self, query: Query) -> None:
        """Pin one more query and make it the active one; one pinned before only becomes active."""
        others = tuple(pin for pin in self._value.pins if pin != query)
        self.set(replace(self._value, pins=(*others, query)))

    def unpin(self, query: Query | None = None) -> None:
        """Take away one pin, by default the active one; the one pinned before it becomes active."""
        pins = self._value.pins
        gone = pins[-1] if query is None and pins else query
        self.set(replace(self._value, pins=tuple(pin for pin in pins if pin != gone)))

    def hover_head(self, head: HeadRef | None) -> None:
        """Look at a head without selecting it, or back at the selected one."""
        self.set(replace(self._value, hovered_head=head))

    def select_head(self, head: HeadRef) -> None:
        """Select a head, or with head None a whole layer."""
        self.set(replace(self._value, head=head))

    def set_fusion(self, fusion: Fusion) -> None:
        """Choose how the heads of a layer become one map."""
        self.set(replace(self._value, fusion=fusion))

    def set_direction(self, direction: Direction) -> None:
        """Choose between what the query attends to and which patches attend to it."""
        self.set(replace(self._value, direction=direction))

    def move_query(self, there: Query) -> None:
        """Move the query; a pinned one moves with its pin."""
        if self._value.pins:
            rest = tuple(pin for pin in self._value.pins[:-1] if pin != there)
            self.set(replace(self._value, pins=(*rest, there)))
        else:
            self.hover(there)

    def step_layer(self, step: int, layers: int) -> None:
        """Select the same head some layers on, stopping at the first and the last layer."""
        now = self._value.shown
        layer = min(max(now.layer + step, 0), layers - 1)
        self._step_to(HeadRef(layer, now.head))

    def step_head(self, step: int, heads: int) -> None:
        """Select the next head of the layer, going round: all heads fused, head 0, head 1, ..."""
        now = self._value.shown
        place = 0 if now.head is None else now.head + 1
        place = (place + step) % (heads + 1)
        self._step_to(HeadRef(now.layer, None if place == 0 else place - 1))

    def _step_to(self, head: HeadRef) -> None:
        # A mouse resting on a head would otherwise hide what the key selects.
        self.set(replace(self._value, head=head, hovered_head=None))

    def fit(self, record: AttentionRecord) -> None:
        """Drop what a new record does not have; see `fitted`."""
        self.set(fitted(self._value, record))
