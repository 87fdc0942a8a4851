"""What the keys do to the selection: steps from patch to patch, layer to layer, head to head."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from viewer.state.places import asked_layout, stepped

if TYPE_CHECKING:
    from viewer.attention.record import AttentionRecord
    from viewer.state.documents import Documents
    from viewer.state.selection import Query, Selection


class Steps:
    """Moves the selection within the record on the screen; without one it does nothing."""

    def __init__(self, documents: Documents, selection: Selection) -> None:
        self._documents, self._selection = documents, selection

    @property
    def _record(self) -> AttentionRecord | None:
        document = self._documents.current
        return document.record if document else None

    def query(self, down: int, right: int) -> None:
        """Move the query by patches of the shown layer."""
        record, value = self._record, self._selection.value
        if record is not None and record.layout.placed:
            layer = record.layers[value.shown.layer]
            layout = asked_layout(record, layer, value.direction)
            self._selection.move_query(stepped(layout, record.layout, value.query, down, right))

    def layer(self, by: int) -> None:
        """Go some layers deeper, or back."""
        if self._record is not None:
            self._selection.step_layer(by, len(self._record.layers))
            # A layer may have fewer heads than the one before it.
            self._selection.fit(self._record)

    def head(self, by: int) -> None:
        """Go to the next head, or the one before."""
        if self._record is not None:
            layer = self._selection.value.shown.layer
            self._selection.step_head(by, self._record.layers[layer].heads)

    def ask(self, query: Query) -> None:
        """Make something the query, also where another one is pinned."""
        value = self._selection.value
        if value.pins:
            self._selection.set(replace(value, pins=(*value.pins[:-1], query)))
        else:
            self._selection.hover(query)

    def pin(self) -> None:
        """Pin the query where it is, or let it go."""
        value = self._selection.value
        if value.pins:
            self.unpin()
        elif value.hovered is not None:
            self._selection.pin(value.hovered)

    def unpin(self) -> None:
        """Let the active pin go; the query stays where it was until the mouse says another."""
        value = self._selection.value
        if value.pins:
            self._selection.set(replace(value, pins=value.pins[:-1], hovered=value.pins[-1]))
