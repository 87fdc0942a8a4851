"""What the image panel shows: the picture as the model saw it, under the attention of the selected head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from viewer.state.colormaps import rgba
from viewer.state.scale import limits, plain_end
from viewer.state.words import asked_words, bar_words, grid_words, head_words, pixels_words, size_words

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.record import AttentionRecord
    from viewer.state.attended import Attended
    from viewer.state.display import DisplayValue
    from viewer.state.documents import ImageDocument
    from viewer.state.selection import Fusion, HeadRef, Query, SelectionValue


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
        (top, left, bottom, right) in patches, ends exclusive, of what `DisplayValue.ring` stacked 3x3
        convolutions could reach from the query; None for none.
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
    patch_px: tuple[float, float]
    grid: tuple[int, int]
    values: npt.NDArray[np.float32] | None
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
    values, vmax, largest = None, 1.0, 0.0
    prefix = np.full(record.prefix_tokens, np.nan, np.float32)
    if found is not None:
        values = fused(found.maps[selection.shown.layer], selection.shown, selection.fusion)
        prefix = fused(found.prefix[selection.shown.layer], selection.shown, selection.fusion)
        vmax = _end(found, values, selection.shown, display)
        largest = float(np.fmax.reduce(found.peaks if display.scale == "shared" else values, axis=None))
    query = selection.query
    return Overlay(
        seen=_seen(document, record),
        patch_px=record.patch_px,
        grid=record.grid,
        values=values,
        vmin=0.0,
        vmax=vmax,
        largest=largest,
        colormap=display.colormap,
        opacity=display.opacity,
        fade=display.fade,
        show_grid=display.grid,
        prefix=tuple(zip(record.layout.prefix_names, prefix.tolist(), strict=True)),
        query=query,
        pins=selection.pins,
        ring=_ring(query, display.ring, record.grid),
        title=title(record, found, selection),
        label="attention weight" if query is None else bar_words(query, selection.direction),
        scale_label=_scale_words(selection.shown, display),
        whole=document.image.pixels,
        box=record.box,
        caption=_caption(document, record, display.ring),
    )


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
    """Return one head's array, or all heads of the layer fused; those that the layer lacks are left out.

    Parameters
    ----------
    heads
        float32 (most heads, ...), NaN where the layer has no such head.
    """
    if shown.head is not None:
        return heads[shown.head]
    there = np.isfinite(heads.reshape(len(heads), -1)).all(axis=1)
    if heads[0].size == 0 or not there.any():
        return heads[0]
    return getattr(heads[there], fusion)(axis=0)


def title(record: AttentionRecord, found: Attended | None, selection: SelectionValue) -> str:
    """Say which map is shown, or what to do to see one."""
    words = head_words(record, selection.shown, selection.fusion)
    if selection.query is None:
        return f"{words}: point at a patch to see what it attends to"
    if found is None:
        return f"{words}: which patches attend to the query is known once all heads are measured"
    pooling = record.layers[selection.shown.layer].kind == "pool"
    return f"{words}: {asked_words(selection.query, selection.direction, pooling)}"


def _end(found: Attended, values: npt.NDArray[np.float32], shown: HeadRef, display: DisplayValue) -> float:
    """Return the upper end of the overlay's colour scale, the heads panel's own for the same head."""
    if shown.head is not None or display.scale == "shared":
        # By way of its shortest text, so that 0.08 in float32 does not become 0.0799999982.
        return float(str(limits(found, display.scale)[shown.layer, shown.head or 0]))
    peak = float(values.max())
    return peak if peak > 0 else plain_end(peak)


def _scale_words(shown: HeadRef, display: DisplayValue) -> str:
    if display.scale == "shared":
        return "one scale for all heads"
    return "this map's own scale" if shown.head is None else "this head's own scale"


def _seen(document: ImageDocument, record: AttentionRecord) -> npt.NDArray[np.uint8]:
    """Return the model's input; grey where a preprocessed tensor was given and no picture is known."""
    if record.seen is not None:
        return record.seen
    return np.full((*record.input_size, 3), 128, np.uint8)


def _caption(document: ImageDocument, record: AttentionRecord, hops: int) -> str:
    words = f"Model input {size_words(record.input_size)}"
    if record.box is not None:
        # The order of height and width is said once, of the picture.
        source = _source_words(record.box, document.image.pixels.shape[:2], record.input_size)
        words = f"Model input {pixels_words(record.input_size)}, {source}"
    words += f"; {grid_words(record.grid)} of patches, counted from 0"
    if hops > 0:
        reach = "a 3x3 convolution reaches" if hops == 1 else f"{hops} stacked 3x3 convolutions reach"
        words += f"; dashed: what {reach}"
    return words


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


def _ring(query: Query | None, hops: int, grid: tuple[int, int]) -> tuple[int, int, int, int] | None:
    if hops <= 0 or not isinstance(query, tuple):
        return None
    row, column = query
    return (
        max(row - hops, 0),
        max(column - hops, 0),
        min(row + hops + 1, grid[0]),
        min(column + hops + 1, grid[1]),
    )
