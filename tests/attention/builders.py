"""Records made from given attention, and the plainest float64 computation to compare with."""

from __future__ import annotations

import numpy as np
import torch

from viewer.attention.layer import AttentionLayer, LayerKind, Scores, Verdict
from viewer.attention.layout import TokenLayout
from viewer.attention.record import AttentionRecord, Provenance
from viewer.attention.scores import QueryKeyScores, WeightScores
from viewer.attention.sweep import LayerMeasures, measure_record

VERDICT = Verdict(verified=True, output_error=0.0, row_error=0.0)


def layer_of(
    scores: Scores,
    layout: TokenLayout,
    key_layout: TokenLayout | None = None,
    kind: LayerKind = "self",
    index: int = 0,
) -> AttentionLayer:
    return AttentionLayer(index, f"blocks.{index}.attn", kind, scores, layout, key_layout or layout, VERDICT)


def record_of(*layers: AttentionLayer) -> AttentionRecord:
    layout = layers[0].key_layout
    size = tuple(round(count * step) for count, step in zip(layout.grid, layout.patch_px, strict=True))
    return AttentionRecord(layers, size, Provenance("given attention"))


def measures_of(scores: Scores, layout: TokenLayout) -> LayerMeasures:
    return measure_record(record_of(layer_of(scores, layout))).layers[0]


def map_as_weights(attention: np.ndarray) -> WeightScores:
    """One head with a given matrix, as a model gives it that lets only its softmax output be seen."""
    return WeightScores(torch.from_numpy(attention[None].astype(np.float32)))


def map_as_query_keys(attention: np.ndarray) -> QueryKeyScores:
    """The same matrix as logits: zero queries and keys under a bias of its logarithm."""
    queries, keys = attention.shape
    with np.errstate(divide="ignore"):
        bias = torch.from_numpy(np.log(attention)[None].astype(np.float32))
    return QueryKeyScores(torch.zeros(1, queries, 4), torch.zeros(1, keys, 4), 1.0, bias)


def window_map(grid: tuple[int, int], hops: int) -> np.ndarray:
    """Uniform attention over a square of 2 * hops + 1 patches, cut off at the border."""
    rows, columns = np.divmod(np.arange(grid[0] * grid[1]), grid[1])
    near = np.maximum(abs(rows[:, None] - rows), abs(columns[:, None] - columns)) <= hops
    return near / near.sum(axis=1, keepdims=True)


def random_scores(
    seed: int, heads: int, tokens: int, dimension: int = 8, spread: float = 1.0
) -> QueryKeyScores:
    generator = torch.Generator().manual_seed(seed)
    queries, keys = torch.randn(2, heads, tokens, dimension, generator=generator) * spread
    return QueryKeyScores(queries, keys, dimension**-0.5)


def naive_weights(scores: QueryKeyScores) -> np.ndarray:
    """The whole attention, float64 (heads, queries, keys)."""
    share = scores.heads // len(scores.key_vectors)
    keys = scores.key_vectors.double().repeat_interleave(share, dim=0)
    logits = scores.scale * scores.query_vectors.double() @ keys.mT
    if scores.bias is not None:
        logits = logits + scores.bias.double()
    return torch.softmax(logits, dim=-1).nan_to_num(0.0).numpy()


def naive_measures(
    weights: np.ndarray, queries: TokenLayout, keys: TokenLayout | None = None
) -> dict[str, np.ndarray]:
    """Every per-query measure, float64 (heads, R * C), straight from the definitions."""
    keys = keys or queries
    rows = weights[:, queries.patch_tokens]
    on_patches = rows[:, :, keys.patch_tokens]
    apart = (
        queries.positions[queries.patch_tokens].astype(np.float64)[:, None]
        - keys.positions[keys.patch_tokens].astype(np.float64)[None]
    )
    logarithm = np.log(rows, out=np.zeros_like(rows), where=rows > 0)
    return {
        "distance_sum": (on_patches * np.hypot(apart[..., 0], apart[..., 1])).sum(axis=-1),
        "distance_sum_patches": (
            on_patches * np.hypot(apart[..., 0] / queries.patch_px[0], apart[..., 1] / queries.patch_px[1])
        ).sum(axis=-1),
        "patch_mass": on_patches.sum(axis=-1),
        "prefix_mass": rows[:, :, keys.prefix_tokens].sum(axis=-1),
        "entropy": -(rows * logarithm).sum(axis=-1),
    }
