"""What the image panel shows: the picture as the model saw it, under the attention of the selected head."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from viewer.state.colormaps import rgba
from viewer.state.places import (
    UNREACHABLE,
    answering_layout,
    asked_layout,
    patch_of,
    query_of,
    why_blank,
)
from viewer.state.scale import limits
from viewer.state.words import (
    asked_words,
    bar_words,
    grid_words,
    head_words,
    pixels_words,
    pooling_words,
    size_words,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from viewer.attention.layer import AttentionLayer
    from viewer.attention.layout import TokenLayout
    from viewer.attention.record import AttentionRecord
    from viewer.state.attended import Attended
    from viewer.state.display import DisplayValue
    from viewer.state.documents import ImageDocument
    from viewer.state.selection import Direction, Fusion, HeadRef, Query, SelectionValue


@dataclass(frozen=True, eq=False)
class Overlay:
    """The image panel, ready to paint; the window and the exports paint the very same.

    Attributes
    ----------
    seen
        uint8 (H, W, 3), the model's input.
    places, asked, answers
        Layouts of patches: the record's, on which `query` and `pins` are named; that of the shown layer which
        is pointed at and outlined (its queries, or its keys where the views show who attends); and that of
        `values`.
    values
        float32 (rows and columns of `answers`), attention weight on each patch, NaN where it is out of the
        query's reach; None while there is no map.
    blank
        Why the layer has no map, as a clause; empty where it has one, or would have for some query.
    vmin, vmax
        Ends of the colour scale, as weights; what is above `vmax` has its colour.
    largest
        The largest weight on any patch that the scale stands for: of every head where it is shared.
    colormap, opacity, fade, show_grid
        As in `DisplayValue`.
    prefix
        Name and weight of each prefix token for this query; the weight is NaN while no query is selected.
    query, pins
        What to outline; a prefix token has no outline.
    ring
        (top, left, bottom, right) in patches of `asked`, ends exclusive, of what `DisplayValue.ring` stacked
        3x3 convolutions could reach from the query; None for none.
    title
        "Layer 3, head 2: what patch (row 4, column 5) attends to".
    label
        Of the colour bar: "attention weight".
    scale_label
        Which colour scale it is: "one scale for all heads", "this head's own scale".
    whole
        uint8 (H, W, 3), the picture the model's input was made from.
    box
        (left, top, right, bottom) of `seen` in pixels of `whole`, may reach outside it; None if unknown.
    caption
        One line: the model's input against the whole picture, and what the ring is.
    """

    seen: npt.NDArray[np.uint8]
    places: TokenLayout
    asked: TokenLayout
    answers: TokenLayout
    values: npt.NDArray[np.float32] | None
    blank: str
    vmin: float
    vmax: float
    largest: float
    colormap: str
    opacity: float
    fade: bool
    show_grid: bool
    prefix: tuple[tuple[str, float], ...]
    query: Query | None
    pins: tuple[Query, ...]
    ring: tuple[int, int, int, int] | None
    title: str
    label: str
    scale_label: str
    whole: npt.NDArray[np.uint8]
    box: tuple[float, float, float, float] | None
    caption: str

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of `asked`."""
        return self.asked.grid

    @cached_property
    def unreachable(self) -> npt.NDArray[np.bool_] | None:
        """Where `values` are out of reach; None where nothing is."""
        if self.values is None:
            return None
        found = np.isnan(self.values)
        return found if found.any() else None

    def patch(self, query: Query | None) -> tuple[int, int] | None:
        """Return the patch of `asked` that a query lies on; None for a prefix token."""
        return patch_of(self.asked, self.places, query) if isinstance(query, tuple) else None

    def query_at(self, y: float, x: float, among: Iterable[Query | None] = ()) -> tuple[int, int] | None:
        """Return the query for the shown layer's patch at a point in input pixels; None without patches.

        It is the first of `among` that lies on the same patch, where there is one.
        """
        if not self.asked.placed:
            return None
        return query_of(self.asked, self.places, self.asked.patch_at(y, x), among)

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """(left, top, right, bottom) in pixels of `whole`, with all of `whole` and of `box` in it."""
        height, width = self.whole.shape[:2]
        left, top, right, bottom = self.box or (0.0, 0.0, width, height)
        return min(left, 0.0), min(top, 0.0), max(right, float(width)), max(bottom, float(height))


