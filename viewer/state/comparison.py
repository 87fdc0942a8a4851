"""A convolutional network beside the heads: how far each of its stages reaches, on the axis of the heads.

Its layers are others in number and kind than those of the model, so they are no points at some layer: each
stage is a level across the plot. A stage's field has a width and a head a mean distance; the level is the
mean distance of attending evenly to a square as wide as the field (`viewer.attention.field_distance`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from viewer.state.axes import DISTANCE, LAYER, number
from viewer.state.dots import dots_of
from viewer.state.references import Reference

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from viewer.attention.record import AttentionRecord
    from viewer.attention.sweep import RecordMeasures
    from viewer.backends.network_fields import NetworkFields
    from viewer.state.display import DisplayValue

_CLOSE = 0.1  # of the highest level; what lies nearer together shares its words
_ROUNDING = 1e-4  # of a level: a head that attends evenly is not shorter than what does so by definition
_LISTED = 8  # heads that are named in a tooltip
_DISTANCES = {"x_measure": LAYER, "y_measure": DISTANCE, "kinds": False}


@dataclass(frozen=True)
class Level:
    """How far a stage reaches.

    Attributes
    ----------
    name
        Of the stage.
    field
        Height and width of what its units see, in pixels of the network's input.
    distance
        What a head would have that attends evenly to such a square, in the unit asked for.
    shorter
        The heads that have less, as (layer, head).
    """

    name: str
    field: tuple[float, float]
    distance: float
    shorter: tuple[tuple[int, int], ...]

    @property
    def field_words(self) -> str:
        """Its field: "35 px", "35 x 67 px"."""
        height, width = self.field
        return f"{height:g} px" if height == width else f"{height:g} x {width:g} px"


_networks: dict[str, NetworkFields] = {}
_levels: WeakKeyDictionary[RecordMeasures, dict[tuple[str, ...], tuple[Level, ...]]] = WeakKeyDictionary()
_references: WeakKeyDictionary[RecordMeasures, dict[tuple[str, ...], Reference]] = WeakKeyDictionary()


def known(name: str) -> NetworkFields | None:
    """Return what was read of a network; None while nothing was."""
    return _networks.get(name)


def keep(fields: NetworkFields) -> None:
    """Keep what was read of a network: it is small, and the same for every picture and model."""
    _networks[fields.name] = fields


def across(heights: Sequence[float]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return x and y of levels that cross the plot."""
    x = np.array([-np.inf, np.inf, np.nan] * len(heights))
    y = np.array([value for height in heights for value in (height, height, np.nan)])
    return x[:-1], y[:-1]


def why_none(record: AttentionRecord, name: str) -> str:
    """Return why a network has no levels beside a record's heads, as a clause; empty where it has some."""
    if not record.one_grid:
        return f"no levels of {name}: the layers differ in their patches"
    fields = known(name)
    if fields is None:
        return f"the layers of {name} are being read"
    return "" if fields.stages else f"{name} has no layer with a receptive field"


def levels(record: AttentionRecord, measures: RecordMeasures, display: DisplayValue) -> tuple[Level, ...]:
    """Return how far each stage of the chosen network reaches, in forward order; none where `why_none` tells.

    Kept with the measures: every hover asks.
    """
    from viewer.attention.field_distance import field_distance

    if not display.compare or why_none(record, display.compare):
        return ()
    of_record = _levels.setdefault(measures, {})
    key = (display.compare, display.unit, display.protocol)
    if key not in of_record:
        dots = dots_of(record, measures, replace(display, **_DISTANCES))
        heads = list(zip(dots.layer.tolist(), dots.head.tolist(), strict=True))
        found = []
        for stage in known(display.compare).stages:
            level = field_distance(record.layout, stage.field, display.unit)
            shorter = np.flatnonzero(dots.y < (1 - _ROUNDING) * level)
            found.append(Level(stage.name, stage.field, level, tuple(heads[place] for place in shorter)))
        of_record[key] = tuple(found)
    return of_record[key]


