"""One attention operation of one forward pass: what it was made of and what was verified of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol, Union

import numpy as np
import torch

from viewer.attention.layout import is_index
from viewer.attention.scores import storage_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from torch import Tensor

    from viewer.attention.layout import Query, TokenLayout
    from viewer.attention.scores import Scratch, SoftmaxRows

LayerKind = Literal["self", "pool", "channel"]
"""`self`: patches attend to patches. `pool`: a learned query gathers all tokens (attention pooling).
`channel`: channels attend to channels, so queries and keys have no place on the picture."""

Rows = Union[slice, "list[int]"]
"""Token indices of some queries."""


@dataclass(frozen=True)
class Verdict:
    """What was checked of a layer while the model ran.

    Attributes
    ----------
    verified
        True if everything below held within tolerance.
    output_error
        Largest difference between the operation's real output and the one rebuilt from the tapped tensors,
        relative to the largest real output; None where it could not be computed.
    row_error
        Largest deviation of a checked row's sum from 1.
    reason
        Why the layer is not verified, as a clause; empty when it is.
    """

    verified: bool
    output_error: float | None
    row_error: float | None
    reason: str = ""


class Scores(Protocol):
    """What the softmax was made from (`QueryKeyScores`), or only its result (`WeightScores`).

    Attributes
    ----------
    heads, queries, keys
        Counts, prefix tokens included.
    groups
        In how many groups (windows) of as many tokens each the queries and keys come; a query looks at the
        keys of its own group. Token ``g * queries / groups + i`` is the i-th of group `g`.
    stacked
        The scores of one group beside the other, with groups times heads heads; for one group the scores
        themselves.
    how
        "query-key" or "weights".
    device
        Where the tensors live.
    tensors
        Everything kept in memory.
    """

    heads: int
    queries: int
    keys: int
    groups: int
    how: str
    device: torch.device
    tensors: tuple[Tensor, ...]

    @property
    def stacked(self) -> Scores:
        """See the class."""

    def weights(self, rows: Rows) -> Tensor:
        """Return attention weights of some queries, float32 (heads, rows, keys of a group).

        Each row sums to 1.
        """

    def reach(self, rows: Rows) -> Tensor | None:
        """Return which keys of their group some queries may look at, bool (rows, keys of a group).

        None where all may look at all.
        """

    def group_reach(self, rows: Rows) -> Tensor | None:
        """Return which keys the same queries of each group may look at, bool (groups, rows, keys of one).

        None where all may look at all of their group.
        """

    def column(self, key: int, log_normalizer: Tensor | None) -> Tensor:
        """Return how much queries of a key's group attend to it, float32 (heads, queries of a group)."""

    def columns(self, keys: slice, log_normalizer: Tensor | None, out: Tensor) -> Tensor:
        """Return how much queries (of `stacked`) attend to some keys, float32 (heads, keys, queries)."""

    def softmax_rows(self, rows: slice, scratch: Scratch) -> SoftmaxRows:
        """Return weights of a chunk of queries (of `stacked`) with their entropy and normalizer."""


