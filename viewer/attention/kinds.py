"""Kinds of heads, by rules with visible limits: each head's kind comes with the numbers that decided it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from viewer.attention.measures import measure_named

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.layer import AttentionLayer
    from viewer.attention.measured import LayerMeasures

Kind = Literal["sink", "local", "positional", "global", "content", "undefined"]

RELATIVE_DISTANCE = "relative_distance"
"""Mean attention distance over what uniform attention in the layer gives."""
RELATIVE_LOCAL = "relative_local_1"
"""Attention within one hop over what uniform attention in the layer gives."""
_RELATIVE = {RELATIVE_DISTANCE: "mean_distance_px", RELATIVE_LOCAL: "local_1"}


@dataclass(frozen=True)
class Limit:
    """A number that a head must reach.

    Attributes
    ----------
    measure
        A name of `viewer.attention.measures.MEASURES`, `RELATIVE_DISTANCE` or `RELATIVE_LOCAL`.
    words
        What it is: "attention on sink tokens".
    least
        The limit: the number must not be below.
    """

    measure: str
    words: str
    least: float


@dataclass(frozen=True)
class Rule:
    """A kind of head and all the limits that it must reach.

    Attributes
    ----------
    kind
        Its name.
    words
        What such a head does, as the beginning of a sentence.
    limits
        All must hold.
    source
        Whose rule this follows.
    """

    kind: Kind
    words: str
    limits: tuple[Limit, ...]
    source: str


RULES: tuple[Rule, ...] = (
    Rule(
        "sink",
        "Most queries look at the same few keys",
        (Limit("sink_mass", "attention on sink tokens", 0.3),),
        "Gu et al. 2025 (When Attention Sink Emerges) count a sink from a share of 0.3",
    ),
    Rule(
        "local",
        "Does what a convolution could",
        (
            Limit("local_1", "attention within 1 hop", 0.5),
            # In small windows hardly anything is farther.
            Limit(RELATIVE_LOCAL, "the same relative to uniform", 2.0),
        ),
        "Cordonnier et al. 2020: heads that look at a 3x3 window do what a convolution does",
    ),
    Rule(
        "positional",
        "Looks at the same offsets from every query",
        (Limit("offset_share", "variance explained by the offset", 0.5),),
        "Voita et al. 2019 call heads positional that look at one relative position, whatever is there",
    ),
    Rule(
        "global",
        "Looks evenly over all there is",
        (
            Limit("normalized_entropy", "normalized entropy", 0.9),
            Limit(RELATIVE_DISTANCE, "distance relative to uniform", 0.8),
        ),
        "Raghu et al. 2021 for the distance, Clark et al. 2019 for broad attention by its entropy",
    ),
)
"""In this order: the first whose limits a head reaches names it; what reaches none is "content"."""

NUMBERS = tuple(dict.fromkeys(limit.measure for rule in RULES for limit in rule.limits))
"""What `kind_of` wants to know of a head."""


@dataclass(frozen=True)
class Deciding:
    """A number that was compared with its limit.

    Attributes
    ----------
    limit
        What it was compared with.
    value
        The head's; NaN where the layer has no such measure.
    """

    limit: Limit
    value: float

    @property
    def reached(self) -> bool:
        """Whether the limit is reached; never where there is no value."""
        return self.value >= self.limit.least

    def __str__(self) -> str:
        if math.isnan(self.value):
            return f"{self.limit.words} is not defined"
        sign = "≥" if self.reached else "<"
        return f"{self.limit.words} {_compared(self.value, self.limit.least)} {sign} {self.limit.least:g}"


@dataclass(frozen=True)
class HeadKind:
    """What kind a head is, and why.

    Attributes
    ----------
    kind
        See `RULES`; "content" where no rule names it, "undefined" where patches attend to no patches.
    reason
        A sentence with the numbers that decided.
    numbers
        All that were compared, in the order of `RULES`, up to the rule that named it.
    """

    kind: Kind
    reason: str
    numbers: tuple[Deciding, ...]


def kind_of(numbers: Mapping[str, float]) -> HeadKind:
    """Decide what kind a head is.

    Parameters
    ----------
    numbers
        By the names of `NUMBERS`; of one picture, or means over many. NaN where a measure is not defined.
    """
    asked: list[Deciding] = []
    for rule in RULES:
        found = [Deciding(limit, float(numbers[limit.measure])) for limit in rule.limits]
        asked += found
        if all(one.reached for one in found):
            return HeadKind(rule.kind, f"{rule.words}: {_listed(found)}.", tuple(asked))
    if math.isnan(numbers[RELATIVE_DISTANCE]):
        return HeadKind("undefined", "No attention goes from patches to patches.", tuple(asked))
    return HeadKind("content", f"None of the other rules applies: {_listed(asked)}.", tuple(asked))


def head_kinds(layer: AttentionLayer, measured: LayerMeasures) -> tuple[HeadKind, ...]:
    """Decide what kind each head of a layer is, always by the protocol "renormalized".

    Parameters
    ----------
    layer
        Of any kind.
    measured
        Its measures.
    """
    numbers = {name: _number(name, layer, measured) for name in NUMBERS}
    return tuple(
        kind_of({name: float(values[head]) for name, values in numbers.items()})
        for head in range(layer.heads)
    )


def _number(name: str, layer: AttentionLayer, measured: LayerMeasures) -> npt.NDArray[np.float64]:
    """Return a number of each head by its name, float64 (heads,)."""
    measure = measure_named(_RELATIVE.get(name, name))
    found = measure.of_heads(measured, "renormalized")
    if name not in _RELATIVE:
        return found
    uniform = measure.uniform(layer, "renormalized")
    return found / uniform if uniform > 0 else np.full_like(found, np.nan)


def _listed(found: list[Deciding]) -> str:
    return ", ".join(map(str, found))


def _compared(value: float, least: float) -> str:
    """Return a value with two digits, or as many as tell it from its limit."""
    for digits in (2, 3, 4, 5):
        text = f"{value:.{digits}f}"
        if (float(text) >= least) == (value >= least):
            break
    return text
