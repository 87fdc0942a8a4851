"""Attention rolled out over layers: what a token draws on by way of all layers, not of one alone.

Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3: every layer mixes tokens by
its attention and, through the residual connection, keeps each token as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from viewer.attention.layer import AttentionLayer, Rows
    from viewer.attention.layout import TokenLayout
    from viewer.attention.record import AttentionRecord

HeadFusion = Literal["mean", "max", "min"]

_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, eq=False)
class Rollout:
    """Attention rolled out from one layer to the last.

    Attributes
    ----------
    matrix
        float32 (tokens, tokens), how much each token (row) draws on each token (column) of the first layer;
        each row sums to 1. Tokens as the model has them.
    layout
        Where the tokens sit.
    start
        First layer that is in.
    fusion
        How the heads of a layer became one.
    """

    matrix: npt.NDArray[np.float32]
    layout: TokenLayout
    start: int
    fusion: HeadFusion

    @cached_property
    def peaks(self) -> tuple[float, float]:
        """The largest weight of a patch on a patch: of the median patch, and of all."""
        patches = self.layout.patch_tokens
        largest = self.matrix[:, patches].max(axis=1)[patches]
        return float(np.median(largest)), float(largest.max())


def why_no_rollout(layers: Sequence[AttentionLayer], start: int = 0) -> str:
    """Return why attention can't be rolled out from a layer on, as a clause; empty if it can.

    It is defined only where every layer has the same tokens, as queries and as keys.
    """
    if not 0 <= start < len(layers):
        return f"there is no layer {start} to begin with; the model has {len(layers)}, from 0 on"
    first = layers[start].query_layout
    for layer in layers[start:]:
        why = _differs(layer, first, start)
        if why:
            return f"a rollout needs the same tokens in every layer, but {why}"
    return ""


def _differs(layer: AttentionLayer, first: TokenLayout, start: int) -> str:
    if layer.kind == "channel":
        return f"in layer {layer.index} channels attend to channels"
    if layer.kind == "pool":
        return f"in layer {layer.index} a learned query gathers all patches"
    if layer.scores.groups > 1:
        return f"layer {layer.index} attends within windows"
    queries, keys = layer.scores.queries, layer.scores.keys
    if queries != keys:
        noun = "query attends" if queries == 1 else "queries attend"
        return f"in layer {layer.index} {queries} {noun} to {keys} keys"
    for layout in (layer.query_layout, layer.key_layout):
        # Mostly it is the very same layout, and every hover asks.
        if layout is not first and not np.array_equal(layout.positions, first.positions, equal_nan=True):
            return f"layer {layer.index} has other tokens than layer {start}"
    return ""


def rollout(
    record: AttentionRecord,
    fusion: HeadFusion = "mean",
    start: int = 0,
    step: Callable[[str, float | None], None] | None = None,
) -> Rollout:
    """Roll attention out: heads fused, the identity added, rows divided by their sum, layers multiplied.

    Parameters
    ----------
    record
        Of a model whose layers have the same tokens from `start` on.
    fusion
        Of the heads of a layer.
    start
        First layer that is in.
    step
        Told of progress; may raise to stop (see `viewer.backends.model.Job.step`).

    Raises
    ------
    ValueError
        If it is not defined, with the reason; see `why_no_rollout`.
    """
    why = why_no_rollout(record.layers, start)
    if why:
        raise ValueError(why)
    layers = record.layers[start:]
    found = torch.eye(layers[0].scores.queries, device=layers[0].scores.device)
    for done, layer in enumerate(layers):
        further = torch.empty_like(found)
        rows = chunk_rows(layer)
        for at in range(0, len(found), rows):
            if step is not None:
                share = (done + at / len(found)) / len(layers)
                step(f"Rolling out layer {layer.index} of {len(record.layers)}", share)
            chunk = slice(at, min(at + rows, len(found)))
            torch.mm(_with_identity(layer, fusion, chunk), found, out=further[chunk])
        found = further
    return Rollout(found.cpu().numpy(), layers[0].query_layout, start, fusion)


def chunk_rows(layer: AttentionLayer) -> int:
    """Return how many rows of all heads to build at once."""
    return max(16, min(512, _CHUNK_BYTES // (4 * layer.heads * layer.scores.keys)))


def _with_identity(layer: AttentionLayer, fusion: HeadFusion, rows: Rows) -> Tensor:
    """Return some rows of a layer's mixing: heads fused, identity added, each row summing to 1."""
    weights = layer.scores.weights(rows)
    fused = weights.mean(dim=0) if fusion == "mean" else getattr(weights, f"a{fusion}")(dim=0)
    places = torch.arange(rows.start, rows.stop, device=fused.device)
    fused[torch.arange(len(places), device=fused.device), places] += 1
    # Maximum and minimum of heads do not sum to 1, nor does a query that may look at nothing.
    return fused.div_(fused.sum(dim=1, keepdim=True))
