"""Documents made of given attention."""

from __future__ import annotations

import numpy as np
import torch

from viewer.attention.layer import AttentionLayer, Verdict
from viewer.attention.layout import TokenLayout
from viewer.attention.record import AttentionRecord, Provenance
from viewer.attention.scores import QueryKeyScores, WeightScores
from viewer.attention.sweep import measure_record
from viewer.images.decode import DecodedImage
from viewer.state.display import Display
from viewer.state.documents import Documents, ImageDocument
from viewer.state.scene import Scene
from viewer.state.selection import Selection

VERIFIED = Verdict(True, 1e-7, 1e-7)


def weights_of(heads: int, tokens: int, seed: int = 0, sharp: float = 2.0) -> torch.Tensor:
    """Random attention, float32 (heads, tokens, tokens), each row summing to 1."""
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(sharp * torch.randn(heads, tokens, tokens, generator=generator), dim=-1)


def record_of(
    layers: list[torch.Tensor],
    grid: tuple[int, int],
    prefix: tuple[str, ...] = ("cls",),
    patch: tuple[int, int] = (16, 16),
    verdict: Verdict = VERIFIED,
    pooling: torch.Tensor | None = None,
) -> AttentionRecord:
    """A record of given weights; `pooling` (heads, 1, tokens) adds a layer of attention pooling."""
    layout = TokenLayout.regular(grid, tuple(map(float, patch)), prefix)
    made = [
        AttentionLayer(i, f"blocks.{i}.attn", "self", WeightScores(weights), layout, layout, verdict)
        for i, weights in enumerate(layers)
    ]
    if pooling is not None:
        nowhere = TokenLayout.from_positions(np.full((1, 2), np.nan, np.float32), ("pool",))
        scores = WeightScores(pooling)
        made.append(AttentionLayer(len(made), "attn_pool", "pool", scores, nowhere, layout, verdict))
    height, width = grid[0] * patch[0], grid[1] * patch[1]
    return AttentionRecord(tuple(made), (height, width), Provenance("given"), _ramp(height, width), None)


def random_record(
    layers: int = 3,
    heads: int = 2,
    grid: tuple[int, int] = (4, 5),
    prefix: tuple[str, ...] = ("cls",),
    sharp: float = 2.0,
) -> AttentionRecord:
    tokens = grid[0] * grid[1] + len(prefix)
    return record_of([weights_of(heads, tokens, i, sharp) for i in range(layers)], grid, prefix)


def key_query_record(layers: int, heads: int, grid: tuple[int, int], dimension: int = 64) -> AttentionRecord:
    """A record as a real model leaves it behind: queries and keys."""
    layout = TokenLayout.regular(grid, (14.0, 14.0), ("cls",))
    generator = torch.Generator().manual_seed(0)
    made = []
    for i in range(layers):
        queries, keys = 1.5 * torch.randn(2, heads, layout.tokens, dimension, generator=generator)
        scores = QueryKeyScores(queries, keys, dimension**-0.5)
        made.append(AttentionLayer(i, f"blocks.{i}.attn", "self", scores, layout, layout, VERIFIED))
    height, width = grid[0] * 14, grid[1] * 14
    return AttentionRecord(
        tuple(made), (height, width), Provenance("given"), _ramp(height, width), (0.0, 0.0, width, height)
    )


def document_of(record: AttentionRecord, measured: bool = True) -> ImageDocument:
    pixels = record.seen if record.seen is not None else np.zeros((8, 8, 3), np.uint8)
    image = DecodedImage(pixels, "given.png", None, "0" * 64)
    if not measured:
        return ImageDocument(0, image, "measuring", record)
    return ImageDocument(0, image, "done", record, measure_record(record))


def state_of(record: AttentionRecord) -> tuple[Documents, Selection, Display, Scene]:
    """Everything a window observes, with one measured document open."""
    given = document_of(record)
    documents, selection, display = Documents(), Selection(), Display()
    opened = documents.add(given.image)
    documents.update(opened.key, status="done", record=record, measures=given.measures)
    return documents, selection, display, Scene(documents, selection, display)


def _ramp(height: int, width: int) -> np.ndarray:
    """A picture whose every pixel differs in red along x and in green along y."""
    y, x = np.mgrid[:height, :width]
    return np.stack([x * 255 // width, y * 255 // height, np.full_like(x, 90)], axis=-1).astype(np.uint8)
