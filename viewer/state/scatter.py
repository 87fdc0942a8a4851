"""What the scatter shows: a measure of every head against its layer, or two measures against each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from viewer.state.axes import DISTANCE, LAYER_AXIS, Axis, axis_of, measure_of
from viewer.state.comparison import network_reference
from viewer.state.references import (
    Reference,
    convolution_levels,
    crossing,
    is_distance,
    steps,
    uniform_distances,
    uniform_level,
)
from viewer.state.selection import HeadRef
from viewer.state.words import query_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from viewer.attention.layer import AttentionLayer
    from viewer.attention.measures import Measure
    from viewer.attention.record import AttentionRecord
    from viewer.attention.sweep import LayerMeasures, RecordMeasures
    from viewer.state.attended import Attended
    from viewer.state.display import DisplayValue
    from viewer.state.documents import ImageDocument
    from viewer.state.selection import SelectionValue

UNIFORM_LABEL = "uniform attention"
CONVOLUTION_LABEL = "stacked 3x3 convolutions, one a layer"
NO_CONVOLUTION = "no line for convolutions: the layers differ in their patches"
NO_DISTANCE = "No distance to measure: in no layer do patches attend to patches"
_COLUMN = 0.62  # share of a layer's column over which its heads stand side by side


@dataclass(frozen=True, eq=False)
class Scatter:
    """The scatter, ready to paint: one dot a head, none for layers without the measure.

    Attributes
    ----------
    layer, head
        int64 (dots,).
    x, y
        float64 (dots,), where the dot lies: the measures of either axis, mean over all patch queries; NaN
        where no query is defined. Where layers lie along x, their heads stand side by side.
    spread
        float64 (dots, 2), lower and upper end of an error bar along y; None without.
    query_x, query_y
        float64 (dots,), of the selected query alone; None while none is selected, for a prefix token (it has
        no place to measure from), while the views show who attends to the query, and for measures of the
        whole map.
    prefix_mass
        float64 (dots,), mean attention on prefix tokens, 0 to 1.
    references
        Lines and points that the dots are read against.
    layers
        Number of layers, those without dots included.
    shown
        The head to emphasize.
    x_axis, y_axis
        What lies along them.
    title, query_label
        `query_label` is empty where `query_y` is None.
    blank
        Why there is not one dot, as a clause; empty where there are any.
    missing
        Why there is no line for convolutions, or no dots of the query, as clauses.
    """

    layer: npt.NDArray[np.int64]
    head: npt.NDArray[np.int64]
    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    spread: npt.NDArray[np.float64] | None
    query_x: npt.NDArray[np.float64] | None
    query_y: npt.NDArray[np.float64] | None
    prefix_mass: npt.NDArray[np.float64]
    references: tuple[Reference, ...]
    layers: int
    shown: HeadRef
    x_axis: Axis
    y_axis: Axis
    title: str
    query_label: str = ""
    blank: str = ""
    missing: tuple[str, ...] = ()

    @property
    def pales(self) -> bool:
        """Whether any head attends to prefix tokens, so that dots are of different strength."""
        return bool((self.prefix_mass > 0).any())

    @property
    def picked(self) -> npt.NDArray[np.bool_]:
        """Which dots are those of the shown head, bool (dots,)."""
        picked = self.layer == self.shown.layer
        return picked if self.shown.head is None else picked & (self.head == self.shown.head)

    def reference(self, kind: str) -> Reference | None:
        """Return the reference of a kind, None if there is none."""
        return next((reference for reference in self.references if reference.kind == kind), None)

    def head_words(self, place: int) -> str:
        """Return the name and numbers of one dot: "layer 3, head 2: 84.1 px, prefix 12 %".

        The prefix is left out where no head of the model attends to any.
        """
        name = f"layer {self.layer[place]}, head {self.head[place]}"
        if self.y_axis.name.startswith(DISTANCE) and self.x_axis.counts_layers:
            numbers = [self.y_axis.number(self.y[place])]
        else:
            numbers = [f"{self.y_axis.words} {self.y_axis.number(self.y[place])}"]
        if self.spread is not None:
            low, high = self.spread[place]
            numbers[0] += f" ({self.y_axis.number(low)} to {self.y_axis.number(high)})"
        if not self.x_axis.counts_layers:
            numbers.append(f"{self.x_axis.words} {self.x_axis.number(self.x[place])}")
        if self.pales and "prefix_mass" not in (self.x_axis.name, self.y_axis.name):
            numbers.append(f"prefix {100 * self.prefix_mass[place]:.0f} %")
        return f"{name}: {', '.join(numbers)}"


def scatter_of(
    layer: Sequence[int],
    head: Sequence[int],
    values: npt.ArrayLike,
    y_axis: Axis,
    *,
    spread: npt.ArrayLike | None = None,
    x_values: npt.ArrayLike | None = None,
    x_axis: Axis = LAYER_AXIS,
    prefix_mass: npt.ArrayLike | None = None,
    references: tuple[Reference, ...] = (),
    layers: int | None = None,
    title: str | None = None,
) -> Scatter:
    """Make a scatter of plain numbers, of whatever they are means: a study has no record.

    Parameters
    ----------
    layer, head
        Of each dot.
    values
        (dots,) along y.
    y_axis, x_axis
        What lies along them, see `viewer.state.axes.axis_of`.
    spread
        (dots, 2), lower and upper end of the error bars.
    x_values
        (dots,) along x, where that is not the layers.
    prefix_mass
        (dots,), 0 to 1; dots are paler the more of it there is.
    references
        See `viewer.state.references`.
    layers
        How many there are, those without dots included; by default those that have some.
    title
        By default it says what is drawn.
    """
    layer, head = np.asarray(layer, np.int64), np.asarray(head, np.int64)
    x = side_by_side(layer, head) if x_values is None else np.asarray(x_values, np.float64)
    return Scatter(
        layer=layer,
        head=head,
        x=x,
        y=np.asarray(values, np.float64),
        spread=None if spread is None else np.asarray(spread, np.float64),
        query_x=None,
        query_y=None,
        prefix_mass=np.zeros(len(layer)) if prefix_mass is None else np.asarray(prefix_mass, np.float64),
        references=references,
        layers=int(layer.max(initial=-1)) + 1 if layers is None else layers,
        shown=HeadRef(-1, None),
        x_axis=x_axis,
        y_axis=y_axis,
        title=title_of(x_axis, y_axis) if title is None else title,
        blank="" if len(layer) else _why_blank(x_axis, y_axis),
    )


def side_by_side(layer: npt.NDArray[np.int64], head: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the place of each dot where layers lie along an axis: the heads share their layer's column."""
    most = int(head.max(initial=0)) + 1
    return layer + ((head + 0.5) / most - 0.5) * _COLUMN


