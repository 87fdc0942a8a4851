"""What each head is over all pictures: its kind, and how much of its attention position alone explains."""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from viewer.attention.kinds import NUMBERS, RELATIVE_DISTANCE, RELATIVE_LOCAL, kind_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.kinds import HeadKind
    from viewer.attention.position_share import PositionShare
    from viewer.study.summary import Summary

_RELATIVE = {RELATIVE_DISTANCE: "mean_distance_px", RELATIVE_LOCAL: "local_1"}


@dataclass(frozen=True)
class Head:
    """One head over all pictures.

    Attributes
    ----------
    layer, head
        From 0.
    kind
        By the means of its numbers; None under the protocol `original`, by which kinds are not defined.
    position
        Share of the variance of its attention over pictures, queries and keys that position alone explains,
        0 to 1; NaN where it is not known.
    """

    layer: int
    head: int
    kind: HeadKind | None
    position: float


def heads(summary: Summary, position: PositionShare | None) -> list[Head]:
    """Return every head, in the order of the values.

    Parameters
    ----------
    summary
        Of the study.
    position
        Its sums; None where the pictures had sizes of their own.
    """
    settings = summary.settings
    shares = np.full(len(settings.layer_of), np.nan)
    if position is not None and position.pictures:
        shares = np.concatenate(position.share())
    numbers = {name: _numbers(summary, name) for name in NUMBERS}
    known = settings.protocol == "renormalized"
    return [
        Head(
            layer,
            head,
            kind_of({name: float(values[at]) for name, values in numbers.items()}) if known else None,
            float(shares[at]),
        )
        for at, (layer, head) in enumerate(zip(settings.layer_of, settings.head_of, strict=True))
    ]


def kinds_in(found: list[Head], layer: int) -> str:
    """Return the kinds of one layer's heads: "3 content, 2 local, 1 sink"."""
    counts = Counter(one.kind.kind for one in found if one.layer == layer and one.kind is not None)
    return ", ".join(
        f"{count} {kind}" for kind, count in sorted(counts.items(), key=lambda it: (-it[1], it[0]))
    )


def encode(found: list[Head], summary: Summary) -> bytes:
    """Return the heads as CSV, with the mean of every measure; what is not defined is empty."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("layer", "head", "kind", "why", "position_share", *summary.settings.measures))
    for one, mean in zip(found, summary.mean, strict=True):
        kind = ("", "") if one.kind is None else (one.kind.kind, one.kind.reason)
        numbers = (f"{value:.7g}" if np.isfinite(value) else "" for value in (one.position, *mean))
        writer.writerow((one.layer, one.head, *kind, *numbers))
    return text.getvalue().encode()


def _numbers(summary: Summary, name: str) -> npt.NDArray[np.float64]:
    """Return one of the numbers that kinds are decided by, float64 (heads,)."""
    measure = _RELATIVE.get(name, name)
    mean = summary.mean[:, summary.column(measure)]
    if name not in _RELATIVE:
        return mean
    layers = summary.settings.facts["layers"]
    uniform = [layers[layer]["uniform"].get(measure) or np.nan for layer in summary.settings.layer_of]
    return mean / np.array(uniform)
