"""The map of raw attention: what one query attends to in the shown head, or in all heads fused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from viewer.state.picture_map import PictureMap
from viewer.state.places import answering_layout, asked_layout, patch_of, why_blank
from viewer.state.scale import limits
from viewer.state.words import asked_words, bar_words, head_words, pooling_words

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.layer import AttentionLayer
    from viewer.attention.record import AttentionRecord
    from viewer.state.attended import Attended
    from viewer.state.display import DisplayValue
    from viewer.state.documents import ImageDocument
    from viewer.state.selection import Direction, Fusion, HeadRef, Query, SelectionValue


def attention_map(
    document: ImageDocument, found: Attended | None, selection: SelectionValue, display: DisplayValue
) -> PictureMap:
    """Describe the shown head's map on its own grid."""
    record, shown, direction = document.record, selection.shown, selection.direction
    layer = record.layers[shown.layer]
    asked = asked_layout(record, layer, direction)
    blank = _blank(layer, found, selection)
    values, answers, vmax, largest = None, record.layout, 1.0, 0.0
    if found is not None and not blank:
        values = fused(found.maps_of(record, shown.layer), shown, selection.fusion)
        largest = float(np.fmax.reduce(found.peaks if display.scale == "shared" else values, axis=None))
        answers = answering_layout(layer, direction)
        vmax = _end(found, values, shown, display)
    query = selection.query
    patch = patch_of(asked, record.layout, query) if isinstance(query, tuple) else query
    grid = None if record.one_grid else asked.grid
    return PictureMap(
        asked=asked,
        answers=answers,
        values=values,
        blank=blank,
        vmax=vmax,
        largest=largest,
        prefix=_prefix(record, found, selection),
        subject=head_words(record, shown, selection.fusion),
        title=_title(record, found, selection),
        label="attention weight" if patch is None else bar_words(patch, direction, grid),
        scale_label=_scale_words(shown, display),
        layers=(shown.layer,),
    )


def _prefix(
    record: AttentionRecord, found: Attended | None, selection: SelectionValue
) -> tuple[tuple[str, float], ...]:
    shown, names = selection.shown, record.prefix_names
    if found is None:
        return tuple((name, float("nan")) for name in names)
    heads = found.prefix[shown.layer, : record.layers[shown.layer].heads]
    return tuple(zip(names, fused(heads, shown, selection.fusion).tolist(), strict=True))


def fused(heads: npt.NDArray[np.float32], shown: HeadRef, fusion: Fusion) -> npt.NDArray[np.float32]:
    """Return one head's array, or all heads of the layer fused; NaN stays NaN, all heads reach the same keys.

    Parameters
    ----------
    heads
        float32 (heads of the layer, ...).
    """
    return getattr(heads, fusion)(axis=0) if shown.head is None else heads[shown.head]


def _title(record: AttentionRecord, found: Attended | None, selection: SelectionValue) -> str:
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
