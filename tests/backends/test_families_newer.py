"""Newer and mixed families at their smallest: weights against float64, places against closed forms."""

from __future__ import annotations

import re

import pytest
import timm
import torch

from tests.backends.families import (
    Truth,
    built,
    check,
    lattice,
    logits_of,
    picture,
    record_of,
    settled,
    whole,
)

# name: (arguments, picture size, (patch pixels, first centre) of each layer)
CASES = {
    # Four convolutions of stride 2 start on the first pixel, and so do those between stages.
    "shvit_s1": ({}, (64, 96), [(32, 0.5)] * 4 + [(64, 0.5)] * 5),
    "iformer_t": ({}, (64, 96), [(16, 0.5)] * 3 + [(32, 0.5)] * 2),
    # Kernels of 2: with a stride of 2 between two tokens, with none half a token up and left.
    "cpubone_nano": ({}, (64, 96), [(32, 8.5), (32, -15.5), (32, -15.5)]),
    "lowformer_b0": ({}, (64, 96), [(32, 0.5)] * 7),
    # Cosine transforms of 8 x 8 pixels, then patches of 2 x 2.
    "csatv2": ({}, (128, 192), [(32, 16)] * 2 + [(64, 32)] * 2),
    "gemma4_vit_167m": ({"depth": 1}, (96, 144), [(16, 8)]),
    "qwen3_vit_88m": ({"depth": 1}, (64, 96), [(16, 8)]),
    "deepseek_vit_412m": ({"depth": 1}, (56, 84), [(14, 7)]),
    "vitamin_small_224": ({"depth": 2, "img_size": (64, 96)}, (64, 96), [(16, 0.5)] * 2),
    "naflexvit_base_patch16_gap": ({"depth": 2, "embed_dim": 32, "num_heads": 2}, (64, 96), [(16, 8)] * 2),
}
REGISTERS = {"naflexvit_base_patch16_gap": 4}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.skipif(not timm.is_model(name), reason="not in this timm"))
        for name in CASES
    ],
)
def test_family(name):
    arguments, size, layers = CASES[name]
    tensor = picture(*size)
    model = settled(built(name, **arguments), tensor)
    logits = [of for of in logits_of(model, tensor) if of.ndim >= 3]
    truths = []
    for of, (step, first) in zip(logits, layers, strict=True):
        places = whole(lattice(size[0] // step, -(-size[1] // step), step, first), REGISTERS.get(name, 0))
        truths.append(Truth(of, places, places))
    check(record_of(model, tensor), truths)


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("fastvit_sa12", [((32, 0.5), (32, 0.5))] * 2),
        # Eight heads share keys that are pooled in the first of two stages.
        ("mobilenetv4_hybrid_medium", [((16, 0.5), (32, 0.5))] * 4 + [((32, 0.5), (32, 0.5))] * 4),
    ],
)
def test_deep_convolutional_family(name, places):
    """So many layers come before attention that float32 would lose digits: both sides run in float64."""
    tensor = picture(64, 96)
    model = settled(built(name), tensor).double()
    with torch.no_grad():
        for weight in (weight for path, weight in model.named_parameters() if re.search("qkv|query", path)):
            weight.mul_(0.3)
    logits = [of for of in logits_of(model, tensor) if of.ndim == 4]
    truths = []
    for of, sides in zip(logits, places, strict=True):
        queries, keys = (whole(lattice(64 // step, 96 // step, step, first)) for step, first in sides)
        truths.append(Truth(of, queries, keys))
    check(record_of(model, tensor), truths)
