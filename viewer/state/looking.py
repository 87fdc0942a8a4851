"""Keeps something in sight: a first query for a first picture, the last one when the mouse leaves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from viewer.state.documents import is_same
from viewer.state.selection import HeadRef, fitted

if TYPE_CHECKING:
    from viewer.attention.record import AttentionRecord
    from viewer.state.documents import Documents, ImageDocument
    from viewer.state.selection import Query, Selection, SelectionValue


@dataclass(frozen=True)
class Wish:
    """A selection that is to be taken once the picture of that path has a record."""

    path: str
    selection: SelectionValue


class Looking:
    """Sees to it that a picture with a record always has a query, so that no panel is ever blank.

    Where nothing was selected before, it takes the middle of the picture and the layer half way through. When
    the mouse leaves the picture the last query stays: it may be on its way to that query's heads.
    """

    def __init__(self, documents: Documents, selection: Selection) -> None:
        self._documents, self._selection = documents, selection
        self._last: Query | None = None
        self._wish: Wish | None = None
        documents.current_changed.connect(self._begin)
        selection.changed.connect(self._keep)

    def wish(self, path: str, selection: SelectionValue) -> None:
        """Take a selection as soon as that picture's record is there."""
        self._wish = Wish(path, selection)

    def _begin(self, document: ImageDocument | None) -> None:
        if document is None or document.record is None:
            return
        value = self._selection.value
        path = document.image.path
        if self._wish is not None and path is not None and is_same(path, self._wish.path):
            value, self._wish = fitted(self._wish.selection, document.record), None
        if value.query is None:
            head = HeadRef(_half_way(document.record), None) if value.head == HeadRef(0, None) else value.head
            value = replace(value, hovered=_middle(document.record), head=head)
        self._selection.set(value)

    def _keep(self, value: SelectionValue) -> None:
        document = self._documents.current
        if value.query is not None:
            self._last = value.query
        elif document is not None and document.record is not None:
            kept = fitted(replace(value, hovered=self._last), document.record)
            self._selection.hover(kept.query or _middle(document.record))


def _half_way(record: AttentionRecord) -> int:
    """Return the layer half way through, or the next with a map; of patches that attend, if there is one."""
    middle = len(record.layers) // 2
    ordered = [*record.layers[middle:], *reversed(record.layers[:middle])]
    placed = [layer for layer in ordered if layer.key_layout.placed]
    return next((layer.index for layer in placed if layer.kind == "self"), (placed or ordered)[0].index)


def _middle(record: AttentionRecord) -> Query | None:
    rows, columns = record.grid
    return (rows // 2, columns // 2) if rows and columns else None
