"""A study as a scatter: a dot a head, its mean over the images, with an error bar."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from viewer.attention.measures import measure_named
from viewer.state.axes import LAYER, axis_of
from viewer.state.references import CONVOLUTION_LABEL, UNIFORM_LABEL, Reference, crossing, steps
from viewer.state.scatter import Scatter, scatter_of, title_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.study.summary import Summary

BARS = "bars: ± 1 standard deviation over the pictures"


def scatter(summary: Summary, measure: str = "mean_distance_px", against: str = LAYER) -> Scatter:
    """Describe a study's scatter; error bars are one standard deviation over the images, up and down.

    Parameters
    ----------
    summary
        Of a study, finished or not.
    measure
        Name of one of its measures, along y.
    against
        "layer", or the name of another measure, along x.

    Raises
    ------
    LookupError
        If the study does not have the measure.
    """
    settings = summary.settings
    x_axis, y_axis = (axis_of(name, settings.protocol, "px") for name in (against, measure))
    column = summary.column(measure)
    mean, sd = summary.mean[:, column], np.nan_to_num(summary.sd[:, column])
    across = np.zeros(len(mean)) if against == LAYER else summary.mean[:, summary.column(against)]
    there = np.isfinite(mean) & np.isfinite(across)
    found = measure_named(measure)
    spread = np.clip(np.stack([mean - sd, mean + sd], axis=1), found.low, found.high)
    prefix = summary.mean[:, summary.column("prefix_mass")]
    return scatter_of(
        np.array(settings.layer_of)[there],
        np.array(settings.head_of)[there],
        mean[there],
        y_axis,
        spread=spread[there],
        x_values=None if against == LAYER else across[there],
        x_axis=x_axis,
        prefix_mass=np.nan_to_num(prefix[there]),
        references=_references(summary, measure, against),
        layers=len(settings.heads),
        title=f"{title_of(x_axis, y_axis)}, over {pictures(summary.images)}",
    )


def _references(summary: Summary, measure: str, against: str) -> tuple[Reference, ...]:
    levels = _levels(summary, measure)
    if against != LAYER:
        crossed = crossing("uniform", _levels(summary, against), levels, UNIFORM_LABEL)
        return () if crossed is None else (crossed,)
    x, y = steps(levels)
    found = [Reference("uniform", x, y, UNIFORM_LABEL)] if len(x) else []
    line = np.array(summary.settings.facts["convolution"].get(measure, []), np.float64)
    if len(line):
        found.append(
            Reference("convolution", np.arange(len(line), dtype=np.float64), line, CONVOLUTION_LABEL)
        )
    return tuple(found)


def _levels(summary: Summary, measure: str) -> npt.NDArray[np.float64]:
    """Return what uniform attention gives in each layer, float64 (layers,); NaN where there is no such."""
    levels = [layer["uniform"].get(measure) for layer in summary.settings.facts["layers"]]
    return np.array([np.nan if level is None else level for level in levels], np.float64)


def pictures(count: int) -> str:
    """Return "1 picture" or "16 pictures"."""
    return "1 picture" if count == 1 else f"{count} pictures"
