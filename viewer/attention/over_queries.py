"""What a sweep adds up over queries: how alike the rows of a map are, and which keys they all look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from viewer.attention.measured import sink_threshold

if TYPE_CHECKING:
    from torch import Tensor

    from viewer.attention.layer import AttentionLayer
    from viewer.attention.scores import Scratch

_SHORTEST = 1e-30  # keeps rows of zeros from being divided by 0
_SAME_KEY = 1e-6  # nats: keys less uncertain than that are one key, in float32


class Alike(NamedTuple):
    """What rows have in common; the first two float64 (heads,), the others float32 (heads, keys in all).

    On the host; see `viewer.attention.measured.LayerMeasures` for each.
    """

    row_cosine: Tensor
    nmi: Tensor
    received: Tensor
    fed: Tensor


class OverQueries:
    """Sums over the patch queries of a layer (all queries where none has a place), chunk by chunk.

    The sum of all rows divided by their lengths holds the mean cosine between them, and the sum of the rows
    as they are holds the entropy of the keys: neither needs a second sweep.
    """

    def __init__(self, layer: AttentionLayer) -> None:
        self._scores, stacked, layout = layer.scores, layer.scores.stacked, layer.query_layout
        device = self._scores.device
        counted = torch.zeros(layer.scores.queries, dtype=torch.float32)
        counted[torch.from_numpy(layout.patch_tokens) if layout.placed else slice(None)] = 1.0
        # (groups * heads, queries of a group), as the heads are stacked.
        self._counted = counted.view(self._scores.groups, -1).repeat_interleave(layer.heads, 0).to(device)
        self._above = sink_threshold(stacked.keys)
        # Of rows as they are, and divided by their lengths. On the host: not every device has float64.
        self._rows = torch.zeros((stacked.heads, 2, stacked.keys), dtype=torch.float64)
        self._fed = torch.zeros((stacked.heads, stacked.keys), dtype=torch.float32)
        self._count = torch.zeros(stacked.heads, dtype=torch.float64)
        self._entropy = torch.zeros_like(self._count)

    def add(self, weights: Tensor, entropy: Tensor, rows: slice, scratch: Scratch) -> None:
        """Add a chunk.

        Parameters
        ----------
        weights
            float32 (groups * heads, rows, keys).
        entropy
            float32 (groups * heads, rows), of each row in nats.
        rows
            Which queries of each group.
        scratch
            Its buffer 0 is written over.
        """
        length = torch.linalg.vector_norm(weights, dim=-1)
        # A query that may look at no key is no row of the map.
        counted = self._counted[:, rows] * (length > 0)
        of_unit = counted / length.clamp(min=_SHORTEST)
        self._rows += torch.bmm(torch.stack([counted, of_unit], dim=1), weights).cpu()
        self._count += counted.sum(dim=1).cpu()
        self._entropy += (entropy * counted).sum(dim=1).cpu()
        fed = torch.gt(weights, self._above, out=scratch.take(0, weights.shape[1]))
        self._fed += torch.bmm(counted[:, None], fed)[:, 0].cpu()

    def finish(self) -> Alike:
        """Return what all chunks gave."""
        groups = self._scores.groups
        count = self._count.view(groups, -1)
        sums, units = self._rows.view(groups, -1, *self._rows.shape[1:]).unbind(dim=2)
        # |sum of n unit rows|^2 is n and every pair of different rows twice.
        pairs = (count * (count - 1)).sum(dim=0)
        alike = (units.square().sum(dim=-1) - count).sum(dim=0) / pairs
        of_keys = count.clamp(min=1)[..., None]
        received, fed = sums / of_keys, self._fed.view_as(sums) / of_keys
        nmi = _mutual_information(received, self._entropy.view(groups, -1) / count, count)
        flat = (x.transpose(0, 1).flatten(start_dim=1).to(torch.float32) for x in (received, fed))
        return Alike(torch.where(pairs > 0, alike.clamp(-1, 1), torch.nan), nmi.nanmean(dim=0), *flat)


def _mutual_information(received: Tensor, entropy: Tensor, count: Tensor) -> Tensor:
    """Return the normalized mutual information of query and key, (groups, heads)."""
    of_keys = torch.special.entr(received).sum(dim=-1)
    shared = (of_keys - entropy).clamp(min=0)
    found = shared / (count.log() * of_keys).sqrt()
    found = found.clamp(max=1.0).masked_fill(of_keys < _SAME_KEY, 0.0)
    return found.masked_fill((count < 2) | (received.shape[-1] < 2), torch.nan)
