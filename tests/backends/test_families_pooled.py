"""Families whose grids shrink or whose keys are pooled: weights and places against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import timm
import torch
from timm.models.efficientformer import EfficientFormer
from timm.models.efficientformer_v2 import EfficientFormerV2
from timm.models.hiera import Hiera
from timm.models.levit import Levit
from timm.models.metaformer import Attention, LayerNorm2dNoBias, LayerNormNoBias, MetaFormer, SepConv
from timm.models.mvitv2 import MultiScaleVit, MultiScaleVitCfg
from timm.models.nextvit import EfficientAttention
from torch import nn

from tests.backends.families import (
    Truth,
    built,
    check,
    check_layer,
    lattice,
    logits_of,
    picture,
    record_of,
    run_of,
    settled,
    whole,
)

SIZE = (64, 96)


def grid(step, first=None, size=SIZE, prefix=0):
    """All patches of one group, `step` pixels each."""
    return whole(lattice(size[0] // step, size[1] // step, step, first), prefix)


def pvt_v2():
    """Patches overlap and start on the first pixel; keys are the mean of as many as make 32 pixels."""
    return [(grid(step, 0.5), grid(32, 16.5 - step / 2)) for step in (4, 8, 16, 32)]


def unrolled(levels):
    """Groups of a grid of 16 x 24, 4 pixels each, pooled `3 - levels` times already.

    Hiera puts the tokens of a unit next to one another, those at the same place of each unit first: the place
    within the finest square of four comes first in the index, then that within the next, the unit last.
    """
    side = 2**levels
    places = lattice(2 * side, 3 * side, 32 // side, (32 // side - 4) / 2 + 0.5)
    axes = places.reshape(2, *(2,) * levels, 3, *(2,) * levels, 2)
    rows = [levels - level for level in range(levels)]  # finest first
    order = [axis for row in rows for axis in (row, levels + 1 + row)]
    return axes.transpose(0, levels + 1, *order, 2 * levels + 2).reshape(6, side * side, 2)


def hiera():
    """Units of 64 tokens whose queries are pooled by maximum, then all tokens, in the same unrolled order."""

    def together(units):
        return units.transpose(1, 0, 2).reshape(1, -1, 2)

    full, half, quarter, last = (unrolled(levels) for levels in (3, 2, 1, 0))
    return [
        (full, full),
        (half, full),
        (quarter, half),
        (together(quarter), together(quarter)),
        (together(last), together(quarter)),
    ]


def levit():
    """Four convolutions start on the first pixel; where tokens get fewer every other one asks."""
    size = (96, 128)
    fine, half, last = grid(16, 0.5, size), grid(32, 0.5, size), whole(lattice(2, 2, 64, 0.5))
    return [(fine, fine), (half, fine), (half, half), (last, half), (last, last)]


def mvit_v2():
    """All convolutions and poolings start on the first token, whatever their stride."""
    by = {step: grid(step, 0.5, (64, 64)) for step in (4, 8, 16, 32)}
    return [(by[q], by[k]) for q, k in ((4, 16), (8, 8), (8, 16), (16, 8), (32, 16), (32, 32))]


def efficientformer_v2():
    """Attention on every other token, queries of fewer tokens, and the last stage."""
    size = (128, 128)
    return [(grid(32, 0.5, size), grid(step, 0.5, size)) for step in (32, 16, 32)]


def visformer():
    """A 7 x 7 stem of stride 2, patches of 4 x 4, then of 2 x 2."""
    return [(grid(step, step / 2 - 0.5, (64, 64)),) * 2 for step in (16, 32)]


def pit():
    """Overlapping patches without padding; pooling of 3 x 3 starts on the first, the class token apart."""
    sides = [whole(lattice(count, count, step, 8), 1) for count, step in ((7, 8), (4, 16), (2, 32))]
    return [(side, side) for side in sides]


def caformer():
    """A 7 x 7 stem of stride 4 padded by 2, then 3 x 3 of stride 2 padded by 1."""
    return [(grid(step, 1.5),) * 2 for step in (16, 32)]


def coatnet():
    """Tokens sit between the two they come from; the query side of a stage is pooled before it attends."""
    return [(grid(step, step / 2 - 0.5),) * 2 for step in (16, 16, 32)]


def crossvit():
    """Two grids side by side; a class token of one asks the patches of the other."""
    scale = 120 / 112
    fine, coarse = whole(lattice(10, 10, 12), 1), whole(lattice(7, 7, 16 * scale), 1)
    alone = np.full((1, 1, 2), np.nan)
    block = [(fine, fine), *[(coarse, coarse)] * 2, (alone, coarse), (alone, fine)]
    return [sides for _ in range(3) for sides in block]


SMALL = {"embed_dims": (16, 16, 32, 32), "depths": (1, 1, 1, 1)}
TINY_MVIT = MultiScaleVitCfg(depths=(1, 2, 1, 2), embed_dim=16)
CASES = {
    "pvt v2": ("pvt_v2_b0", SIZE, {"num_heads": (1, 2, 2, 2), **SMALL}, pvt_v2),
    "hiera": (
        Hiera,
        SIZE,
        {"img_size": SIZE, "embed_dim": 16, "num_heads": 2, "stages": (1, 1, 2, 1)},
        hiera,
    ),
    "levit": (
        Levit,
        (96, 128),
        {
            "img_size": (96, 128),
            "embed_dim": (32, 48, 64),
            "key_dim": 8,
            "depth": (1, 1, 1),
            "num_heads": (2, 3, 4),
            "down_op": "subsample",
        },
        levit,
    ),
    "mvit v2": (MultiScaleVit, (64, 64), {"cfg": TINY_MVIT, "img_size": (64, 64)}, mvit_v2),
    "efficientformer": (
        EfficientFormer,
        (224, 224),
        {"embed_dims": (8, 8, 16, 32), "depths": (1, 1, 1, 2), "num_vit": 1},
        lambda: [(grid(32, 0.5, (224, 224)),) * 2],
    ),
    "efficientformer v2": (
        EfficientFormerV2,
        (128, 128),
        {"embed_dims": (16, 16, 32, 32), "depths": (1, 1, 2, 1), "num_vit": 1, "img_size": 128},
        efficientformer_v2,
    ),
    "visformer": (
        "visformer_tiny",
        (64, 64),
        {"img_size": 64, "embed_dim": 48, "depth": (1, 1, 1), "init_channels": 8, "group": 4},
        visformer,
    ),
    "pit": ("pit_ti_224", (64, 64), {"img_size": 64, "depth": (1, 1, 1), "base_dims": (16, 16, 16)}, pit),
    "caformer": (
        MetaFormer,
        SIZE,
        {
            "depths": (1, 1, 1, 1),
            "dims": (16, 24, 32, 64),
            "token_mixers": [SepConv, SepConv, Attention, Attention],
            "norm_layers": [LayerNorm2dNoBias] * 2 + [LayerNormNoBias] * 2,
        },
        caformer,
    ),
    "coatnet": ("test_coatnet", SIZE, {"img_size": SIZE}, coatnet),
    "crossvit": (
        "crossvit_tiny_240",
        (120, 120),
        {"img_size": 120, "embed_dim": (24, 24), "depth": [[1, 2, 0]] * 3},
        crossvit,
    ),
}


@pytest.mark.parametrize(
    ("family", "is_fused"), [*((family, True) for family in CASES), ("pvt v2", False), ("hiera", False)]
)
def test_pooled(family, is_fused):
    kind, size, arguments, places = CASES[family]
    if isinstance(kind, str) and not timm.is_model(kind):
        pytest.skip(f"this timm has no {kind}")
    tensor = picture(*size)
    model = settled(built(kind, is_fused, **arguments), tensor)
    logits = logits_of(model, tensor)
    if family == "hiera":
        # Heads come before units where there are units.
        logits = [stacked.transpose(1, 2) if stacked.ndim == 5 else stacked for stacked in logits]
    truths = [Truth(of, *sides) for of, sides in zip(logits, places(), strict=True)]
    record = record_of(model, tensor)
    check(record, truths)
    if family == "efficientformer v2":
        assert ["before the model mixes" in layer.note for layer in record.layers] == [True, False, True]


def test_strides_tell_how_keys_lie_among_queries():
    kind, size, arguments, _ = CASES["pvt v2"]
    record = record_of(built(kind, **arguments), picture(*size))
    assert [layer.stride for layer in record.layers] == [(8, 8), (4, 4), (2, 2), (1, 1)]
    assert record.grid == (16, 24)
    assert not record.one_grid


def test_class_tokens_of_numbered_branches_are_class_tokens():
    kind, size, arguments, _ = CASES["crossvit"]
    record = record_of(built(kind, **arguments), picture(*size))
    assert record.prefix_names == ("cls",)
    assert {layer.key_layout.prefix_names for layer in record.layers} == {("cls",)}


class Strips(nn.Module):
    """NextViT's attention, whose keys are means of consecutive tokens, then attention of all tokens."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2d(3, 32, 16, 16)
        self.norm = nn.LayerNorm(32)
        self.strips = EfficientAttention(32, head_dim=16, sr_ratio=2)
        self.all = EfficientAttention(32, head_dim=16)

    def forward(self, x):
        tokens = self.norm(self.embed(x).flatten(2).mT)
        return self.all(self.norm(tokens + self.strips(tokens)))


def test_keys_in_no_grid_are_shown_without_places():
    """Four consecutive tokens of rows of six are no patch; heads and weights are right all the same."""
    tensor = picture(*SIZE)
    model = settled(built(Strips), tensor)
    run = run_of(model, tensor)
    strips, last = run.layers
    logits = logits_of(model, tensor)
    check_layer(last, Truth(logits[1], grid(16), grid(16)))
    assert strips.verdict.verified
    assert (strips.kind, strips.heads, strips.scores.groups) == ("self", 2, 1)
    assert not (strips.query_layout.placed or strips.key_layout.placed)
    assert strips.note.startswith(
        "its tokens have no patches on the picture: the rows of tokens are not evenly"
    )
    found = strips.scores.weights(slice(None)).numpy()
    np.testing.assert_allclose(found, torch.softmax(logits[0], -1)[0], rtol=0, atol=1e-5)
    assert run.notes == ()
