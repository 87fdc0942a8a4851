"""What the scatter shows: mean attention distance of every head against its layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from viewer.state.references import mean_of_numbers, uniform_distances
from viewer.state.words import PROTOCOLS, query_words

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.record import AttentionRecord
    from viewer.attention.sweep import LayerMeasures, RecordMeasures
    from viewer.state.attended import Attended
    from viewer.state.display import DisplayValue, Protocol, Unit
    from viewer.state.documents import ImageDocument
    from viewer.state.selection import HeadRef, SelectionValue

UNIFORM_LABEL = "uniform attention"
CONVOLUTION_LABEL = "stacked 3x3 convolutions, one a layer"
NO_CONVOLUTION = "no line for convolutions: the layers differ in their patches"
NO_DISTANCE = "No distance to measure: in no layer do patches attend to patches"


@dataclass(frozen=True, eq=False)
class Scatter:
    """The scatter, ready to paint: one dot a head, none for layers without a distance.

    Attention pooling has none, nor has attention of channels.

    Attributes
    ----------
    layer, head
        int64 (dots,).
    distance
        float64 (dots,), mean over all patch queries, in the chosen unit and protocol; NaN where no query is
        defined.
    query_distance
        float64 (dots,), of the selected query alone; None while none is selected, for a prefix token (it has
        no place to measure from) and while the views show who attends to the query.
    prefix_mass
        float64 (dots,), mean attention on prefix tokens, 0 to 1.
    uniform
        float64 (layers,), distance under uniform attention to all that each layer's queries can reach, in the
        same unit and protocol; NaN where the layer has no distance.
    uniform_query
        The same for the selected query alone (a corner is far from more patches than the centre); None
        where `query_distance` is.
    convolution
        float64 (layers,), distance of a uniform square as wide as 1, 2, 3, ... stacked 3x3 convolutions
        reach; empty where layers have grids of their own, since no such stack compares with them, and where
        there is nothing to compare.
    layers
        Number of layers, those without dots included.
    shown
        The head to emphasize.
    unit, protocol
        As in `DisplayValue`.
    title, x_label, y_label, uniform_label, convolution_label, query_label
        With unit and protocol; `query_label` is empty where `query_distance` is None.
    blank
        Why there is not one dot, as a clause; empty where there are any.
    """

    layer: npt.NDArray[np.int64]
    head: npt.NDArray[np.int64]
    distance: npt.NDArray[np.float64]
    query_distance: npt.NDArray[np.float64] | None
    prefix_mass: npt.NDArray[np.float64]
    uniform: npt.NDArray[np.float64]
    uniform_query: npt.NDArray[np.float64] | None
    convolution: npt.NDArray[np.float64]
    layers: int
    shown: HeadRef
    unit: Unit
    protocol: Protocol
    title: str
    x_label: str
    y_label: str
    uniform_label: str
    convolution_label: str
    query_label: str
    blank: str

    @property
    def pales(self) -> bool:
        """Whether any head attends to prefix tokens, so that dots are of different strength."""
        return bool((self.prefix_mass > 0).any())

    @staticmethod
    def steps(levels: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return x and y of a line at one level for each layer, NaN between pieces that do not join.

        Layers of the same level have one piece, and at either end it goes on to the plot's border.
        """
        x: list[float] = []
        y: list[float] = []
        for layer, level in enumerate(levels.tolist()):
            left = layer - (0.6 if layer == 0 else 0.5)
            right = layer + (0.6 if layer == len(levels) - 1 else 0.5)
            if layer and abs(levels[layer - 1] - level) <= 1e-9 * level:
                x[-1] = right
            elif np.isfinite(level):
                x += [np.nan, left, right] if x else [left, right]
                y += [np.nan, level, level] if y else [level, level]
        return np.array(x), np.array(y)


@dataclass(frozen=True, eq=False)
class _Dots:
    """What of the scatter does not depend on the selection; arrays as in `Scatter`."""

    layer: npt.NDArray[np.int64]
    head: npt.NDArray[np.int64]
    distance: npt.NDArray[np.float64]
    # For each layer with dots its index, distances (heads, R * C), and the queries under those of the record.
    per_query: tuple[tuple[int, npt.NDArray[np.float64], npt.NDArray[np.int64]], ...]
    prefix_mass: npt.NDArray[np.float64]
    uniform: npt.NDArray[np.float64]
    convolution: npt.NDArray[np.float64]


