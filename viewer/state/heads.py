"""What the heads panel shows: one small map for every layer and head, for the selected query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from viewer.state.places import map_grid, why_blank
from viewer.state.scale import limits
from viewer.state.words import asked_words, bar_words

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.layer import AttentionLayer
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
        float32 (layers, most heads, R, C), attention weights; NaN where a patch is out of reach, and where a
        layer has fewer heads or no map; None while no query is selected.
    blank
        For each layer why it has no map, as a clause; empty where it has one.
    hatched
        Whether some layer has patches out of reach of some query: then hatching is explained.
    vmax
        float32 (layers, most heads), upper end of the colour scale of each cell (all equal where the scale is
        shared); the lower end is 0.
    heads
        Number of heads of each layer.
    layer_names, layer_grids
        Of each layer: its name, and where layers differ its own queries and keys in words (else empty).
    grid
        Rows and columns of every map.
    colormap
        As in `DisplayValue`.
    shown
        The head whose overlay is shown (head None: the whole layer).
    title, label
        As in `Overlay`.
    scale_label
        Which colour scale it is: "one scale for all heads", or "each head its own scale".
    shared
        Whether that is one scale for all heads.
    largest
        The largest weight on any patch of any head; 0 while no query is selected.
    """

    maps: npt.NDArray[np.float32] | None
    blank: tuple[str, ...]
    hatched: bool
    vmax: npt.NDArray[np.float32]
    heads: tuple[int, ...]
    layer_names: tuple[str, ...]
    layer_grids: tuple[str, ...]
    grid: tuple[int, int]
    colormap: str
    shown: HeadRef
    title: str
    label: str
    scale_label: str
    shared: bool
    largest: float


def heads(
    document: ImageDocument, found: Attended | None, selection: SelectionValue, display: DisplayValue
) -> Heads | None:
    """Describe the heads panel; None while the document has no record."""
    record = document.record
    if record is None:
        return None
    counts = tuple(layer.heads for layer in record.layers)
    shared = display.scale == "shared"
    query, grid = selection.query, None if record.one_grid else record.grid
    return Heads(
        maps=None if found is None else found.maps,
        blank=tuple(why_blank(layer, query, selection.direction) for layer in record.layers)
        if found is None
        else found.blank,
        hatched=any(layer.limited for layer in record.layers),
        vmax=np.ones((len(counts), max(counts)), np.float32)
        if found is None
        else limits(found, display.scale),
        heads=counts,
        layer_names=tuple(layer.name for layer in record.layers),
        layer_grids=tuple("" if record.one_grid else _grids(layer) for layer in record.layers),
        grid=map_grid(record),
        colormap=display.colormap,
        shown=selection.shown,
        title="Every head"
        if query is None or found is None
        else f"Every head: {asked_words(query, selection.direction, grid=grid)}",
        label="attention weight" if query is None else bar_words(query, selection.direction, grid),
        scale_label="one scale for all heads" if shared else "each head its own scale",
        shared=shared,
        largest=0.0 if found is None else float(np.fmax.reduce(found.peaks, axis=None)),
    )


def _grids(layer: AttentionLayer) -> str:
    queries, keys = (
        f"{rows} × {columns}" if rows else "without places"
        for rows, columns in (layer.query_layout.grid, layer.key_layout.grid)
    )
    return queries if queries == keys else f"queries {queries}, keys {keys}"
