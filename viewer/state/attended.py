"""Attention of the selected query in every layer and head, computed once for all views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.record import AttentionRecord
    from viewer.state.documents import ImageDocument
    from viewer.state.selection import Direction, Query


@dataclass(frozen=True, eq=False)
class Attended:
    """What one query attends to (or who attends to it).

    Attributes
    ----------
    query, direction
        What was asked.
    layers
        For each layer float32 (heads, tokens of the other side), token order as in the model.
    maps
        float32 (layers, most heads, R, C): attention on each patch; NaN where a layer has fewer heads or
        another grid.
    prefix
        float32 (layers, most heads, P): attention on each prefix token (zeros wide where there is none).
    peaks
        float32 (layers, most heads): the largest weight on any patch; NaN as in `maps`.
    """

    query: Query
    direction: Direction
    layers: tuple[npt.NDArray[np.float32], ...]
    maps: npt.NDArray[np.float32]
    prefix: npt.NDArray[np.float32]
    peaks: npt.NDArray[np.float32]


def attended(document: ImageDocument, query: Query, direction: Direction) -> Attended | None:
    """Compute it; None while the document has no record (or, for direction "to", no measures) yet."""
    # The attention room needs torch, which a window without a model does not load.
    from viewer.attention.query import attention_from, attention_to

    record = document.record
    if record is None:
        return None
    if direction == "from":
        layers = attention_from(record, query)
    elif document.measures is not None:
        layers = attention_to(record, document.measures, query)
    else:
        return None
    maps, prefix = _on_grid(record, layers, direction)
    return Attended(query, direction, layers, maps, prefix, maps.max(axis=(2, 3)))


def _on_grid(
    record: AttentionRecord, layers: tuple[npt.NDArray[np.float32], ...], direction: Direction
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Put the weights of each layer where their tokens sit; returns maps and prefix as in `Attended`."""
    rows, columns = record.grid
    most = max(layer.heads for layer in record.layers)
    maps = np.full((len(layers), most, rows * columns), np.nan, np.float32)
    prefix = np.full((len(layers), most, record.prefix_tokens), np.nan, np.float32)
    for layer, weights in zip(record.layers, layers, strict=True):
        layout = layer.key_layout if direction == "from" else layer.query_layout
        if layout.grid == record.grid:
            np.take(weights, layout.patch_tokens, axis=1, out=maps[layer.index, : layer.heads])
        if layout.prefix_names == record.layout.prefix_names:
            prefix[layer.index, : layer.heads] = weights[:, layout.prefix_tokens]
    return maps.reshape(len(layers), most, rows, columns), prefix
