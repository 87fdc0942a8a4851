"""One attention operation of one forward pass: what it was made of and what was verified of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from viewer.attention.layout import Query, TokenLayout

LayerKind = Literal["self", "pool"]
"""`self`: patches attend to patches. `pool`: a learned query gathers all tokens (attention pooling)."""


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
    """What the softmax was made from (`QueryKeyScores`), or only its result (`WeightScores`)."""

    heads: int
    queries: int
    keys: int
    how: str  # "query-key" or "weights"

    def weights(self, rows: slice | list[int]) -> Tensor:
        """Return attention weights of some queries, float32 (heads, rows, keys), each row summing to 1."""


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

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.scores.heads

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
        """Return the whole attention matrix of one head, float32 (queries, keys); it is built on demand."""
        raise NotImplementedError