@dataclass(frozen=True, eq=False)
class AttentionLayer:
    """One attention operation, numbered from 0 in forward order.

    Attributes
    ----------
    index
        Position among the record's layers.
    name
        The module or graph node it belongs to, such as ``"blocks.3.attn"``.
    kind
        See `LayerKind`.
    scores
        Queries, keys, scale and bias, or the weights themselves.
    query_layout, key_layout
        Where the tokens on either side sit.
    verdict
        What was verified.
    note
        What a person should know of the weights, as a clause: that they are shown before the heads were
        mixed, or why the tokens have no place; mostly empty.
    stream_norms
        float32 (queries,), length of each query token's vector in the residual stream that enters the layer,
        ahead of its normalization; NaN where a token is none of the stream's (padding). None where the
        stream can't be had.
    no_norms
        Why it can't, as a clause; empty where it can.
    """

    index: int
    name: str
    kind: LayerKind
    scores: Scores
    query_layout: TokenLayout
    key_layout: TokenLayout
    verdict: Verdict
    note: str = ""
    stream_norms: npt.NDArray[np.float32] | None = None
    no_norms: str = ""

    def __repr__(self) -> str:
        rows, columns = self.key_layout.grid
        keys = f"{self.scores.keys} keys"
        if self.scores.groups > 1:
            keys += f" in {self.scores.groups} groups"
        return (
            f"<AttentionLayer {self.index}: {self.name}, {self.kind}, {self.heads} heads, "
            f"{self.scores.queries} queries x {keys}, {rows} rows x {columns} columns, "
            f"{'verified' if self.verdict.verified else 'not verified'}>"
        )

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.scores.heads

    @property
    def nbytes(self) -> int:
        """Memory that queries, keys, bias or weights keep alive, in bytes."""
        return storage_bytes(self.scores.tensors)

    @cached_property
    def limited(self) -> bool:
        """Whether some keys are out of a query's reach: in another group, or masked."""
        return self.scores.groups > 1 or self.scores.stacked.reach([0]) is not None

    @property
    def stride(self) -> tuple[float, float]:
        """Spacing of the keys in units of the queries' spacing, down and across; NaN without a grid."""
        if not (self.query_layout.placed and self.key_layout.placed):
            return (math.nan, math.nan)
        down, across = (
            key / query
            for key, query in zip(self.key_layout.patch_px, self.query_layout.patch_px, strict=True)
        )
        return (down, across)

    def weights(self, query: Query) -> npt.NDArray[np.float32]:
        """Return what one query attends to, float32 (heads, keys).

        Each row sums to 1 over the keys that the query may look at; keys out of its reach (of other windows,
        or masked) are NaN, never 0.

        Raises
        ------
        LookupError
            If there is no such query.
        """
        token = self.query_layout.token(query)
        return self._spread(self.scores.weights([token])[:, 0].cpu().numpy(), [token])

    def reach(self, query: Query) -> npt.NDArray[np.bool_]:
        """Return which keys a query may look at, bool (keys,).

        Raises
        ------
        LookupError
            If there is no such query.
        """
        token = self.query_layout.token(query)
        nothing = np.zeros((1, self.scores.stacked.keys), np.float32)
        # Weights themselves may be no numbers, which is another matter.
        return np.isfinite(self._spread(nothing, [token])[0])

    def reached_by(self, key: int) -> npt.NDArray[np.bool_]:
        """Return which queries may look at a key token, bool (queries,)."""
        group, inside = divmod(key, self.scores.stacked.keys)
        count = self.scores.stacked.queries
        mine = slice(group * count, (group + 1) * count)
        reach = self.scores.reach(mine)
        found = np.zeros(self.scores.queries, bool)
        found[mine] = True if reach is None else reach[:, inside].cpu().numpy()
        return found

    def column(self, key: int, log_normalizer: npt.NDArray[np.float32] | None) -> npt.NDArray[np.float32]:
        """Return how much each query attends to one key token, float32 (heads, queries).

        NaN for queries that can't look at it.

        Parameters
        ----------
        key
            Token index.
        log_normalizer
            As `viewer.attention.sweep.LayerMeasures` has it.
        """
        normalizer = (
            None if log_normalizer is None else torch.tensor(log_normalizer, device=self.scores.device)
        )
        found = self.scores.column(key, normalizer).cpu().numpy()
        group, inside = divmod(key, self.scores.stacked.keys)
        count = self.scores.stacked.queries
        mine = slice(group * count, (group + 1) * count)
        reach = self.scores.reach(mine)
        if reach is not None:
            found = np.where(reach[:, inside].cpu().numpy(), found, np.float32(np.nan))
        if self.scores.groups == 1:
            return found
        whole = np.full((self.heads, self.scores.queries), np.nan, np.float32)
        whole[:, mine] = found
        return whole

    def matrix(self, head: int) -> npt.NDArray[np.float32]:
        """Return the whole attention matrix of one head, float32 (queries, keys); it is built on demand.

        Keys out of a query's reach are NaN.

        Raises
        ------
        LookupError
            If there is no such head.
        """
        if not is_index(head) or not 0 <= head < self.heads:
            raise LookupError(f"There is no head {head!r}; layer {self.index} has {self.heads}.")
        whole = np.empty((self.scores.queries, self.scores.keys), np.float32)
        rows = 128  # few enough that the other heads, which come along, stay small
        for start in range(0, len(whole), rows):
            chunk = range(start, min(start + rows, len(whole)))
            weights = self.scores.weights(slice(start, chunk.stop))[head]
            whole[start : chunk.stop] = self._spread(weights.cpu().numpy(), chunk)
        return whole

    def _spread(self, weights: npt.NDArray[np.float32], rows: Sequence[int]) -> npt.NDArray[np.float32]:
        """Put weights (n, keys of a group) of some queries among all keys, (n, keys).

        Either all `n` belong to one query (its heads), or each to its own.
        """
        scores = self.scores
        reach = scores.reach(list(rows))
        if reach is not None:
            weights = np.where(reach.cpu().numpy(), weights, np.float32(np.nan))
        if scores.groups == 1:
            return weights
        whole = np.full((len(weights), scores.groups, scores.stacked.keys), np.nan, np.float32)
        whole[np.arange(len(weights)), np.array(rows) // scores.stacked.queries] = weights
        return whole.reshape(len(weights), -1)
