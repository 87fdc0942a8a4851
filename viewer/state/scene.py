"""Everything the views show at one moment, computed once from documents, selection and display settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psygnal import Signal

if TYPE_CHECKING:
    from viewer.state.attended import Attended
    from viewer.state.display import Display, DisplayValue
    from viewer.state.documents import Documents, ImageDocument
    from viewer.state.heads import Heads
    from viewer.state.overlay import Overlay
    from viewer.state.scatter import Scatter
    from viewer.state.selection import Selection, SelectionValue


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
    readout: str = ""


def compose(document: ImageDocument | None, selection: SelectionValue, display: DisplayValue) -> SceneValue:
    """Compute the views of one document; what the window, `render` and every export draw."""
    raise NotImplementedError


class Scene:
    """The observable moment. `changed` carries a `SceneValue` after every change of what it is made from.

    Attention of a query is computed again only when document, query or direction changed.
    """

    changed = Signal(object)

    def __init__(self, documents: Documents, selection: Selection, display: Display) -> None:
        raise NotImplementedError

    @property
    def value(self) -> SceneValue:
        """What is shown now."""
        raise NotImplementedError
