"""What the read-out line says about the selected head and query, in words a lecturer could say."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from viewer.state.overlay import fused
from viewer.state.words import PROTOCOLS, asked_words, head_words, prefix_words, query_words

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.layout import TokenLayout
    from viewer.attention.record import AttentionRecord
    from viewer.attention.sweep import LayerMeasures
    from viewer.state.attended import Attended
    from viewer.state.display import DisplayValue, Protocol
    from viewer.state.documents import ImageDocument
    from viewer.state.selection import Query, SelectionValue


def readout(
    document: ImageDocument, found: Attended | None, selection: SelectionValue, display: DisplayValue
) -> str:
    """Say distance (with protocol and unit), prefix mass and entropy of the shown head.

    One line for the head's mean over all patches, one for the selected query, and one where something is not
    verified or not defined. Empty while the document has no record.
    """
    record = document.record
    if record is None:
        return ""
    parts = [_of_head(document, record, selection, display)]
    if found is not None:
        parts.append(_of_query(document, record, found, selection, display))
    parts.append(_warnings(document, record, selection, display))
    return "\n".join(part for part in parts if part)


def _of_head(
    document: ImageDocument, record: AttentionRecord, selection: SelectionValue, display: DisplayValue
) -> str:
    layer = record.layers[selection.shown.layer]
    words = _who(record, selection)
    if document.measures is None:
        return f"{words}: still being measured."
    if layer.kind == "pool":
        return f"{words}: one learned query gathers all patches, so there is no distance to measure."
    measured = document.measures.layers[selection.shown.layer]
    means = _means(measured, selection.shown.head, display.protocol)
    verb = "these heads look" if selection.shown.head is None and layer.heads > 1 else "this head looks"
    return (
        f"{words}: on average {verb} {_far(means.px, means.patches, display)} away, "
        f"{_share(means.px, _uniform(record, None, display))} ({PROTOCOLS[display.protocol]}); "
        f"{_prefix(record, means.prefix_mass)}its attention is spread as over "
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
        _mean(measured.distance(protocol, "px")[pick]),
        _mean(measured.distance(protocol, "patches")[pick]),
        float(measured.mean_prefix_mass()[pick].mean()),
        float(measured.mean_entropy()[pick].mean()),
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
    pooling = record.layers[shown.layer].kind == "pool"
    weights = fused(found.maps[shown.layer], shown, selection.fusion)
    if not np.isfinite(weights).all():
        return ""
    row, column = np.unravel_index(int(weights.argmax()), weights.shape)
    strongest = f"{query_words((int(row), int(column)), brief=True)} with {_percent(float(weights.max()))}"
    if found.direction == "to":
        return f"Of all patches, {strongest} attends most to {query_words(found.query)}."
    if pooling:
        return f"{asked_words(found.query, 'from', pooling).capitalize()} most: {strongest}."
    heads = _pick(selection)
    rows = found.layers[shown.layer][heads].astype(np.float64)
    entropy = float(-(rows * np.log(np.maximum(rows, 1e-30))).sum(axis=1).mean())
    parts = []
    distance = _query_distance(document, found, selection, display)
    if distance is not None:
        share = _share(distance[0], _uniform(record, found.query, display))
        parts.append(f"{_far(*distance, display)} away, {share}")
    mass = float(np.nansum(found.prefix[shown.layer][heads], axis=-1).mean())
    parts.append(
        f"{_prefix(record, mass, found.query)}spread as over {_count(np.exp(entropy))} tokens, "
        f"most on {strongest}"
    )
    asked = query_words(found.query)
    return f"{asked[0].upper()}{asked[1:]}: {'; '.join(parts)}."


def _query_distance(
    document: ImageDocument, found: Attended, selection: SelectionValue, display: DisplayValue
) -> tuple[float, float] | None:
    """Return the distance of the query in px and in patches, mean over the shown heads."""
    if document.measures is None or document.record is None or not isinstance(found.query, tuple):
        return None
    place = found.query[0] * document.record.grid[1] + found.query[1]
    measured = document.measures.layers[selection.shown.layer]
    pick = _pick(selection)
    px, patches = (
        _mean(measured.query_distance(display.protocol, unit)[pick, place]) for unit in ("px", "patches")
    )
    return px, patches


def _warnings(
    document: ImageDocument, record: AttentionRecord, selection: SelectionValue, display: DisplayValue
) -> str:
    layer = record.layers[selection.shown.layer]
    words = []
    if document.measures is not None and display.protocol == "renormalized":
        undefined = document.measures.layers[layer.index].undefined_rows()
        head = selection.shown.head
        rows = int(undefined.sum() if head is None else undefined[head])
        if rows:
            who = "One query attends" if rows == 1 else f"{rows} queries attend"
            words.append(f"{who} to no patch at all, left out of the mean.")
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


def _mean(values: npt.NDArray[np.float64]) -> float:
    there = values[np.isfinite(values)]
    return float(there.mean()) if there.size else float("nan")


def _uniform(record: AttentionRecord, query: Query | None, display: DisplayValue) -> float:
    """Return the distance of uniform attention in px, of one patch or as the mean over all."""
    places = _uniform_places(record.layout, display.protocol)
    if isinstance(query, tuple):
        return float(places[query[0] * record.grid[1] + query[1]])
    return float(places.mean())


@lru_cache(maxsize=2)
def _uniform_places(layout: TokenLayout, protocol: Protocol) -> npt.NDArray[np.float64]:
    from viewer.attention.distance import uniform_query_distance

    return uniform_query_distance(layout, protocol)


def _far(px: float, patches: float, display: DisplayValue) -> str:
    if not np.isfinite(px):
        return "an undefined distance"
    pair = (f"{_count(px)} px", f"{patches:.1f} patches")
    first, second = pair if display.unit == "px" else pair[::-1]
    return f"{first} ({second})"


def _share(px: float, uniform: float) -> str:
    if not np.isfinite(px) or uniform <= 0:
        return "not comparable with uniform attention"
    return f"{100 * px / uniform:.0f} % of what uniform attention would"


def _prefix(record: AttentionRecord, mass: float, query: Query | None = None) -> str:
    """Say how much goes to prefix tokens; where one of them is the query, that it is among them."""
    names = record.layout.prefix_names
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
