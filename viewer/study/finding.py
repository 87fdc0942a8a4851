"""The finding of a study in words: in which layers local and global heads stand side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from viewer.study.summary import Summary

LOCAL = 0.5
"""A head is local here if its mean distance is less than this share of what uniform attention gives."""
GLOBAL = 0.8
"""A head is global here if it is more than this share."""


@dataclass(frozen=True)
class LayerReach:
    """How far the heads of one layer reach.

    Attributes
    ----------
    layer
        From 0.
    nearest, farthest
        Smallest and largest mean distance of its heads, as shares of uniform attention's.
    local, distant
        Numbers of local and of global heads, see `LOCAL` and `GLOBAL`.
    heads
        Heads with a distance.
    """

    layer: int
    nearest: float
    farthest: float
    local: int
    distant: int
    heads: int

    @property
    def mixes(self) -> bool:
        """Whether local and global heads stand side by side."""
        return self.local > 0 and self.distant > 0


def reach(summary: Summary) -> list[LayerReach]:
    """Return how far the heads of each layer reach, of those that have a distance and a reference."""
    settings, column = summary.settings, summary.column("mean_distance_px")
    layers, found = np.array(settings.layer_of), []
    for index, facts in enumerate(settings.facts["layers"]):
        uniform = facts["uniform"].get("mean_distance_px")
        mean = summary.mean[layers == index, column]
        share = mean[np.isfinite(mean)] / (uniform or np.nan)
        if uniform and len(share):
            local, distant = int((share < LOCAL).sum()), int((share > GLOBAL).sum())
            found.append(
                LayerReach(index, float(share.min()), float(share.max()), local, distant, len(share))
            )
    return found


def sentences(summary: Summary) -> list[str]:
    """Say which layers mix local and global heads, and what the others have."""
    layers = reach(summary)
    if not layers:
        return ["No layer has both a distance and a reference to compare it with."]
    rule = (
        f"A head counts as local if its mean attention distance is below {LOCAL:g} of what uniform attention "
        f"gives, as global if it is above {GLOBAL:g}."
    )
    mixed = [one for one in layers if one.mixes]
    groups = {
        "mix local and global heads": mixed,
        "have global but no local heads": [one for one in layers if one.distant and not one.local],
        "have local but no global heads": [one for one in layers if one.local and not one.distant],
        "have neither": [one for one in layers if not one.local and not one.distant],
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
