"""The dots of the scatter: measures of every head along either axis, and what they are read against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from viewer.backends.what_if import SKIPPED, is_removed
from viewer.state.axes import axis_of, measure_of
from viewer.state.axes_words import DENSITY, density_listing
from viewer.state.kinds import kinds_of
from viewer.state.references import (
    CONVOLUTION_LABEL,
    NO_CONVOLUTION,
    UNIFORM_LABEL,
    Reference,
    convolution_levels,
    crossing,
    is_distance,
    steps,
    uniform_distances,
    uniform_level,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.kinds import HeadKind
    from viewer.attention.layer import AttentionLayer
    from viewer.attention.measures import Measure
    from viewer.attention.record import AttentionRecord
    from viewer.attention.sweep import LayerMeasures, RecordMeasures
    from viewer.state.display import DisplayValue

_COLUMN = 0.62  # share of a layer's column over which its heads stand side by side


@dataclass(frozen=True, eq=False)
class Dots:
    """What of the scatter does not depend on the selection; arrays as in `viewer.state.scatter.Scatter`.

    Attributes
    ----------
    layer, head, x, y, kinds, prefix_mass, unused, references, missing
        As there.
    x_measure, y_measure
        Along the axes; `x_measure` is None where the layers lie along x.
    per_query
        For each layer with dots, what its queries have.
    """

    layer: npt.NDArray[np.int64]
    head: npt.NDArray[np.int64]
    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    x_measure: Measure | None
    y_measure: Measure
    per_query: tuple[OfQueries, ...]
    kinds: tuple[HeadKind, ...] | None
    prefix_mass: npt.NDArray[np.float64]
    unused: npt.NDArray[np.bool_]
    references: tuple[Reference, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class OfQueries:
    """Measures of every query of a layer.

    Attributes
    ----------
    index, heads
        Of the layer.
    x, y
        (heads, R * C) along either axis; None where it has none.
    under
        int64, the layer's query under each of the record.
    """

    index: int
    heads: int
    x: npt.NDArray[np.floating] | None
    y: npt.NDArray[np.floating] | None
    under: npt.NDArray[np.int64]


def side_by_side(layer: npt.NDArray[np.int64], head: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the place of each dot where layers lie along an axis: the heads share their layer's column."""
    most = int(head.max(initial=0)) + 1
    return layer + ((head + 0.5) / most - 0.5) * _COLUMN


def of_query(
    record: AttentionRecord, dots: Dots, query: tuple[int, int]
) -> tuple[npt.NDArray[np.float64] | None, npt.NDArray[np.float64] | None, str]:
    """Return the measures of one query, each layer's patch that lies under it; or None, and why."""
    for measure in (dots.x_measure, dots.y_measure):
        if measure is not None and measure.of_queries is None:
            return None, None, f"{measure.words} is of all queries together, so one query has none"
    place = query[0] * record.grid[1] + query[1]
    y = _column([_at(part.y, part, place) for part in dots.per_query])
    if dots.x_measure is None:
        return dots.x, y, ""
    return _column([_at(part.x, part, place) for part in dots.per_query]), y, ""


def _at(values: npt.NDArray[np.floating] | None, part: OfQueries, place: int) -> npt.NDArray[np.float64]:
    return np.full(part.heads, np.nan) if values is None else values[:, part.under[place]]


def uniform_of_query(
    record: AttentionRecord, dots: Dots, query: tuple[int, int], display: DisplayValue
) -> tuple[Reference, ...]:
    """Return uniform attention of one query: a corner is far from more patches than the centre.

    Nothing where neither axis is a distance: other references are the same for every query.
    """
    place = query[0] * record.grid[1] + query[1]
    label = f"{UNIFORM_LABEL}, for this query"
    if not any(m is not None and is_distance(m) for m in (dots.x_measure, dots.y_measure)):
        return ()

    def levels(measure: Measure) -> npt.NDArray[np.float64]:
        found = np.full(len(record.layers), np.nan)
        for part in dots.per_query:
            layer = record.layers[part.index]
            if not is_distance(measure):
                found[part.index] = uniform_level(layer, measure, display.protocol)
                continue
            of_layer = uniform_distances(layer, display.protocol, measure.unit)
            if len(of_layer):
                found[part.index] = of_layer[part.under[place]]
        return found

    if dots.x_measure is None:
        return (Reference("uniform query", *steps(levels(dots.y_measure)), label),)
    found = crossing("uniform query", levels(dots.x_measure), levels(dots.y_measure), label)
    return () if found is None else (found,)


_kept: WeakKeyDictionary[RecordMeasures, dict[tuple[str | bool, ...], Dots]] = WeakKeyDictionary()


