"""Attention of the selected query in every layer and head, computed once for all views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from viewer.state.places import answering_layout, map_grid, spreads, why_blank

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.layer import AttentionLayer
    from viewer.attention.record import AttentionRecord
    from viewer.state.documents import ImageDocument
    from viewer.state.places import Spread
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
        float32 (layers, most heads, R, C): attention on each patch of the record's grid; in a layer of
        another grid, of the layer's patch that lies under it. NaN where it is out of reach (another window,
        masked), and all of it where a layer has fewer heads or no map.
    prefix
        float32 (layers, most heads, P): attention on each prefix token of the record, NaN where a layer
        lacks it (zeros wide where there is none).
    peaks
        float32 (layers, most heads): the largest weight on any patch; NaN where there is none.
    blank
        For each layer why it has no map, as a clause; empty where it has one.
    """

    query: Query
    direction: Direction
    layers: tuple[npt.NDArray[np.float32], ...]
    maps: npt.NDArray[np.float32]
    prefix: npt.NDArray[np.float32]
    peaks: npt.NDArray[np.float32]
    blank: tuple[str, ...]

    def maps_of(self, record: AttentionRecord, index: int) -> npt.NDArray[np.float32]:
        """Return the maps of one layer on its own grid, float32 (heads, rows, columns); NaN as in `maps`."""
        layer = record.layers[index]
        layout = answering_layout(layer, self.direction)
        spread = _spreads(record, self.direction)[index]
        if spread is None or spread.under is None:
            return self.maps[index, : layer.heads]
        return spread.on_patches(self.layers[index]).reshape(-1, *layout.grid)


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
    maps, peaks = _on_grid(record, layers, direction)
    blank = tuple(
        why_blank(layer, query, direction)
        or _why_broken(record, layer, query, direction, layers[layer.index])
        for layer in record.layers
    )
    return Attended(query, direction, layers, maps, _on_prefix(record, layers, direction), peaks, blank)


def _why_broken(
    record: AttentionRecord,
    layer: AttentionLayer,
    query: Query,
    direction: Direction,
    weights: npt.NDArray[np.float32],
) -> str:
    """Return that some of a layer's weights (heads, tokens) are no numbers though they are within reach."""
    if not np.isnan(weights.sum()):
        return ""
    if layer.limited:
        asked = layer.query_layout if direction == "from" else layer.key_layout
        token = 0 if direction == "from" and layer.scores.queries == 1 else record.token_in(asked, query)
        reach = None if token is None else (layer.reach if direction == "from" else layer.reached_by)(token)
        if reach is None or not np.isnan(weights[:, reach]).any():
            return ""
    return "some of its weights are not numbers"


def _spreads(record: AttentionRecord, direction: Direction) -> tuple[Spread | None, ...]:
    return spreads(tuple(answering_layout(layer, direction) for layer in record.layers), record.layout)


def _on_grid(
    record: AttentionRecord, layers: tuple[npt.NDArray[np.float32], ...], direction: Direction
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Put the weights of each layer where their tokens sit; returns maps and peaks as in `Attended`."""
    rows, columns = map_grid(record)
    most = max(layer.heads for layer in record.layers)
    maps = np.full((len(layers), most, rows * columns), np.nan, np.float32)
    own: dict[int, npt.NDArray[np.float32]] = {}
    for index, (spread, weights) in enumerate(zip(_spreads(record, direction), layers, strict=True)):
        if spread is None:
            continue
        there = maps[index, : len(weights)]
        if spread.under is None and len(spread.tokens) == 1:
            np.take(weights, spread.tokens[0], axis=1, out=there)
            continue
        own[index] = spread.on_patches(weights)
        there[:] = own[index] if spread.under is None else np.take(own[index], spread.under, axis=1)
    peaks = maps.max(axis=2)
    for index, weights in enumerate(layers):
        found = peaks[index, : len(weights)]
        # `fmax` passes over what is out of reach; it is slow, and mostly nothing is.
        if index in own or np.isnan(found).any():
            found[:] = np.fmax.reduce(own.get(index, maps[index, : len(weights)]), axis=1)
    return maps.reshape(len(layers), most, rows, columns), peaks


def _on_prefix(
    record: AttentionRecord, layers: tuple[npt.NDArray[np.float32], ...], direction: Direction
) -> npt.NDArray[np.float32]:
    """Return the weights on prefix tokens as in `Attended`."""
    names = record.prefix_names
    prefix = np.full((len(layers), max(map(len, layers)), len(names)), np.nan, np.float32)
    for layer, weights in zip(record.layers, layers, strict=True):
        layout = answering_layout(layer, direction)
        there = prefix[layer.index, : layer.heads]
        if layout.prefix_names == names:
            there[:] = weights[:, layout.prefix_tokens]
            continue
        for place, name in enumerate(names):
            # Each window may have its own token of that name.
            same = [
                at for at, own in zip(layout.prefix_tokens, layout.prefix_names, strict=True) if own == name
            ]
            if same:
                there[:, place] = np.fmax.reduce(weights[:, same], axis=1)
    return prefix
