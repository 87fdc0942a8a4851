"""One attention operation of one forward pass: what it was made of and what was verified of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, Union

import numpy as np

from viewer.attention.layout import is_index
from viewer.attention.scores import storage_bytes

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch
    from torch import Tensor

    from viewer.attention.layout import Query, TokenLayout
    from viewer.attention.scores import Scratch, SoftmaxRows

LayerKind = Literal["self", "pool"]
"""`self`: patches attend to patches. `pool`: a learned query gathers all tokens (attention pooling)."""

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
    how: str
    device: torch.device
    tensors: tuple[Tensor, ...]

    def weights(self, rows: Rows) -> Tensor:
        """Return attention weights of some queries, float32 (heads, rows, keys), each row summing to 1."""

    def column(self, key: int, log_normalizer: Tensor | None) -> Tensor:
        """Return how much every query attends to one key, float32 (heads, queries)."""

    def softmax_rows(self, rows: slice, scratch: Scratch) -> SoftmaxRows:
        """Return weights of a chunk of queries with their entropy and normalizer, for sweeps."""


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
    """

    index: int
    name: str
    kind: LayerKind
    scores: Scores
    query_layout: TokenLayout
    key_layout: TokenLayout
    verdict: Verdict

    def __repr__(self) -> str:
        rows, columns = self.key_layout.grid
        return (
            f"<AttentionLayer {self.index}: {self.name}, {self.kind}, {self.heads} heads, "
            f"{self.scores.queries} queries x {self.scores.keys} keys, {rows} rows x {columns} columns, "
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

    def weights(self, query: Query) -> npt.NDArray[np.float32]:
        """Return what one query attends to, float32 (heads, keys), each row summing to 1.

        Raises
        ------
        LookupError
            If there is no such query.
        """
        token = self.query_layout.token(query)
        return self.scores.weights([token])[:, 0].cpu().numpy()

    def matrix(self, head: int) -> npt.NDArray[np.float32]:
        """Return the whole attention matrix of one head, float32 (queries, keys); it is built on demand.

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
            chunk = slice(start, start + rows)
            whole[chunk] = self.scores.weights(chunk)[head].cpu().numpy()
        return whole
