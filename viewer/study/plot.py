"""A study as a scatter: a dot a head, its mean over the images, with an error bar."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from viewer.attention.measures import measure_named
from viewer.state.axes import axis_of, measure_of
from viewer.state.references import Reference, steps
from viewer.state.scatter import CONVOLUTION_LABEL, UNIFORM_LABEL, Scatter, scatter_of, title_of

if TYPE_CHECKING:
    from viewer.state.display import Unit
    from viewer.study.summary import Summary

BARS = "bars: ± 1 standard deviation over the pictures"


def scatter(summary: Summary, measure: str = "mean_distance", unit: Unit = "px") -> Scatter:
    """Describe a study's scatter; error bars are one standard deviation over the images, up and down.

    Parameters
    ----------
    summary
        Of a study, finished or not.
    measure
        Name of one of its measures, or "mean_distance" in the chosen unit.
    unit
        Of distances.

    Raises
    ------
    LookupError
        If the study does not have the measure.
    """
    settings = summary.settings
    axis = axis_of(measure, settings.protocol, unit)
    column = summary.column(measure_of(measure, unit).name)
    mean, sd = summary.mean[:, column], np.nan_to_num(summary.sd[:, column])
    there = np.isfinite(mean)
    found = measure_named(axis.name)
    spread = np.clip(np.stack([mean - sd, mean + sd], axis=1), found.low, found.high)
    prefix = summary.mean[:, summary.column("prefix_mass")]
    return scatter_of(
        np.array(settings.layer_of)[there],
        np.array(settings.head_of)[there],
        mean[there],
        axis,
        spread=spread[there],
        prefix_mass=np.nan_to_num(prefix[there]),
        references=_references(summary, axis.name),
        layers=len(settings.heads),
        title=f"{title_of(axis_of('layer', settings.protocol, unit), axis)}, over {pictures(summary.images)}",
    )


def _references(summary: Summary, name: str) -> tuple[Reference, ...]:
    facts = summary.settings.facts
    levels = [layer["uniform"].get(name) for layer in facts["layers"]]
    x, y = steps(np.array([np.nan if level is None else level for level in levels]))
    found = [Reference("uniform", x, y, UNIFORM_LABEL)] if len(x) else []
    line = np.array(facts["convolution"].get(name, []), np.float64)
    if len(line):
        found.append(
            Reference("convolution", np.arange(len(line), dtype=np.float64), line, CONVOLUTION_LABEL)
        )
    return tuple(found)


def pictures(count: int) -> str:
    """Return "1 picture" or "16 pictures"."""
    return "1 picture" if count == 1 else f"{count} pictures"
