"""Families that change attention, or where other things than patches attend: weights and places."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from timm.models.cait import Cait
from timm.models.convit import ConVit
from timm.models.edgenext import EdgeNeXt
from timm.models.tnt import TNT
from timm.models.volo import VOLO
from timm.models.xcit import Xcit

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
    windows,
)

SIZE = (64, 96)
CLASS = np.full((1, 1, 2), np.nan)


def test_cait_shows_weights_before_talking_heads_mix_them():
    """Heads talk before the softmax, which counts, and after it, which does not; then a class token asks."""
    model = built(Cait, img_size=64, embed_dim=48, depth=2, num_heads=3)
    tensor = picture(64, 64)
    patches, keys = whole(lattice(4, 4, 16)), whole(lattice(4, 4, 16), 1)
    places = [(patches, patches)] * 2 + [(CLASS, keys)] * 2
    record = record_of(model, tensor)
    check(record, [Truth(of, *sides) for of, sides in zip(logits_of(model, tensor), places, strict=True)])
    assert ["before the model mixes" in layer.note for layer in record.layers] == [True, True, False, False]
    assert record.layers[-1].query_layout.prefix_names == ("cls",)
    assert record.layers[-1].weights("cls").shape == (3, 17)


def test_convit_shows_weights_after_the_gate():
    model = built(ConVit, img_size=64, embed_dim=48, depth=3, num_heads=3, local_up_to_layer=2)
    tensor = picture(64, 64)
    logits = logits_of(model, tensor)
    patches, all_tokens = whole(lattice(4, 4, 16)), whole(lattice(4, 4, 16), 1)
    truths = []
    for block in (0, 1):
        content, position = (torch.softmax(of, -1) for of in logits[2 * block : 2 * block + 2])
        gate = torch.sigmoid(model.blocks[block].attn.gating_param.detach().double()).view(1, -1, 1, 1)
        weights = (1 - gate) * content + gate * position
        truths.append(Truth(logits[2 * block], patches, patches, weights))
    truths.append(Truth(logits[4], all_tokens, all_tokens))
    record = record_of(model, tensor)
    check(record, truths)
    assert ["as the model uses them" in layer.note for layer in record.layers] == [True, True, False]


def test_volo_leaves_outlook_attention_out_and_keeps_the_rest():
    """A stem of 7 x 7 and stride 2 starts on the first pixel; patches of 4 x 4, then 2 x 2, sit mid-way."""
    model = built(
        VOLO,
        layers=(1, 1, 1),
        img_size=64,
        stem_hidden_dim=16,
        embed_dims=(24, 32, 32),
        num_heads=(2, 2, 2),
        downsamples=(True, False, False),
        outlook_attention=(True, False, False),
    )
    tensor = picture(64, 64)
    settled(model, tensor)
    logits = [of for of in logits_of(model, tensor) if of.ndim == 4]
    grid = lattice(4, 4, 16, 7.5)
    places = [(whole(grid),) * 2] * 2 + [(CLASS, whole(grid, 1))] * 2
    record = record_of(model, tensor)
    check(record, [Truth(of, *sides) for of, sides in zip(logits, places, strict=True)])
    assert any("network.0.0.attn" in note for note in record.notes)


@pytest.mark.parametrize("legacy", [False, True])
def test_tnt_attends_within_patches_and_among_them(legacy):
    """Pixels start on the first, so that the middle of four, 4 pixels apart, is at 6.5."""
    model = built(
        TNT,
        img_size=SIZE,
        embed_dim=32,
        inner_dim=16,
        depth=2,
        num_heads_inner=2,
        num_heads_outer=2,
        legacy=legacy,
    )
    tensor = picture(*SIZE)
    inner, outer = windows(lattice(16, 24, 4, 0.5), 4), whole(lattice(4, 6, 16, 6.5), 1)
    places = [(inner, inner), (outer, outer)] * 2
    record = record_of(model, tensor)
    check(record, [Truth(of, *sides) for of, sides in zip(logits_of(model, tensor), places, strict=True)])
    assert record.grid == (16, 24)
    assert record.prefix_names == ("cls",)


def test_xcit_attends_among_channels_and_ends_with_a_class_token():
    model = built(Xcit, img_size=SIZE, embed_dim=32, depth=2, num_heads=2, cls_attn_layers=1)
    tensor = picture(*SIZE)
    settled(model, tensor)
    places = [(None, None)] * 2 + [(CLASS, whole(lattice(4, 6, 16, 0.5), 1))]
    record = record_of(model, tensor)
    check(record, [Truth(of, *sides) for of, sides in zip(logits_of(model, tensor), places, strict=True)])
    assert record.grid == (4, 6)


def test_edgenext_attends_among_channels_only():
    model = built(EdgeNeXt, dims=(16, 32, 48, 64), depths=(1, 1, 1, 1), heads=(2, 2, 2, 2))
    tensor = picture(*SIZE)
    settled(model, tensor)
    record = record_of(model, tensor)
    check(record, [Truth(of, None, None) for of in logits_of(model, tensor)])
    assert len(record.layers) == 3
