"""The map of the effective field: what the middle patch really depends on behind a layer's block."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from viewer.backends.what_if import NO_GRADIENTS
from viewer.state import network_map
from viewer.state.averaged import Averaged, alike, field_size_words, keys_of, shares
from viewer.state.axes import DISTANCE
from viewer.state.picture_map import PictureMap, without
from viewer.state.references import Reference
from viewer.state.scale import plain_end
from viewer.state.words import query_words

if TYPE_CHECKING:
    from collections.abc import Hashable

    import numpy.typing as npt

    from viewer.attention.record import AttentionRecord
    from viewer.backends.effective_field import EffectiveField
    from viewer.backends.model import Job, Model
    from viewer.state.attended import Attended
    from viewer.state.display import DisplayValue
    from viewer.state.documents import ImageDocument
    from viewer.state.selection import SelectionValue

_KEY = ("effective field",)
TYPICAL = 98
"""Percentile of the patches that the scale ends at: the middle patch outshines all others."""
_LABEL = "effective field behind each layer's block: mean distance by gradient"


def refusal(record: AttentionRecord, display: DisplayValue) -> str:
    """Return why there are no effective fields, as a clause; empty where there should be some."""
    if network_map.is_chosen(display):
        return network_map.refusal(record, display)
    from viewer.backends.effective_blocks import why_no_effective_field

    if record.what_if:
        return NO_GRADIENTS
    return why_no_effective_field(record)


def key(record: AttentionRecord, display: DisplayValue) -> tuple[Hashable, ...]:
    """Return what they depend on: at most on the network; all layers are worked out together."""
    return network_map.key(display) if network_map.is_chosen(display) else _KEY


def work(document: ImageDocument, model: Model, key: tuple[Hashable, ...], job: Job) -> Averaged[int]:
    """Run the model forward, and backward for each block, on all open pictures."""
    from viewer.backends.effective_blocks import block_effective_fields

    images = alike(document, model)
    return Averaged(block_effective_fields(model, document.record, images, job), keys_of(document))


def effective_map(
    document: ImageDocument, found: Attended | None, selection: SelectionValue, display: DisplayValue
) -> PictureMap:
    """Describe the field behind the shown layer's block, or of the chosen network's stage.

    It is that of the middle patch, whatever is asked.
    """
    if network_map.is_chosen(display):
        return network_map.network_map(document, display)
    record = document.record
    layer = record.layers[selection.shown.layer]
    subject = f"Effective field behind the block of layer {layer.index}"
    why = refusal(record, display)
    if why:
        return without(record, "Effective field", why)
    fields = document.maps.get(_KEY)
    if fields is None or isinstance(fields, str):
        return without(record, subject, fields or "", (layer.index,), "being worked out")
    field = fields.fields.get(layer.index)
    if field is None:
        return without(record, subject, "its block hands out no tokens with a place", (layer.index,))
    layout = layer.query_layout
    values = shares(field.map, layout)
    middle = layout.grid[0] // 2, layout.grid[1] // 2
    grid = None if record.one_grid else layout.grid
    return PictureMap(
        asked=layout,
        answers=layout,
        values=values,
        blank="",
        vmax=plain_end(float(np.percentile(values, TYPICAL))),
        largest=float(values.max()),
        prefix=tuple((name, float("nan")) for name in record.prefix_names),
        subject=subject,
        title=f"{subject}{fields.aside}: what {query_words(middle, grid=grid)} depends on",
        label="gradient share",
        scale_label="this map's own scale",
        layers=(layer.index,),
        marked=(middle,),
        note=f"outlined: the middle patch, whose vector's gradient this is, {fields.pictures}. "
        f"{field_size_words(field)}",
        words=_words(layer.index, field, middle, values),
    )


def _words(
    layer: int, field: EffectiveField, middle: tuple[int, int], values: npt.NDArray[np.float32]
) -> str:
    return (
        f"Behind layer {layer} ({field.layer}), the vector of the middle patch {middle} depends on pixels "
        f"{field.mean_distance:.0f} px away on average, weighted by its gradient (Luo et al. 2016); "
        f"{100 * float(values[middle]):.0f} % of that lies on the patch itself."
    )


_kept: WeakKeyDictionary[Averaged[int], dict[str, Reference]] = WeakKeyDictionary()


def effective_reference(document: ImageDocument, display: DisplayValue) -> Reference | None:
    """Return how far away what each layer's block depends on lies, as points; None while nothing is known.

    The mean distance from the middle patch, weighted by the gradient: what the mean attention distance is to
    attention.
    """
    averaged = document.maps.get(_KEY)
    distances = display.y_measure == DISTANCE and display.x_measure == "layer"
    if not isinstance(averaged, Averaged) or not distances:
        return None
    of_result = _kept.setdefault(averaged, {})
    if display.unit not in of_result:
        found = sorted(averaged.fields.items())
        layers = [document.record.layers[index] for index, _ in found]
        values = [
            field.distance(layer.query_layout.patch_px if display.unit == "patches" else (1.0, 1.0))
            for layer, (_, field) in zip(layers, found, strict=True)
        ]
        x = np.array([float(index) for index, _ in found])
        label = f"{_LABEL}, {averaged.pictures}"
        of_result[display.unit] = Reference("effective", x, np.array(values), label, points=True)
    return of_result[display.unit]
