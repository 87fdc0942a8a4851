"""Everything the views show at one moment, computed once from documents, selection and display settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from psygnal import Signal

from viewer.state.attended import attended
from viewer.state.heads import heads
from viewer.state.likeness import likeness
from viewer.state.overlay import overlay
from viewer.state.readout import readout
from viewer.state.scatter import scatter
from viewer.state.selection import fitted
from viewer.state.words import source_words, titled

if TYPE_CHECKING:
    from viewer.state.attended import Attended
    from viewer.state.display import Display, DisplayValue
    from viewer.state.documents import Documents, ImageDocument
    from viewer.state.heads import Heads
    from viewer.state.likeness import Likeness
    from viewer.state.overlay import Overlay
    from viewer.state.scatter import Scatter
    from viewer.state.selection import Selection, SelectionValue
    from viewer.state.what_if import WhatIf

_View = TypeVar("_View", "Overlay", "Heads | None", "Scatter | None", "Likeness | None")


@dataclass(frozen=True, eq=False)
class SceneValue:
    """One moment: what each view paints, and what it was made from."""

    document: ImageDocument | None = None
    selection: SelectionValue | None = None
    display: DisplayValue | None = None
    attended: Attended | None = None
    overlay: Overlay | None = None
    heads: Heads | None = None
    scatter: Scatter | None = None
    likeness: Likeness | None = None
    readout: str = ""

    @property
    def source(self) -> str:
        """What is shown is of which picture and model; empty while there is no record."""
        if self.document is None or self.document.record is None:
            return ""
        return source_words(self.document.record, self.document.image.name)


def compose(
    document: ImageDocument | None,
    selection: SelectionValue,
    display: DisplayValue,
    before: SceneValue | None = None,
) -> SceneValue:
    """Compute the views of one document; what the window, `render` and every export draw.

    Parameters
    ----------
    document
        May lack a record or measures; the views that need them are then None.
    selection
        What of it the record does not have is left out (see `viewer.state.selection.fitted`).
    display
        Settings.
    before
        An earlier moment, of which is kept what still holds.
    """
    if document is None or document.record is None:
        return SceneValue(document, selection, display)
    selection = fitted(selection, document.record)
    found = _attended(document, selection, before)
    parts = (document, found, selection, display)
    shown = overlay(*parts)
    return SceneValue(
        document=document,
        selection=selection,
        display=display,
        attended=found,
        overlay=_titled(document, shown),
        heads=_titled(document, heads(*parts)),
        scatter=_titled(document, scatter(*parts)),
        likeness=_titled(document, likeness(document, selection, display)),
        readout=titled(document.record, readout(*parts, shown.words)),
    )


def _titled(document: ImageDocument, view: _View) -> _View:
    """Mark the title of a view that shows a changed model."""
    return view if view is None else replace(view, title=titled(document.record, view.title))


def _attended(
    document: ImageDocument, selection: SelectionValue, before: SceneValue | None
) -> Attended | None:
    """Return the attention of the query, computed only where the earlier moment does not hold it."""
    query, direction = selection.query, selection.direction
    if query is None:
        return None
    old = None if before is None else before.attended
    if (
        old is not None
        and before.document is not None
        and before.document.record is document.record
        and (old.query, old.direction) == (query, direction)
    ):
        return old
    return attended(document, query, direction)


class Scene:
    """The observable moment. `changed` carries a `SceneValue` after every change of what it is made from.

    Attention of a query is computed again only when document, query or direction changed. A new record makes
    the selection drop what it does not have. A what-if that has a result may have the changed model shown.
    """

    changed = Signal(object)

    def __init__(
        self, documents: Documents, selection: Selection, display: Display, what_if: WhatIf | None = None
    ) -> None:
        self._documents, self._what_if = documents, what_if
        self._selection = selection
        self._display = display
        self._value = SceneValue()
        documents.current_changed.connect(self._take_document)
        if what_if is not None:
            what_if.changed.connect(self._compose)
        selection.changed.connect(self._compose)
        display.changed.connect(self._compose)
        self._take_document()

    @property
    def value(self) -> SceneValue:
        """What is shown now."""
        return self._value

    def _take_document(self) -> None:
        document = self._documents.current
        if document is not None and document.record is not None:
            before = self._selection.value
            self._selection.fit(document.record)
            if self._selection.value != before:
                return  # the selection spoke, and the moment was composed with it
        self._compose()

    def _compose(self) -> None:
        document = self._documents.current
        if self._what_if is not None:
            document = self._what_if.document(document)
        self._value = compose(document, self._selection.value, self._display.value, self._value)
        self.changed.emit(self._value)
