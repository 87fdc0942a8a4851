"""Where the tokens of an attention operation sit on the picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Query = tuple[int, int] | str | int
"""A patch as (row, column), a prefix token by name such as ``"cls"``, or a token index."""


@dataclass(frozen=True, eq=False)
class TokenLayout:
    """Where the tokens on one side (queries or keys) of an attention operation sit.

    Attributes
    ----------
    positions
        float32 (tokens, 2), the centre of each token as (y, x) in pixels of the model's input, measured from
        the top left corner of the picture (the first 16-pixel patch sits at (8, 8)); NaN for a prefix token.
    grid
        Rows and columns of the patch grid; (0, 0) where no token has a place (a pooling query).
    patch_px
        Height and width of a patch in input pixels.
    patch_tokens
        int64 (rows * columns,), the token index of each patch in row-major order.
    prefix_tokens
        int64 (P,), the indices of the tokens without a place, in token order.
    prefix_names
        A name for each of `prefix_tokens`: "cls", "dist", "reg1", ... What windows were filled up with is
        "padding".
    cells
        int64 (tokens,), the patch that each token is, counted row by row; -1 for a prefix token. Where
        windows overlap, several tokens are one patch, and `patch_tokens` names the first of them.
    origin
        Centre of the first patch as (y, x) in input pixels; half a patch, unless patches overlap.
    """

    positions: npt.NDArray[np.float32]
    grid: tuple[int, int]
    patch_px: tuple[float, float]
    patch_tokens: npt.NDArray[np.int64]
    prefix_tokens: npt.NDArray[np.int64]
    prefix_names: tuple[str, ...]
    cells: npt.NDArray[np.int64]
    origin: tuple[float, float]

    @classmethod
    def regular(
        cls, grid: tuple[int, int], patch_px: tuple[float, float], prefix_names: Sequence[str] = ()
    ) -> TokenLayout:
        """Make the layout of a plain Vision Transformer: prefix tokens first, then patches row by row."""
        rows, columns = grid
        prefix = len(prefix_names)
        y = (np.arange(rows, dtype=np.float32) + 0.5) * patch_px[0]
        x = (np.arange(columns, dtype=np.float32) + 0.5) * patch_px[1]
        patches = np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1).reshape(-1, 2)
        positions = np.concatenate([np.full((prefix, 2), np.nan, np.float32), patches.astype(np.float32)])
        return cls.from_positions(positions, prefix_names)

    @classmethod
    def from_positions(
        cls,
        positions: npt.NDArray[np.float32],
        prefix_names: Sequence[str] = (),
        *,
        repeats: bool = False,
        size: tuple[int, int] | None = None,
    ) -> TokenLayout:
        """Find the patch grid in traced token positions, in whatever order the tokens come.

        Parameters
        ----------
        positions
            float32 (tokens, 2) as (y, x) in input pixels, NaN where a token has no place.
        prefix_names
            Names for the tokens without a place, in token order; too few are completed with "prefix0", ...
        repeats
            Whether several tokens may sit at the same place, as keys do where windows overlap.
        size
            Height and width of the picture in pixels, which a single row or column of patches spans; by
            default its centre lies half a patch from the border.

        Raises
        ------
        ValueError
            If the tokens with a place do not fill a regular grid, each cell once (or more, with `repeats`).
        """
        positions = np.ascontiguousarray(positions, dtype=np.float32)
        placed = np.flatnonzero(np.isfinite(positions).all(axis=1))
        prefix = np.flatnonzero(~np.isfinite(positions).all(axis=1))
        names = tuple(prefix_names[: len(prefix)]) + tuple(
            f"prefix{i}" for i in range(len(prefix_names), len(prefix))
        )
        cells = np.full(len(positions), -1, np.int64)
        if len(placed) == 0:
            return cls(positions, (0, 0), (0.0, 0.0), placed, prefix, names, cells, (0.0, 0.0))
        rows, columns = (
            _axis(positions[placed, axis], what, None if size is None else size[axis])
            for axis, what in enumerate(("rows", "columns"))
        )
        cells[placed] = rows.index * columns.count + columns.index
        filled, first = np.unique(cells[placed], return_index=True)
        if len(filled) != rows.count * columns.count or (len(placed) != len(filled) and not repeats):
            raise ValueError(
                f"{len(placed)} tokens do not fill a grid of {rows.count} rows and {columns.count} columns"
            )
        return cls(
            positions=positions,
            grid=(rows.count, columns.count),
            patch_px=(rows.step, columns.step),
            patch_tokens=placed[first],
            prefix_tokens=prefix,
            prefix_names=names,
            cells=cells,
            origin=(rows.first, columns.first),
        )

    def __repr__(self) -> str:
        if not self.placed:
            return f"<TokenLayout: {self.tokens} tokens without a place on the picture>"
        rows, columns = self.grid
        prefix = ", ".join(self.prefix_names)
        return (
            f"<TokenLayout: {self.tokens} tokens, {rows} rows x {columns} columns of patches, "
            f"{self.patch_px[0]:g} x {self.patch_px[1]:g} px each; prefix tokens: {prefix or 'none'}>"
        )

    @property
    def tokens(self) -> int:
        """Number of tokens, prefix tokens included."""
        return len(self.positions)

    @property
    def placed(self) -> bool:
        """Whether any token has a place."""
        return self.grid != (0, 0)

    @cached_property
    def even(self) -> bool:
        """Whether every patch has its centre where its row and column say; one partly on padding has not."""
        cells = self.cells[self.cells >= 0]
        rows, columns = np.divmod(cells, max(self.grid[1], 1))
        centres = np.stack([rows, columns], axis=1) * self.patch_px + self.origin
        return bool((np.abs(self.positions[self.cells >= 0] - centres) <= _SAME).all())

    @cached_property
    def consecutive(self) -> slice | None:
        """The token indices of the patches, where those are consecutive tokens in row-major order."""
        if not self.placed or (np.diff(self.patch_tokens) != 1).any():
            return None
        first = int(self.patch_tokens[0])
        alone = np.count_nonzero(self.cells >= 0) == len(self.patch_tokens)
        return slice(first, first + len(self.patch_tokens)) if alone else None

    def same_patches(self, other: TokenLayout) -> bool:
        """Return whether two layouts have their patches at the same places."""
        return self is other or (
            (self.grid, self.patch_px, self.origin) == (other.grid, other.patch_px, other.origin)
        )

    def centre(self, patch: tuple[int, int]) -> tuple[float, float]:
        """Return (y, x) of a patch (row, column) in input pixels."""
        (y, x), (down, across) = self.origin, self.patch_px
        return y + patch[0] * down, x + patch[1] * across

    def patch_at(self, y: float, x: float) -> tuple[int, int]:
        """Return (row, column) of the patch whose centre is nearest to a point in input pixels."""
        # As `_nearest`, in plain numbers: a hover asks this of every layer.
        row, column = (
            min(max(math.floor((at - start) / size + 0.5 - _HALFWAY), 0), count - 1)
            for at, start, size, count in zip((y, x), self.origin, self.patch_px, self.grid, strict=True)
        )
        return row, column

    def patches_under(self, other: TokenLayout) -> npt.NDArray[np.int64]:
        """Return which patch of this layout lies under the centre of each of another, int64 (R * C,)."""
        rows, columns = (
            self._nearest(axis, other.origin[axis] + other.patch_px[axis] * np.arange(other.grid[axis]))
            for axis in (0, 1)
        )
        return (rows[:, None] * self.grid[1] + columns).ravel()

    def _nearest(self, axis: int, centres: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        # Just short of halfway still belongs to the patch before, so float noise decides nothing.
        steps = np.floor((centres - self.origin[axis]) / self.patch_px[axis] + 0.5 - _HALFWAY)
        return np.clip(steps, 0, self.grid[axis] - 1).astype(np.int64)

    def token(self, query: Query) -> int:
        """Return the token index of a patch, a prefix token's name or a token index.

        Raises
        ------
        LookupError
            If there is no such token; the message lists what there is.
        """
        if isinstance(query, str):
            if query in self.prefix_names:
                return int(self.prefix_tokens[self.prefix_names.index(query)])
            few = self.prefix_names[:_NAMED]
            more = f", ... {len(self.prefix_names) - _NAMED} more" if len(self.prefix_names) > _NAMED else ""
            known = ", ".join(few) + more or "none"
            raise LookupError(f"There is no prefix token {query!r}; this model's prefix tokens: {known}.")
        if isinstance(query, tuple):
            if not self.placed:
                raise LookupError(
                    f"There is no patch {query}: no token here has a place on the picture. Give its name, or "
                    "an index counted from 0."
                )
            row, column = query if len(query) == 2 and all(map(is_index, query)) else (-1, -1)
            if not (0 <= row < self.grid[0] and 0 <= column < self.grid[1]):
                raise LookupError(
                    f"There is no patch {query}; the grid has {self.grid[0]} rows and "
                    f"{self.grid[1]} columns, counted from 0."
                )
            return int(self.patch_tokens[row * self.grid[1] + column])
        if not is_index(query) or not 0 <= query < self.tokens:
            raise LookupError(f"There is no token {query!r}; there are {self.tokens}, counted from 0.")
        return int(query)


def is_index(value: object) -> bool:
    """Return whether something counts things: a whole number, of Python or NumPy, but no truth value."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


