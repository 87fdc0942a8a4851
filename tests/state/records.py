"""Documents made of given attention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from viewer.attention.grouped import GroupedScores
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


def mixed_record() -> AttentionRecord:
    """What hierarchical models leave behind: no two layers have the same tokens. 128 x 128 px.

    0: windows of 4 x 4 in 8 x 8 patches. 1: the same, shifted by half a window and masked at the border.
    2: 8 x 8 queries, keys pooled to 2 x 2. 3: 4 x 4 patches whose centres begin at (8, 8) px, 32 px apart.
    4: channels. 5: 4 x 4 patches with a class token, which no other layer has, and padding.
    """
    fine, coarse = TokenLayout.regular((8, 8), (16.0, 16.0)), TokenLayout.regular((4, 4), (32.0, 32.0))
    pooled = TokenLayout.regular((2, 2), (64.0, 64.0))
    places = 8 + 32 * np.stack(np.meshgrid(range(4), range(4), indexing="ij"), axis=-1).reshape(-1, 2)
    nowhere = TokenLayout.from_positions(np.full((6, 2), np.nan, np.float32), tuple("c" * 6))
    offset = TokenLayout.from_positions(places.astype(np.float32))
    last = np.concatenate([np.full((3, 2), np.nan, np.float32), coarse.positions])
    classified = TokenLayout.from_positions(last, ("cls", "padding", "padding"))
    random = _random_scores
    layers = (
        ("stages.0.blocks.0.attn", "self", *_windows(8, 4, 0, 16.0)),
        ("stages.0.blocks.1.attn", "self", *_windows(8, 4, 2, 16.0)),
        ("stages.1.attn", "self", random(2, 64, 4, 2), fine, pooled),
        ("stages.2.attn", "self", random(3, 16, 16, 3), offset, offset),
        ("stages.2.channels", "channel", random(1, 6, 6, 4), nowhere, nowhere),
        ("head.attn", "self", random(3, 19, 19, 5), classified, classified),
    )
    made = tuple(
        AttentionLayer(i, name, kind, scores, queries, keys, VERIFIED)
        for i, (name, kind, scores, queries, keys) in enumerate(layers)
    )
    return AttentionRecord(
        made,
        (128, 128),
        Provenance("mixed"),
        _ramp(128, 128),
        (0.0, 0.0, 128.0, 128.0),
        output_unchanged=True,
    )


def channel_record() -> AttentionRecord:
    """A model of nothing but channels that attend to one another: no patches anywhere."""
    record = mixed_record()
    return replace(record, layers=(replace(record.layers[4], index=0),))


def _random_scores(heads: int, queries: int, keys: int, seed: int) -> QueryKeyScores:
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(heads, count, 8, generator=generator) for count in (queries, keys)]
    return QueryKeyScores(*made, 0.6)


def _windows(
    side: int, window: int, shift: int, patch: float
) -> tuple[GroupedScores, TokenLayout, TokenLayout]:
    """Two heads of windows in a square grid that is rolled by `shift` first, masked where its ends meet."""
    place = np.stack(np.meshgrid(range(side), range(side), indexing="ij"), axis=-1)
    count = side // window
    rolled = np.roll(place, (-shift, -shift), axis=(0, 1))
    tokens = (
        rolled.reshape(count, window, count, window, 2).transpose(0, 2, 1, 3, 4).reshape(-1, window**2, 2)
    )
    layout = TokenLayout.from_positions(((tokens.reshape(-1, 2) + 0.5) * patch).astype(np.float32))
    bias = None
    if shift:
        apart = (tokens < shift)[:, :, None] != (tokens < shift)[:, None]
        masked = torch.from_numpy(np.where(apart.any(axis=-1), -100.0, 0.0).astype(np.float32))
        # Only the windows at the border hold both ends of the picture.
        near = np.abs(tokens[:, :, None] - tokens[:, None]).max(axis=(1, 2, 3)) < window
        masked[torch.from_numpy(near)] = 0.0
        bias = masked.repeat_interleave(2, dim=0)
    random = _random_scores(2 * count**2, window**2, window**2, shift)
    scores = QueryKeyScores(random.query_vectors, random.key_vectors, random.scale, bias)
    return GroupedScores(scores, count**2), layout, layout


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
