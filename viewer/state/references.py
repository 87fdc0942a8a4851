"""What heads are read against: uniform attention, and stacks of convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from weakref import WeakKeyDictionary

import numpy as np

from viewer.attention.measured import mean_of_numbers

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.layer import AttentionLayer
    from viewer.attention.measures import Measure
    from viewer.attention.record import AttentionRecord
    from viewer.state.display import Protocol, Unit
    from viewer.state.palette import Palette

BEFORE_LABEL = "the same head before the change"
UNIFORM_LABEL = "uniform attention"
CONVOLUTION_LABEL = "stacked 3x3 convolutions, one a layer"
NO_CONVOLUTION = "no line for convolutions: the layers differ in their patches"

ReferenceKind = Literal[
    "uniform", "uniform query", "convolution", "network", "network effective", "effective", "before"
]


@dataclass(frozen=True, eq=False)
class Reference:
    """Something that dots are read against, ready to draw.

    Attributes
    ----------
    kind
        Which: each has its colour and its dashes.
    x, y
        float64 (n,). NaN parts one piece of a line from the next; an infinite end goes on to the border.
    label
        In a legend.
    points
        Whether it is points and not a line.
    notes
        Words beside levels, each with its y.
    told
        What there is to say of it in a tooltip, beside the label.
    """

    kind: ReferenceKind
    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    label: str
    points: bool = False
    notes: tuple[tuple[float, str], ...] = ()
    told: str = ""

    def colour(self, palette: Palette) -> str:
        """Return its colour in a theme."""
        return colour_of(self.kind, palette)


def colour_of(kind: str, palette: Palette) -> str:
    """Return the colour of a kind of reference."""
    colours = {
        "uniform": palette.uniform,
        "uniform query": palette.query,
        "convolution": palette.convolution,
        "network": palette.convolution,
        "network effective": palette.convolution,
        "effective": palette.accent,
        "before": palette.dot,
    }
    return colours[kind]


# Not `lru_cache`, which would keep a layer, and with it a whole record, alive.
_kept: WeakKeyDictionary[AttentionLayer, dict[tuple[str, str], npt.NDArray[np.float64]]] = WeakKeyDictionary()

_levels: WeakKeyDictionary[AttentionLayer, dict[tuple[str, str], float]] = WeakKeyDictionary()


def uniform_distances(layer: AttentionLayer, protocol: Protocol, unit: Unit) -> npt.NDArray[np.float64]:
    """Return the distance of each patch query if it attended evenly to all it can reach.

    float64 (R * C,) of the layer's own queries; empty where they or the keys have no place. Kept while the
    layer is: every hover asks for it.
    """
    from viewer.attention.uniform import uniform_layer_distance

    of_layer = _kept.setdefault(layer, {})
    if (protocol, unit) not in of_layer:
        of_layer[protocol, unit] = uniform_layer_distance(layer, protocol, unit)
    return of_layer[protocol, unit]


def uniform_level(layer: AttentionLayer, measure: Measure, protocol: Protocol) -> float:
    """Return what uniform attention in a layer gives; NaN where the measure has no such reference.

    Kept while the layer is.
    """
    of_layer = _levels.setdefault(layer, {})
    if (measure.name, protocol) not in of_layer:
        if is_distance(measure):
            level = mean_of_numbers(uniform_distances(layer, protocol, measure.unit))
        else:
            level = float("nan") if measure.uniform is None else float(measure.uniform(layer, protocol))
        of_layer[measure.name, protocol] = level
    return of_layer[measure.name, protocol]


def is_distance(measure: Measure) -> bool:
    """Return whether a measure is the mean attention distance, in either unit."""
    return measure.name.startswith("mean_distance_")


def convolution_levels(record: AttentionRecord, measure: Measure, layers: int) -> npt.NDArray[np.float64]:
    """Return what a uniform square as wide as 1, 2, ... stacked 3x3 convolutions reach gives, float64.

    Of distances and hops only; empty for all other measures, and where layers have grids of their own, since
    no such stack compares with them.
    """
    from viewer.attention.distance import convolution_distances

    if not record.one_grid:
        return np.empty(0)
    if measure.unit == "hops":
        return convolution_distances(record.layout, layers, "patches", "chebyshev")
    return convolution_distances(record.layout, layers, measure.unit) if is_distance(measure) else np.empty(0)


def steps(levels: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return x and y of a line at one level for each layer, NaN between pieces that do not join.

    Layers of the same level have one piece, and at either end it goes on to the plot's border.
    """
    x: list[float] = []
    y: list[float] = []
    for layer, level in enumerate(levels.tolist()):
        left = layer - (0.6 if layer == 0 else 0.5)
        right = layer + (0.6 if layer == len(levels) - 1 else 0.5)
        if layer and abs(levels[layer - 1] - level) <= 1e-9 * abs(level):
            x[-1] = right
        elif np.isfinite(level):
            x += [np.nan, left, right] if x else [left, right]
            y += [np.nan, level, level] if y else [level, level]
    return np.array(x), np.array(y)


def crossing(
    kind: ReferenceKind, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], label: str
) -> Reference | None:
    """Return the reference that levels of two measures make: a point for each pair that differs.

    Where only one of the two has a level, and all layers the same, it is a line across the plot. None where
    there is neither.
    """
    both = np.isfinite(x) & np.isfinite(y)
    if both.any():
        pairs = np.unique(np.round(np.stack([x[both], y[both]], axis=1), 9), axis=0)
        return Reference(kind, pairs[:, 0], pairs[:, 1], label, points=True)
    ends = np.array([-np.inf, np.inf])
    for place, levels in enumerate((x, y)):
        found = np.unique(np.round(levels[np.isfinite(levels)], 9))
        if len(found) == 1:
            level = np.full(2, found[0])
            return Reference(kind, *((level, ends) if place == 0 else (ends, level)), label)
    return None
