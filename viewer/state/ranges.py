"""The ranges of a scatter's axes: the window's and the figure's are the same."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from viewer.state.scatter import Scatter

Along = Literal["x", "y"]
Range = tuple[float, float]
_ROOM = 1.06  # above the highest


def nice_range(scatter: Scatter, along: Along) -> Range:
    """Return the ends of an axis: 0, or below all there is, and a plain number just above all there is.

    Where layers lie along it, all of them have their column. An axis of shares does not go on beyond 1.
    """
    axis = scatter.x_axis if along == "x" else scatter.y_axis
    if axis.counts_layers:
        return -0.6, scatter.layers - 0.4
    parts = [getattr(scatter, along), *(getattr(reference, along) for reference in scatter.references)]
    own = getattr(scatter, f"query_{along}")
    if own is not None:
        parts.append(own)
    if along == "y" and scatter.spread is not None:
        parts.append(scatter.spread.ravel())
    found = np.concatenate(parts)
    found = found[np.isfinite(found)]
    high = _plain(_ROOM * float(found.max(initial=0.0))) or 1.0
    if axis.high is not None and high > axis.high >= found.max(initial=0.0):
        high = axis.high
    return -_plain(-_ROOM * float(found.min(initial=0.0))), high


def _plain(needed: float) -> float:
    """Round up to a number of which half a decade is a whole part."""
    if needed <= 0:
        return 0.0
    step = 10.0 ** math.floor(math.log10(needed)) / 2
    return math.ceil(needed / step) * step


def widened(now: Range | None, wished: Range) -> Range:
    """Return a range that holds both."""
    return wished if now is None else (min(now[0], wished[0]), max(now[1], wished[1]))