def network_reference(
    record: AttentionRecord, measures: RecordMeasures, display: DisplayValue
) -> tuple[Reference | None, str]:
    """Return the levels of the chosen network as lines, or why there are none, as a clause.

    Only the mean distance against layers compares.
    """
    if not display.compare or display.y_measure != DISTANCE or display.x_measure != LAYER:
        return None, ""
    why = why_none(record, display.compare)
    found = levels(record, measures, display)
    if why or not found:
        return None, why
    of_record = _references.setdefault(measures, {})
    key = (display.compare, display.unit, display.protocol)
    if key not in of_record:
        heads = sum(layer.heads for layer in record.layers)
        of_record[key] = _reference(found, known(display.compare), display.unit, heads)
    return of_record[key], ""


def place_words(
    record: AttentionRecord, measures: RecordMeasures, display: DisplayValue, layer: int, head: int | None
) -> str:
    """Say between which stages of the chosen network one head reaches; empty where there is none."""
    found = levels(record, measures, display)
    if head is None or not found:
        return ""
    reached = [level for level in found if (layer, head) not in level.shorter]
    beyond = [level for level in found if (layer, head) in level.shorter]
    words = []
    if reached:
        last = max(reached, key=lambda level: level.distance)
        words.append(f"at least as far as {last.name} (field {last.field_words})")
    if beyond:
        first = min(beyond, key=lambda level: level.distance)
        words.append(f"less far than {first.name} (field {first.field_words})")
    return f"Beside {display.compare} it reaches {' and '.join(words)}."


def _reference(found: tuple[Level, ...], fields: NetworkFields, unit: str, heads: int) -> Reference:
    x, y = across([level.distance for level in found])
    gates = " without their gates" if fields.gated else ""
    return Reference(
        kind="network",
        x=x,
        y=y,
        label=f"stages of {fields.name}{gates}, as uniform attention over their fields",
        notes=_notes(found),
        told="\n".join(_told(level, unit, heads) for level in found),
    )


def _told(level: Level, unit: str, heads: int) -> str:
    """Say how far a stage reaches, and which heads reach less."""
    listed = ", ".join(f"{layer}/{head}" for layer, head in level.shorter[:_LISTED])
    more = f" and {len(level.shorter) - _LISTED} more" if len(level.shorter) > _LISTED else ""
    which = f" (layer/head {listed}{more})" if listed else ""
    return (
        f"{level.name}: field {level.field_words}, as uniform attention {number(level.distance, unit)}; "
        f"{len(level.shorter)} of {heads} heads are shorter{which}"
    )


def _notes(found: tuple[Level, ...]) -> tuple[tuple[float, str], ...]:
    """Return words for each level; levels that lie close together share theirs, at the lowest one's place."""
    close = _CLOSE * max(level.distance for level in found)
    groups: list[list[Level]] = []
    for level in sorted(found, key=lambda level: level.distance):
        if groups and level.distance - groups[-1][0].distance <= close:
            groups[-1].append(level)
        else:
            groups.append([level])
    return tuple((group[0].distance, _note(group)) for group in groups)


def shared_words(levels: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return the names of levels, given in forward order; those that lie close together share words."""
    close = _CLOSE * max(level for level, _ in levels)
    groups: list[list[int]] = []
    for place in sorted(range(len(levels)), key=lambda place: levels[place][0]):
        if groups and levels[place][0] - levels[groups[-1][0]][0] <= close:
            groups[-1].append(place)
        else:
            groups.append([place])
    names = [name for _, name in levels]
    return [(levels[group[0]][0], _names(names, sorted(group))) for group in groups]


def _names(names: Sequence[str], places: Sequence[int]) -> str:
    """Return some of the names: "a", "a, c", and of more than two that follow each other "a to d"."""
    if len(places) > 2 and places[-1] - places[0] == len(places) - 1:
        return f"{names[places[0]]} to {names[places[-1]]}"
    return ", ".join(names[place] for place in places)


def _note(group: list[Level]) -> str:
    """Return names and fields, which are not the level: "layer1, field 35 px", "a to c: fields 3 to 9 px"."""
    if len(group) == 1:
        return f"{group[0].name}, field {group[0].field_words}"
    between, ends = ", " if len(group) == 2 else " to ", (group[0], group[-1])
    names = between.join(level.name for level in ends)
    return f"{names}: fields {between.join(level.field_words.removesuffix(' px') for level in ends)} px"
