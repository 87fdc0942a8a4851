"""The colour scale that the overlay and the heads panel share."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.state.attended import Attended
    from viewer.state.display import Scale

_STEPS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


@lru_cache(maxsize=2)
def limits(found: Attended, scale: Scale) -> npt.NDArray[np.float32]:
    """Return the upper end of each head's colour scale, float32 (layers, most heads), all above 0, read-only.

    ``shared`` is one end for every layer and head, so equal colours are equal weights anywhere: the strongest
    patch of the median head, rounded up to a plain number that can be read off the bar and does not flicker
    while the mouse moves. Half of the heads fit into it whole; of the others some patches lie above it and
    have its colour, as the bar says. The largest weight of all would not do: some head nearly always puts
    0.9 and more on one patch, and would leave all other maps black. Nor would a share of all weights:
    most weights of any head are near 0, and only the number of patches would decide.

    ``per head`` is each head's own strongest patch: shows faint structure, hides that a head attends to
    nothing, and is therefore never the default.
    """
    peaks = found.peaks
    if scale == "per head":
        ends = np.where(peaks > 0, peaks, np.float32(1))
    else:
        there = peaks[np.isfinite(peaks)]
        end = plain_end(float(np.median(there))) if there.size else 1.0
        ends = np.full(peaks.shape, end, np.float32)
    ends.setflags(write=False)  # the last two are kept: overlay and heads panel both ask
    return ends


def plain_end(value: float, most: float = 1.0) -> float:
    """Round up to a number of one or two plain digits: 0.0374 gives 0.04; what is not above 0 gives 1.

    It is no larger than `most`, which for a weight is 1.
    """
    if not value > 0:
        return 1.0
    decade = 10.0 ** math.floor(math.log10(value))
    step = next((step for step in _STEPS if value <= step * decade * (1 + 1e-6)), 10.0)
    return min(float(f"{step * decade:.2g}"), most)


def ticks(vmax: float, largest: float, most: int) -> tuple[tuple[float, str], ...]:
    """Return the numbers beside a colour bar from 0 to `vmax`, as (share of the bar, text).

    Parameters
    ----------
    vmax
        Upper end, above 0.
    largest
        Largest value that has a colour of the scale; the end is marked with "≥" if it lies beyond.
    most
        How many numbers there is room for.
    """
    decade = 10.0 ** math.floor(math.log10(vmax))
    steps = [factor * scale * decade for scale in (0.01, 0.1, 1.0) for factor in (1, 2, 2.5, 5)]
    step = next((step for step in steps if vmax / step <= max(most - 1, 1) + 1e-6), vmax)
    # The end has its own number; one that would touch it gives way.
    below = [step * i for i in range(math.ceil(vmax / step)) if step * i <= vmax * (1 - 0.7 / max(most, 2))]
    end = f"{'≥ ' if largest > vmax * (1 + 1e-6) else ''}{vmax:.3g}"
    return (*((value / vmax, f"{value:.6g}") for value in below), (1.0, end))
