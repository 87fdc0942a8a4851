"""How far some queries are from every key, and which keys are patches: what weights are multiplied with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from viewer.attention.measured import NEAR_HOPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from viewer.attention.layer import AttentionLayer

# Traced coordinates carry float32 rounding; no two patches are so close to a whole number of hops.
_ROUNDING = 0.01

# Up to so many bytes, distances are kept for the layers that have the same.
_KEPT_BYTES = 64 << 20


class Apart(NamedTuple):
    """Distances from a chunk of queries to the keys of their group; 0 where a token has no place.

    Attributes
    ----------
    pixels, patches, hops
        float32 (groups, rows, keys): Euclidean in input pixels, the same in the queries' patches (None where
        that is `pixels` divided by a patch's side), and Chebyshev in patches.
    near
        float32 (groups, rows, len(NEAR_HOPS), keys), 1 for patches within so many hops, else 0.
    """

    pixels: Tensor
    patches: Tensor | None
    hops: Tensor
    near: Tensor


class Places:
    """Where a layer's queries and keys sit, and how far they are from each other."""

    def __init__(self, layer: AttentionLayer) -> None:
        device = layer.scores.device
        self.groups = layer.scores.groups
        self._queries, self._keys = (
            torch.tensor(layout.positions, device=device).view(self.groups, -1, 2)
            for layout in (layer.query_layout, layer.key_layout)
        )
        self.placed = layer.query_layout.placed and layer.key_layout.placed
        self.patch_px = layer.query_layout.patch_px
        self.on_patches = self._keys.isfinite().all(dim=2)[:, None].to(torch.float32)
        self._prefix = torch.tensor(layer.key_layout.prefix_tokens, device=device)
        self._kept: dict[tuple[int, int], Apart] = {}
        self._patches = layer.key_layout.consecutive if self.groups == 1 else None

    def patch_sum(self, weights: Tensor, total: Callable[[Tensor], Tensor]) -> Tensor:
        """Return attention on keys with a place, (groups * heads, rows); `total` weighs them by a factor."""
        if self._patches is not None:
            return weights[:, :, self._patches].sum(dim=-1)
        return total(self.on_patches)

    def prefix_sum(self, weights: Tensor) -> Tensor:
        """Return attention on keys without a place, (groups * heads, rows)."""
        if self.groups == 1:
            return weights[:, :, self._prefix].sum(dim=-1)
        if not len(self._prefix):
            return weights.new_zeros(weights.shape[:2])
        of_groups = weights.view(self.groups, -1, *weights.shape[1:])
        return (of_groups * (1 - self.on_patches)[:, None]).sum(dim=-1).flatten(end_dim=1)

    def apart(self, rows: slice) -> Apart:
        """Return how far the same queries of every group are from the keys of their group."""
        key = (rows.start, rows.stop)
        if key in self._kept:
            return self._kept[key]
        found = self._measured(rows)
        numbers = self._queries.shape[0] * self._queries.shape[1] * self._keys.shape[1]
        if 4 * numbers * (len(Apart._fields) - 1 + len(NEAR_HOPS)) <= _KEPT_BYTES:
            self._kept[key] = found
        return found

    def _measured(self, rows: slice) -> Apart:
        queries, keys = self._queries[:, rows, None], self._keys[:, None]
        y, x = ((queries[..., axis] - keys[..., axis]).abs_().nan_to_num_(0.0) for axis in (0, 1))
        down, across = self.patch_px
        hops = torch.maximum(y / down, x / across)
        near = hops.new_empty((len(hops), hops.shape[1], len(NEAR_HOPS), hops.shape[2]))
        for at, limit in enumerate(NEAR_HOPS):
            torch.lt(hops, limit + _ROUNDING, out=near[:, :, at])
        if len(self._prefix):
            near.mul_(self.on_patches[:, None])
        patches = None if down == across else _length(y / down, x / across)
        return Apart(_length(y, x), patches, hops, near)


def _length(y: Tensor, x: Tensor) -> Tensor:
    return y.mul(y).addcmul_(x, x).sqrt_()
