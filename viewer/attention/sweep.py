"""All measures of a record in one pass over chunks of queries, never holding a whole attention matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from viewer.attention.measured import NEAR_HOPS, LayerMeasures, RecordMeasures
from viewer.attention.offsets import OffsetSums
from viewer.attention.over_queries import OverQueries
from viewer.attention.scores import Scratch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from viewer.attention.layer import AttentionLayer, Scores
    from viewer.attention.record import AttentionRecord

# A chunk's weights should stay in the processor's cache between the passes over them.
_CHUNK_BYTES = 4 << 20
_FEWEST_ROWS, _MOST_ROWS = 16, 256


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
    count = len(record.layers)

    def measure(at: int) -> LayerMeasures:
        def report(share: float) -> None:
            if step is not None:
                step(f"Measuring layer {at + 1} of {count}", (at + share) / count)

        return _measure_layer(record.layers[at], report)

    return RecordMeasures(tuple(measure(at) for at in range(count)))


class _Sums(NamedTuple):
    """What a sweep adds up, each float32 (heads, queries) on the scores' device, in token order."""

    pixels: Tensor
    patches: Tensor
    hops: Tensor
    near_1: Tensor
    near_2: Tensor
    near_3: Tensor
    patch_mass: Tensor
    prefix_mass: Tensor
    entropy: Tensor
    log_normalizer: Tensor


def _measure_layer(layer: AttentionLayer, report: Callable[[float], None]) -> LayerMeasures:
    scores, stacked = layer.scores, layer.scores.stacked
    block, over, offsets = _DistanceBlock(layer), OverQueries(layer), OffsetSums.of(layer)
    size = (len(_Sums._fields), stacked.heads, stacked.queries)
    sums = _Sums(*torch.zeros(size, dtype=torch.float32, device=scores.device))
    rows = _chunk_rows(stacked.heads, stacked.keys)
    scratch = Scratch(stacked.heads, min(rows, stacked.queries), stacked.keys, scores.device)
    for start in range(0, stacked.queries, rows):
        report(start / stacked.queries)
        chunk = slice(start, min(start + rows, stacked.queries))
        weights = _sweep_chunk(stacked, block, chunk, sums, scratch)
        square = torch.mul(weights, weights, out=scratch.take(0, weights.shape[1])).sum(dim=-1)
        over.add(weights, square, sums.entropy[:, chunk], chunk)
        if offsets is not None:
            offsets.add(weights, chunk)
    # From (groups * heads, queries of a group) to (heads, queries).
    ungrouped = torch.stack(sums).view(len(sums), scores.groups, scores.heads, stacked.queries)
    found = _Sums(*ungrouped.transpose(1, 2).reshape(len(sums), scores.heads, -1).cpu().numpy())
    order = layer.query_layout.patch_tokens if layer.query_layout.placed else slice(None)
    missing = np.float32(0 if block.placed else np.nan)
    alike = over.finish()
    return LayerMeasures(
        distance_sum=found.pixels[:, order] + missing,
        distance_sum_patches=found.patches[:, order] + missing,
        hop_sum=found.hops[:, order] + missing,
        near_mass=np.stack([found.near_1, found.near_2, found.near_3])[:, :, order] + missing,
        patch_mass=found.patch_mass[:, order],
        prefix_mass=found.prefix_mass[:, order],
        entropy=found.entropy[:, order],
        row_cosine=alike.row_cosine.cpu().numpy(),
        nmi=alike.nmi.cpu().numpy(),
        offset_share=np.full(layer.heads, np.nan) if offsets is None else offsets.finish().cpu().numpy(),
        received=alike.received.cpu().numpy(),
        fed=alike.fed.cpu().numpy(),
        keys=stacked.keys,
        log_normalizer=found.log_normalizer.copy() if scores.how == "query-key" else None,
    )


def _sweep_chunk(
    stacked: Scores, block: _DistanceBlock, rows: slice, sums: _Sums, scratch: Scratch
) -> Tensor:
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
        return weights
    sums.pixels[:, rows] = total(block.between(rows))
    if block.square:
        sums.patches[:, rows] = sums.pixels[:, rows] / block.patch_px[0]
    else:
        sums.patches[:, rows] = total(block.between(rows, block.patch_px))
    hops = block.hops(rows)
    sums.hops[:, rows] = total(hops)
    for near, limit in zip((sums.near_1, sums.near_2, sums.near_3), NEAR_HOPS, strict=True):
        near[:, rows] = total((hops < limit + 0.01) * block.on_patches)
    return weights


class _DistanceBlock:
    """Distances between some queries and the keys of their group, and which keys are patches."""

    def __init__(self, layer: AttentionLayer) -> None:
        device = layer.scores.device
        self.groups = layer.scores.groups
        self._queries, self._keys = (
            torch.tensor(layout.positions, device=device).view(self.groups, -1, 2)
            for layout in (layer.query_layout, layer.key_layout)
        )
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
        y, x = self._apart(rows, unit)
        return y.mul_(y).addcmul_(x, x).sqrt_().nan_to_num_(0.0)

    def hops(self, rows: slice) -> Tensor:
        """Return Chebyshev distances in the queries' patches, float32 (groups, rows, keys)."""
        y, x = self._apart(rows, self.patch_px)
        return torch.maximum(y.abs_(), x.abs_()).nan_to_num_(0.0)

    def _apart(self, rows: slice, unit: tuple[float, float]) -> tuple[Tensor, Tensor]:
        queries, keys = self._queries[:, rows, None], self._keys[:, None]
        y = queries[..., 0] / unit[0] - keys[..., 0] / unit[0]
        return y, queries[..., 1] / unit[1] - keys[..., 1] / unit[1]


def _chunk_rows(heads: int, keys: int) -> int:
    """Return how many queries to take at once: about 128 in usual models."""
    return max(_FEWEST_ROWS, min(_MOST_ROWS, _CHUNK_BYTES // (4 * heads * keys)))
