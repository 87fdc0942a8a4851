"""What the read-out line says about the selected head and query, in words a lecturer could say."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from viewer.attention.measured import mean_of_numbers
from viewer.backends.what_if import is_removed
from viewer.state.attention_map import fused
from viewer.state.axes_words import axes_words
from viewer.state.comparison import place_words
from viewer.state.places import answering_layout, asked_layout, patch_of
from viewer.state.references import uniform_distances
from viewer.state.ring import outside_words, reach_words, share_outside
from viewer.state.words import PROTOCOLS, head_words, pooling_words, prefix_words, query_words

if TYPE_CHECKING:
    from viewer.attention.layer import AttentionLayer
    from viewer.attention.record import AttentionRecord
    from viewer.attention.sweep import LayerMeasures, RecordMeasures
    from viewer.state.attended import Attended
    from viewer.state.display import DisplayValue, Protocol
    from viewer.state.documents import ImageDocument
    from viewer.state.selection import HeadRef, Query, SelectionValue


def readout(
    document: ImageDocument,
    found: Attended | None,
    selection: SelectionValue,
    display: DisplayValue,
    of_map: str = "",
) -> str:
    """Say distance (with protocol and unit), prefix mass and entropy of the shown head.

    One line for the head's mean over all patches, one for the selected query (or `of_map`, a sentence on
    another map than that of attention), and one where something is not verified or not defined. Empty while
    the document has no record.
    """
    record = document.record
    if record is None:
        return ""
    parts = [_of_head(document, record, selection, display)]
    if document.measures is not None and display.compare:
        shown = selection.shown
        beside = place_words(record, document.measures, display, shown.layer, shown.head)
        parts[0] = f"{parts[0]} {beside}".strip()
    if document.measures is not None:
        parts[0] = f"{parts[0]} {_of_axes(document.measures, record, selection.shown, display)}".strip()
    if of_map:
        parts.append(of_map)
    elif found is not None:
        parts.append(
            f"{_of_query(document, record, found, selection, display)} "
            f"{_of_ring(record, found, selection, display)}".strip()
        )
    parts.append(_warnings(document, record, found, selection, display))
    return "\n".join(part for part in parts if part)


def _of_axes(measures: RecordMeasures, record: AttentionRecord, shown: HeadRef, display: DisplayValue) -> str:
    """Say what of the scatter's axes and of kinds is not said yet; of channels there is nothing to say."""
    layer = record.layers[shown.layer]
    if layer.kind == "channel":
        return ""
    names = (display.x_measure, display.y_measure)
    how = (names, display.protocol, display.unit, display.kinds)
    return axes_words(layer, measures.layers[shown.layer], shown.head, *how)


def _of_ring(
    record: AttentionRecord, found: Attended, selection: SelectionValue, display: DisplayValue
) -> str:
    """Say how much of the query's attention no stack of convolutions as deep as the ring could gather."""
    prefix = bool(record.layers[selection.shown.layer].key_layout.prefix_names)
    outside = outside_words(share_outside(record, found, selection, display), display.protocol, prefix)
    return f"{outside} what {reach_words(display.ring)}." if outside else ""


def _of_head(
    document: ImageDocument, record: AttentionRecord, selection: SelectionValue, display: DisplayValue
) -> str:
    layer = record.layers[selection.shown.layer]
    words = _who(record, selection)
    if document.measures is None:
        return f"{words}: still being measured."
    if layer.kind == "pool":
        return f"{words}: one learned query gathers all patches, so there is no distance to measure."
    if layer.kind == "channel":
        return f"{words}: channels attend to channels, so there is no distance to measure."
    measured = document.measures.layers[selection.shown.layer]
    means = _means(measured, selection.shown.head, display.protocol)
    reference = mean_of_numbers(uniform_distances(layer, display.protocol, "px"))
    head = selection.shown.head
    verb = "these heads look" if head is None and layer.heads > 1 else "this head looks"
    if head is not None and is_removed(record.what_if, layer.index, head):
        verb = "its unused attention looks"
    return (
        f"{words}: on average {verb} {_far(means.px, means.patches, display)} away, "
        f"{_share(means.px, reference)} ({PROTOCOLS[display.protocol]}); "
        f"{_prefix(layer, means.prefix_mass)}its attention is spread as over "
        f"{_count(np.exp(means.entropy))} tokens (entropy {means.entropy:.2f} nats)."
    )


class _Means(NamedTuple):
    px: float
    patches: float
    prefix_mass: float
    entropy: float


@lru_cache(maxsize=8)
def _means(measured: LayerMeasures, head: int | None, protocol: Protocol) -> _Means:
    """Return means over all queries of one head, or of all; kept, since every hover asks again."""
    pick = slice(None) if head is None else slice(head, head + 1)
    return _Means(
        mean_of_numbers(measured.distance(protocol, "px")[pick]),
        mean_of_numbers(measured.distance(protocol, "patches")[pick]),
        mean_of_numbers(measured.mean_prefix_mass()[pick]),
        mean_of_numbers(measured.mean_entropy()[pick]),
    )


