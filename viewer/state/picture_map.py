"""A map over the picture, of whatever kind, as the image panel and the figures take it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from viewer.attention.layout import TokenLayout
    from viewer.attention.record import AttentionRecord


@dataclass(frozen=True, eq=False)
class PictureMap:
    """What is shown over the patches, with its scale and its words.

    Attributes
    ----------
    asked, answers
        Layouts of patches: that which is pointed at and outlined, and that of `values`.
    values
        float32 (rows and columns of `answers`), NaN where there is nothing to show; None while there is no
        map.
    blank
        Why there is no map, as a clause; empty where there is one, or would be for some query.
    vmax
        Upper end of the colour scale, which begins at 0.
    largest
        The largest value on any patch that the scale stands for.
    prefix
        Name and value of each prefix token; NaN where it has none.
    subject
        Of what it is a map: "Layer 3, head 2".
    title
        The subject and what is asked, or what to do to see a map.
    label
        Of the colour bar, with the unit: "attention weight".
    scale_label
        For what the colour scale is one: "one scale for all heads".
    layers
        Numbers of the layers whose attention is in it.
    marked
        Patches of `answers` (row, column) that stand out by a rule, which `note` tells.
    note
        A clause of the caption; may be empty.
    words
        What the read-out says of it, a sentence; may be empty.
    """

    asked: TokenLayout
    answers: TokenLayout
    values: npt.NDArray[np.float32] | None
    blank: str
    vmax: float
    largest: float
    prefix: tuple[tuple[str, float], ...]
    subject: str
    title: str
    label: str
    scale_label: str
    layers: tuple[int, ...] = ()
    marked: tuple[tuple[int, int], ...] = ()
    note: str = ""
    words: str = ""


def without(
    record: AttentionRecord, subject: str, why: str, layers: tuple[int, ...] = (), instead: str = ""
) -> PictureMap:
    """Return what is shown where there is no map.

    Parameters
    ----------
    record
        Its patches are those pointed at.
    subject
        Of what it would be a map.
    why
        Why there is none, as a clause; empty where it is on its way, or there is one for some query.
    layers
        Numbers of the layers that would be in it.
    instead
        What to do, or what is being done; not said where there is a reason.
    """
    rest = f"no map, {why}" if why else instead
    return PictureMap(
        asked=record.layout,
        answers=record.layout,
        values=None,
        blank=why,
        vmax=1.0,
        largest=0.0,
        prefix=tuple((name, math.nan) for name in record.prefix_names),
        subject=subject,
        title=f"{subject}: {rest}" if rest else subject,
        label="",
        scale_label="",
        layers=layers,
    )


NOT_FINITE = "the model's numbers are not finite for this picture"
"""Why a map can't be shown though it was worked out."""


def on_patches(values: npt.NDArray[np.float32], layout: TokenLayout) -> npt.NDArray[np.float32]:
    """Put one value a token where the patches are, float32 (rows, columns)."""
    return values[layout.patch_tokens].reshape(layout.grid)


def on_prefix(
    values: npt.NDArray[np.float32], layout: TokenLayout, names: Sequence[str]
) -> tuple[tuple[str, float], ...]:
    """Return the value of each named prefix token; NaN where the layout lacks it."""
    known = dict(zip(layout.prefix_names, values[layout.prefix_tokens].tolist(), strict=True))
    return tuple((name, known.get(name, math.nan)) for name in names)


def layers_words(layers: Sequence[int]) -> str:
    """Return which layers are in a map: "layers 2 to 11"."""
    return f"layer {layers[0]}" if len(layers) == 1 else f"layers {layers[0]} to {layers[-1]}"


def strongest(values: npt.NDArray[np.float32]) -> tuple[int, int]:
    """Return the patch (row, column) of the largest value."""
    row, column = np.unravel_index(int(np.nanargmax(values)), values.shape)
    return int(row), int(column)
