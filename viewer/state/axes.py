"""The axes of the scatter: any measure of a head by its name, with words, unit and protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from viewer.attention.measures import MEASURES, Measure, measure_named
from viewer.state.words import PROTOCOLS

if TYPE_CHECKING:
    from viewer.state.display import Protocol, Unit

LAYER = "layer"
DISTANCE = "mean_distance"
"""The mean attention distance in whichever unit is chosen."""
_ALL_KEYS = "over all keys, prefix tokens included"
# What measures that know no protocol take in.
_OVER = {
    "entropy_nats": _ALL_KEYS,
    "normalized_entropy": _ALL_KEYS,
    "effective_tokens": _ALL_KEYS,
    "row_cosine": _ALL_KEYS,
    "nmi": _ALL_KEYS,
    "offset_share": "between patches",
}
# Where there is little room: shorter words for measures whose names are long.
_BRIEF = {
    DISTANCE: ("mean distance", "distance"),
    "mean_hops": ("Chebyshev distance", "Chebyshev"),
    "local_1": ("within 1 hop",),
    "local_2": ("within 2 hops",),
    "local_3": ("within 3 hops",),
    "normalized_entropy": ("norm. entropy",),
    "effective_tokens": ("eff. tokens",),
    "prefix_mass": ("on prefix tokens", "prefix"),
    "sink_mass": ("on sink tokens", "sinks"),
    "row_cosine": ("row cosine",),
    "nmi": ("mutual information", "NMI"),
    "offset_share": ("offset's variance", "offset"),
}
_DIGITS = {"px": 1, "patches": 2, "hops": 2, "nats": 2, "tokens": 1}


@dataclass(frozen=True)
class Axis:
    """What lies along one axis.

    Attributes
    ----------
    name
        Of a measure in `viewer.attention.measures.MEASURES`, or "layer".
    words
        "mean attention distance"
    unit
        "px"; empty for pure numbers.
    protocol
        Words on what is taken in, such as the distance's protocol; empty where there is nothing to say.
    by_protocol
        Whether the protocol of the distance changes it.
    high
        Where the numbers end, None if they do not.
    """

    name: str
    words: str
    unit: str = ""
    protocol: str = ""
    high: float | None = None
    by_protocol: bool = False

    @property
    def counts_layers(self) -> bool:
        """Whether it is the layers that lie along it."""
        return self.name == LAYER

    @property
    def quantity(self) -> str:
        """What is measured, with its unit: "mean attention distance (px)"."""
        return f"{self.words} ({self.unit})" if self.unit else self.words

    @property
    def label(self) -> str:
        """The same with the protocol."""
        return f"{self.quantity}, {self.protocol}" if self.protocol else self.quantity

    def number(self, value: float) -> str:
        """Return a value with its unit: "84.1 px"."""
        return number(value, self.unit)


def number(value: float, unit: str) -> str:
    """Return a value with as many digits as its unit wants, and the unit."""
    return f"{value:.{_DIGITS.get(unit, 3)}f} {unit}".rstrip()


LAYER_AXIS = Axis(LAYER, LAYER)


def axis_of(name: str, protocol: Protocol, unit: Unit) -> Axis:
    """Return the axis that a name stands for.

    Parameters
    ----------
    name
        "layer", "mean_distance", or of a measure.
    protocol, unit
        As in `viewer.state.display.DisplayValue`.

    Raises
    ------
    LookupError
        If no measure is called so.
    """
    if name == LAYER:
        return LAYER_AXIS
    measure = measure_of(name, unit)
    words = PROTOCOLS[protocol] if measure.by_protocol else _OVER.get(measure.name, "")
    return Axis(measure.name, measure.words, measure.unit, words, measure.high, measure.by_protocol)


def measure_of(name: str, unit: Unit) -> Measure:
    """Return the measure that a name stands for, "mean_distance" in the chosen unit.

    Raises
    ------
    LookupError
        If no measure is called so.
    """
    return measure_named(f"{DISTANCE}_{unit}" if name == DISTANCE else name)


def choices() -> tuple[tuple[str, str], ...]:
    """Return names and words of all there is to choose from; the distance once, whatever its unit."""
    others = [m for m in MEASURES if not m.name.startswith(f"{DISTANCE}_")]
    distance = measure_named(f"{DISTANCE}_px").words
    return ((DISTANCE, distance), *((measure.name, measure.words) for measure in others))


def is_known(name: object, with_layer: bool = False) -> bool:
    """Return whether something names a measure, or (`with_layer`) the layers."""
    if name == LAYER:
        return with_layer
    return name == DISTANCE or any(measure.name == name for measure in MEASURES)


def plain_name(name: str) -> str:
    """Return the name that choices have: the distance's without its unit."""
    return DISTANCE if name.startswith(f"{DISTANCE}_") else name


def forms(name: str, words: str) -> tuple[str, ...]:
    """Return words for a choice of `choices`, then shorter ones for the same."""
    return (words, *_BRIEF.get(name, ()))
