"""Real records with attention of known shape, and the scenes made from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from viewer.attention.layer import AttentionLayer, Verdict
from viewer.attention.layout import TokenLayout
from viewer.attention.record import AttentionRecord, Provenance
from viewer.attention.scores import QueryKeyScores
from viewer.attention.sweep import measure_record
from viewer.images.decode import DecodedImage
from viewer.state.display import DisplayValue
from viewer.state.documents import ImageDocument
from viewer.state.scene import SceneValue, compose
from viewer.state.selection import HeadRef, SelectionValue

VERIFIED = Verdict(True, 1e-7, 1e-7)


def make_record(
    layers: int = 4,
    heads: int = 3,
    grid: tuple[int, int] = (14, 14),
    patch: int = 16,
    prefix: tuple[str, ...] = ("cls",),
    model: str = "vit_small_patch16_224",
    image: str = "cat.jpg",
    doubted: tuple[int, ...] = (),
) -> AttentionRecord:
    """A record whose heads attend near in the first layers and far in the last, on colour ramps."""
    layout = TokenLayout.regular(grid, (float(patch), float(patch)), prefix)
    generator = np.random.default_rng(7)
    places = np.nan_to_num(layout.positions, nan=-50.0) / patch
    made = []
    for index in range(layers):
        queries, keys = [], []
        for head in range(heads):
            # softmax(-|q - k|^2 * s) is a Gaussian window: q.k - |k|^2/2, with |k|^2 as a third coordinate.
            sharp = 1.5 / (1 + index) ** 1.6 + 0.05 * head
            noise = generator.normal(0, 0.4, len(places))
            square = -(places**2).sum(1) / 2 * sharp + noise
            queries.append(np.column_stack([places * sharp, np.ones(len(places))]))
            keys.append(np.column_stack([places, square]))
        scores = QueryKeyScores(
            torch.tensor(np.stack(queries), dtype=torch.float32),
            torch.tensor(np.stack(keys), dtype=torch.float32),
            1.0,
        )
        verdict = (
            Verdict(False, 0.3, 1e-7, "weights times V miss the output") if index in doubted else VERIFIED
        )
        made.append(AttentionLayer(index, f"blocks.{index}.attn", "self", scores, layout, layout, verdict))
    height, width = grid[0] * patch, grid[1] * patch
    y, x = np.mgrid[:height, :width]
    seen = np.stack([255 * x // width, 255 * y // height, 128 + 0 * x], axis=-1).astype(np.uint8)
    return AttentionRecord(
        layers=tuple(made),
        input_size=(height, width),
        provenance=Provenance(
            model, "a" * 64, "", "torch", "cpu", image, "b" * 64, "224x224, centre crop 0.9, bicubic"
        ),
        seen=seen,
        box=(0.0, 0.0, float(width), float(height)),
        output_unchanged=True,
    )


def make_document(record: AttentionRecord, name: str = "cat.jpg") -> ImageDocument:
    image = DecodedImage(record.seen, name, None, "b" * 64)
    return ImageDocument(0, image, "done", record, measure_record(record))


def make_scene(
    document: ImageDocument,
    query: tuple[int, int] | str | None = (4, 5),
    head: tuple[int, int | None] = (2, 1),
    display: DisplayValue | None = None,
    **changes: object,
) -> SceneValue:
    selection = replace(SelectionValue(hovered=query, head=HeadRef(*head)), **changes)
    return compose(document, selection, display or DisplayValue())
