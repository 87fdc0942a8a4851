"""Attention distance: units, protocols, and the references it is read against.

Distances lie between patch centres. Two protocols are in use and differ where there are prefix tokens
(class, registers): `renormalized` asks how far the attention spent on patches goes; `original` (Dosovitskiy
et al. 2020, appendix D.7) drops prefix keys without rescaling the row, as in published scatter plots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.layout import TokenLayout

Protocol = Literal["renormalized", "original"]
Unit = Literal["px", "patches"]
Metric = Literal["euclidean", "chebyshev"]


def uniform_query_distance(
    layout: TokenLayout,
    protocol: Protocol = "renormalized",
    unit: Unit = "px",
    *,
    hops: int | None = None,
    include_self: bool = True,
    metric: Metric = "euclidean",
) -> npt.NDArray[np.float64]:
    """Return the attention distance of each patch query under uniform attention.

    Parameters
    ----------
    layout
        Grid, patch size and number of prefix tokens.
    protocol
        Under "original" the prefix tokens take their even share.
    unit
        Pixels of the model's input, or patches.
    hops
        Attend evenly to the patches that this many stacked 3x3 convolutions can reach (a square of
        ``2 * hops + 1`` patches, cut off at the border); None for all patches.
    include_self
        Whether a patch attends to itself too, as heads do.
    metric
        "chebyshev" takes the larger of the two axes' distances.

    Returns
    -------
    numpy.ndarray
        float64 (R * C,), in row-major order; NaN where a query has no patch left to attend to.
    """
    rows, columns = layout.grid
    step = layout.patch_px if unit == "px" else (1.0, 1.0)
    up, down = _reach(rows, hops)
    left, right = _reach(columns, hops)
    total = _sums_around(_quadrant(layout.grid, step, metric), (up, down), (left, right))
    count = np.outer(up + down + 1, left + right + 1).astype(np.float64)
    if not include_self:
        count -= 1
    if protocol == "original":
        count += len(layout.prefix_tokens)
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0).ravel()


def uniform_distance(
    layout: TokenLayout,
    protocol: Protocol = "renormalized",
    unit: Unit = "px",
    *,
    hops: int | None = None,
    include_self: bool = True,
    metric: Metric = "euclidean",
) -> float:
    """Return the mean attention distance under uniform attention; see `uniform_query_distance`.

    It is a reference line, not a maximum: attending to each query's farthest patch goes twice as far.
    """
    found = uniform_query_distance(
        layout, protocol, unit, hops=hops, include_self=include_self, metric=metric
    )
    return float(found.mean()) if len(found) else float("nan")


def convolution_distances(
    layout: TokenLayout, layers: int, unit: Unit = "px", metric: Metric = "euclidean"
) -> npt.NDArray[np.float64]:
    """Return the distance of uniform attention over what 1, 2, ... `layers` 3x3 convolutions reach, float64.

    Convolutions know no prefix tokens, so this holds beside either protocol.
    """
    reach = range(1, layers + 1)
    return np.array([uniform_distance(layout, unit=unit, hops=hops, metric=metric) for hops in reach])


def _reach(count: int, hops: int | None) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return how many steps can be taken towards either end of an axis, from each place on it."""
    place = np.arange(count)
    most = count if hops is None else hops
    return np.minimum(place, most), np.minimum(count - 1 - place, most)


def _quadrant(grid: tuple[int, int], step: tuple[float, float], metric: Metric) -> npt.NDArray[np.float64]:
    """Return the distance from the corner patch to every patch, (R, C)."""
    y = np.arange(grid[0])[:, None] * step[0]
    x = np.arange(grid[1])[None, :] * step[1]
    return np.hypot(y, x) if metric == "euclidean" else np.maximum(y, x)


def _sums_around(
    quadrant: npt.NDArray[np.float64],
    vertical: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    horizontal: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
) -> npt.NDArray[np.float64]:
    """Sum distances over a rectangle around each patch, (R, C), from cumulative sums over one quadrant."""
    corner = quadrant.cumsum(axis=0).cumsum(axis=1)
    total = sum(corner[np.ix_(rows, columns)] for rows in vertical for columns in horizontal)
    # Each half-axis belongs to two quadrants and would count twice.
    along_rows = sum(quadrant[:, 0].cumsum()[rows] for rows in vertical)
    along_columns = sum(quadrant[0].cumsum()[columns] for columns in horizontal)
    return total - along_rows[:, None] - along_columns[None, :]
