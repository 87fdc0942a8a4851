"""All measures of a record in one pass over chunks of queries, never holding a whole attention matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from viewer.attention.measured import NEAR_HOPS, LayerMeasures, RecordMeasures
from viewer.attention.near import Places
from viewer.attention.offsets import offset_sums
from viewer.attention.over_queries import OverQueries
from viewer.attention.scores import Scratch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from viewer.attention.layer import AttentionLayer, Scores
    from viewer.attention.layout import TokenLayout
    from viewer.attention.over_queries import Alike
    from viewer.attention.record import AttentionRecord

# A chunk's weights should stay in the processor's cache between the passes over them.
_CHUNK_BYTES = 4 << 20
_FEWEST_ROWS, _MOST_ROWS = 16, 512


def measure_record(
    record: AttentionRecord, step: Callable[[str, float | None], None] | None = None
) -> RecordMeasures:
    """Measure every head of every layer.

    Parameters
    ----------
    record
        Of any backend.
    step
        Told of progress between chunks; may raise to stop (see `viewer.backends.model.Job.step`).
    """
    count = len(record.layers)
    room = _Room()

    def measure(at: int) -> LayerMeasures:
        def report(share: float) -> None:
            if step is not None:
                step(f"Measuring layer {at + 1} of {count}", (at + share) / count)

        return measure_layer(record.layers[at], report, room)

    return RecordMeasures(tuple(measure(at) for at in range(count)))


class _Sums(NamedTuple):
    """What a sweep adds up over keys, each float32 (heads, queries) on the scores' device, in token order."""

    pixels: Tensor
    patches: Tensor
    hops: Tensor
    patch_mass: Tensor
    prefix_mass: Tensor
    entropy: Tensor
    log_normalizer: Tensor
    near_1: Tensor
    near_2: Tensor
    near_3: Tensor


class _Room:
    """What the layers of a record use one after another: memory, and distances where they have the same."""

    def __init__(self) -> None:
        self._scratch: dict[tuple[int, int, int], Scratch] = {}
        self._places: dict[tuple[TokenLayout, TokenLayout, int], Places] = {}

    def scratch(self, heads: int, rows: int, keys: int, device: torch.device) -> Scratch:
        """Return buffers for chunks of a size; only the last are kept."""
        size = (heads, rows, keys)
        if size not in self._scratch:
            self._scratch = {size: Scratch(*size, device)}
        return self._scratch[size]

    def places(self, layer: AttentionLayer) -> Places:
        """Return where the tokens of a layer sit; only the last are kept."""
        key = (layer.query_layout, layer.key_layout, layer.scores.groups)
        if key not in self._places:
            self._places = {key: Places(layer)}
        return self._places[key]


def measure_layer(
    layer: AttentionLayer, report: Callable[[float], None] | None = None, room: _Room | None = None
) -> LayerMeasures:
    """Measure every head of one layer.

    Parameters
    ----------
    layer
        Of any kind.
    report
        Told between chunks which share of the layer is done; may raise to stop.
    room
        What layers measured before have left.
    """
    stacked, room = layer.scores.stacked, room or _Room()
    size = (len(_Sums._fields), stacked.heads, stacked.queries)
    sums = _Sums(*torch.zeros(size, dtype=torch.float32, device=layer.scores.device))
    places, over, offsets = room.places(layer), OverQueries(layer), offset_sums(layer)
    rows = min(_chunk_rows(stacked.heads, stacked.keys), stacked.queries)
    scratch = room.scratch(stacked.heads, rows, stacked.keys, layer.scores.device)
    for start in range(0, stacked.queries, rows):
        if report is not None:
            report(start / stacked.queries)
        chunk = slice(start, min(start + rows, stacked.queries))
        weights = _sweep_chunk(stacked, places, chunk, sums, scratch)
        over.add(weights, sums.entropy[:, chunk], chunk, scratch)
        if offsets is not None:
            offsets.add(weights, chunk)
    share = torch.full((layer.heads,), torch.nan, dtype=torch.float64) if offsets is None else offsets.share()
    return _measures(layer, sums, over.finish(), share)


def _measures(layer: AttentionLayer, sums: _Sums, alike: Alike, share: Tensor) -> LayerMeasures:
    """Put what was summed up into the order of patches."""
    scores, stacked = layer.scores, layer.scores.stacked
    # From (groups * heads, queries of a group) to (heads, queries).
    ungrouped = torch.stack(sums).view(len(sums), scores.groups, scores.heads, stacked.queries)
    found = _Sums(*ungrouped.transpose(1, 2).reshape(len(sums), scores.heads, -1).cpu().numpy())
    order = layer.query_layout.patch_tokens if layer.query_layout.placed else slice(None)
    placed = layer.query_layout.placed and layer.key_layout.placed
    missing = np.float32(0 if placed else np.nan)
    return LayerMeasures(
        distance_sum=found.pixels[:, order] + missing,
        distance_sum_patches=found.patches[:, order] + missing,
        hop_sum=found.hops[:, order] + missing,
        near_mass=np.stack([found.near_1, found.near_2, found.near_3])[:, :, order] + missing,
        patch_mass=found.patch_mass[:, order],
        prefix_mass=found.prefix_mass[:, order],
        entropy=found.entropy[:, order],
        row_cosine=alike.row_cosine.numpy(),
        nmi=alike.nmi.numpy(),
        offset_share=share.numpy(),
        received=alike.received.numpy(),
        fed=alike.fed.numpy(),
        keys=stacked.keys,
        log_normalizer=found.log_normalizer.copy() if scores.how == "query-key" else None,
    )


def _sweep_chunk(stacked: Scores, places: Places, rows: slice, sums: _Sums, scratch: Scratch) -> Tensor:
    """Add up a chunk over its keys and return its weights, which lie in buffer 1 of `scratch`."""
    weights, entropy, log_normalizer = stacked.softmax_rows(rows, scratch)
    sums.entropy[:, rows] = entropy
    if log_normalizer is not None:
        sums.log_normalizer[:, rows] = log_normalizer
    of_groups = weights.unflatten(0, (places.groups, -1))
    product = scratch.take(0, weights.shape[1]).view(of_groups.shape)

    def total(factor: Tensor) -> Tensor:
        """Sum weights times a factor (groups, rows or 1, keys) over keys, (groups * heads, rows)."""
        # Not as a matrix product: `sum` adds pairwise and keeps two digits more.
        return torch.mul(of_groups, factor[:, None], out=product).sum(dim=-1).flatten(end_dim=1)

    sums.patch_mass[:, rows] = places.patch_sum(weights, total)
    sums.prefix_mass[:, rows] = places.prefix_sum(weights)
    if not places.placed:
        return weights
    apart = places.apart(rows)
    sums.pixels[:, rows] = total(apart.pixels)
    sums.hops[:, rows] = total(apart.hops)
    if apart.patches is None:
        sums.patches[:, rows] = sums.pixels[:, rows] / places.patch_px[0]
    else:
        sums.patches[:, rows] = total(apart.patches)
    # So few keys are near that a matrix product, being quicker, keeps all digits.
    near = torch.matmul(apart.near, of_groups.permute(0, 2, 3, 1))
    for into, found in zip(sums[-len(NEAR_HOPS) :], near.unbind(dim=2), strict=True):
        into[:, rows] = found.transpose(1, 2).flatten(end_dim=1)
    return weights


def _chunk_rows(heads: int, keys: int) -> int:
    """Return how many queries to take at once: about 128 in usual models."""
    return max(_FEWEST_ROWS, min(_MOST_ROWS, _CHUNK_BYTES // (4 * heads * keys)))
