"""Every measure of a head by its name: its words and unit, and how it is read off a sweep.

Tables, studies, the axes of the scatter and the read-out all take their measures from `MEASURES`; a new one
is a row there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from viewer.attention.measured import NEAR_HOPS, defined_mean, mean_of_numbers

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.distance import Protocol
    from viewer.attention.layer import AttentionLayer
    from viewer.attention.measured import LayerMeasures

OfHeads = Callable[["LayerMeasures", "Protocol"], "npt.NDArray[np.float64]"]
"""float64 (heads,): the measure of each head; NaN where it is not defined."""

OfQueries = Callable[["LayerMeasures", "Protocol"], "npt.NDArray[np.floating]"]
"""(heads, R * C): the measure of each query in row-major order; NaN where it is not defined."""

Uniform = Callable[["AttentionLayer", "Protocol"], float]
"""What uniform attention over all that the layer's queries can reach gives; NaN where it is not defined."""


@dataclass(frozen=True)
class Measure:
    """One number a head.

    Attributes
    ----------
    name
        In tables, studies and options: "mean_distance_px".
    words
        In the field's words, for an axis or a sentence: "mean attention distance".
    unit
        "px", "patches", "hops", "nats", "tokens"; empty for shares and other pure numbers.
    low, high
        Ends of what it can be; None where there is no end.
    by_protocol
        Whether the protocol of the distance changes it.
    of_heads
        See `OfHeads`.
    of_queries
        See `OfQueries`; None where it is a property of the whole matrix.
    uniform
        See `Uniform`; None where there is no such reference.
    source
        Paper or equation.
    """

    name: str
    words: str
    unit: str
    low: float
    high: float | None
    by_protocol: bool
    of_heads: OfHeads
    of_queries: OfQueries | None = None
    uniform: Uniform | None = None
    source: str = ""


def measure_named(name: str) -> Measure:
    """Return a measure by its name.

    Raises
    ------
    LookupError
        If there is none; the message lists all there are.
    """
    for measure in MEASURES:
        if measure.name == name:
            return measure
    raise LookupError(f"No measure is called {name!r}; there are {', '.join(m.name for m in MEASURES)}.")


def quartiles(measure: Measure, found: LayerMeasures, protocol: Protocol) -> npt.NDArray[np.float64]:
    """Return how a measure spreads over queries: float64 (heads, 3), first quartile, median, third.

    Over the queries where it is defined; NaN where it is for none, or belongs to whole maps alone.
    """
    spread = np.full((len(found.entropy), 3), np.nan)
    if measure.of_queries is None:
        return spread
    for head, values in enumerate(measure.of_queries(found, protocol)):
        there = values[np.isfinite(values)]
        if there.size:
            spread[head] = np.quantile(there.astype(np.float64), (0.25, 0.5, 0.75))
    return spread


def _uniform_px(layer: AttentionLayer, protocol: Protocol) -> float:
    # It needs torch, which whoever only asks for names and words does not load.
    from viewer.attention.uniform import uniform_layer_distance

    return mean_of_numbers(uniform_layer_distance(layer, protocol, "px"))


def _uniform_patches(layer: AttentionLayer, protocol: Protocol) -> float:
    from viewer.attention.uniform import uniform_layer_distance

    return mean_of_numbers(uniform_layer_distance(layer, protocol, "patches"))


def _even(of_heads: OfHeads) -> Uniform:
    """Return a measure's reference, as the same measure of even attention."""

    def uniform(layer: AttentionLayer, protocol: Protocol) -> float:
        from viewer.attention.even import even_measures

        # Sums are float32: more digits would tell layers apart that are the same.
        return float(f"{round(float(of_heads(even_measures(layer), protocol)[0]), 5):.6g}")

    return uniform