def title_of(x_axis: Axis, y_axis: Axis) -> str:
    """Return what a scatter shows, as a title."""
    if y_axis.name.startswith(DISTANCE) and x_axis.counts_layers:
        return "How far each head reaches"
    words = f"{y_axis.words[0].upper()}{y_axis.words[1:]}"
    return f"{words} of each head" if x_axis.counts_layers else f"{words} against {x_axis.words} of each head"


@dataclass(frozen=True, eq=False)
class _Dots:
    """What of the scatter does not depend on the selection; arrays as in `Scatter`."""

    layer: npt.NDArray[np.int64]
    head: npt.NDArray[np.int64]
    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    x_measure: Measure | None
    y_measure: Measure
    # For each layer with dots: its index, the measures of its queries (heads, R * C) along either axis, None
    # where it has none, and the queries under those of the record.
    per_query: tuple[_OfQueries, ...]
    prefix_mass: npt.NDArray[np.float64]
    references: tuple[Reference, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _OfQueries:
    index: int
    heads: int
    x: npt.NDArray[np.floating] | None
    y: npt.NDArray[np.floating] | None
    under: npt.NDArray[np.int64]


def scatter(
    document: ImageDocument, found: Attended | None, selection: SelectionValue, display: DisplayValue
) -> Scatter | None:
    """Describe the scatter; None until the document is measured."""
    record, measures = document.record, document.measures
    if record is None or measures is None:
        return None
    axes = (display.x_measure, display.y_measure)
    x_axis, y_axis = (axis_of(name, display.protocol, display.unit) for name in axes)
    dots = _dots(record, measures, display)
    query_x, query_y, query_label = None, None, ""
    references, missing = dots.references, dots.missing
    network, why_none = network_reference(record, measures, display, dots.y)
    references = references if network is None else (*references, network)
    missing = (*missing, why_none) if why_none else missing
    query = None if found is None or found.direction == "to" else found.query
    if isinstance(query, tuple) and len(dots.layer):
        query_x, query_y, why = _of_query(record, dots, query)
        if query_y is None:
            missing = (*missing, why)
        else:
            query_label = query_words(query, brief=True, grid=None if record.one_grid else record.grid)
            references = (*references, *_uniform_of_query(record, dots, query, display))
    return Scatter(
        layer=dots.layer,
        head=dots.head,
        x=dots.x,
        y=dots.y,
        spread=None,
        query_x=query_x,
        query_y=query_y,
        prefix_mass=dots.prefix_mass,
        references=references,
        layers=len(record.layers),
        shown=selection.shown,
        x_axis=x_axis,
        y_axis=y_axis,
        title=title_of(x_axis, y_axis),
        query_label=query_label,
        blank="" if len(dots.layer) else _why_blank(x_axis, y_axis),
        missing=missing,
    )


def _why_blank(x_axis: Axis, y_axis: Axis) -> str:
    if y_axis.name.startswith(DISTANCE) and x_axis.counts_layers:
        return NO_DISTANCE
    words = y_axis.words if x_axis.counts_layers else f"{y_axis.words} and {x_axis.words}"
    return f"Nothing to draw: {words} can't be measured in any layer of this model"


def _of_query(
    record: AttentionRecord, dots: _Dots, query: tuple[int, int]
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


def _at(values: npt.NDArray[np.floating] | None, part: _OfQueries, place: int) -> npt.NDArray[np.float64]:
    return np.full(part.heads, np.nan) if values is None else values[:, part.under[place]]


def _uniform_of_query(
    record: AttentionRecord, dots: _Dots, query: tuple[int, int], display: DisplayValue
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


_kept: WeakKeyDictionary[RecordMeasures, dict[tuple[str, ...], _Dots]] = WeakKeyDictionary()


def _dots(record: AttentionRecord, measures: RecordMeasures, display: DisplayValue) -> _Dots:
    """Read the measures; kept while they are, since every hover asks again."""
    of_record = _kept.setdefault(measures, {})
    key = (display.x_measure, display.y_measure, display.protocol, display.unit)
    if key not in of_record:
        of_record[key] = _read(record, measures, display)
    return of_record[key]


def _read(record: AttentionRecord, measures: RecordMeasures, display: DisplayValue) -> _Dots:
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
    return _Dots(
        layer=layer,
        head=head,
        x=side_by_side(layer, head) if x_measure is None else values(x_measure),
        y=values(y_measure),
        x_measure=x_measure,
        y_measure=y_measure,
        per_query=tuple(_queries(record, *row, x_measure, y_measure, display) for row in rows),
        prefix_mass=_column([measured.mean_prefix_mass() for _, measured in rows]),
        references=references,
        missing=missing,
    )


def _has(layer: AttentionLayer, measured: LayerMeasures, measure: Measure, display: DisplayValue) -> bool:
    """Return whether a layer has a measure: of channels, which have no place and are no tokens, none."""
    if layer.kind == "channel" or not layer.key_layout.placed:
        return False
    return bool(np.isfinite(measure.of_heads(measured, display.protocol)).any())


def _queries(
    record: AttentionRecord,
    layer: AttentionLayer,
    measured: LayerMeasures,
    x_measure: Measure | None,
    y_measure: Measure,
    display: DisplayValue,
) -> _OfQueries:
    """Return the measures of each query of a layer; a pooling query is not one that can be selected."""
    placed = layer.query_layout.placed
    found = [
        None
        if measure is None or measure.of_queries is None or not placed
        else measure.of_queries(measured, display.protocol)
        for measure in (x_measure, y_measure)
    ]
    under = layer.query_layout.patches_under(record.layout) if placed else np.empty(0, np.int64)
    return _OfQueries(layer.index, layer.heads, *found, under)


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
        references.append(Reference("uniform", x, y, UNIFORM_LABEL))
    stack = convolution_levels(record, y_measure, len(record.layers))
    if len(stack):
        along = np.arange(len(stack), dtype=np.float64)
        references.append(Reference("convolution", along, stack, CONVOLUTION_LABEL))
    expected = is_distance(y_measure) or y_measure.unit == "hops"
    return tuple(references), (NO_CONVOLUTION,) if expected and not len(stack) else ()


def _column(per_layer: list[npt.NDArray[np.floating]]) -> npt.NDArray[np.float64]:
    return np.concatenate(per_layer).astype(np.float64) if per_layer else np.empty(0)
