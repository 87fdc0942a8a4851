"""All measures of a record in one pass over chunks of queries, never holding a whole attention matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from viewer.attention.distance import Metric, Protocol, Unit
from viewer.attention.scores import Scratch

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    from torch import Tensor

    from viewer.attention.layer import AttentionLayer, Scores
    from viewer.attention.record import AttentionRecord

# A chunk's weights should stay in the processor's cache between the passes over them.
_CHUNK_BYTES = 4 << 20
_FEWEST_ROWS, _MOST_ROWS = 16, 256


@dataclass(frozen=True, eq=False)
class LayerMeasures:
    """Per-query measures of one layer, over patch queries in row-major order; float32 (heads, R * C).

    Where the queries have no patch grid (attention pooling) the second axis is all queries in token order,
    and the distances are NaN.

    Attributes
    ----------
    distance_sum
        Sum over patch keys of attention times distance, in input pixels (the `original` protocol).
    distance_sum_patches
        The same with distances in patches (row and column steps count 1 each).
    patch_mass, prefix_mass
        Attention on patch keys and on prefix keys. Both are kept since 1 minus one of them has no digits left
        where it is small.
    entropy
        ``-sum A log A`` over all keys, prefix keys included, in nats.
    keys
        Number of keys that a query looks at, prefix keys included; those of its own window where there are
        windows.
    log_normalizer
        float32 (heads, queries), logarithm of each row's softmax denominator, for all queries in token order;
        None where the record holds weights. Columns of the matrix are built from it.
    """

    distance_sum: npt.NDArray[np.float32]
    distance_sum_patches: npt.NDArray[np.float32]
    patch_mass: npt.NDArray[np.float32]
    prefix_mass: npt.NDArray[np.float32]
    entropy: npt.NDArray[np.float32]
    keys: int
    log_normalizer: npt.NDArray[np.float32] | None

    def __repr__(self) -> str:
        heads, queries = self.entropy.shape
        return f"<LayerMeasures: {heads} heads, {queries} queries, {self.keys} keys>"

    def distance(self, protocol: Protocol, unit: Unit = "px") -> npt.NDArray[np.float64]:
        """Return the mean attention distance of each head, float64 (heads,); NaN where no row is defined."""
        found = self.query_distance(protocol, unit)
        defined = np.isfinite(found)
        count = defined.sum(axis=1)
        total = np.where(defined, found, 0.0).sum(axis=1)
        return np.divide(total, count, out=np.full(len(found), np.nan), where=count > 0)

    def query_distance(self, protocol: Protocol, unit: Unit = "px") -> npt.NDArray[np.float64]:
        """Return the attention distance of each query, float64 (heads, R * C); NaN where undefined."""
        found = (self.distance_sum if unit == "px" else self.distance_sum_patches).astype(np.float64)
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


@dataclass(frozen=True, eq=False)
class RecordMeasures:
    """Measures of every layer of a record, in layer order."""

    layers: tuple[LayerMeasures, ...]

    def __repr__(self) -> str:
        return (
            f"<RecordMeasures: {len(self.layers)} layers, {sum(len(m.entropy) for m in self.layers)} heads>"
        )


def measure_record(
    record: AttentionRecord,
    step: Callable[[str, float | None], None] | None = None,
    *,
    metric: Metric = "euclidean",
) -> RecordMeasures:
    """Measure every head of every layer.

    Parameters
    ----------
    record
        Of any backend.
    step
        Told of progress between chunks; may raise to stop (see `viewer.backends.model.Job.step`).
    metric
        Of the distances: "chebyshev" counts the hops of a stack of 3x3 convolutions.
    """
    count = len(record.layers)

    def measure(at: int) -> LayerMeasures:
        def report(share: float) -> None:
            if step is not None:
                step(f"Measuring layer {at + 1} of {count}", (at + share) / count)

        return _measure_layer(record.layers[at], metric, report)

    return RecordMeasures(tuple(measure(at) for at in range(count)))


class _Sums(NamedTuple):
    """What a sweep adds up, each float32 (heads, queries) on the scores' device, in token order."""

    pixels: Tensor
    patches: Tensor
    patch_mass: Tensor
    prefix_mass: Tensor
    entropy: Tensor
    log_normalizer: Tensor


