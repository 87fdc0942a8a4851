"""What the heads panel shows: one small map for every layer and head, for the selected query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from viewer.state.attended import Attended
    from viewer.state.display import DisplayValue
    from viewer.state.documents import ImageDocument
    from viewer.state.selection import HeadRef, SelectionValue


@dataclass(frozen=True, eq=False)
class Heads:
    """The heads panel, ready to paint.

    Attributes
    ----------
    maps
        float32 (layers, most heads, R, C), attention weights; NaN where a layer has fewer heads; None while
        no query is selected.
    vmax
        float32 (layers, most heads), upper end of the colour scale of each cell (all equal where the scale is
        shared); the lower end is 0.
    heads
        Number of heads of each layer.
    layer_names
        Of each layer.
    colormap
        As in `DisplayValue`.
    shown
        The head whose overlay is shown (head None: the whole layer).
    title, label
        As in `Overlay`.
    """

    maps: npt.NDArray[np.float32] | None
    vmax: npt.NDArray[np.float32]
    heads: tuple[int, ...]
    layer_names: tuple[str, ...]
    colormap: str
    shown: HeadRef
    title: str
    label: str


def heads(
    document: ImageDocument, found: Attended | None, selection: SelectionValue, display: DisplayValue
) -> Heads | None:
    """Describe the heads panel; None while the document has no record."""
    raise NotImplementedError
