"""How much of a map the offset from query to key explains: 1 for a head that does the same everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from torch import Tensor

    from viewer.attention.layer import AttentionLayer


class OffsetSums:
    """Attention added up by the offset from query patch to key patch, chunk by chunk.

    Parameters
    ----------
    layer
        With queries and keys on the same patches.
    """

    def __init__(self, layer: AttentionLayer) -> None:
        self._scores, device = layer.scores, layer.scores.device
        rows, columns = layer.query_layout.grid
        self._none = (2 * rows - 1) * (2 * columns - 1)  # of pairs that have no offset
        # Offsets are numbered row by row: the difference of two such numbers stands for one offset.
        self._queries, self._keys = (
            torch.from_numpy(_numbers(layout.cells, columns)).to(device).view(self._scores.groups, -1)
            for layout in (layer.query_layout, layer.key_layout)
        )
        self._middle = (rows - 1) * (2 * columns - 1) + columns - 1
        self._limited = layer.scores.stacked.reach([0]) is not None
        shape = (layer.heads, self._none + 1)
        self._sums = torch.zeros(shape, dtype=torch.float64, device=device)
        self._squares = torch.zeros(layer.heads, dtype=torch.float64, device=device)
        self._pairs = torch.zeros(self._none + 1, dtype=torch.int64, device=device)

    @staticmethod
    def of(layer: AttentionLayer) -> OffsetSums | None:
        """Return empty sums, or None where queries and keys are not the same patches."""
        queries, keys = layer.query_layout, layer.key_layout
        return OffsetSums(layer) if queries.placed and queries.same_patches(keys) else None

    def add(self, weights: Tensor, rows: slice) -> None:
        """Add a chunk of weights, float32 (groups * heads, rows, keys)."""
        queries = self._queries[:, rows, None]
        offsets = self._keys[:, None] - queries + self._middle
        offsets.masked_fill_((self._keys[:, None] < 0) | (queries < 0), self._none)
        if self._limited:
            offsets.masked_fill_(~self._reach(rows), self._none)
        self._pairs += torch.bincount(offsets.flatten(), minlength=self._none + 1)
        of_heads = weights.view(self._scores.groups, -1, *weights.shape[1:]).transpose(0, 1)
        of_heads = of_heads.reshape(len(of_heads), -1).double()
        index = offsets.flatten().expand(len(of_heads), -1)
        self._sums.scatter_add_(1, index, of_heads)
        self._squares += of_heads.square().masked_fill_(index == self._none, 0.0).sum(dim=1)

    def _reach(self, rows: slice) -> Tensor:
        heads, groups = self._scores.heads, self._scores.groups
        parts = (self._scores.stacked.part(slice(g * heads, (g + 1) * heads)) for g in range(groups))
        shape = (rows.stop - rows.start, self._scores.stacked.keys)
        every = torch.ones(shape, dtype=torch.bool, device=self._scores.device)
        found = (part.reach(rows) for part in parts)
        return torch.stack([every if reach is None else reach for reach in found])

    def finish(self) -> Tensor:
        """Return the share of variance that the offset explains, float64 (heads,)."""
        sums, pairs = self._sums[:, :-1], self._pairs[:-1]
        mean = sums.sum(dim=1) ** 2 / pairs.sum()
        whole = self._squares - mean
        explained = (sums**2 / pairs.clamp(min=1)).sum(dim=1) - mean
        # Uniform maps differ from their mean by rounding alone.
        varies = whole > 1e-9 * self._squares
        return torch.where(varies, (explained / whole).clamp(0, 1), torch.nan)


def _numbers(cells: np.ndarray, columns: int) -> np.ndarray:
    """Give patches numbers whose differences name the offsets between them; negative without a place."""
    row, column = np.divmod(cells, columns)
    return np.where(cells < 0, -1, row * (2 * columns - 1) + column)