def _of_query(
    document: ImageDocument,
    record: AttentionRecord,
    found: Attended,
    selection: SelectionValue,
    display: DisplayValue,
) -> str:
    """Say the query's own numbers; of a column only who attends most, as its sum is not 1."""
    shown = selection.shown
    layer = record.layers[shown.layer]
    if found.blank[layer.index]:
        return "" if layer.kind == "channel" else f"No map here: {found.blank[layer.index]}."
    weights = fused(found.maps_of(record, layer.index), shown, selection.fusion)
    there = np.isfinite(weights)
    asked = _asked(record, layer, found)
    if not there.any():
        return (
            f"No patch is in reach of {asked}." if found.direction == "from" else f"No patch reaches {asked}."
        )
    row, column = np.unravel_index(int(np.nanargmax(weights)), weights.shape)
    grid = None if record.one_grid else answering_layout(layer, found.direction).grid
    strongest = query_words((int(row), int(column)), brief=True, grid=grid)
    strongest = f"{strongest} with {_percent(float(weights[row, column]))}"
    reached = "" if there.all() else f"{np.count_nonzero(there)} of {there.size} patches in reach; "
    if found.direction == "to":
        which = "Of all patches that can reach it" if reached else "Of all patches"
        return f"{which}, {strongest} attends most to {asked}."
    if layer.kind == "pool":
        return f"{pooling_words(layer).capitalize()} most: {strongest}."
    numbers = _row_numbers(document, layer, found, selection, display)
    return f"{asked[0].upper()}{asked[1:]}: {reached}{numbers}, most on {strongest}."


def _row_numbers(
    document: ImageDocument,
    layer: AttentionLayer,
    found: Attended,
    selection: SelectionValue,
    display: DisplayValue,
) -> str:
    """Say distance, prefix mass and spread of one query, means over the shown heads."""
    rows = np.nan_to_num(found.layers[layer.index][_pick(selection)]).astype(np.float64)
    entropy = float(-(rows * np.log(np.maximum(rows, 1e-30))).sum(axis=1).mean())
    mass = float(rows[:, layer.key_layout.prefix_tokens].sum(axis=1).mean())
    distance = _query_distance(document, layer, found, selection, display)
    far = ""
    if distance is not None:
        px, patches, uniform = distance
        far = f"{_far(px, patches, display)} away, {_share(px, uniform)}; "
    return f"{far}{_prefix(layer, mass, found.query)}spread as over {_count(np.exp(entropy))} tokens"


def _asked(record: AttentionRecord, layer: AttentionLayer, found: Attended) -> str:
    """Name the query: as the layer's own patch, with its grid where the model has several."""
    if isinstance(found.query, str):
        return query_words(found.query)
    layout = asked_layout(record, layer, found.direction)
    patch = patch_of(layout, record.layout, found.query)
    return query_words(patch, grid=None if record.one_grid else layout.grid)


def _query_distance(
    document: ImageDocument,
    layer: AttentionLayer,
    found: Attended,
    selection: SelectionValue,
    display: DisplayValue,
) -> tuple[float, float, float] | None:
    """Return the query's distance in px and in patches, mean over the shown heads, and uniform's in px."""
    if document.measures is None or document.record is None or not isinstance(found.query, tuple):
        return None
    row, column = patch_of(layer.query_layout, document.record.layout, found.query)
    place = row * layer.query_layout.grid[1] + column
    measured = document.measures.layers[layer.index]
    pick = _pick(selection)
    px, patches = (
        mean_of_numbers(measured.query_distance(display.protocol, unit)[pick, place])
        for unit in ("px", "patches")
    )
    return px, patches, float(uniform_distances(layer, display.protocol, "px")[place])


def _warnings(
    document: ImageDocument,
    record: AttentionRecord,
    found: Attended | None,
    selection: SelectionValue,
    display: DisplayValue,
) -> str:
    layer = record.layers[selection.shown.layer]
    words = []
    measurable = layer.query_layout.placed and layer.key_layout.placed
    if document.measures is not None and measurable and display.protocol == "renormalized":
        undefined = document.measures.layers[layer.index].undefined_rows()
        head = selection.shown.head
        rows = int(undefined.sum() if head is None else undefined[head])
        if rows:
            who = "One query attends" if rows == 1 else f"{rows} queries attend"
            words.append(f"{who} to no patch at all, left out of the mean.")
    told = "" if found is None else found.blank[layer.index]
    if layer.note and layer.kind != "channel" and layer.note != told:
        words.append(f"Layer {layer.index}: {layer.note}.")
    if not layer.verdict.verified:
        words.append(f"Layer {layer.index} is not verified: {layer.verdict.reason or 'reason unknown'}.")
    if record.output_unchanged is False:
        words.append("Not verified: reading the attention changed the model's output.")
    return " ".join(words)


def _who(record: AttentionRecord, selection: SelectionValue) -> str:
    shown = selection.shown
    # Distances of a fused map are no protocol: the numbers are always means over heads.
    return head_words(record, shown, "mean" if shown.head is None else selection.fusion)


def _pick(selection: SelectionValue) -> slice:
    head = selection.shown.head
    return slice(None) if head is None else slice(head, head + 1)


def _far(px: float, patches: float, display: DisplayValue) -> str:
    if not np.isfinite(px):
        return "an undefined distance"
    pair = (f"{_count(px)} px", f"{patches:.1f} patches")
    first, second = pair if display.unit == "px" else pair[::-1]
    return f"{first} ({second})"


def _share(px: float, uniform: float) -> str:
    if not (np.isfinite(px) and uniform > 0):
        return "not comparable with uniform attention"
    return f"{100 * px / uniform:.0f} % of what uniform attention would"


def _prefix(layer: AttentionLayer, mass: float, query: Query | None = None) -> str:
    """Say how much goes to keys without a place; where one of them is the query, that it is among them."""
    names = tuple(dict.fromkeys(layer.key_layout.prefix_names))
    if not names:
        return ""
    to = "itself" if names == (query,) else prefix_words(names)
    own = ", itself included" if query in names and len(names) > 1 else ""
    return f"{_percent(mass)} goes to {to}{own}; "


def _percent(share: float) -> str:
    percent = 100 * share
    if percent and percent < 0.1:
        return "less than 0.1 %"
    return f"{percent:.1f} %" if percent < 10 else f"{percent:.0f} %"


def _count(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"
