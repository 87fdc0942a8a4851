"""A convolutional network beside the heads: how far each of its stages reaches, on the axis of the heads.

Its layers are others in number and kind than those of the model, so they are no points at some layer: each
stage is a level across the plot. A stage's field has a width and a head a mean distance; the level is the
mean distance of attending evenly to a square as wide as the field (`viewer.attention.field_distance`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from viewer.state.axes import DISTANCE, number
from viewer.state.references import Reference

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.record import AttentionRecord
    from viewer.attention.sweep import RecordMeasures
    from viewer.backends.network_fields import NetworkFields
    from viewer.state.display import DisplayValue

_CLOSE = 0.1  # of the highest level; what lies nearer together shares its words

_ROUNDING = 1e-4  # of a level: a head that attends evenly is not shorter than what does so by definition


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
        What a head would have that attends evenly to such a square, in the unit of the scatter.
    shorter
        How many heads have less.
    """

    name: str
    field: tuple[float, float]
    distance: float
    shorter: int

    @property
    def field_words(self) -> str:
        """Its field: "35 px", "35 x 67 px"."""
        height, width = self.field
        return f"{height:g} px" if height == width else f"{height:g} x {width:g} px"


_networks: dict[str, NetworkFields] = {}
_kept: WeakKeyDictionary[RecordMeasures, dict[tuple[str, ...], Reference]] = WeakKeyDictionary()


def known(name: str) -> NetworkFields | None:
    """Return what was read of a network; None while nothing was."""
    return _networks.get(name)


def keep(fields: NetworkFields) -> None:
    """Keep what was read of a network: it is small, and the same for every picture and model."""
    _networks[fields.name] = fields


def levels(
    record: AttentionRecord, fields: NetworkFields, unit: str, distances: npt.NDArray[np.float64]
) -> tuple[Level, ...]:
    """Return how far each stage reaches beside heads of these distances, in forward order."""
    from viewer.attention.field_distance import field_distance

    found = []
    for stage in fields.stages:
        level = field_distance(record.layout, stage.field, unit)
        shorter = int(np.count_nonzero(distances < (1 - _ROUNDING) * level))
        found.append(Level(stage.name, stage.field, level, shorter))
    return tuple(found)


def network_reference(
    record: AttentionRecord,
    measures: RecordMeasures,
    display: DisplayValue,
    distances: npt.NDArray[np.float64],
) -> tuple[Reference | None, str]:
    """Return the levels of the chosen network, or why there are none, as a clause.

    Parameters
    ----------
    record, measures
        Of the picture; the reference is kept with the measures.
    display
        Names the network, and the measure along y, of which only the mean distance compares.
    distances
        float64 (dots,), along y.
    """
    name = display.compare
    if not name or display.y_measure != DISTANCE or display.x_measure != "layer":
        return None, ""
    if not record.one_grid:
        return None, f"no levels of {name}: the layers differ in their patches"
    fields = known(name)
    if fields is None:
        return None, f"the layers of {name} are being read"
    if not fields.stages:
        return None, f"{name} has no layer with a receptive field"
    of_record = _kept.setdefault(measures, {})
    key = (name, display.unit, display.protocol)
    if key not in of_record:
        found = levels(record, fields, display.unit, distances)
        of_record[key] = _reference(found, fields, display.unit, len(distances))
    return of_record[key], ""


def _reference(found: tuple[Level, ...], fields: NetworkFields, unit: str, heads: int) -> Reference:
    pieces = [np.array([-np.inf, np.inf, np.nan])] * len(found)
    heights = [np.array([level.distance, level.distance, np.nan]) for level in found]
    gates = " (gates over the whole picture not counted)" if fields.gated else ""
    label = f"stages of {fields.name}, as uniform attention over their receptive fields{gates}"
    lines = [
        f"{level.name}: field {level.field_words}, as uniform attention {number(level.distance, unit)}; "
        f"{level.shorter} of {heads} heads are shorter"
        for level in found
    ]
    return Reference(
        kind="network",
        x=np.concatenate(pieces)[:-1],
        y=np.concatenate(heights)[:-1],
        label=label,
        notes=_notes(found),
        told="\n".join(lines),
    )


def _notes(found: tuple[Level, ...]) -> tuple[tuple[float, str], ...]:
    """Return a name for each level; levels that lie close together share one, the upper's place."""
    close = _CLOSE * max(level.distance for level in found)
    notes: list[tuple[float, str]] = []
    for level in sorted(found, key=lambda level: level.distance):
        words = f"{level.name} {level.field_words}"
        if notes and level.distance - notes[-1][0] <= close:
            notes[-1] = (notes[-1][0], f"{notes[-1][1]}, {words}")
        else:
            notes.append((level.distance, words))
    return tuple(notes)
