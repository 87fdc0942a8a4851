"""How far uniform attention over a receptive field looks: what a convolution's layer is beside a head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.distance import Unit
    from viewer.attention.layout import TokenLayout


def field_distance(layout: TokenLayout, field: tuple[float, float], unit: Unit = "px") -> float:
    """Return the mean attention distance of attending evenly to a rectangle around each patch.

    A receptive field has a width, a head a mean distance; this makes one of the other. Each patch counts by
    the share of it that lies inside the rectangle, cut off at the picture's border, and distances lie between
    patch centres as those of heads do. So a field of one patch gives 0, an odd number of patches what as many
    stacked 3x3 convolutions give, and one that covers the picture from everywhere uniform attention.

    Parameters
    ----------
    layout
        Grid and patch size.
    field
        Height and width of the rectangle in pixels of the model's input.
    unit
        Pixels of the model's input, or patches.

    Returns
    -------
    float
        Mean over all patches.
    """
    step = layout.patch_px if unit == "px" else (1.0, 1.0)
    shares = [
        _shares(count, size / patch)
        for count, size, patch in zip(layout.grid, field, layout.patch_px, strict=True)
    ]
    rows, columns = (np.arange(-(count - 1), count) for count in layout.grid)
    apart = np.hypot(rows[:, None] * step[0], columns[None, :] * step[1])
    weights = np.outer(*shares)
    total, count = (_windows(values, layout.grid) for values in (weights * apart, weights))
    return float((total / count).mean())


def _shares(count: int, size: float) -> npt.NDArray[np.float64]:
    """Return for each offset which share of that patch a field of `size` patches covers, (2 * count - 1,)."""
    offsets = np.abs(np.arange(-(count - 1), count))
    return np.clip(size / 2 - offsets + 0.5, 0.0, 1.0) if size > 1 else (offsets == 0).astype(np.float64)


def _windows(values: npt.NDArray[np.float64], grid: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Sum over the offsets that each patch can take without leaving the picture, (rows, columns)."""
    corner = np.pad(values.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
    ends = [(np.arange(count)[::-1], np.arange(count)[::-1] + count) for count in grid]
    (top, bottom), (left, right) = ends
    return (
        corner[np.ix_(bottom, right)]
        - corner[np.ix_(top, right)]
        - corner[np.ix_(bottom, left)]
        + corner[np.ix_(top, left)]
    )
