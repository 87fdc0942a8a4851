"""The map of norms: how long each token's vector is in the residual stream that enters a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from viewer.state.picture_map import PictureMap, on_patches, on_prefix, without
from viewer.state.places import patch_of
from viewer.state.scale import plain_end
from viewer.state.words import query_words

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.layer import AttentionLayer
    from viewer.attention.record import AttentionRecord
    from viewer.state.attended import Attended
    from viewer.state.display import DisplayValue
    from viewer.state.documents import ImageDocument
    from viewer.state.selection import SelectionValue


def refusal(record: AttentionRecord, display: DisplayValue) -> str:
    """Return why no layer has norms, as a clause; empty where one has."""
    if any(layer.stream_norms is not None for layer in record.layers):
        return ""
    return record.layers[0].no_norms or "the residual stream is not known"


def norm_map(
    document: ImageDocument, found: Attended | None, selection: SelectionValue, display: DisplayValue
) -> PictureMap:
    """Describe the norms ahead of the shown layer."""
    from viewer.attention.norms import HIGH_NORM, high_norm_patches

    record = document.record
    layer = record.layers[selection.shown.layer]
    subject = f"Norms of the residual stream entering layer {layer.index}"
    high = high_norm_patches(layer)
    if high is None:
        why = layer.no_norms or "the residual stream is not known"
        return without(record, subject, why, (layer.index,))
    layout = layer.query_layout
    values = on_patches(layer.stream_norms, layout)
    marked = tuple(
        (int(index) // layout.grid[1], int(index) % layout.grid[1]) for index in np.flatnonzero(high)
    )
    count = "no high-norm patch" if not marked else f"{len(marked)} high-norm patch{'es' * (len(marked) > 1)}"
    rule = f"more than {HIGH_NORM:g} times the median patch's norm"
    largest = float(values.max())
    return PictureMap(
        asked=layout,
        answers=layout,
        values=values,
        blank="",
        vmax=plain_end(largest, float("inf")),
        largest=largest,
        prefix=on_prefix(layer.stream_norms, layout, record.prefix_names),
        subject=subject,
        title=f"{subject}: {count}",
        label="norm of the token's vector",
        # Norms grow from layer to layer, and each layer divides the common length out.
        scale_label="this layer's own scale",
        layers=(layer.index,),
        marked=marked,
        note=f"outlined: {count}, {rule}" if marked else "",
        words=_words(record, layer, values, count, rule, selection),
    )


def _words(
    record: AttentionRecord,
    layer: AttentionLayer,
    values: npt.NDArray[np.float32],
    count: str,
    rule: str,
    selection: SelectionValue,
) -> str:
    """Say how long vectors are, and that of the query."""
    median, largest = float(np.median(values)), float(values.max())
    said = (
        f"Into layer {layer.index} go vectors of norm {median:.3g} (median patch) to {largest:.3g}, "
        f"{largest / median if median else 0:.2g} times that; {count} ({rule})."
    )
    query = selection.query
    if isinstance(query, tuple):
        patch = patch_of(layer.query_layout, record.layout, query)
        name = query_words(patch, grid=None if record.one_grid else layer.query_layout.grid)
        value = float(values[patch])
        ratio = f", {value / median:.2f} times the median" if median else ""
        said += f" {name[:1].upper()}{name[1:]}: {value:.3g}{ratio}."
    return said