def dots_of(record: AttentionRecord, measures: RecordMeasures, display: DisplayValue) -> Dots:
    """Read the measures; kept while they are, since every hover asks again."""
    of_record = _kept.setdefault(measures, {})
    key = (display.x_measure, display.y_measure, display.protocol, display.unit, display.kinds)
    if key not in of_record:
        of_record[key] = _read(record, measures, display)
    return of_record[key]


def _read(record: AttentionRecord, measures: RecordMeasures, display: DisplayValue) -> Dots:
    y_measure = measure_of(display.y_measure, display.unit)
    counts_layers = axis_of(display.x_measure, display.protocol, display.unit).counts_layers
    x_measure = None if counts_layers else measure_of(display.x_measure, display.unit)
    wanted = [measure for measure in (x_measure, y_measure) if measure is not None]
    rows = [
        (layer, measured)
        for layer, measured in zip(record.layers, measures.layers, strict=True)
        if all(_has(layer, measured, measure, display) for measure in wanted)
    ]
    heads = [layer.heads for layer, _ in rows]
    layer = np.repeat([layer.index for layer, _ in rows], heads).astype(np.int64)
    head = _column([np.arange(count) for count in heads]).astype(np.int64)

    def values(measure: Measure) -> npt.NDArray[np.float64]:
        return _column([measure.of_heads(measured, display.protocol) for _, measured in rows])

    references, missing = _references(record, rows, x_measure, y_measure, display)
    return Dots(
        layer=layer,
        head=head,
        x=side_by_side(layer, head) if x_measure is None else values(x_measure),
        y=values(y_measure),
        x_measure=x_measure,
        y_measure=y_measure,
        per_query=tuple(_queries(record, *row, x_measure, y_measure, display) for row in rows),
        kinds=kinds_of(rows) if display.kinds else None,
        prefix_mass=_column([measured.mean_prefix_mass() for _, measured in rows]),
        unused=_column([_unused(record, layer) for layer, _ in rows]).astype(np.bool_),
        references=references,
        missing=missing,
    )


def _has(layer: AttentionLayer, measured: LayerMeasures, measure: Measure, display: DisplayValue) -> bool:
    """Return whether a layer has a measure: of channels, which have no place and are no tokens, none."""
    if layer.kind == "channel" or not layer.key_layout.placed:
        return False
    return bool(np.isfinite(measure.of_heads(measured, display.protocol)).any())


def _unused(record: AttentionRecord, layer: AttentionLayer) -> npt.NDArray[np.bool_]:
    """Return the heads of a layer that the model makes no use of, bool (heads,)."""
    if SKIPPED in layer.note:
        return np.ones(layer.heads, np.bool_)
    return np.array([is_removed(record.what_if, layer.index, head) for head in range(layer.heads)])


def _queries(
    record: AttentionRecord,
    layer: AttentionLayer,
    measured: LayerMeasures,
    x_measure: Measure | None,
    y_measure: Measure,
    display: DisplayValue,
) -> OfQueries:
    """Return the measures of each query of a layer; a pooling query is not one that can be selected."""
    placed = layer.query_layout.placed
    found = [
        None
        if measure is None or measure.of_queries is None or not placed
        else measure.of_queries(measured, display.protocol)
        for measure in (x_measure, y_measure)
    ]
    under = layer.query_layout.patches_under(record.layout) if placed else np.empty(0, np.int64)
    return OfQueries(layer.index, layer.heads, *found, under)


def _references(
    record: AttentionRecord,
    rows: list[tuple[AttentionLayer, LayerMeasures]],
    x_measure: Measure | None,
    y_measure: Measure,
    display: DisplayValue,
) -> tuple[tuple[Reference, ...], tuple[str, ...]]:
    """Return uniform attention and convolutions, and why one of them is not there."""

    def levels(measure: Measure) -> npt.NDArray[np.float64]:
        found = np.full(len(record.layers), np.nan)
        for layer, _ in rows:
            found[layer.index] = uniform_level(layer, measure, display.protocol)
        return found

    if not rows:
        return (), ()
    if x_measure is not None:
        found = crossing("uniform", levels(x_measure), levels(y_measure), UNIFORM_LABEL)
        return (() if found is None else (found,)), ()
    references = []
    x, y = steps(levels(y_measure))
    if len(x):
        told = density_listing(rows) if y_measure.name in DENSITY else ""
        references.append(Reference("uniform", x, y, UNIFORM_LABEL, told=told))
    stack = convolution_levels(record, y_measure, len(record.layers))
    if len(stack):
        along = np.arange(len(stack), dtype=np.float64)
        references.append(Reference("convolution", along, stack, CONVOLUTION_LABEL))
    expected = is_distance(y_measure) or y_measure.unit == "hops"
    return tuple(references), (NO_CONVOLUTION,) if expected and not len(stack) else ()


def _column(per_layer: list[npt.NDArray[np.floating]]) -> npt.NDArray[np.float64]:
    return np.concatenate(per_layer).astype(np.float64) if per_layer else np.empty(0)