def _near(hops: int) -> Measure:
    def of_heads(found: LayerMeasures, protocol: Protocol) -> npt.NDArray[np.float64]:
        return defined_mean(found.query_near(hops, protocol))

    return Measure(
        f"local_{hops}",
        f"attention within {hops} hop{'s' if hops > 1 else ''}",
        "",
        *(0.0, 1.0, True),
        of_heads,
        lambda found, protocol: found.query_near(hops, protocol),
        _even(of_heads),
        source=f"what {hops} stacked 3x3 convolutions reach"
        if hops > 1
        else "what a 3x3 convolution reaches",
    )


MEASURES: tuple[Measure, ...] = (
    Measure(
        "mean_distance_px",
        "mean attention distance",
        "px",
        *(0.0, None, True),
        lambda found, protocol: found.distance(protocol, "px"),
        lambda found, protocol: found.query_distance(protocol, "px"),
        _uniform_px,
        "Dosovitskiy et al. 2020, appendix D.7",
    ),
    Measure(
        "mean_distance_patches",
        "mean attention distance",
        "patches",
        *(0.0, None, True),
        lambda found, protocol: found.distance(protocol, "patches"),
        lambda found, protocol: found.query_distance(protocol, "patches"),
        _uniform_patches,
        "Dosovitskiy et al. 2020, appendix D.7",
    ),
    Measure(
        "mean_hops",
        "mean Chebyshev distance",
        "hops",
        *(0.0, None, True),
        lambda found, protocol: defined_mean(found.query_hops(protocol)),
        lambda found, protocol: found.query_hops(protocol),
        _even(lambda found, protocol: defined_mean(found.query_hops(protocol))),
        source="hops of a stack of 3x3 convolutions",
    ),
    *map(_near, NEAR_HOPS),
    Measure(
        "entropy_nats",
        "entropy",
        "nats",
        *(0.0, None, False),
        lambda found, protocol: found.mean_entropy(),
        lambda found, protocol: found.entropy,
        _even(lambda found, protocol: found.mean_entropy()),
        source="Shannon 1948, over all keys, prefix keys included",
    ),
    Measure(
        "normalized_entropy",
        "normalized entropy",
        "",
        *(0.0, 1.0, False),
        lambda found, protocol: found.normalized_entropy(),
        lambda found, protocol: found.entropy / np.log(max(found.keys, 2)),
        _even(lambda found, protocol: found.normalized_entropy()),
        "entropy over the logarithm of the number of keys",
    ),
    Measure(
        "effective_tokens",
        "effective tokens",
        "tokens",
        *(1.0, None, False),
        lambda found, protocol: found.effective_tokens(),
        lambda found, protocol: np.exp(found.entropy),
        _even(lambda found, protocol: found.effective_tokens()),
        "exponential of the mean entropy",
    ),
    Measure(
        "prefix_mass",
        "attention on prefix tokens",
        "",
        *(0.0, 1.0, False),
        lambda found, protocol: found.mean_prefix_mass(),
        lambda found, protocol: found.prefix_mass,
        _even(lambda found, protocol: found.mean_prefix_mass()),
    ),
    Measure(
        "row_cosine",
        "cosine between rows",
        "",
        *(0.0, 1.0, False),
        lambda found, protocol: found.row_cosine,
        uniform=_even(lambda found, protocol: found.row_cosine),
        source="mean over pairs of different queries, over all keys; 1: every query looks at the same",
    ),
    Measure(
        "nmi",
        "mutual information of query and key",
        "",
        *(0.0, 1.0, False),
        lambda found, protocol: found.nmi,
        uniform=_even(lambda found, protocol: found.nmi),
        source="normalized, queries equally likely, over all keys; 0: every query looks at the same",
    ),
    Measure(
        "offset_share",
        "variance explained by the offset",
        "",
        *(0.0, 1.0, False),
        lambda found, protocol: found.offset_share,
        source="between patches; 1: the same offsets from every query",
    ),
    Measure(
        "sink_mass",
        "attention on sink tokens",
        "",
        *(0.0, 1.0, False),
        lambda found, protocol: found.sink_mass(),
        uniform=_even(lambda found, protocol: found.sink_mass()),
        source="keys that more than half of the queries look at",
    ),
)
