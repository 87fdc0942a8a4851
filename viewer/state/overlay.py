"""What the image panel shows: the picture as the model saw it, under the attention of the selected head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from viewer.state.attended import Attended
    from viewer.state.display import DisplayValue
    from viewer.state.documents import ImageDocument
    from viewer.state.selection import Query, SelectionValue


@dataclass(frozen=True, eq=False)
class Overlay:
    """The image panel, ready to paint; the window and the exports paint the very same.

    Attributes
    ----------
    seen
        uint8 (H, W, 3), the model's input.
    patch_px, grid
        Patch height and width in input pixels; rows and columns.
    values
        float32 (R, C), attention weight on each patch; None while no query is selected.
    vmin, vmax
        Ends of the colour scale, as weights.
    colormap, opacity, show_grid
        As in `DisplayValue`.
    prefix
        Name and weight of each prefix token for this query.
    query, pins
        What to outline; a prefix token has no outline.
    ring
        (top, left, bottom, right) in patches, ends exclusive, of what `DisplayValue.ring` stacked 3x3
        convolutions could reach from the query; None for none.
    title
        "Layer 3, head 2: what patch (4, 5) attends to".
    label
        Of the colour bar: "attention weight".
    """

    seen: npt.NDArray[np.uint8]
    patch_px: tuple[float, float]
    grid: tuple[int, int]
    values: npt.NDArray[np.float32] | None
    vmin: float
    vmax: float
    colormap: str
    opacity: float
    show_grid: bool
    prefix: tuple[tuple[str, float], ...]
    query: Query | None
    pins: tuple[Query, ...]
    ring: tuple[int, int, int, int] | None
    title: str
    label: str


def overlay(
    document: ImageDocument, found: Attended | None, selection: SelectionValue, display: DisplayValue
) -> Overlay | None:
    """Describe the image panel; None while the document has no record."""
    raise NotImplementedError