# Traced coordinates carry float32 rounding: values closer than this are one coordinate, in pixels.
_SAME = 0.1
_HALFWAY = 1e-3  # of a patch
# Names of tokens that an error lists; a layer of channels has hundreds.
_NAMED = 8


class _Axis(NamedTuple):
    index: npt.NDArray[np.int64]
    count: int
    step: float
    first: float


def _axis(centres: npt.NDArray[np.float32], what: str, span: float | None) -> _Axis:
    """Return the place of each coordinate on one axis, and the spacing in pixels.

    The first and the last may lie up to half a step too near to the next: a patch that is partly padding has
    its centre on its part of the picture. `span` is the size of the picture along the axis, if known.
    """
    order = np.argsort(centres, kind="stable")
    ascending = centres[order].astype(np.float64)
    starts_new = np.diff(ascending, prepend=ascending[0]) > _SAME
    index = np.empty(len(centres), np.int64)
    index[order] = np.cumsum(starts_new)
    places = np.bincount(index, weights=centres) / np.bincount(index)
    if len(places) == 1:  # no spacing
        alone = 2 * float(places[0]) if span is None else float(span)
        return _Axis(index, 1, round(alone, 3), round(float(places[0]), 3))
    steps = np.diff(places)
    even = steps if np.ptp(steps) <= 2 * _SAME else steps[steps >= steps.max() - 2 * _SAME]
    step = float(even.mean())
    short = step - steps
    if short[1:-1].max(initial=0) > 2 * _SAME or short.max() > step / 2:
        listing = ", ".join(f"{place:.1f}" for place in places[:6])
        raise ValueError(f"the {what} of tokens are not evenly spaced; they begin at {listing} pixels")
    first = places[1] - step if short[0] > 2 * _SAME else places[0]
    return _Axis(index, len(places), round(step, 3), round(float(first), 3))
