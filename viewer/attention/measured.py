"""What one sweep leaves of a layer: numbers of every query and of every head, all small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.distance import Protocol, Unit

NEAR_HOPS = (1, 2, 3)
"""Within how many Chebyshev hops attention is counted: what so many stacked 3x3 convolutions reach."""
SINK_SHARE = 0.1
"""A query feeds a sink if it spends more than this on it, and `SINK_TIMES` the even share of all keys."""
SINK_TIMES = 4.0
SINK_QUERIES = 0.5
"""A key is a sink if more than this share of the queries feed it."""


def sink_threshold(keys: int) -> float:
    """Return the attention that a query must exceed to feed a sink among so many keys."""
    return max(SINK_SHARE, SINK_TIMES / keys)


@dataclass(frozen=True, eq=False)
class LayerMeasures:
    """Per-query measures of one layer, over patch queries in row-major order; float32 (heads, R * C).

    Where the queries have no patch grid (attention pooling) the second axis is all queries in token order,
    and the distances are NaN. What belongs to whole maps is float64 (heads,), over the same queries.

    Attributes
    ----------
    distance_sum
        Sum over patch keys of attention times distance, in input pixels (the `original` protocol).
    distance_sum_patches
        The same with distances in patches (row and column steps count 1 each).
    hop_sum
        The same with Chebyshev distances in patches: the hops of a stack of 3x3 convolutions.
    near_mass
        (3, heads, R * C), attention on patch keys within each of `NEAR_HOPS`.
    patch_mass, prefix_mass
        Attention on patch keys and on prefix keys. Both are kept since 1 minus one of them has no digits left
        where it is small.
    entropy
        ``-sum A log A`` over all keys, prefix keys included, in nats.
    row_cosine
        Mean cosine between rows of two different queries, over all keys. Where there are windows: of two
        queries of the same window. NaN with fewer than two queries.
    nmi
        Mutual information of query and key, the queries being equally likely, over the root of the product of
        their entropies; over all keys. Where there are windows: the mean over windows. NaN with fewer than
        two queries or keys; 0 if every query looks at the same single key.
    offset_share
        Share of the variance of the map over patch queries and the patch keys in their reach that is
        explained by the offset from query to key alone; NaN unless queries and keys are the same patches, or
        where the map has no variance.
    received
        float32 (heads, keys in all), mean attention that each key draws from the queries (of its window).
    fed
        The same for the share of those queries that spend more than `sink_threshold` on it.
    keys
        Number of keys that a query looks at, prefix keys included; those of its own window where there are
        windows.
    log_normalizer
        float32 (heads, queries), logarithm of each row's softmax denominator, for all queries in token order;
        None where the record holds weights. Columns of the matrix are built from it.
    """

    distance_sum: npt.NDArray[np.float32]
    distance_sum_patches: npt.NDArray[np.float32]
    hop_sum: npt.NDArray[np.float32]
    near_mass: npt.NDArray[np.float32]
    patch_mass: npt.NDArray[np.float32]
    prefix_mass: npt.NDArray[np.float32]
    entropy: npt.NDArray[np.float32]
    row_cosine: npt.NDArray[np.float64]
    nmi: npt.NDArray[np.float64]
    offset_share: npt.NDArray[np.float64]
    received: npt.NDArray[np.float32]
    fed: npt.NDArray[np.float32]
    keys: int
    log_normalizer: npt.NDArray[np.float32] | None

    def __repr__(self) -> str:
        heads, queries = self.entropy.shape
        return f"<LayerMeasures: {heads} heads, {queries} queries, {self.keys} keys>"

    def distance(self, protocol: Protocol, unit: Unit = "px") -> npt.NDArray[np.float64]:
        """Return the mean attention distance of each head, float64 (heads,); NaN where no row is defined."""
        return defined_mean(self.query_distance(protocol, unit))

    def query_distance(self, protocol: Protocol, unit: Unit = "px") -> npt.NDArray[np.float64]:
        """Return the attention distance of each query, float64 (heads, R * C); NaN where undefined."""
        return self._by_protocol(self.distance_sum if unit == "px" else self.distance_sum_patches, protocol)

    def query_hops(self, protocol: Protocol) -> npt.NDArray[np.float64]:
        """Return how many Chebyshev hops each query's attention goes, float64 (heads, R * C)."""
        return self._by_protocol(self.hop_sum, protocol)

    def query_near(self, hops: int, protocol: Protocol) -> npt.NDArray[np.float64]:
        """Return the share of attention within so many of `NEAR_HOPS`, float64 (heads, R * C).

        Of the attention on patches under `renormalized`; of all attention under `original`, so that what goes
        to prefix keys counts as not near.
        """
        return self._by_protocol(self.near_mass[NEAR_HOPS.index(hops)], protocol)

    def _by_protocol(self, sums: npt.NDArray[np.float32], protocol: Protocol) -> npt.NDArray[np.float64]:
        found = sums.astype(np.float64)
        if protocol == "original":
            return found
        return np.divide(found, self.patch_mass, out=np.full_like(found, np.nan), where=self.patch_mass > 0)

    def undefined_rows(self) -> npt.NDArray[np.int64]:
        """Return how many queries put no attention on patches, int64 (heads,).

        Under `renormalized` their distance is undefined, and they are left out of the mean.
        """
        return (self.patch_mass == 0).sum(axis=1)

    def mean_entropy(self) -> npt.NDArray[np.float64]:
        """Return mean row entropy of each head in nats, float64 (heads,)."""
        return self.entropy.mean(axis=1, dtype=np.float64)

    def normalized_entropy(self) -> npt.NDArray[np.float64]:
        """Return mean row entropy divided by the logarithm of `keys` (prefix keys in), float64 (heads,).

        Uniform attention gives 1; NaN where there is only one key.
        """
        if self.keys == 1:
            return np.full(len(self.entropy), np.nan)
        return self.mean_entropy() / np.log(self.keys)

    def effective_tokens(self) -> npt.NDArray[np.float64]:
        """Return the exponential of the mean row entropy (prefix keys in), float64 (heads,)."""
        return np.exp(self.mean_entropy())

    def mean_prefix_mass(self) -> npt.NDArray[np.float64]:
        """Return mean attention on prefix keys of each head, float64 (heads,)."""
        return self.prefix_mass.mean(axis=1, dtype=np.float64)

    def sinks(self) -> npt.NDArray[np.bool_]:
        """Return which keys are sinks of which head, bool (heads, keys in all): see `SINK_QUERIES`."""
        return self.fed > SINK_QUERIES

    def sink_mass(self) -> npt.NDArray[np.float64]:
        """Return how much of each head's attention goes to its sinks, float64 (heads,).

        NaN where nothing could be a sink: a single query, or no more keys than `SINK_TIMES`.
        """
        if self.entropy.shape[1] < 2 or self.keys <= SINK_TIMES:
            return np.full(len(self.fed), np.nan)
        # Every key is there for the queries of its own window, one part in so many of all.
        windows = self.fed.shape[1] // self.keys
        return np.where(self.sinks(), self.received, 0).sum(axis=1, dtype=np.float64) / windows


@dataclass(frozen=True, eq=False)
class RecordMeasures:
    """Measures of every layer of a record, in layer order."""

    layers: tuple[LayerMeasures, ...]

    def __repr__(self) -> str:
        return (
            f"<RecordMeasures: {len(self.layers)} layers, {sum(len(m.entropy) for m in self.layers)} heads>"
        )


def defined_mean(of_queries: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return the mean over queries that are not NaN, float64 (heads,); NaN where there is none."""
    defined = np.isfinite(of_queries)
    count = defined.sum(axis=1)
    total = np.where(defined, of_queries, 0.0).sum(axis=1, dtype=np.float64)
    return np.divide(total, count, out=np.full(len(of_queries), np.nan), where=count > 0)


def mean_of_numbers(values: npt.NDArray[np.floating]) -> float:
    """Return the mean of those that are numbers; NaN where none is."""
    there = values[np.isfinite(values)]
    return float(there.mean()) if there.size else float("nan")


def number_or_none(value: float) -> float | None:
    """Return a number for JSON and reports, which know no NaN: None where it is not defined."""
    return float(value) if np.isfinite(value) else None