def scatter(
    document: ImageDocument, found: Attended | None, selection: SelectionValue, display: DisplayValue
) -> Scatter | None:
    """Describe the scatter; None until the document is measured."""
    record, measures = document.record, document.measures
    if record is None or measures is None:
        return None
    dots = _dots(record, measures, display.protocol, display.unit)
    of_query, uniform_query, query_label = None, None, ""
    query = None if found is None or found.direction == "to" else found.query
    if isinstance(query, tuple) and len(dots.layer):
        of_query, uniform_query = _of_query(record, dots, query, display)
        query_label = query_words(query, brief=True, grid=None if record.one_grid else record.grid)
    words = PROTOCOLS[display.protocol]
    return Scatter(
        layer=dots.layer,
        head=dots.head,
        distance=dots.distance,
        query_distance=of_query,
        prefix_mass=dots.prefix_mass,
        uniform=dots.uniform,
        uniform_query=uniform_query,
        convolution=dots.convolution,
        layers=len(record.layers),
        shown=selection.shown,
        unit=display.unit,
        protocol=display.protocol,
        title="How far each head reaches",
        x_label="layer",
        y_label=f"mean attention distance ({display.unit}), {words}",
        uniform_label=UNIFORM_LABEL,
        convolution_label=CONVOLUTION_LABEL if len(dots.convolution) else NO_CONVOLUTION,
        query_label=query_label,
        blank="" if len(dots.layer) else NO_DISTANCE,
    )


def _of_query(
    record: AttentionRecord, dots: _Dots, query: tuple[int, int], display: DisplayValue
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the distances of one query, each layer's patch that lies under it, and their references."""
    place = query[0] * record.grid[1] + query[1]
    uniform = np.full(len(record.layers), np.nan)
    for index, _, under in dots.per_query:
        reference = uniform_distances(record.layers[index], display.protocol, display.unit)
        uniform[index] = reference[under[place]]
    return _column([distances[:, under[place]] for _, distances, under in dots.per_query]), uniform


_kept: WeakKeyDictionary[RecordMeasures, dict[tuple[str, str], _Dots]] = WeakKeyDictionary()


def _dots(record: AttentionRecord, measures: RecordMeasures, protocol: Protocol, unit: Unit) -> _Dots:
    """Read the measures; kept while they are, since every hover asks again."""
    of_record = _kept.setdefault(measures, {})
    if (protocol, unit) not in of_record:
        of_record[protocol, unit] = _read(record, measures, protocol, unit)
    return of_record[protocol, unit]


def _read(record: AttentionRecord, measures: RecordMeasures, protocol: Protocol, unit: Unit) -> _Dots:
    from viewer.attention.distance import convolution_distances

    rows: list[tuple[int, LayerMeasures]] = [
        (layer.index, measured)
        for layer, measured in zip(record.layers, measures.layers, strict=True)
        if layer.query_layout.placed and np.isfinite(measured.distance_sum).any()
    ]
    uniform = np.full(len(record.layers), np.nan)
    for index, _ in rows:
        uniform[index] = mean_of_numbers(uniform_distances(record.layers[index], protocol, unit))
    heads = [len(measured.prefix_mass) for _, measured in rows]
    return _Dots(
        layer=np.repeat([index for index, _ in rows], heads).astype(np.int64),
        head=_column([np.arange(count) for count in heads]).astype(np.int64),
        distance=_column([measured.distance(protocol, unit) for _, measured in rows]),
        per_query=tuple(
            (
                index,
                measured.query_distance(protocol, unit),
                record.layers[index].query_layout.patches_under(record.layout),
            )
            for index, measured in rows
        ),
        prefix_mass=_column([measured.mean_prefix_mass() for _, measured in rows]),
        uniform=uniform,
        convolution=convolution_distances(record.layout, len(measures.layers), unit)
        if rows and record.one_grid
        else np.empty(0),
    )


def _column(per_layer: list[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    return np.concatenate(per_layer) if per_layer else np.empty(0)
