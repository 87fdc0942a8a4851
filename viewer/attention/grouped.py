"""Attention within groups of tokens: windows, blocks, or the pixels of one patch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from viewer.attention.layer import Rows
    from viewer.attention.scores import QueryKeyScores, Scratch, SoftmaxRows, WeightScores


class GroupedScores:
    """Scores of tokens that look at the keys of their own group only.

    Token ``g * n + i`` is the i-th of group `g`, of queries and of keys alike; every group has as many.

    Parameters
    ----------
    stacked
        Scores whose heads are those of the first group, then those of the second, and so on.
    groups
        Number of groups.

    Raises
    ------
    ValueError
        If the heads can't be shared out evenly.
    """

    def __init__(self, stacked: QueryKeyScores | WeightScores, groups: int) -> None:
        if stacked.heads % groups:
            raise ValueError(f"{stacked.heads} stacked heads do not make {groups} groups")
        self.stacked = stacked
        self.groups = groups
        self.heads = stacked.heads // groups
        self.queries = groups * stacked.queries
        self.keys = groups * stacked.keys

    @property
    def how(self) -> str:
        """What the stacked scores hold: "query-key" or "weights"."""
        return self.stacked.how

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return self.stacked.device

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Everything this keeps in memory."""
        return self.stacked.tensors

    def group(self, which: int) -> QueryKeyScores | WeightScores:
        """Return the scores of one group, sharing memory with these."""
        return self.stacked.part(slice(which * self.heads, (which + 1) * self.heads))

    def weights(self, rows: Rows) -> Tensor:
        """Return attention weights of some queries, float32 (heads, rows, keys of a group).

        The keys are those of each query's own group, see `group`.
        """
        found = [self.group(group).weights(inside) for group, inside in self._by_group(rows)]
        return torch.cat(found, dim=1)

    def reach(self, rows: Rows) -> Tensor | None:
        """Return which keys of their groups some queries may look at, bool (rows, keys of a group).

        None where all may look at all of their group.
        """
        if self.stacked.reach([0]) is None:
            return None
        return torch.cat([self.group(group).reach(inside) for group, inside in self._by_group(rows)])

    def group_reach(self, rows: Rows) -> Tensor | None:
        """Return which keys the same queries of each group may look at, bool (groups, rows, keys of one).

        None where all may look at all of their group.
        """
        allowed = self.stacked.allowed(rows)
        return None if allowed is None else allowed.unflatten(0, (self.groups, -1)).any(dim=1)

    def column(self, key: int, log_normalizer: Tensor | None) -> Tensor:
        """Return how much the queries of a key's group attend to it, float32 (heads, queries of a group)."""
        group, inside = divmod(key, self.stacked.keys)
        if log_normalizer is not None:
            count = self.stacked.queries
            log_normalizer = log_normalizer[:, group * count : (group + 1) * count]
        return self.group(group).column(inside, log_normalizer)

    def columns(self, keys: slice, log_normalizer: Tensor | None, out: Tensor) -> Tensor:
        """Return columns of the same keys in every group: of `stacked`, see there."""
        return self.stacked.columns(keys, log_normalizer, out)

    def softmax_rows(self, rows: slice, scratch: Scratch) -> SoftmaxRows:
        """Return weights of the same queries in every group: of `stacked`, see there."""
        return self.stacked.softmax_rows(rows, scratch)

    def _by_group(self, rows: Rows) -> list[tuple[int, list[int]]]:
        """Split rows into runs of the same group, as (group, rows inside it)."""
        wanted = range(*rows.indices(self.queries)) if isinstance(rows, slice) else rows
        found: list[tuple[int, list[int]]] = []
        for row in wanted:
            group, inside = divmod(row, self.stacked.queries)
            if not found or found[-1][0] != group:
                found.append((group, []))
            found[-1][1].append(inside)
        return found
