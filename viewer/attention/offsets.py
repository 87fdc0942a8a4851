"""How much of a map the offset from query to key explains: 1 for a head that does the same everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    from torch import Tensor

    from viewer.attention.layer import AttentionLayer

# Weights that differ by less than a third of a percent differ by rounding: the root of it.
_NO_VARIANCE = 1e-5


class OffsetSums(Protocol):
    """Attention added up by the offset from query patch to key patch, chunk by chunk."""

    def add(self, weights: Tensor, rows: slice) -> None:
        """Add a chunk of weights, float32 (groups * heads, rows, keys)."""

    def share(self) -> Tensor:
        """Return the share of variance that the offset explains, float64 (heads,) on the host.

        NaN where there is no variance.
        """


def offset_sums(layer: AttentionLayer) -> OffsetSums | None:
    """Return empty sums for a layer; None where queries and keys are not the same patches."""
    queries, keys = layer.query_layout, layer.key_layout
    if not (queries.placed and queries.same_patches(keys)):
        return None
    if layer.limited or queries.consecutive is None or keys.consecutive is None:
        return _AnyOffsets(layer)
    return _PlainOffsets(layer, queries.consecutive, keys.consecutive)


def _share(sums: Tensor, pairs: Tensor, squares: Tensor) -> Tensor:
    """Return explained over whole variance.

    Parameters
    ----------
    sums, pairs
        Of each offset, float64: attention (heads, offsets), and number of pairs of patches (offsets,).
    squares
        float64 (heads,), of all weights.
    """
    mean = sums.sum(dim=1) ** 2 / pairs.sum()
    whole = squares - mean
    explained = (sums**2 / pairs.clamp(min=1)).sum(dim=1) - mean
    return torch.where(whole > _NO_VARIANCE * squares, (explained / whole).clamp(0, 1), torch.nan)


class _Run(NamedTuple):
    """Queries of a chunk that lie side by side in one row of the grid."""

    chunk: slice
    row: int
    columns: slice


class _PlainOffsets:
    """Sums for patches that lie row by row and all look at all.

    Shifted down by as many rows as its query has below it, a map lies such that equal offsets of rows meet,
    and the maps of all queries of one column may be added up as they are. Columns are shifted at the end.
    """

    def __init__(self, layer: AttentionLayer, queries: slice, keys: slice) -> None:
        self._grid = rows, columns = layer.query_layout.grid
        self._first, self._keys = queries.start, keys
        # In float32: each place adds up the maps of one column of queries, no more than there are rows.
        size = (layer.heads, columns, (2 * rows - 1) * columns)
        self._sums = torch.zeros(size, dtype=torch.float32, device=layer.scores.device)
        # On the host: not every device has float64.
        self._squares = torch.zeros(layer.heads, dtype=torch.float64)

    def add(self, weights: Tensor, rows: slice) -> None:
        """See `OffsetSums`."""
        high, wide = self._grid
        on_patches = weights[:, :, self._keys]
        for run in self._runs(rows):
            block = on_patches[:, run.chunk]
            self._squares += torch.linalg.vector_norm(block, dim=2).square_().sum(dim=1).cpu()
            top = (high - 1 - run.row) * wide
            self._sums[:, run.columns, top : top + high * wide].add_(block)

    def _runs(self, rows: slice) -> Iterator[_Run]:
        """Split a chunk into what it holds of each row of the grid."""
        high, wide = self._grid
        shift = self._first - rows.start
        begin = max(-shift, 0)
        end = min(rows.stop - self._first, high * wide)
        while begin < end:
            row, column = divmod(begin, wide)
            stop = min(end, (row + 1) * wide)
            yield _Run(slice(begin + shift, stop + shift), row, slice(column, column + stop - begin))
            begin = stop

    def share(self) -> Tensor:
        """See `OffsetSums`."""
        high, wide = self._grid
        sums = torch.zeros((len(self._sums), 2 * high - 1, 2 * wide - 1), dtype=torch.float64)
        for column, of_queries in enumerate(self._sums.cpu().unbind(dim=1)):
            left = wide - 1 - column
            sums[:, :, left : left + wide] += of_queries.view(-1, 2 * high - 1, wide)
        down, across = (n - torch.arange(1 - n, n).abs() for n in self._grid)
        return _share(sums.flatten(start_dim=1), torch.outer(down, across).double().flatten(), self._squares)


class _AnyOffsets:
    """Sums for patches in any order, in windows, or where some are out of reach."""

    def __init__(self, layer: AttentionLayer) -> None:
        self._scores, device = layer.scores, layer.scores.device
        rows, columns = layer.query_layout.grid
        self._none = (2 * rows - 1) * (2 * columns - 1)  # of pairs that have no offset
        self._middle = (rows - 1) * (2 * columns - 1) + columns - 1
        self._queries, self._keys = (
            torch.from_numpy(_numbers(layout.cells, columns)).to(device).view(self._scores.groups, -1)
            for layout in (layer.query_layout, layer.key_layout)
        )
        self._sums = torch.zeros((layer.heads, self._none + 1), dtype=torch.float64)
        self._squares = torch.zeros(layer.heads, dtype=torch.float64)
        self._pairs = torch.zeros(self._none + 1, dtype=torch.int64)

    def add(self, weights: Tensor, rows: slice) -> None:
        """See `OffsetSums`."""
        queries = self._queries[:, rows, None]
        offsets = self._keys[:, None] - queries + self._middle
        offsets.masked_fill_((self._keys[:, None] < 0) | (queries < 0), self._none)
        reach = self._scores.group_reach(rows)
        if reach is not None:
            offsets.masked_fill_(~reach, self._none)
        offsets = offsets.flatten()
        self._pairs += torch.bincount(offsets, minlength=self._none + 1).cpu()
        of_heads = weights.unflatten(0, (self._scores.groups, -1)).transpose(0, 1).flatten(start_dim=1)
        index = offsets.expand(len(of_heads), -1)
        found = of_heads.new_zeros(self._sums.shape)
        self._sums += found.scatter_add_(1, index, of_heads).cpu()
        there = offsets != self._none
        self._squares += torch.linalg.vector_norm(of_heads * there, dim=1).square_().cpu()

    def share(self) -> Tensor:
        """See `OffsetSums`."""
        return _share(self._sums[:, :-1], self._pairs[:-1].double(), self._squares)


def _numbers(cells: npt.NDArray[np.int64], columns: int) -> npt.NDArray[np.int64]:
    """Give patches numbers whose differences name the offsets between them; negative without a place."""
    row, column = np.divmod(cells, columns)
    return np.where(cells < 0, -1, row * (2 * columns - 1) + column)
