"""The map of a class: which patches speak for it, by rollout weighted with gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from viewer.backends.what_if import NO_GRADIENTS
from viewer.state.picture_map import (
    NOT_FINITE,
    PictureMap,
    layers_words,
    on_patches,
    on_prefix,
    strongest,
    without,
)
from viewer.state.places import patch_of
from viewer.state.scale import plain_end
from viewer.state.words import query_words

if TYPE_CHECKING:
    from collections.abc import Hashable

    import numpy.typing as npt

    from viewer.attention.class_rollout import ClassRollout
    from viewer.attention.record import AttentionRecord
    from viewer.backends.model import Job, Model
    from viewer.state.attended import Attended
    from viewer.state.display import DisplayValue
    from viewer.state.documents import ImageDocument
    from viewer.state.selection import SelectionValue


def refusal(record: AttentionRecord, display: DisplayValue) -> str:
    """Return why a record's model has no class rollout, as a clause; empty where it should have one."""
    from viewer.backends.class_rollout import why_no_class_rollout

    if record.what_if:
        return NO_GRADIENTS
    return why_no_class_rollout(record, display.start_layer, target(record, display))


def key(record: AttentionRecord, display: DisplayValue) -> tuple[Hashable, ...]:
    """Return what a class rollout depends on."""
    return ("class rollout", target(record, display), display.start_layer)


def work(document: ImageDocument, model: Model, key: tuple[Hashable, ...], job: Job) -> ClassRollout:
    """Run the model forward and backward."""
    from viewer.backends.class_rollout import class_rollout

    _, number, start = key
    return class_rollout(model, document.record, document.image, number, start, job)


def target(record: AttentionRecord, display: DisplayValue) -> int | None:
    """Return the number of the chosen class, by default the model's best; None where it knows none."""
    if display.map_class >= 0:
        return display.map_class
    best = best_classes(record)
    return best[0][0] if best else None


def best_classes(record: AttentionRecord | None) -> tuple[tuple[int, str, float], ...]:
    """Return number, name and probability of the model's best classes, best first; none without classes."""
    if record is None or record.prediction is None or record.output is None:
        return ()
    known = record.prediction
    order = np.argsort(-record.output.astype(np.float64), kind="stable")[: len(known.labels)]
    return tuple(zip(order.tolist(), known.labels, known.probabilities, strict=True))


def class_words(record: AttentionRecord, number: int, name: str = "") -> str:
    """Return what a class is called: "class 281 (tabby, tabby cat)"; one of the best is known by itself."""
    name = name or next((label for index, label, _ in best_classes(record) if index == number), "")
    plain = f"class {number}"
    return plain if name in ("", plain) else f"{plain} ({name})"


def class_map(
    document: ImageDocument, found: Attended | None, selection: SelectionValue, display: DisplayValue
) -> PictureMap:
    """Describe the relevance of patches for the chosen class; it is the same for every query."""
    record = document.record
    why = refusal(record, display)
    if why:
        return without(record, "Class rollout", why)
    layers = tuple(range(display.start_layer, len(record.layers)))
    subject = f"Class rollout of {layers_words(layers)}"
    rolled = document.maps.get(key(record, display))
    number = target(record, display)
    if rolled is None or isinstance(rolled, str):
        doing = f"what speaks for {class_words(record, number)} is being worked out"
        return without(record, subject, rolled or "", layers, doing)
    named = class_words(record, number, rolled.name)
    layout, values = rolled.layout, on_patches(rolled.relevance, rolled.layout)
    if not np.isfinite(values).all():
        return without(record, subject, NOT_FINITE, layers)
    largest = float(values.max())
    return PictureMap(
        asked=layout,
        answers=layout,
        values=values,
        blank="",
        vmax=plain_end(largest, float("inf")),
        largest=largest,
        prefix=on_prefix(rolled.relevance, layout, record.prefix_names),
        subject=subject,
        title=f"{subject}: what speaks for {named}",
        label="relevance (logits)",
        scale_label="this map's own scale",
        layers=layers,
        words=_words(record, rolled, values, named, selection),
    )


def _words(
    record: AttentionRecord,
    rolled: ClassRollout,
    values: npt.NDArray[np.float32],
    named: str,
    selection: SelectionValue,
) -> str:
    """Say where the relevance lies, and where the class is read from."""
    whole = float(values.sum())
    if not whole > 0:
        return f"No patch speaks for {named} by way of attention."
    layout, patch = rolled.layout, strongest(values)
    grid = None if record.one_grid else layout.grid
    said = (
        f"For {named}, read from {_read(rolled)}, patch {patch} speaks most, with "
        f"{100 * float(values[patch]) / whole:.1f} % of the relevance on patches."
    )
    if isinstance(selection.query, tuple):
        asked = patch_of(layout, record.layout, selection.query)
        name = query_words(asked, grid=grid)
        said += f" {name[:1].upper()}{name[1:]}: {100 * float(values[asked]) / whole:.1f} %."
    return said


def _read(rolled: ClassRollout) -> str:
    """Say which tokens the output is read from."""
    layout, read = rolled.layout, set(rolled.readers.tolist())
    names = [
        query_words(name)
        for token, name in zip(layout.prefix_tokens.tolist(), layout.prefix_names, strict=True)
        if token in read
    ]
    patches = len(read & set(layout.patch_tokens.tolist()))
    if patches:
        names.append("all patches" if patches == len(layout.patch_tokens) else f"{patches} patches")
    return " and ".join(names) or "no token"