def overlay(
    document: ImageDocument, found: Attended | None, selection: SelectionValue, display: DisplayValue
) -> Overlay | None:
    """Describe the image panel; None while the document has no record."""
    record = document.record
    if record is None:
        return None
    layer = record.layers[selection.shown.layer]
    asked, shown = asked_layout(record, layer, selection.direction), _map(record, found, selection, display)
    query = selection.query
    patch = patch_of(asked, record.layout, query) if isinstance(query, tuple) else query
    grid = None if record.one_grid else asked.grid
    return Overlay(
        seen=_seen(document, record),
        places=record.layout,
        asked=asked,
        answers=shown.answers,
        values=shown.values,
        blank=_blank(layer, found, selection),
        vmin=0.0,
        vmax=shown.vmax,
        largest=shown.largest,
        colormap=display.colormap,
        opacity=display.opacity,
        fade=display.fade,
        show_grid=display.grid,
        prefix=_prefix(record, found, selection),
        query=query,
        pins=selection.pins,
        ring=_ring(patch, display.ring, asked.grid),
        title=title(record, found, selection),
        label="attention weight" if patch is None else bar_words(patch, selection.direction, grid),
        scale_label=_scale_words(selection.shown, display),
        whole=document.image.pixels,
        box=record.box,
        caption=_caption(
            document,
            record,
            _grids(asked, shown.answers, selection.direction),
            display.ring if isinstance(patch, tuple) else 0,
            shown.values is not None and bool(np.isnan(shown.values).any()),
        ),
    )


class _Map(NamedTuple):
    values: npt.NDArray[np.float32] | None
    answers: TokenLayout
    vmax: float
    largest: float


def _map(
    record: AttentionRecord, found: Attended | None, selection: SelectionValue, display: DisplayValue
) -> _Map:
    """Return the shown head's map on its own grid, with its colour scale; fields as in `Overlay`."""
    shown = selection.shown
    if found is None or found.blank[shown.layer]:
        return _Map(None, record.layout, 1.0, 0.0)
    values = fused(found.maps_of(record, shown.layer), shown, selection.fusion)
    largest = float(np.fmax.reduce(found.peaks if display.scale == "shared" else values, axis=None))
    answers = answering_layout(record.layers[shown.layer], selection.direction)
    return _Map(values, answers, _end(found, values, shown, display), largest)


def _prefix(
    record: AttentionRecord, found: Attended | None, selection: SelectionValue
) -> tuple[tuple[str, float], ...]:
    shown, names = selection.shown, record.prefix_names
    if found is None:
        return tuple((name, float("nan")) for name in names)
    heads = found.prefix[shown.layer, : record.layers[shown.layer].heads]
    return tuple(zip(names, fused(heads, shown, selection.fusion).tolist(), strict=True))


