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
    hops = np.abs(apart / queries.patch_px).max(axis=-1)
    return {
        "distance_sum": (on_patches * np.hypot(apart[..., 0], apart[..., 1])).sum(axis=-1),
        "distance_sum_patches": (
            on_patches * np.hypot(apart[..., 0] / queries.patch_px[0], apart[..., 1] / queries.patch_px[1])
        ).sum(axis=-1),
        "hop_sum": (on_patches * hops).sum(axis=-1),
        "near_mass": np.stack([(on_patches * (hops <= most + 1e-3)).sum(axis=-1) for most in (1, 2, 3)]),
        "patch_mass": on_patches.sum(axis=-1),
        "prefix_mass": rows[:, :, keys.prefix_tokens].sum(axis=-1),
        "entropy": -(rows * logarithm).sum(axis=-1),
    }


def naive_row_measures(weights: np.ndarray) -> dict[str, float]:
    """How alike the rows of a head's map are, float64, by comparing every row with every other."""
    lengths = np.linalg.norm(weights, axis=1)
    rows = weights[lengths > 0]
    units = rows / lengths[lengths > 0, None]
    count = len(rows)
    cosines = units @ units.T
    column = rows.mean(axis=0)
    joint = rows / count
    there = joint > 0
    shared = (joint[there] * np.log(joint[there] / np.outer(np.full(count, 1 / count), column)[there])).sum()
    of_keys = -(column[column > 0] * np.log(column[column > 0])).sum()
    return {
        "row_cosine": (cosines.sum() - np.trace(cosines)) / (count * (count - 1)),
        "nmi": shared / np.sqrt(np.log(count) * of_keys),
    }


def naive_offset_share(
    weights: np.ndarray, cells: np.ndarray, columns: int, reach: np.ndarray | None = None
) -> float:
    """The variance between offsets over the whole; `cells` is the patch of each query and key alike."""
    place = np.stack(np.divmod(cells, columns), axis=-1)
    offsets = (place[None] - place[:, None]).reshape(-1, 2)
    reached = np.ones(weights.shape, bool) if reach is None else reach
    flat = weights[reached]
    _, kind = np.unique(offsets[reached.ravel()], axis=0, return_inverse=True)
    means = np.bincount(kind, flat) / np.bincount(kind)
    return float(means[kind].var() / flat.var())
