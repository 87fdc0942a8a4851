"""The effective fields of a convolutional network's stages: a map over the picture, levels on the scatter.

The network sees the picture as the model does: the same pixels at the same size, normalized as the network
wants them. So a pixel of its field is one of the model's, and both are cut off at the same border.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from viewer.errors import MapError, PatchreachError
from viewer.state.averaged import Averaged, alike, field_size_words, keys_of, shares
from viewer.state.axes import DISTANCE, LAYER, number
from viewer.state.comparison import across, known, shared_words
from viewer.state.picture_map import PictureMap, without
from viewer.state.references import Reference
from viewer.state.scale import plain_end
from viewer.state.words import size_words

if TYPE_CHECKING:
    from collections.abc import Hashable

    from viewer.attention.record import AttentionRecord
    from viewer.backends.effective_field import EffectiveField
    from viewer.backends.model import Job, Model
    from viewer.images.preprocess import Preprocessing
    from viewer.state.display import DisplayValue
    from viewer.state.documents import ImageDocument

KIND = "network field"
TRAINED, UNTRAINED = "trained", "untrained"
"""Weights of a network beside the path of a checkpoint: as published, and random."""
_TYPICAL = 98  # as for the model's own map


def is_chosen(display: DisplayValue) -> bool:
    """Return whether the map of effective fields is that of a network's stage."""
    return bool(display.compare and display.stage)


def is_wanted(record: AttentionRecord, display: DisplayValue) -> bool:
    """Return whether a network's effective fields are to be worked out: for the map or for the scatter."""
    return bool(display.compare and display.compare_weights) and not refusal(record, display)


def refusal(record: AttentionRecord, display: DisplayValue) -> str:
    """Return why there are no effective fields of the chosen network, as a clause; empty where there are."""
    fields = known(display.compare)
    if not display.compare_weights:
        return f"it needs weights of {display.compare}; choose some where networks are chosen to compare with"
    if record.what_if and is_chosen(display):
        return f"{display.compare} is not changed by a what-if; show the model as it is"
    names = [] if fields is None else [stage.name for stage in fields.stages]
    if display.stage and names and display.stage not in names:
        return f"{display.compare} has no stage {display.stage}; it has {', '.join(names)}"
    return ""


def key(display: DisplayValue) -> tuple[Hashable, ...]:
    """Return what they depend on; all stages are worked out together."""
    return (KIND, display.compare, display.compare_weights)


def work(document: ImageDocument, model: Model, key: tuple[Hashable, ...], job: Job) -> Averaged[str]:
    """Open the network, run it forward, and backward for each stage, on all open pictures.

    Raises
    ------
    MapError
        If it can't be run at the model's input size.
    PatchreachError
        If it, or its weights, can't be had.
    """
    from viewer.backends.effective_network import network_effective_fields
    from viewer.backends.networks import network_fields, open_network

    _, name, weights = key
    record, images = document.record, alike(document, model)
    file = None if weights in (TRAINED, UNTRAINED) else weights
    device = record.provenance.device if record.provenance.backend == "torch" else "auto"
    network = open_network(name, file, record.input_size, device, job, weights == UNTRAINED)
    seen = _as_seen(model.preprocessing, network.preprocessing, record.input_size)
    fields = known(name) or network_fields(name, None, job)
    try:
        found = network_effective_fields(replace(network, preprocessing=seen), fields, images, job)
    except PatchreachError:
        raise
    except (RuntimeError, ValueError, AssertionError) as error:
        size = size_words(record.input_size)
        why = f"{name} can't be run on {size}, the size of this model's input: {error}"
        raise MapError("effective field", why) from error
    if not found:
        raise MapError("effective field", f"no stage of {name} hands out a map")
    return Averaged({one.layer: one for one in found}, keys_of(document), network.weights)


def _as_seen(model: Preprocessing, network: Preprocessing, size: tuple[int, int]) -> Preprocessing:
    """Return the model's view of a picture, normalized for the network."""
    numbers = {"mean": network.mean, "std": network.std, "value_range": network.value_range}
    return replace(model, size=size, layout="NCHW", **numbers)


