"""Statistics over images in constant memory: moments that merge, and exact quartiles in a few passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

QUARTILES = (0.25, 0.5, 0.75)

_DIGIT = 8  # bits looked at in one pass; a histogram of 2^8 for each column stays small
_SIGN = np.uint32(1 << 31)


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean and sum of squared deviations of every column, NaN left out; all (heads, measures).

    Merged as Chan, Golub and LeVeque (1979) do: no large sums are subtracted from one another, so neither
    order nor grouping matters beyond the last digits of float64.
    """

    count: npt.NDArray[np.int64]
    mean: npt.NDArray[np.float64]
    squares: npt.NDArray[np.float64]

    @classmethod
    def of(cls, values: npt.NDArray[np.float32]) -> Moments:
        """Return the moments of float32 (images, heads, measures)."""
        wide = values.astype(np.float64)
        there = np.isfinite(wide)
        count = there.sum(axis=0)
        mean = np.where(there, wide, 0.0).sum(axis=0) / np.maximum(count, 1)
        squares = (np.where(there, wide - mean, 0.0) ** 2).sum(axis=0)
        return cls(count, mean, squares)

    @classmethod
    def empty(cls, heads: int, measures: int) -> Moments:
        """Return the moments of no image."""
        shape = (heads, measures)
        return cls(np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape))

    def merged(self, other: Moments) -> Moments:
        """Return the moments of both together."""
        count = self.count + other.count
        share = other.count / np.maximum(count, 1)
        apart = other.mean - self.mean
        return Moments(
            count,
            self.mean + apart * share,
            self.squares + other.squares + apart**2 * self.count * share,
        )

    @property
    def means(self) -> npt.NDArray[np.float64]:
        """Means; NaN where nothing was counted."""
        return np.where(self.count > 0, self.mean, np.nan)

    @property
    def deviation(self) -> npt.NDArray[np.float64]:
        """Standard deviation of the sample (n - 1); NaN where fewer than two were counted."""
        spread = np.sqrt(self.squares / np.maximum(self.count - 1, 1))
        return np.where(self.count > 1, spread, np.nan)

    @property
    def error(self) -> npt.NDArray[np.float64]:
        """Standard error of the mean; NaN where fewer than two were counted."""
        return self.deviation / np.sqrt(np.maximum(self.count, 1))


def moments(blocks: Iterable[npt.NDArray[np.float32]], heads: int, measures: int) -> Moments:
    """Return the moments over blocks of images."""
    found = Moments.empty(heads, measures)
    for block in blocks:
        found = found.merged(Moments.of(block))
    return found


def quartiles(
    blocks: Callable[[], Iterable[npt.NDArray[np.float32]]], count: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Return the exact quartiles of every column, however many images there are.

    A float32's bits, with the sign turned, sort as unsigned numbers. Of the two values that a quartile lies
    between, one pass counts the first eight bits of all values of a column and so finds those of the one in
    question; the next pass counts the following eight bits of the values that begin so; after four passes the
    value is known to the bit. Held are 256 counts for each of six values and each column: memory does not
    depend on the number of images, and no value is rounded.

    Parameters
    ----------
    blocks
        Called for each of the four passes; gives float32 (images, heads, measures) in any order; NaN does not
        count.
    count
        int64 (heads, measures): how many are not NaN.

    Returns
    -------
    numpy.ndarray
        float64 (3, heads, measures), interpolated linearly between neighbours (NumPy's default, type 7 of
        Hyndman and Fan 1996); NaN where nothing was counted.
    """
    shape = count.shape
    flat = count.reshape(-1)
    at = np.array(QUARTILES)[:, None] * np.maximum(flat - 1, 0)
    below = np.floor(at).astype(np.int64)
    ranks = np.concatenate([below, np.minimum(below + 1, np.maximum(flat - 1, 0))])
    found = _values_at(blocks, ranks).astype(np.float64)
    low, high = found[: len(QUARTILES)], found[len(QUARTILES) :]
    # Both ends are finite, and the same where there is nothing between.
    result = low + (high - low) * (at - below)
    return np.where(flat > 0, result, np.nan).reshape(len(QUARTILES), *shape)


def _values_at(
    blocks: Callable[[], Iterable[npt.NDArray[np.float32]]], ranks: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Return the values at some ranks of each column, float32 (ranks, columns)."""
    begin = np.zeros(ranks.shape, np.uint32)
    left = ranks.copy()
    for known in range(0, 32, _DIGIT):
        counts = np.zeros((*ranks.shape, 1 << _DIGIT), np.int64)
        for block in blocks():
            _count_digits(block.reshape(len(block), -1), begin, known, counts)
        upto = counts.cumsum(axis=2)
        digit = np.minimum((upto <= left[..., None]).sum(axis=2), (1 << _DIGIT) - 1)
        before = np.take_along_axis(upto - counts, digit[..., None], axis=2)[..., 0]
        left -= before
        begin = (begin << np.uint32(_DIGIT)) | digit.astype(np.uint32)
    return np.where(begin & _SIGN, begin ^ _SIGN, ~begin).astype(np.uint32).view(np.float32)


def _count_digits(
    values: npt.NDArray[np.float32],
    begin: npt.NDArray[np.uint32],
    known: int,
    counts: npt.NDArray[np.int64],
) -> None:
    """Add to `counts` the next digit of all values (images, columns) that begin with the known bits."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    keys = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    there = np.isfinite(values)
    digits = (keys >> np.uint32(32 - _DIGIT - known)) & np.uint32((1 << _DIGIT) - 1)
    columns = values.shape[1]
    index = (np.arange(columns) << _DIGIT) + digits
    size = columns << _DIGIT
    for rank in range(len(begin)):
        fits = there if known == 0 else there & ((keys >> np.uint32(32 - known)) == begin[rank])
        counts[rank] += np.bincount(index[fits], minlength=size).reshape(columns, -1)