def _measure_layer(layer: AttentionLayer, metric: Metric, report: Callable[[float], None]) -> LayerMeasures:
    scores, stacked = layer.scores, layer.scores.stacked
    block = _DistanceBlock(layer, metric)
    size = (len(_Sums._fields), stacked.heads, stacked.queries)
    sums = _Sums(*torch.zeros(size, dtype=torch.float32, device=scores.device))
    rows = _chunk_rows(stacked.heads, stacked.keys)
    scratch = Scratch(stacked.heads, min(rows, stacked.queries), stacked.keys, scores.device)
    for start in range(0, stacked.queries, rows):
        report(start / stacked.queries)
        _sweep_chunk(stacked, block, slice(start, min(start + rows, stacked.queries)), sums, scratch)
    # From (groups * heads, queries of a group) to (heads, queries).
    ungrouped = torch.stack(sums).view(len(sums), scores.groups, scores.heads, stacked.queries)
    found = _Sums(*ungrouped.transpose(1, 2).reshape(len(sums), scores.heads, -1).cpu().numpy())
    order = layer.query_layout.patch_tokens if layer.query_layout.placed else slice(None)
    missing = np.float32(0 if block.placed else np.nan)
    return LayerMeasures(
        distance_sum=found.pixels[:, order] + missing,
        distance_sum_patches=found.patches[:, order] + missing,
        patch_mass=found.patch_mass[:, order],
        prefix_mass=found.prefix_mass[:, order],
        entropy=found.entropy[:, order],
        keys=stacked.keys,
        log_normalizer=found.log_normalizer.copy() if scores.how == "query-key" else None,
    )


def _sweep_chunk(stacked: Scores, block: _DistanceBlock, rows: slice, sums: _Sums, scratch: Scratch) -> None:
    weights, entropy, log_normalizer = stacked.softmax_rows(rows, scratch)
    sums.entropy[:, rows] = entropy
    if log_normalizer is not None:
        sums.log_normalizer[:, rows] = log_normalizer
    product = scratch.take(0, weights.shape[1])

    def total(factor: Tensor) -> Tensor:
        """Sum weights times a factor (groups, rows or 1, keys) over keys, (groups * heads, rows)."""
        shape = (block.groups, -1, *weights.shape[1:])
        torch.mul(weights.view(shape), factor[:, None], out=product.view(shape))
        # Not as a matrix product: `sum` adds pairwise and keeps two digits more.
        return product.sum(dim=-1)

    sums.patch_mass[:, rows] = total(block.on_patches)
    sums.prefix_mass[:, rows] = block.prefix_sum(weights, total)
    if not block.placed:
        return
    sums.pixels[:, rows] = total(block.between(rows))
    if block.square:
        sums.patches[:, rows] = sums.pixels[:, rows] / block.patch_px[0]
    else:
        sums.patches[:, rows] = total(block.between(rows, block.patch_px))


class _DistanceBlock:
    """Distances between some queries and the keys of their group, and which keys are patches."""

    def __init__(self, layer: AttentionLayer, metric: Metric) -> None:
        device = layer.scores.device
        self.groups = layer.scores.groups
        self._queries, self._keys = (
            torch.tensor(layout.positions, device=device).view(self.groups, -1, 2)
            for layout in (layer.query_layout, layer.key_layout)
        )
        self._metric = metric
        self.placed = layer.query_layout.placed and layer.key_layout.placed
        self.patch_px = layer.query_layout.patch_px
        self.square = self.patch_px[0] == self.patch_px[1]
        self.on_patches = self._keys.isfinite().all(dim=2)[:, None].to(torch.float32)
        self._prefix = torch.tensor(layer.key_layout.prefix_tokens, device=device)

    def prefix_sum(self, weights: Tensor, total: Callable[[Tensor], Tensor]) -> Tensor:
        """Return attention on keys without a place, (groups * heads, rows)."""
        if self.groups == 1:
            return weights[:, :, self._prefix].sum(dim=-1)
        return total(1 - self.on_patches) if len(self._prefix) else weights.new_zeros(weights.shape[:2])

    def between(self, rows: slice, unit: tuple[float, float] = (1.0, 1.0)) -> Tensor:
        """Return float32 (groups, rows, keys), each axis in units of so many pixels.

        0 where a token has no place.
        """
        queries, keys = self._queries[:, rows, None], self._keys[:, None]
        y = queries[..., 0] / unit[0] - keys[..., 0] / unit[0]
        x = queries[..., 1] / unit[1] - keys[..., 1] / unit[1]
        if self._metric == "chebyshev":
            far = torch.maximum(y.abs_(), x.abs_())
        else:
            far = y.mul_(y).addcmul_(x, x).sqrt_()
        return far.nan_to_num_(0.0)


def _chunk_rows(heads: int, keys: int) -> int:
    """Return how many queries to take at once: about 128 in usual models."""
    return max(_FEWEST_ROWS, min(_MOST_ROWS, _CHUNK_BYTES // (4 * heads * keys)))
