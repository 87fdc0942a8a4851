"""Colour maps by name, as the tables that the window and the exports both paint with."""

from __future__ import annotations

from functools import lru_cache

import cmap
import numpy as np
import numpy.typing as npt

COLORMAPS: tuple[str, ...] = ("viridis", "cividis", "inferno", "magma", "plasma", "batlow")
"""Names to choose from: perceptually even, lightness rising throughout, safe for colour-blind readers."""

LEVELS = 256
"""Number of colours in a table."""


@lru_cache(maxsize=16)
def lut(name: str) -> npt.NDArray[np.uint8]:
    """Return the colours of a map, uint8 (256, 4) as RGBA, read-only.

    Raises
    ------
    ValueError
        If there is no map of that name.
    """
    table = np.round(np.asarray(cmap.Colormap(name).lut(LEVELS)) * 255).astype(np.uint8)
    table.setflags(write=False)
    return table


def levels(values: npt.NDArray[np.float32], vmax: npt.NDArray[np.float32] | float) -> npt.NDArray[np.uint8]:
    """Return the place of each value in a colour table, 0 at weight 0 and 255 from `vmax` on.

    The scale is cut into 256 equal steps, as matplotlib does, so both paint the same colour.

    Parameters
    ----------
    values
        Attention weights; NaN gives 0 and must be masked by the caller.
    vmax
        Upper end of the scale, above 0; must broadcast against `values`.
    """
    scaled = values * (np.float32(LEVELS) / np.asarray(vmax, np.float32))
    # fmax takes the number where the other is NaN.
    return np.minimum(np.fmax(scaled, np.float32(0)), np.float32(LEVELS - 1)).astype(np.uint8)


def rgba(values: npt.NDArray[np.float32], vmax: float, name: str) -> npt.NDArray[np.uint8]:
    """Return the colours of attention weights, uint8 (..., 4); NaN is transparent.

    Parameters
    ----------
    values
        Attention weights of any shape.
    vmax
        Upper end of the colour scale; the lower end is 0.
    name
        One of `COLORMAPS`, or any other cmap name.
    """
    colours = lut(name)[levels(values, vmax)]
    colours[np.isnan(values)] = 0
    return colours
