"""Families whose tokens attend within windows: weights against float64, places against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.families import (
    Truth,
    built,
    check,
    lattice,
    logits_of,
    picture,
    record_of,
    whole,
    windows,
)

SWIN = {"img_size": (32, 48), "patch_size": 4, "embed_dim": 16, "depths": (2, 2), "num_heads": (2, 2)}


def swin_windows():
    """Two stages of two blocks: windows of 4, shifted by 2 where the grid is larger than a window."""
    fine, coarse = lattice(8, 12, 4), lattice(4, 6, 8)
    return [
        windows(fine, 4),
        windows(fine, 4, (2, 2)),
        windows(coarse, 4),
        windows(coarse, 4, (0, 2)),
    ]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("swin_tiny_patch4_window7_224", {"window_size": 4}),
        ("swinv2_tiny_window8_256", {"window_size": 4}),
    ],
)
@pytest.mark.parametrize("is_fused", [True, False])
def test_swin(name, arguments, is_fused):
    tensor = picture(32, 48)
    model = built(name, is_fused, **SWIN, **arguments)
    truths = [
        Truth(logits, places, places)
        for logits, places in zip(
            logits_of(built(name, False, **SWIN, **arguments), tensor), swin_windows(), strict=True
        )
    ]
    check(record_of(name, model, tensor), truths)
