"""The map of rolled-out attention: what one query draws on by way of all layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from viewer.state.picture_map import (
    NOT_FINITE,
    PictureMap,
    layers_words,
    on_patches,
    on_prefix,
    strongest,
    without,
)
from viewer.state.scale import plain_end
from viewer.state.words import prefix_words, query_words

if TYPE_CHECKING:
    from collections.abc import Hashable

    import numpy.typing as npt

    from viewer.attention.layout import TokenLayout
    from viewer.attention.record import AttentionRecord
    from viewer.attention.rollout import Rollout
    from viewer.backends.model import Job, Model
    from viewer.state.attended import Attended
    from viewer.state.display import DisplayValue
    from viewer.state.documents import ImageDocument
    from viewer.state.selection import SelectionValue


def refusal(record: AttentionRecord, display: DisplayValue) -> str:
    """Return why attention can't be rolled out, as a clause; empty where it can."""
    # The attention room needs torch, which a window without a model does not load.
    from viewer.attention.rollout import why_no_rollout

    return why_no_rollout(record.layers, display.start_layer)


def key(record: AttentionRecord, display: DisplayValue) -> tuple[Hashable, ...]:
    """Return what a rollout depends on."""
    return ("rollout", display.rollout_fusion, display.start_layer)


def work(document: ImageDocument, model: Model, key: tuple[Hashable, ...], job: Job) -> Rollout:
    """Roll attention out."""
    from viewer.attention.rollout import rollout

    _, fusion, start = key
    found = rollout(document.record, fusion, start, job.step)
    _ = found.peaks  # kept with it, so that no hover waits for them
    return found


def rollout_map(
    document: ImageDocument, found: Attended | None, selection: SelectionValue, display: DisplayValue
) -> PictureMap:
    """Describe the rollout's row of the query (direction "to": its column)."""
    record, query = document.record, selection.query
    layers = tuple(range(display.start_layer, len(record.layers)))
    why = refusal(record, display)
    if why:
        return without(record, "Rollout", why)
    subject = f"Rollout of {layers_words(layers)}, {display.rollout_fusion} of heads"
    rolled = document.maps.get(key(record, display))
    if rolled is None or isinstance(rolled, str):
        return without(record, subject, rolled or "", layers, "being worked out")
    token = None if query is None else record.token_in(rolled.layout, query)
    if token is None:
        return without(record, subject, "", layers, "point at a patch to see what it draws on")
    if not np.isfinite(rolled.matrix[token]).all():
        return without(record, subject, NOT_FINITE, layers)
    return _described(record, rolled, token, selection, display, subject, layers)


def _described(
    record: AttentionRecord,
    rolled: Rollout,
    token: int,
    selection: SelectionValue,
    display: DisplayValue,
    subject: str,
    layers: tuple[int, ...],
) -> PictureMap:
    to, shared = selection.direction == "to", display.scale == "shared"
    row = rolled.matrix[:, token] if to else rolled.matrix[token]
    values, layout = on_patches(row, rolled.layout), rolled.layout
    asked = query_words(selection.query, grid=None if record.one_grid else layout.grid)
    typical, largest = rolled.peaks if shared else (float(values.max()),) * 2
    on_query = f" on {query_words(selection.query, brief=True)}" if to else ""
    return PictureMap(
        asked=layout,
        answers=layout,
        values=values,
        blank="",
        vmax=plain_end(typical),
        largest=largest,
        prefix=on_prefix(row, layout, record.prefix_names),
        subject=subject,
        title=f"{subject}: which patches draw on {asked}" if to else f"{subject}: what {asked} draws on",
        label=f"rollout weight{on_query}",
        scale_label="one scale for all queries" if shared else "this map's own scale",
        layers=layers,
        words="" if to else _words(asked, row, token, values, layout),
    )


def _words(
    asked: str,
    row: npt.NDArray[np.float32],
    token: int,
    values: npt.NDArray[np.float32],
    layout: TokenLayout,
) -> str:
    """Say how much of a query is its own, and from where most of the rest comes."""
    prefix = float(row[layout.prefix_tokens].sum())
    names = prefix_words(layout.prefix_names)
    held = f", {100 * prefix:.1f} % from {names}" if len(layout.prefix_tokens) else ""
    others = values.copy()
    others.ravel()[layout.patch_tokens == token] = 0
    patch = strongest(others)
    return (
        f"Rolled out, {asked} draws {100 * float(row[token]):.1f} % from itself{held}; of other patches most "
        f"from {query_words(patch, brief=True)}, {100 * float(others[patch]):.1f} %."
    )
