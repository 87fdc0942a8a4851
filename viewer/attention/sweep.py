"""All measures of a record in one pass over chunks of queries, never holding a whole attention matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    from viewer.attention.record import AttentionRecord

Protocol = Literal["renormalized", "original"]
Unit = Literal["px", "patches"]


@dataclass(frozen=True, eq=False)
class LayerMeasures:
    """Per-query measures of one layer, over patch queries in row-major order; float32 (heads, R * C).

    Attributes
    ----------
    distance_sum
        Sum over patch keys of attention times Euclidean distance, in input pixels (the `original` protocol).
    distance_sum_patches
        The same with distances in patches (row and column steps count 1 each).
    prefix_mass
        Attention on prefix keys.
    entropy
        ``-sum A log A`` over all keys, prefix keys included, in nats.
    keys
        Number of keys, prefix keys included.
    log_normalizer
        float32 (heads, queries), logarithm of each row's softmax denominator, for all queries; None where the
        record holds weights. Columns of the matrix are built from it.
    """

    distance_sum: npt.NDArray[np.float32]
    distance_sum_patches: npt.NDArray[np.float32]
    prefix_mass: npt.NDArray[np.float32]
    entropy: npt.NDArray[np.float32]
    keys: int
    log_normalizer: npt.NDArray[np.float32] | None

    def distance(self, protocol: Protocol, unit: Unit = "px") -> npt.NDArray[np.float64]:
        """Return the mean attention distance of each head, float64 (heads,); NaN where no row is defined."""
        raise NotImplementedError

    def query_distance(self, protocol: Protocol, unit: Unit = "px") -> npt.NDArray[np.float64]:
        """Return the attention distance of each query, float64 (heads, R * C); NaN where undefined."""
        raise NotImplementedError

    def undefined_rows(self) -> npt.NDArray[np.int64]:
        """Return how many queries put no attention on patches, int64 (heads,)."""
        raise NotImplementedError

    def mean_entropy(self) -> npt.NDArray[np.float64]:
        """Return mean row entropy of each head in nats, float64 (heads,)."""
        raise NotImplementedError

    def mean_prefix_mass(self) -> npt.NDArray[np.float64]:
        """Return mean attention on prefix keys of each head, float64 (heads,)."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class RecordMeasures:
    """Measures of every layer of a record, in layer order; layers without a patch grid on both sides hold NaN."""

    layers: tuple[LayerMeasures, ...]


def measure_record(
    record: AttentionRecord, step: Callable[[str, float | None], None] | None = None
) -> RecordMeasures:
    """Measure every head of every layer.

    Parameters
    ----------
    record
        Of any backend.
    step
        Told of progress between chunks; may raise to stop (see `viewer.backends.model.Job.step`).
    """
    raise NotImplementedError
