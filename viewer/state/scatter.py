"""What the scatter shows: mean attention distance of every head against its layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from viewer.state.words import PROTOCOLS, query_words

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.layout import TokenLayout
    from viewer.attention.sweep import RecordMeasures
    from viewer.state.attended import Attended
    from viewer.state.display import DisplayValue, Protocol, Unit
    from viewer.state.documents import ImageDocument
    from viewer.state.selection import HeadRef, SelectionValue

UNIFORM_LABEL = "uniform attention"
CONVOLUTION_LABEL = "stacked 3x3 convolutions, one a layer"


@dataclass(frozen=True, eq=False)
class Scatter:
    """The scatter, ready to paint: one dot a head, none for layers without a distance (attention pooling).

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
        Distance under uniform attention, in the same unit and protocol.
    uniform_query
        The same for the selected query alone (a corner is far from more patches than the centre); None
        where `query_distance` is.
    convolution
        float64 (layers,), distance of a uniform square as wide as 1, 2, 3, ... stacked 3x3 convolutions
        reach.
    layers
        Number of layers, those without dots included.
    shown
        The head to emphasize.
    unit, protocol
        As in `DisplayValue`.
    title, x_label, y_label, uniform_label, convolution_label, query_label
        With unit and protocol; `query_label` is empty where `query_distance` is None.
    """

    layer: npt.NDArray[np.int64]
    head: npt.NDArray[np.int64]
    distance: npt.NDArray[np.float64]
    query_distance: npt.NDArray[np.float64] | None
    prefix_mass: npt.NDArray[np.float64]
    uniform: float
    uniform_query: float | None
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


@dataclass(frozen=True, eq=False)
class _Dots:
    """What of the scatter does not depend on the selection; arrays as in `Scatter`."""

    layer: npt.NDArray[np.int64]
    head: npt.NDArray[np.int64]
    distance: npt.NDArray[np.float64]
    per_query: npt.NDArray[np.float64]  # (dots, R * C)
    prefix_mass: npt.NDArray[np.float64]
    uniform: npt.NDArray[np.float64]  # (R * C,)
    convolution: npt.NDArray[np.float64]


def scatter(
    document: ImageDocument, found: Attended | None, selection: SelectionValue, display: DisplayValue
) -> Scatter | None:
    """Describe the scatter; None until the document is measured."""
    record, measures = document.record, document.measures
    if record is None or measures is None:
        return None
    dots = _dots(measures, record.layout, display.protocol, display.unit)
    of_query, uniform_query, query_label = None, None, ""
    query = None if found is None or found.direction == "to" else found.query
    if isinstance(query, tuple):
        place = query[0] * record.grid[1] + query[1]
        of_query = dots.per_query[:, place]
        uniform_query = float(dots.uniform[place])
        query_label = query_words(query, brief=True)
    words = PROTOCOLS[display.protocol]
    return Scatter(
        layer=dots.layer,
        head=dots.head,
        distance=dots.distance,
        query_distance=of_query,
        prefix_mass=dots.prefix_mass,
        uniform=float(dots.uniform.mean()),
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
        convolution_label=CONVOLUTION_LABEL,
        query_label=query_label,
    )


@lru_cache(maxsize=2)
def _dots(measures: RecordMeasures, layout: TokenLayout, protocol: Protocol, unit: Unit) -> _Dots:
    """Read the measures; kept for the last two, since every hover asks again."""
    from viewer.attention.distance import convolution_distances, uniform_query_distance

    places = layout.grid[0] * layout.grid[1]
    # A layer whose queries are no patches (attention pooling) has no distance.
    rows = [
        (index, measured)
        for index, measured in enumerate(measures.layers)
        if measured.distance_sum.shape[1] == places and np.isfinite(measured.distance_sum).any()
    ]

    def column(per_layer: list[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
        return np.concatenate(per_layer) if per_layer else np.empty(0)

    heads = [measured.prefix_mass.shape[0] for _, measured in rows]
    return _Dots(
        layer=np.repeat([index for index, _ in rows], heads).astype(np.int64),
        head=column([np.arange(count) for count in heads]).astype(np.int64),
        distance=column([measured.distance(protocol, unit) for _, measured in rows]),
        per_query=np.concatenate([measured.query_distance(protocol, unit) for _, measured in rows])
        if rows
        else np.empty((0, places)),
        prefix_mass=column([measured.mean_prefix_mass() for _, measured in rows]),
        uniform=uniform_query_distance(layout, protocol, unit),
        convolution=convolution_distances(layout, len(measures.layers), unit),
    )
