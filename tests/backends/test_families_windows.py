"""Families whose tokens attend within windows: weights against float64, places against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from timm.layers.halo_attn import HaloAttn
from timm.models.gcvit import GlobalContextVit
from timm.models.nest import Nest
from torch import nn

from tests.backends.families import (
    Truth,
    built,
    check,
    check_layer,
    haloed,
    lattice,
    logits_of,
    picture,
    record_of,
    run_of,
    settled,
    spread,
    whole,
    windows,
)
from tests.backends.timm_zoo import randomize

SIZE = (64, 96)
SMALL = {"depths": (1, 1, 1, 1), "embed_dims": (16, 16, 32, 32), "num_heads": (1, 2, 2, 2)}
CHANNELS = (None, None)


def alike(*sides):
    """Queries and keys of each layer are the same tokens."""
    return [(side, side) for side in sides]


def swin():
    """Two stages of two blocks: windows of 4, shifted by 2 where the grid is larger than a window."""
    fine, coarse = lattice(16, 24, 4), lattice(8, 12, 8)
    return alike(windows(fine, 4), windows(fine, 4, (2, 2)), windows(coarse, 4), windows(coarse, 4, (2, 2)))


def small_swin():
    """The second stage's grid is one window high and is filled up from 6 columns to 8."""
    fine, coarse = lattice(8, 12, 4), lattice(4, 6, 8)
    return alike(windows(fine, 4), windows(fine, 4, (2, 2)), windows(coarse, 4), windows(coarse, 4, (0, 2)))


