"""High-norm tokens of the residual stream.

Darcet et al. 2023, "Vision Transformers Need Registers", section 2.1: large trained models turn a few patches
of little content into stores of global information, and such patches have far longer vectors than the others.
They cut at a length read off the bimodal histogram of one model; here the rule is relative, so that it can be
said of any model and layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.layer import AttentionLayer

HIGH_NORM = 3.0
"""A patch is a high-norm patch where its vector is more than so many times as long as the median patch's."""


def high_norm_patches(layer: AttentionLayer) -> npt.NDArray[np.bool_] | None:
    """Return which patches of a layer's queries have a high norm, bool (R * C,) row by row.

    None where the norms are not known, or no query has a place.
    """
    norms = patch_norms(layer)
    if norms is None:
        return None
    return norms > HIGH_NORM * np.median(norms)


def patch_norms(layer: AttentionLayer) -> npt.NDArray[np.float32] | None:
    """Return the norm of each patch of a layer's queries row by row, float32 (R * C,); None if not known."""
    if layer.stream_norms is None or not layer.query_layout.placed:
        return None
    return layer.stream_norms[layer.query_layout.patch_tokens]
