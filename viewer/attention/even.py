"""Even attention over what queries can reach, measured as any attention: what heads are read against."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch

from viewer.attention.near import Places
from viewer.attention.scores import SoftmaxRows
from viewer.attention.sweep import measure_layer

if TYPE_CHECKING:
    from torch import Tensor

    from viewer.attention.layer import AttentionLayer, Rows
    from viewer.attention.measured import LayerMeasures
    from viewer.attention.scores import Scratch

# By queries' and keys' layouts, or by layer where a mask belongs to it. Weak, since a layer would keep a
# whole record alive.
_Found = dict[tuple[int, bool], "LayerMeasures"]
_kept: WeakKeyDictionary[object, WeakKeyDictionary[object, _Found]] = WeakKeyDictionary()


def even_measures(layer: AttentionLayer, *, window: bool = False) -> LayerMeasures:
    """Return the measures of one head that attends evenly; kept while the layer or its layouts are.

    Parameters
    ----------
    layer
        Of any kind.
    window
        Attend evenly to the patches within one hop (a 3x3 window, cut off at the border) of those that a
        query can reach, not to all it can reach, prefix keys included.
    """
    masked = layer.scores.stacked.reach([0]) is not None
    holders = (layer, layer) if masked else (layer.query_layout, layer.key_layout)
    found = _kept.setdefault(holders[0], WeakKeyDictionary()).setdefault(holders[1], {})
    key = (layer.scores.groups, window)
    if key not in found:
        found[key] = measure_layer(replace(layer, scores=_EvenScores(layer, window)))
    return found[key]


class _EvenScores:
    """Scores of one head in as many groups as a layer has; see `viewer.attention.layer.Scores`."""

    how = "weights"
    heads = 1
    tensors: tuple[Tensor, ...] = ()

    def __init__(self, layer: AttentionLayer, window: bool) -> None:
        self._scores = layer.scores
        self._places = Places(layer) if window else None
        self.groups = layer.scores.groups
        self.queries, self.keys = layer.scores.queries, layer.scores.keys
        self.device = layer.scores.device
        self.stacked = _Stacked(self)

    def group_reach(self, rows: Rows) -> Tensor | None:
        """Return what the layer's own queries may look at."""
        return self._scores.group_reach(rows)

    def weights(self, rows: slice) -> Tensor:
        """Return even weights, float32 (groups, rows, keys of a group); 0 where there is none to look at."""
        count = len(range(*rows.indices(self.stacked.queries)))
        reach = self.group_reach(rows)
        if reach is None:
            shape = (self.groups, count, self.stacked.keys)
            reach = torch.ones(shape, dtype=torch.bool, device=self.device)
        there = reach.to(torch.float32)
        if self._places is not None:
            there = there * self._places.apart(rows).near[:, :, 0]
        return there / there.sum(dim=-1, keepdim=True).clamp(min=1)


class _Stacked:
    """One head for each group."""

    def __init__(self, whole: _EvenScores) -> None:
        self._whole = whole
        self.heads = whole.groups
        self.queries, self.keys = whole.queries // whole.groups, whole.keys // whole.groups
        self.device = whole.device

    def reach(self, rows: Rows) -> Tensor | None:
        """Return which keys some queries of any group may look at."""
        found = self._whole.group_reach(rows)
        return None if found is None else found.any(dim=0)

    def softmax_rows(self, rows: slice, scratch: Scratch) -> SoftmaxRows:
        """Return even weights and their entropy."""
        weights = self._whole.weights(rows)
        return SoftmaxRows(weights, torch.special.entr(weights).sum(dim=-1), None)