def overlay_colours(shown: Overlay, values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Return what is painted over the picture, uint8 (R, C, 4), not premultiplied; NaN is transparent.

    With `fade`, opacity falls with the square root of the weight as a share of the strongest patch: so the
    pattern of a diffuse head is seen too, while its colours still say on the common scale how weak it is.
    """
    colours = rgba(values, shown.vmax, shown.colormap)
    weights = np.nan_to_num(values)
    share = np.sqrt(weights / (weights.max() or 1.0)) if shown.fade else 1.0
    colours[..., 3] = np.round(colours[..., 3] * (shown.opacity * share))
    return colours


def fused(heads: npt.NDArray[np.float32], shown: HeadRef, fusion: Fusion) -> npt.NDArray[np.float32]:
    """Return one head's array, or all heads of the layer fused; NaN stays NaN, all heads reach the same keys.

    Parameters
    ----------
    heads
        float32 (heads of the layer, ...).
    """
    return getattr(heads, fusion)(axis=0) if shown.head is None else heads[shown.head]


def title(record: AttentionRecord, found: Attended | None, selection: SelectionValue) -> str:
    """Say which map is shown, or what to do to see one."""
    words = head_words(record, selection.shown, selection.fusion)
    layer = record.layers[selection.shown.layer]
    blank = _blank(layer, found, selection)
    if blank:
        return f"{words}: no map, {blank}"
    if selection.query is None:
        return f"{words}: point at a patch to see what it attends to"
    if found is None:
        return f"{words}: which patches attend to the query is known once all heads are measured"
    return f"{words}: {asked_in(record, layer, selection.query, selection.direction)}"


def _blank(layer: AttentionLayer, found: Attended | None, selection: SelectionValue) -> str:
    if found is None:
        return why_blank(layer, selection.query, selection.direction)
    return found.blank[layer.index]


def asked_in(record: AttentionRecord, layer: AttentionLayer, query: Query, direction: Direction) -> str:
    """Say what a layer's map answers; a patch is the layer's own, its grid named where there are several."""
    asked = asked_layout(record, layer, direction)
    patch = patch_of(asked, record.layout, query) if isinstance(query, tuple) else query
    if layer.kind == "pool" and layer.scores.queries == 1 and direction == "from":
        return pooling_words(layer)
    return asked_words(patch, direction, None if record.one_grid else asked.grid)


def _end(found: Attended, values: npt.NDArray[np.float32], shown: HeadRef, display: DisplayValue) -> float:
    """Return the upper end of the overlay's colour scale, the heads panel's own for the same head."""
    if shown.head is not None or display.scale == "shared":
        # By way of its shortest text, so that 0.08 in float32 does not become 0.0799999982.
        return float(str(limits(found, display.scale)[shown.layer, shown.head or 0]))
    peak = float(np.fmax.reduce(values, axis=None))
    return peak if peak > 0 else 1.0


def _scale_words(shown: HeadRef, display: DisplayValue) -> str:
    if display.scale == "shared":
        return "one scale for all heads"
    return "this map's own scale" if shown.head is None else "this head's own scale"


def _seen(document: ImageDocument, record: AttentionRecord) -> npt.NDArray[np.uint8]:
    """Return the model's input; grey where a preprocessed tensor was given and no picture is known."""
    if record.seen is not None:
        return record.seen
    return np.full((*record.input_size, 3), 128, np.uint8)


def _grids(asked: TokenLayout, answers: TokenLayout, direction: Direction) -> str:
    """Say the patches of the shown layer; those of queries and keys, where they differ."""
    if not asked.placed:
        return "no patches"
    # Where strided windows overlap, patches do not tile the picture, and a border stays bare.
    around = "" if _tiles(asked) and _tiles(answers) else ", each around the centre of what it sees"
    if asked.same_patches(answers):
        return f"{grid_words(asked.grid)} of patches{around}, counted from 0"
    queries, keys = (asked, answers) if direction == "from" else (answers, asked)
    return f"queries {grid_words(queries.grid)}, keys {grid_words(keys.grid)}{around}, counted from 0"


def _tiles(layout: TokenLayout) -> bool:
    """Return whether the first patch begins at the corner of the picture."""
    return all(
        abs(origin - step / 2) < 0.05 * step
        for origin, step in zip(layout.origin, layout.patch_px, strict=True)
    )


def _caption(
    document: ImageDocument,
    record: AttentionRecord,
    grids: str,
    hops: int,
    hatched: bool,
) -> str:
    words = f"Model input {size_words(record.input_size)}"
    if record.box is not None:
        # The order of height and width is said once, of the picture.
        source = _source_words(record.box, document.image.pixels.shape[:2], record.input_size)
        words = f"Model input {pixels_words(record.input_size)}, {source}"
    words += f"; {grids}"
    if hops > 0:
        reach = "a 3x3 convolution reaches" if hops == 1 else f"{hops} stacked 3x3 convolutions reach"
        words += f"; dashed: what {reach}"
    # First what can't be understood without: in a small window the end may be cut off.
    return f"Hatched: {UNREACHABLE}. {words}" if hatched else words


def _source_words(
    box: tuple[float, float, float, float], whole: tuple[int, int], into: tuple[int, int]
) -> str:
    """Say which part of the picture the model saw, and whether grey was put around it."""
    left, top, right, bottom = box
    seen = (min(bottom, whole[0]) - max(top, 0), min(right, whole[1]) - max(left, 0))
    cut = seen[0] < whole[0] - 0.5 or seen[1] < whole[1] - 0.5
    words = f"from {pixels_words(seen) if cut else 'the whole'} of the {pixels_words(whole)} picture"
    if whole[0] != whole[1] or into[0] != into[1]:
        words += " (height × width)"
    if left < -0.5 or top < -0.5 or right > whole[1] + 0.5 or bottom > whole[0] + 0.5:
        words += f", padded{' to a square' if into[0] == into[1] else ''}"
    return words


def _ring(patch: Query | None, hops: int, grid: tuple[int, int]) -> tuple[int, int, int, int] | None:
    if hops <= 0 or not isinstance(patch, tuple):
        return None
    row, column = patch
    return (
        max(row - hops, 0),
        max(column - hops, 0),
        min(row + hops + 1, grid[0]),
        min(column + hops + 1, grid[1]),
    )
