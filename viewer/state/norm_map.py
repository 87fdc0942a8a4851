"""The map of norms: how long each token's vector is in the residual stream that enters a layer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from viewer.state.picture_map import NOT_FINITE, PictureMap, on_prefix, without
from viewer.state.places import patch_of
from viewer.state.scale import plain_end
from viewer.state.words import query_words

if TYPE_CHECKING:
    from viewer.attention.layer import AttentionLayer
    from viewer.attention.norms import PatchNorms
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
    from viewer.attention.norms import HIGH_NORM, patch_norms

    record = document.record
    layer = record.layers[selection.shown.layer]
    subject = f"Norms of the residual stream entering layer {layer.index}"
    norms, layout = patch_norms(layer), layer.query_layout
    if norms is None:
        return without(record, subject, layer.no_norms or NOT_FINITE, (layer.index,))
    many = len(norms.high)
    count = f"{many} high-norm patch{'' if many == 1 else 'es'}" if many else "no high-norm patch"
    rule = f"more than {HIGH_NORM:g} times the median patch's norm"
    return PictureMap(
        asked=layout,
        answers=layout,
        values=norms.norms,
        blank="",
        vmax=plain_end(norms.largest, math.inf),
        largest=norms.largest,
        prefix=on_prefix(layer.stream_norms, layout, record.prefix_names),
        subject=subject,
        title=f"{subject}: {count}",
        label="token norm",
        # Norms grow from layer to layer, and each layer divides the common length out.
        scale_label="this layer's own scale",
        layers=(layer.index,),
        marked=norms.high,
        note=f"outlined: {count}, {rule}" if many else "",
        words=_words(record, layer, norms, f"{count} ({rule})", selection),
    )


def _words(
    record: AttentionRecord,
    layer: AttentionLayer,
    norms: PatchNorms,
    count: str,
    selection: SelectionValue,
) -> str:
    """Say how long vectors are, and that of the query."""
    median = norms.median
    times = f", {norms.largest / median:.2g} times that" if median else ""
    said = (
        f"Into layer {layer.index} go vectors of norm {median:.3g} (median patch) to {norms.largest:.3g}"
        f"{times}; {count}."
    )
    query = selection.query
    if isinstance(query, tuple):
        patch = patch_of(layer.query_layout, record.layout, query)
        name = query_words(patch, grid=None if record.one_grid else layer.query_layout.grid)
        value = float(norms.norms[patch])
        ratio = f", {value / median:.2f} times the median" if median else ""
        said += f" {name[:1].upper()}{name[1:]}: {value:.3g}{ratio}."
    return said
