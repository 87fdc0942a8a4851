"""Uniform attention over what each query of a layer may really look at: the reference of any layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from viewer.attention.distance import uniform_query_distance

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from viewer.attention.distance import Protocol, Unit
    from viewer.attention.layer import AttentionLayer

_CHUNK = 1 << 21  # distances held at once


def uniform_layer_distance(
    layer: AttentionLayer, protocol: Protocol = "renormalized", unit: Unit = "px"
) -> npt.NDArray[np.float64]:
    """Return the attention distance of each patch query if it attended evenly to all keys it can reach.

    For a plain Vision Transformer this is `viewer.attention.distance.uniform_query_distance`; where windows,
    masks or pooled keys say what a query may look at, only those keys count, at their own places.

    Parameters
    ----------
    layer
        Of any kind.
    protocol
        Under "original" keys without a place take their even share.
    unit
        Pixels of the model's input, or patches (the queries').

    Returns
    -------
    numpy.ndarray
        float64 (R * C,), in row-major order of the queries' grid; empty where queries or keys have no place,
        NaN where a query reaches no patch.
    """
    queries, keys = layer.query_layout, layer.key_layout
    if not (queries.placed and keys.placed):
        return np.empty(0)
    if not layer.limited and queries.same_patches(keys) and queries.even and keys.even:
        return uniform_query_distance(keys, protocol, unit)
    found = _measured(layer, protocol, queries.patch_px if unit == "patches" else (1.0, 1.0))
    return found[queries.patch_tokens]


def _measured(
    layer: AttentionLayer, protocol: Protocol, step: tuple[float, float]
) -> npt.NDArray[np.float64]:
    """Return the mean distance of every query token, float64 (queries,)."""
    stacked, groups = layer.scores.stacked, layer.scores.groups
    scale = torch.tensor(step, dtype=torch.float64)
    queries, keys = (
        torch.from_numpy(layout.positions).double().view(groups, -1, 2) / scale
        for layout in (layer.query_layout, layer.key_layout)
    )
    found = torch.empty((groups, stacked.queries), dtype=torch.float64)
    rows = max(1, _CHUNK // (groups * stacked.keys))
    for start in range(0, stacked.queries, rows):
        chunk = slice(start, min(start + rows, stacked.queries))
        found[:, chunk] = _mean_distance(queries[:, chunk], keys, _reach(layer, chunk), protocol)
    return found.flatten().numpy()


def _reach(layer: AttentionLayer, rows: slice) -> Tensor:
    """Return which keys the same queries of every group may look at, bool (groups, rows, keys), or all."""
    reach = layer.scores.group_reach(rows)
    return torch.ones((1, 1, 1), dtype=torch.bool) if reach is None else reach.cpu()


def _mean_distance(queries: Tensor, keys: Tensor, reach: Tensor, protocol: Protocol) -> Tensor:
    """Return the mean distance to reachable keys with a place, (groups, rows); NaN where there is none."""
    far = torch.linalg.vector_norm(queries[:, :, None] - keys[:, None], dim=-1)
    there = reach & keys.isfinite().all(dim=-1)[:, None]
    counted = reach.expand(far.shape) if protocol == "original" else there.expand(far.shape)
    count = counted.sum(dim=-1).double()
    total = torch.where(there, far, 0.0).sum(dim=-1)
    return torch.where(there.expand(far.shape).any(dim=-1), total / count, torch.nan)
