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
    from viewer.attention.scores import Scratch

# Weights that differ by less than a third of a percent differ by rounding: the root of it.
_NO_VARIANCE = 1e-5


class OffsetSums(Protocol):
    """Attention added up by the offset from query patch to key patch, chunk by chunk."""

    def add(self, weights: Tensor, rows: slice, scratch: Scratch) -> None:
        """Add a chunk of weights, float32 (groups * heads, rows, keys); buffer 0 of `scratch` is free."""

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
    """Queries of a chunk that make a rectangle of the grid."""

    chunk: slice
    row: int
    rows: int
    column: int
    columns: int


class _PlainOffsets:
    """Sums for patches that lie row by row and all look at all.

    The maps of the queries of one grid row are laid out with as many zeros after each row of keys as it has
    keys. Read with a stride longer by one, they lie in such a way that equal offsets meet, and are summed.
    """

    def __init__(self, layer: AttentionLayer, queries: slice, keys: slice) -> None:
        self._grid = rows, columns = layer.query_layout.grid
        self._first, self._keys = queries.start, keys
        # Offsets of one grid row begin at 1 - columns; the first place of each row is one offset too many.
        # On the host: not every device has float64.
        self._sums = torch.zeros((layer.heads, 2 * rows - 1, 2 * columns), dtype=torch.float64)
        self._squares = torch.zeros(layer.heads, dtype=torch.float64)

    def add(self, weights: Tensor, rows: slice, scratch: Scratch) -> None:
        """See `OffsetSums`."""
        high, wide = self._grid
        on_patches, room = weights[:, :, self._keys], scratch.free
        of_column = len(weights) * high * 2 * wide
        if len(room) < of_column + 2 * wide:
            room = weights.new_empty(of_column + 2 * wide)
        for run in self._runs(rows, (len(room) - 2 * wide) // of_column):
            block = on_patches[:, run.chunk]
            self._squares += torch.linalg.vector_norm(block, dim=2).square_().sum(dim=1).cpu()
            self._add(block, run, room)

    def _runs(self, rows: slice, most: int) -> Iterator[_Run]:
        """Split a chunk into rectangles of up to so many queries: whole grid rows, or parts of one."""
        high, wide = self._grid
        shift = self._first - rows.start
        begin = max(-shift, 0)
        end = min(rows.stop - self._first, high * wide)
        while begin < end:
            row, column = divmod(begin, wide)
            whole = min(most, end - begin) // wide if column == 0 else 0
            columns = wide if whole else min(wide - column, end - begin, most)
            stop = begin + max(whole, 1) * columns
            yield _Run(slice(begin + shift, stop + shift), row, max(whole, 1), column, columns)
            begin = stop

    def _add(self, block: Tensor, run: _Run, room: Tensor) -> None:
        high, wide = self._grid
        heads, width = len(block), 2 * wide
        map_size = high * width
        laid_out = room[: width + block.shape[1] * heads * map_size]
        inside = laid_out[width:].view(heads, -1, high, width)
        inside[..., :wide] = block.unflatten(2, (high, wide))
        inside[..., wide:] = 0
        laid_out[:width] = 0
        # Place s of a row of this view is the key that lies s - wide columns off the query, or a zero.
        skewed = laid_out.as_strided(
            (heads * run.rows, run.columns, map_size),
            (run.columns * map_size, map_size + 1, 1),
            laid_out.storage_offset() + width + run.column - wide,
        )
        ones = block.new_ones((1, 1, 1)).expand(heads * run.rows, 1, run.columns)
        found = torch.bmm(ones, skewed).view(heads, run.rows, high, width).cpu()
        for at in range(run.rows):
            top = high - 1 - (run.row + at)
            self._sums[:, top : top + high] += found[:, at]

    def share(self) -> Tensor:
        """See `OffsetSums`."""
        down, across = (n - torch.arange(1 - n, n).abs() for n in self._grid)
        pairs = torch.outer(down, across).double()
        return _share(self._sums[..., 1:].flatten(start_dim=1), pairs.flatten(), self._squares)


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

    def add(self, weights: Tensor, rows: slice, scratch: Scratch) -> None:
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
