"""What uniform attention and stacked convolutions would give, to hold a head's distance against."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.sweep import Protocol


@lru_cache(maxsize=64)
def uniform_distance(
    grid: tuple[int, int],
    patch_px: tuple[float, float],
    prefix_tokens: int = 0,
    protocol: Protocol = "renormalized",
) -> float:
    """Return the mean attention distance of uniform attention over all tokens.

    Parameters
    ----------
    grid
        Rows and columns of patches.
    patch_px
        Height and width of a patch in pixels; (1, 1) gives the distance in patches.
    prefix_tokens
        Number of prefix keys, on which `original` spends its share of attention.
    protocol
        See `viewer.attention.sweep.LayerMeasures.distance`.
    """
    rows, columns = grid
    # How many pairs of rows (columns) lie 0, 1, 2, ... apart; a pair and its mirror image count both.
    row_pairs = np.where(np.arange(rows) > 0, 2, 1) * (rows - np.arange(rows))
    column_pairs = np.where(np.arange(columns) > 0, 2, 1) * (columns - np.arange(columns))
    apart = np.hypot(*np.ix_(np.arange(rows) * patch_px[0], np.arange(columns) * patch_px[1]))
    total = float(row_pairs @ apart @ column_pairs)
    return total / (rows * columns) / _spread(grid, prefix_tokens, protocol)


def uniform_query_distance(
    grid: tuple[int, int],
    patch_px: tuple[float, float],
    query: tuple[int, int],
    prefix_tokens: int = 0,
    protocol: Protocol = "renormalized",
) -> float:
    """Return the distance of one patch under uniform attention; parameters as `uniform_distance`."""
    rows = (np.arange(grid[0]) - query[0]) * patch_px[0]
    columns = (np.arange(grid[1]) - query[1]) * patch_px[1]
    return float(np.hypot(*np.ix_(rows, columns)).sum()) / _spread(grid, prefix_tokens, protocol)


def _spread(grid: tuple[int, int], prefix_tokens: int, protocol: Protocol) -> int:
    """Return over how many keys uniform attention is spread, as the protocol counts them."""
    patches = grid[0] * grid[1]
    return patches + prefix_tokens if protocol == "original" else patches


@lru_cache(maxsize=64)
def convolution_distances(
    grid: tuple[int, int], patch_px: tuple[float, float], depth: int
) -> npt.NDArray[np.float64]:
    """Return the distance of uniform squares as wide as 1, 2, ... stacked 3x3 convolutions reach.

    Squares are clipped at the border of the picture. A convolution has no prefix tokens, so both protocols
    agree.

    Parameters
    ----------
    grid, patch_px
        As in `uniform_distance`.
    depth
        Number of stacked convolutions to go to.

    Returns
    -------
    numpy.ndarray
        float64 (depth,), read-only.
    """
    rows, columns = grid
    count = np.ones(grid)
    total = np.zeros(grid)
    distances = np.empty(depth)
    for hops in range(1, depth + 1):
        for down in range(-min(hops, rows - 1), min(hops, rows - 1) + 1):
            # Only the rim of the square is new at each hop.
            across = range(-hops, hops + 1) if abs(down) == hops else (-hops, hops)
            for right in across:
                if abs(right) < columns:
                    apart = np.hypot(down * patch_px[0], right * patch_px[1])
                    there = (_inside(down, rows), _inside(right, columns))
                    count[there] += 1
                    total[there] += apart
        distances[hops - 1] = (total / count).mean()
    distances.setflags(write=False)
    return distances


def _inside(step: int, size: int) -> slice:
    """Return the places from which a step stays on the grid."""
    return slice(max(-step, 0), size - max(step, 0))