def tiny_vit():
    """Each of the stem's and the stages' 3x3 convolutions of stride 2 starts on the first pixel."""
    return alike(*(windows(lattice(64 // step, 96 // step, step, 0.5), 4) for step in (8, 16, 32)))


def davit():
    """The stem of 7x7, stride 4, starts on the first pixel; 2x2 patches sit in the middle of theirs."""
    stages = [lattice(64 // step, 96 // step, step, step / 2 - 1.5) for step in (4, 8, 16, 32)]
    return [side for grid in stages for side in (*alike(windows(grid, 4)), CHANNELS)]


def efficientvit():
    """Each head is an attention of its own: windows of a grid of 14 x 14, then whole grids."""
    grids = (lattice(14, 14, 16, 0.5), lattice(7, 7, 32, 0.5), lattice(4, 4, 64, 0.5))
    first, *rest = (windows(grids[0], 7), whole(grids[1]), whole(grids[2]))
    return alike(
        *[first] * 4, *[side for side, blocks in zip(rest, (2, 3), strict=True) for _ in range(4 * blocks)]
    )


def nest():
    """Two levels: four blocks of 8 x 8, then one; the 3x3 pooling between starts on the first token."""
    return alike(windows(lattice(16, 16, 4), 8), whole(lattice(8, 8, 8, 2)))


def sam():
    """Windows of a grid of 4 x 6 filled up to 4 x 8, then the whole grid."""
    grid = lattice(4, 6, 16)
    return alike(windows(grid, 4), whole(grid))


def twins():
    """In each stage windows, then all tokens with keys pooled to patches of 32 pixels."""
    pooled = whole(lattice(2, 3, 32))
    grids = [lattice(64 // step, 96 // step, step) for step in (4, 8, 16, 32)]
    return [sides for grid in grids for sides in ((windows(grid, 4),) * 2, (whole(grid), pooled))]


def maxvit():
    """The stem starts on the first pixel; from then on tokens sit between the two they come from."""
    grids = [lattice(64 // step, 96 // step, step, step / 2 - 0.5) for step in (4, 8, 16, 32)]
    return alike(*(cut(grid, (2, 3)) for grid in grids for cut in (windows, spread)))


def gcvit():
    """Local windows, then windows that are all asked the same global queries."""
    grids = [lattice(64 // step, 64 // step, step, 0.5) for step in (4, 8, 16, 32)]
    return alike(
        *(windows(grid, size) for grid, size in zip(grids, (2, 2, 4, 2), strict=True) for _ in (0, 1))
    )


def hieradet():
    """Windows, of the finer grid for keys where queries are pooled to half of it, and one global block."""
    grids = [lattice(64 // step, 96 // step, step, step / 2 - 1.5) for step in (4, 8, 16, 32)]
    return [
        *alike(windows(grids[0], 4)),
        (windows(grids[1], 2), windows(grids[0], 4)),
        *alike(windows(grids[1], 4)),
        (windows(grids[2], 2), windows(grids[1], 4)),
        *alike(whole(grids[2])),
        (windows(grids[3], 1), windows(grids[2], 2)),
    ]


def mobilevit():
    """Of the four pixels of each patch, each attends to its like in other patches."""
    stages = [
        (lattice(64 // step, 128 // step, step, 0.5), depth) for step, depth in ((8, 2), (16, 4), (32, 3))
    ]
    return alike(
        *(
            np.stack([grid[row::2, column::2].reshape(-1, 2) for row in (0, 1) for column in (0, 1)])
            for grid, depth in stages
            for _ in range(depth)
        )
    )


SWIN = {"patch_size": 4, "embed_dim": 16, "depths": (2, 2), "num_heads": (2, 2)}
MAXVIT = {"img_size": SIZE, "depths": (1, 1, 1, 1), "embed_dim": (32, 32, 64, 64), "stem_width": 16}
GCVIT = {"img_size": 64, "depths": (2, 2, 2, 2), "embed_dim": 8, "num_heads": (1, 2, 2, 2)}
CASES = {
    "swin": ("swin_tiny_patch4_window7_224", SIZE, {"img_size": SIZE, "window_size": 4, **SWIN}, swin),
    "swin, odd": (
        "swin_tiny_patch4_window7_224",
        (32, 48),
        {"img_size": (32, 48), "window_size": 4, **SWIN},
        small_swin,
    ),
    "swin v2": ("swinv2_tiny_window8_256", SIZE, {"img_size": SIZE, "window_size": 4, **SWIN}, swin),
    "swin v2 cr": ("swinv2_cr_tiny_224", SIZE, {"img_size": SIZE, "window_size": 4, **SWIN}, swin),
    "tiny vit": ("tiny_vit_5m_224", SIZE, {"window_sizes": (4,) * 4, **SMALL}, tiny_vit),
    "davit": ("davit_tiny", SIZE, {"window_size": 4, **SMALL}, davit),
    "efficientvit": ("efficientvit_m0", (224, 224), {}, efficientvit),
    "nest": (
        Nest,
        (64, 64),
        {"img_size": 64, "num_levels": 2, "embed_dims": (16, 32), "num_heads": (2, 2), "depths": (1, 1)},
        nest,
    ),
    "sam": (
        "samvit_base_patch16_224",
        SIZE,
        {
            "img_size": SIZE,
            "embed_dim": 32,
            "num_heads": 2,
            "depth": 2,
            "window_size": 4,
            "global_attn_indexes": (1,),
        },
        sam,
    ),
    "twins": (
        "twins_svt_small",
        SIZE,
        {**SMALL, "img_size": SIZE, "depths": (2,) * 4, "wss": (4,) * 4},
        twins,
    ),
    "maxvit": ("maxvit_pico_rw_256", SIZE, MAXVIT, maxvit),
    "maxvit, mlp bias": ("maxvit_rmlp_pico_rw_256", SIZE, MAXVIT, maxvit),
    "gcvit": (GlobalContextVit, (64, 64), GCVIT, gcvit),
    "hieradet": (
        "sam2_hiera_tiny",
        SIZE,
        {"embed_dim": 16, "stages": (1, 2, 2, 1), "window_spec": (4, 4, 2, 2), "global_att_blocks": (4,)},
        hieradet,
    ),
    "mobilevit": ("mobilevit_xxs", (64, 128), {}, mobilevit),
}


@pytest.mark.parametrize("family", CASES)
def test_windows(family):
    name, size, arguments, places = CASES[family]
    tensor = picture(*size)
    model = settled(built(name, **arguments), tensor)
    logits = logits_of(model, tensor)
    if family == "nest":
        logits = [stacked.transpose(1, 2) for stacked in logits]  # heads before blocks
    truths = [Truth(of, *sides) for of, sides in zip(logits, places(), strict=True)]
    check(record_of(model, tensor), truths)


def test_unfused_windows_are_the_same():
    name, size, arguments, places = CASES["swin, odd"]
    model, tensor = built(name, False, **arguments), picture(*size)
    truths = [Truth(of, *sides) for of, sides in zip(logits_of(model, tensor), places(), strict=True)]
    check(record_of(model, tensor), truths)


@pytest.mark.parametrize("family", ["swin", "swin v2 cr"])
def test_what_the_shift_joins_stays_out_of_reach(family):
    """A shifted window reaches over the picture's edge; a token sees of it what lies near on the picture."""
    name, size, arguments, _ = CASES[family]
    record = record_of(built(name, **arguments), picture(*size))
    for layer, step in zip(record.layers[1::2], (4, 8), strict=True):
        places = layer.query_layout.positions
        # Windows begin half a window in, at tokens 2, 6, ...: the row or column of windows a token is in.
        cut = np.floor((places / step + 2) / 4)
        for query in ((0, 0), (1, 5), (2, 2), (7, 11), layer.query_layout.token((5, 1))):
            token = layer.query_layout.token(query)
            expected = (cut == cut[token]).all(axis=1)
            np.testing.assert_array_equal(layer.reach(query), expected)
            weights = layer.weights(query)
            assert np.isnan(weights[:, ~expected]).all()
            np.testing.assert_allclose(weights[:, expected].sum(axis=1), 1, atol=1e-5)
        assert layer.reach((0, 0)).sum() == 4  # the corner has a quarter of a window to itself


def test_padding_is_called_so():
    name, size, arguments, _ = CASES["sam"]
    record = record_of(built(name, **arguments), picture(*size))
    inside, globally = record.layers
    assert inside.key_layout.prefix_names == ("padding",) * 8
    assert globally.key_layout.prefix_names == ()
    assert record.prefix_names == ()
    # Keys that windows were filled up with take their share of attention, which is none of a patch.
    padding = inside.weights((0, 5))[:, inside.key_layout.prefix_tokens]
    assert np.nansum(padding, axis=1).min() > 0.01


def test_halo_blocks_see_around_themselves():
    net = nn.Sequential(nn.Conv2d(3, 16, 4, 4), HaloAttn(16, num_heads=2, block_size=2, halo_size=1)).eval()
    randomize(net)
    tensor = picture(16, 24)
    (layer,) = run_of(net, tensor).layers
    (logits,) = logits_of(net, tensor)
    grid = lattice(4, 6, 4)
    # The model stacks heads before blocks.
    stacked = logits.reshape(2, 6, 4, 16).transpose(0, 1)
    check_layer(layer, Truth(stacked, windows(grid, 2), haloed(grid, 2, 1)))
    assert layer.reach((0, 0)).sum() == 16
    assert torch.allclose(torch.tensor(layer.weights((3, 5))).nansum(-1), torch.ones(2))
