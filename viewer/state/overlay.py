"""What the image panel shows: the picture as the model saw it, under the map that is chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from viewer.state.colormaps import rgba
from viewer.state.maps import picture_map
from viewer.state.places import UNREACHABLE, patch_of, query_of
from viewer.state.ring import outside_words, reach_words, ring, share_outside
from viewer.state.words import grid_words, pixels_words, query_words, size_words

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from viewer.attention.layout import TokenLayout
    from viewer.attention.record import AttentionRecord
    from viewer.state.attended import Attended
    from viewer.state.display import DisplayValue, MapKind
    from viewer.state.documents import ImageDocument
    from viewer.state.picture_map import PictureMap
    from viewer.state.selection import Direction, Query, SelectionValue


_ASKED = ("attention", "rollout")  # maps of the query; the others are the same whatever is asked


@dataclass(frozen=True, eq=False)
class Overlay:
    """The image panel, ready to paint; the window and the exports paint the very same.

    Attributes
    ----------
    map
        Which kind of map `values` are of.
    seen
        uint8 (H, W, 3), the model's input.
    places, asked, answers
        Layouts of patches: the record's, on which `query` and `pins` are named; that of the shown layer which
        is pointed at and outlined (its queries, or its keys where the views show who attends); and that of
        `values`.
    values
        float32 (rows and columns of `answers`), what the map says of each patch (of attention: the weight on
        it), NaN where it is out of the query's reach; None while there is no map.
    blank
        Why there is no map, as a clause; empty where there is one, or would be for some query.
    vmin, vmax
        Ends of the colour scale; what is above `vmax` has its colour.
    largest
        The largest value on any patch that the scale stands for: of every head where it is shared.
    colormap, opacity, fade, show_grid
        As in `DisplayValue`.
    prefix
        Name and value of each prefix token; NaN while no query is selected that has one.
    query, pins
        What to outline; a prefix token has no outline, and without a map nothing has.
    marked
        Patches of `answers` (row, column) that stand out by a rule, which the caption tells.
    ring
        (top, left, bottom, right) in patches of `asked`, ends exclusive, of what `DisplayValue.ring` stacked
        3x3 convolutions could reach from the query; None for none.
    subject, title
        "Layer 3, head 2", "Layer 3, head 2: what patch (row 4, column 5) attends to".
    label
        Of the colour bar, with the unit: "attention weight".
    scale_label
        Which colour scale it is: "one scale for all heads", "this head's own scale".
    layers
        Numbers of the layers whose attention is in the map.
    words
        What the read-out says of the map; empty for attention, of which it says more by itself.
    whole
        uint8 (H, W, 3), the picture the model's input was made from.
    box
        (left, top, right, bottom) of `seen` in pixels of `whole`, may reach outside it; None if unknown.
    caption
        One line: the model's input against the whole picture, and what frame and ring are.
    """

    map: MapKind
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
    marked: tuple[tuple[int, int], ...]
    ring: tuple[int, int, int, int] | None
    subject: str
    title: str
    label: str
    scale_label: str
    layers: tuple[int, ...]
    words: str
    whole: npt.NDArray[np.uint8]
    box: tuple[float, float, float, float] | None
    caption: str

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of `asked`."""
        return self.asked.grid

    @cached_property
    def highest(self) -> float:
        """The largest value that has a colour of the scale: of a patch, or in a prefix token's swatch."""
        return max(self.largest, *(value for _, value in self.prefix if math.isfinite(value)), 0.0)

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
    shown = picture_map(document, found, selection, display)
    query = selection.query
    patch = patch_of(shown.asked, record.layout, query) if isinstance(query, tuple) else query
    return Overlay(
        map=display.map,
        seen=_seen(document, record),
        places=record.layout,
        asked=shown.asked,
        answers=shown.answers,
        values=shown.values,
        blank=shown.blank,
        vmin=0.0,
        vmax=shown.vmax,
        largest=shown.largest,
        colormap=display.colormap,
        opacity=display.opacity,
        fade=display.fade,
        show_grid=display.grid,
        prefix=shown.prefix,
        query=query,
        pins=selection.pins,
        marked=shown.marked,
        ring=None if shown.blank else ring(patch, display.ring, shown.asked.grid),
        subject=shown.subject,
        title=shown.title,
        label=shown.label,
        scale_label=shown.scale_label,
        layers=shown.layers,
        words=shown.words,
        whole=document.image.pixels,
        box=record.box,
        caption=_caption(
            document,
            record,
            shown,
            selection.direction,
            "" if display.map in _ASKED else _frame_words(record, shown, patch),
            "" if shown.blank else _ring_words(record, found, selection, display),
        ),
    )


def _frame_words(record: AttentionRecord, shown: PictureMap, patch: Query | None) -> str:
    """Say what the frame around a patch is on a map that does not ask it: it has that number."""
    if shown.values is None or not isinstance(patch, tuple):
        return ""
    name = query_words(patch, grid=None if record.one_grid else shown.asked.grid)
    return f"Orange frame: {name}, {shown.label} {float(shown.values[patch]):.3g}. "


def _ring_words(
    record: AttentionRecord, found: Attended | None, selection: SelectionValue, display: DisplayValue
) -> str:
    """Say what the ring is, and what of the attention lies outside it; a prefix token has no ring."""
    if display.ring <= 0 or not isinstance(selection.query, tuple):
        return ""
    words = f"dashed: what {reach_words(display.ring)}"
    if display.map != "attention":
        return words
    prefix = bool(record.layers[selection.shown.layer].key_layout.prefix_names)
    outside = outside_words(share_outside(record, found, selection, display), display.protocol, prefix)
    return f"{words}; {outside}" if outside else words


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
    shown: PictureMap,
    direction: Direction,
    frame_words: str,
    ring_words: str,
) -> str:
    hatched = shown.values is not None and bool(np.isnan(shown.values).any())
    words = f"Model input {size_words(record.input_size)}"
    if record.box is not None:
        # The order of height and width is said once, of the picture.
        source = _source_words(record.box, document.image.pixels.shape[:2], record.input_size)
        words = f"Model input {pixels_words(record.input_size)}, {source}"
    words += f"; {_grids(shown.asked, shown.answers, direction)}"
    words += f"; {ring_words}" if ring_words else ""
    # First what can't be understood without: in a small window the end may be cut off.
    words = f"{frame_words}{words}"
    words = f"{shown.note[:1].upper()}{shown.note[1:]}. {words}" if shown.note else words
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