def network_map(document: ImageDocument, display: DisplayValue) -> PictureMap:
    """Describe the field of the chosen stage: of the unit in its middle, whatever is asked."""
    record = document.record
    subject = f"Effective field of {short_name(display.compare)} {display.stage}"
    why = refusal(record, display)
    if not why and not record.layout.placed:
        why = "the model has no patches with a place to sum it over"
    found = document.maps.get(key(display))
    if why or not isinstance(found, Averaged):
        return without(record, subject, why or found or "", (), "being worked out")
    field = found.fields.get(display.stage)
    if field is None:
        return without(record, subject, "the stage hands out no map")
    values = shares(field.map, record.layout)
    middle = record.layout.patch_at(*field.centre)
    largest = float(values.max())
    return PictureMap(
        asked=record.layout,
        answers=record.layout,
        values=values,
        blank="",
        # Of a small field all lies on one patch or two.
        vmax=plain_end(float(np.percentile(values, _TYPICAL)) or largest),
        largest=largest,
        prefix=tuple((name, float("nan")) for name in record.prefix_names),
        subject=subject,
        title=f"{subject}{found.aside}: what its middle unit depends on",
        label="gradient share",
        scale_label="this map's own scale",
        marked=(middle,),
        note=f"outlined: the patch with the middle unit, whose gradient this is, {found.pictures}, "
        f"weights: {found.weights}. {field_size_words(field)}",
        words=_words(field, display, 100 * float(values[middle])),
    )


def short_name(name: str) -> str:
    """Return what a network is called; of a file without its folders."""
    path = Path(name)
    return path.name if path.is_absolute() else name


def network_words(display: DisplayValue) -> str:
    """Return what the chosen network is called, with its weights: "resnet50 (random weights)"."""
    weights = {TRAINED: "trained", UNTRAINED: "random weights"}
    file = f"weights: {short_name(display.compare_weights)}"
    return f"{short_name(display.compare)} ({weights.get(display.compare_weights, file)})"


def _words(field: EffectiveField, display: DisplayValue, percent: float) -> str:
    fields = known(display.compare)
    stages = () if fields is None else fields.stages
    size = next((stage.field[0] for stage in stages if stage.name == display.stage), None)
    theory = f", of {size:g} px in theory" if size else ""
    return (
        f"The middle unit of {short_name(display.compare)} {field.layer} depends on pixels "
        f"{field.mean_distance:.0f} px away on average, weighted by its gradient (Luo et al. 2016): an "
        f"effective field of {field.size:.0f} px (over 4.55 % of the largest gradient){theory}; "
        f"{percent:.0f} % lies on the outlined patch."
    )


_kept: WeakKeyDictionary[Averaged[str], dict[tuple[Any, ...], Reference]] = WeakKeyDictionary()


def network_levels(document: ImageDocument, display: DisplayValue) -> tuple[Reference | None, str]:
    """Return how far away what each stage depends on lies, as levels, or why there are none, as a clause.

    The mean distance weighted by the gradient, from the unit in the middle. Kept with the result: every
    hover asks.
    """
    record = document.record
    if display.y_measure != DISTANCE or display.x_measure != LAYER or not record.one_grid:
        return None, ""
    found = document.maps.get(key(display)) if is_wanted(record, display) else None
    if not isinstance(found, Averaged):
        name = short_name(display.compare)
        return None, f"no effective fields of {name}: {found}" if found else ""
    of_result, of_unit = _kept.setdefault(found, {}), (display.unit, record.patch_px)
    if of_unit not in of_result:
        of_result[of_unit] = _levels(found, display, record.patch_px)
    return of_result[of_unit], ""


def _levels(found: Averaged[str], display: DisplayValue, patch_px: tuple[float, float]) -> Reference:
    step = patch_px if display.unit == "patches" else (1.0, 1.0)
    names = [stage.name for stage in known(display.compare).stages if stage.name in found.fields]
    levels = [(found.fields[name].distance(step), name) for name in names or found.fields]
    lines = [
        f"{name}: depends on pixels {number(level, display.unit)} away on average, by gradient"
        for level, name in levels
    ]
    label = f"effective fields of its stages, {found.pictures}, weights: {found.weights}"
    x, y = across([level for level, _ in levels])
    notes = tuple((level, f"{words}, effective") for level, words in shared_words(levels))
    return Reference("network effective", x, y, label, notes=notes, told="\n".join(lines))
