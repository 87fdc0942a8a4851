"""High-norm tokens of the residual stream.

Darcet et al. 2023, "Vision Transformers Need Registers", section 2.1: large trained models turn a few patches
of little content into stores of global information, and such patches have far longer vectors than the others.
They cut at a length read off the bimodal histogram of one model; here the rule is relative, so that it can be
said of any model and layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.layer import AttentionLayer

HIGH_NORM = 3.0
"""A patch is a high-norm patch where its vector is more than so many times as long as the median patch's."""


@dataclass(frozen=True, eq=False)
class PatchNorms:
    """Norms of the patches that enter a layer.

    Attributes
    ----------
    norms
        float32 (rows, columns of the layer's queries).
    median, largest
        Of all patches.
    high
        The high-norm patches, as (row, column).
    """

    norms: npt.NDArray[np.float32]
    median: float
    largest: float
    high: tuple[tuple[int, int], ...]


def patch_norms(layer: AttentionLayer) -> PatchNorms | None:
    """Return the norms of a layer's patches; None where they are not known, or no numbers."""
    layout = layer.query_layout
    if layer.stream_norms is None or not layout.placed:
        return None
    norms = layer.stream_norms[layout.patch_tokens].reshape(layout.grid)
    if not np.isfinite(norms).all():
        return None
    median = float(np.median(norms))
    rows, columns = np.nonzero(norms > HIGH_NORM * median)
    high = tuple(zip(rows.tolist(), columns.tolist(), strict=True))
    return PatchNorms(norms, median, float(norms.max()), high)
