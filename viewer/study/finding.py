"""The finding of a study in words: in which layers near and far heads stand side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from viewer.study.summary import Summary

NEAR = 0.5
"""A head is near if its mean distance is less than this share of what uniform attention gives."""
FAR = 0.8
"""A head is far if it is more than this share; "local" and "global" are kinds, which have other rules."""


@dataclass(frozen=True)
class LayerReach:
    """How far the heads of one layer reach.

    Attributes
    ----------
    layer
        From 0.
    nearest, farthest
        Smallest and largest mean distance of its heads, as shares of uniform attention's.
    near, far
        Numbers of near and of far heads, see `NEAR` and `FAR`.
    heads
        Heads with a distance.
    """

    layer: int
    nearest: float
    farthest: float
    near: int
    far: int
    heads: int

    @property
    def mixes(self) -> bool:
        """Whether near and far heads stand side by side."""
        return self.near > 0 and self.far > 0


def reach(summary: Summary) -> list[LayerReach]:
    """Return how far the heads of each layer reach, of those that have a distance and a reference."""
    settings, column = summary.settings, summary.column("mean_distance_px")
    layers, found = np.array(settings.layer_of), []
    for index, facts in enumerate(settings.facts["layers"]):
        uniform = facts["uniform"].get("mean_distance_px")
        mean = summary.mean[layers == index, column]
        share = mean[np.isfinite(mean)] / (uniform or np.nan)
        if uniform and len(share):
            near, far = int((share < NEAR).sum()), int((share > FAR).sum())
            found.append(LayerReach(index, float(share.min()), float(share.max()), near, far, len(share)))
    return found


def sentences(summary: Summary) -> list[str]:
    """Say which layers mix near and far heads, and what the others have."""
    layers = reach(summary)
    if not layers:
        return ["No layer has both a distance and a reference to compare it with."]
    rule = (
        f"A head counts as near if its mean attention distance is below {NEAR:g} of what uniform attention "
        f"gives, as far if it is above {FAR:g}."
    )
    mixed = [one for one in layers if one.mixes]
    groups = {
        "mix near and far heads": mixed,
        "have far but no near heads": [one for one in layers if one.far and not one.near],
        "have near but no far heads": [one for one in layers if one.near and not one.far],
        "have neither": [one for one in layers if not one.near and not one.far],
    }
    said = [f"{_layers([one.layer for one in some])} {words}." for words, some in groups.items() if some]
    said = [_singular(text) for text in said]
    if mixed:
        widest = max(mixed, key=lambda one: one.farthest - one.nearest)
        said.append(
            f"The widest spread is in layer {widest.layer}: its heads reach from {widest.nearest:.2f} to "
            f"{widest.farthest:.2f} of uniform attention's distance."
        )
    return [rule, *said]


def _layers(numbers: list[int]) -> str:
    """Return "Layer 3" or "Layers 0 to 3, 5 and 7"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [
        part
        for run in runs
        for part in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(number) for number in run])
    ]
    joined = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    return f"Layer{'' if len(numbers) == 1 else 's'} {joined}"


def _singular(text: str) -> str:
    """Make the verb fit one layer."""
    if text.startswith("Layers"):
        return text
    return text.replace(" mix ", " mixes ", 1).replace(" have ", " has ", 1)
