"""Steps from one selection to the next, as keys and menus make them; each stays inside the record."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from viewer.state.selection import HeadRef

if TYPE_CHECKING:
    from viewer.attention.record import AttentionRecord
    from viewer.state.selection import Query, SelectionValue


def move_query(value: SelectionValue, record: AttentionRecord, down: int, right: int) -> SelectionValue:
    """Move the query by patches; from a prefix token or from nowhere it comes to the middle of the picture."""
    rows, columns = record.grid
    if rows == 0 or columns == 0:
        return value
    if isinstance(value.query, tuple):
        row, column = value.query[0] + down, value.query[1] + right
    else:
        row, column = rows // 2, columns // 2
    return ask(value, (min(max(row, 0), rows - 1), min(max(column, 0), columns - 1)))


def ask(value: SelectionValue, query: Query) -> SelectionValue:
    """Make something the query: the active pin moves there if there is one."""
    if value.pins:
        return replace(value, pins=(*value.pins[:-1], query))
    return replace(value, hovered=query)


def pin(value: SelectionValue) -> SelectionValue:
    """Pin the query where it is; a query that is pinned already is let go."""
    if value.pins:
        return unpin(value)
    return replace(value, pins=(value.hovered,)) if value.hovered is not None else value


def unpin(value: SelectionValue) -> SelectionValue:
    """Let the active pin go; the one before it becomes active, or the query stays where the pin was."""
    if not value.pins:
        return value
    return replace(value, pins=value.pins[:-1], hovered=value.pins[-1])


def step_layer(value: SelectionValue, record: AttentionRecord, by: int) -> SelectionValue:
    """Go some layers deeper, or back."""
    layer = min(max(value.shown.layer + by, 0), len(record.layers) - 1)
    return choose(value, record, HeadRef(layer, value.shown.head))


def step_head(value: SelectionValue, record: AttentionRecord, by: int) -> SelectionValue:
    """Go some heads on; before the first head come all heads together."""
    layer, head = value.shown
    place = (-1 if head is None else head) + by
    last = record.layers[layer].heads - 1
    return choose(value, record, HeadRef(layer, None if place < 0 else min(place, last)))


def choose(value: SelectionValue, record: AttentionRecord, shown: HeadRef) -> SelectionValue:
    """Select a head; a layer with fewer heads shows its last one."""
    head = shown.head if shown.head is None else min(shown.head, record.layers[shown.layer].heads - 1)
    return replace(value, head=HeadRef(shown.layer, head), hovered_head=None)


def fitted(value: SelectionValue, record: AttentionRecord) -> SelectionValue:
    """Return the selection without what another record does not have: queries off its grid, layers too deep."""
    layer = min(value.head.layer, len(record.layers) - 1)
    hovered = value.hovered if _has(record, value.hovered) else None
    pins = tuple(query for query in value.pins if _has(record, query))
    return choose(replace(value, hovered=hovered, pins=pins), record, HeadRef(layer, value.head.head))


def _has(record: AttentionRecord, query: Query | None) -> bool:
    if isinstance(query, tuple):
        return 0 <= query[0] < record.grid[0] and 0 <= query[1] < record.grid[1]
    return query in record.layout.prefix_names
