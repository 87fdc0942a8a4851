"""What attention weights are made from: queries and keys, or the weights themselves."""

from __future__ import annotations

import copy
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from viewer.attention.layer import Rows

# In float32 exp(-200) is exactly 0, so logits this far below their row's maximum may be cut off there.
_FAR_BELOW = -200.0
# Models forbid keys by adding -inf, or a number like -100 that no learned bias comes near.
_FORBIDDEN = -50.0


class SoftmaxRows(NamedTuple):
    """Attention weights of a chunk of queries and what only the logits can tell.

    Attributes
    ----------
    weights
        float32 (heads, rows, keys).
    entropy
        float32 (heads, rows), in nats.
    log_normalizer
        float32 (heads, rows), logarithm of the softmax denominator; None where there are no logits.
    """

    weights: Tensor
    entropy: Tensor
    log_normalizer: Tensor | None


class Scratch:
    """Two buffers that a sweep uses again for every chunk; fresh memory would cost more than the sums.

    Parameters
    ----------
    heads, rows, keys
        Size of the largest chunk.
    device
        Where the scores live.
    """

    def __init__(self, heads: int, rows: int, keys: int, device: torch.device) -> None:
        self.rows = rows
        self._shape = (heads, keys)
        self._flat = torch.empty((2, heads * rows * keys), dtype=torch.float32, device=device)

    def take(self, which: int, rows: int) -> Tensor:
        """Return buffer 0 or 1 as a contiguous (heads, rows, keys); its contents are left over."""
        heads, keys = self._shape
        return self._flat[which, : heads * rows * keys].view(heads, rows, keys)


class QueryKeyScores:
    """Weights as ``softmax(scale * Q K^T + bias)``, always computed in float32.

    Parameters
    ----------
    queries
        (heads, queries, d), after any rotary embedding or normalization.
    keys
        (heads, keys, d), or fewer heads that divide the queries' heads: key head ``h // (heads / key heads)``
        then serves query head `h`.
    scale
        Factor on the dot products.
    bias
        Added to the logits; broadcastable to (heads, queries, keys); ``-inf`` forbids a key.

    Raises
    ------
    ValueError
        If the shapes do not belong together.
    """

    how = "query-key"
    groups = 1

    def __init__(self, queries: Tensor, keys: Tensor, scale: float, bias: Tensor | None = None) -> None:
        if queries.ndim != 3 or keys.ndim != 3 or queries.shape[2] != keys.shape[2]:
            raise ValueError(f"queries {tuple(queries.shape)} and keys {tuple(keys.shape)} do not match")
        if queries.shape[0] % keys.shape[0]:
            raise ValueError(f"{keys.shape[0]} key heads can't serve {queries.shape[0]} query heads")
        self.query_vectors = _owned(queries)
        self.key_vectors = _owned(keys)
        self.scale = float(scale)
        self.heads, self.queries = queries.shape[:2]
        self.keys = keys.shape[1]
        self.bias = None if bias is None else self._broadcast(bias)

    def _broadcast(self, bias: Tensor) -> Tensor:
        if not bias.is_floating_point():
            raise ValueError(f"a bias is added to the logits and can't be {bias.dtype}")
        try:
            # Expanding takes no memory: a mask of one row stays one row.
            return bias.detach().expand(self.heads, self.queries, self.keys)
        except RuntimeError as error:
            raise ValueError(
                f"a bias of {tuple(bias.shape)} does not fit {(self.heads, self.queries, self.keys)}"
            ) from error

    @property
    def stacked(self) -> QueryKeyScores:
        """Itself: there is one group."""
        return self

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return self.query_vectors.device

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Everything this keeps in memory."""
        kept = (self.query_vectors, self.key_vectors)
        return kept if self.bias is None else (*kept, self.bias)

    @cached_property
    def _forbids(self) -> bool:
        """Whether the bias keeps any query from any key."""
        return self.bias is not None and bool(self.bias.amin() < self.bias.amax() + _FORBIDDEN)

    def reach(self, rows: Rows) -> Tensor | None:
        """Return which keys some queries may look at, bool (rows, keys); None where all may look at all."""
        allowed = self.allowed(rows)
        return None if allowed is None else allowed.any(dim=0)

    def group_reach(self, rows: Rows) -> Tensor | None:
        """Return the same as bool (1, rows, keys): there is one group."""
        reach = self.reach(rows)
        return None if reach is None else reach[None]

    def allowed(self, rows: Rows) -> Tensor | None:
        """Return which keys each head lets some queries look at, bool (heads, rows, keys); None if all."""
        if not self._forbids:
            return None
        bias = self.bias[:, rows]
        return bias > bias.amax(dim=-1, keepdim=True) + _FORBIDDEN

    def part(self, heads: slice) -> QueryKeyScores:
        """Return some of the heads, which share memory with these; whole key heads only."""
        found = copy.copy(self)
        shared = self.heads // len(self.key_vectors)
        start, stop, _ = heads.indices(self.heads)
        found.query_vectors = self.query_vectors[heads]
        found.key_vectors = self.key_vectors[start // shared : -(-stop // shared)]
        found.bias = None if self.bias is None else self.bias[heads]
        found.heads = len(found.query_vectors)
        return found

    def picked(self, heads: list[int]) -> QueryKeyScores:
        """Return a copy with the heads in another order."""
        shared = self.heads // len(self.key_vectors)
        keys = self.key_vectors[[head // shared for head in heads]]
        bias = None if self.bias is None else self.bias[heads]
        return QueryKeyScores(self.query_vectors[heads], keys, self.scale, bias)

    def logits(self, rows: Rows, out: Tensor | None = None) -> Tensor:
        """Return scaled and biased dot products of some queries, float32 (heads, rows, keys).

        Parameters
        ----------
        rows
            Token indices of the queries.
        out
            Contiguous buffer of that shape to write to.
        """
        queries = self.query_vectors[:, rows]
        if out is None:
            out = queries.new_empty((self.heads, queries.shape[1], self.keys))
        key_heads, _, dimension = self.key_vectors.shape
        torch.bmm(
            (queries * self.scale).reshape(key_heads, -1, dimension),
            self.key_vectors.mT,
            out=out.view(key_heads, -1, self.keys),
        )
        if self.bias is not None:
            out.add_(self.bias[:, rows].to(torch.float32))
        return out

    def weights(self, rows: Rows) -> Tensor:
        """Return attention weights of some queries, float32 (heads, rows, keys).

        Each row sums to 1; a query that may look at no key has zeros.
        """
        logits = self.logits(rows)
        weights = torch.softmax(logits, dim=-1)
        if self.bias is not None:
            weights.masked_fill_(logits.amax(dim=-1, keepdim=True) == -torch.inf, 0.0)
        return weights

    def column(self, key: int, log_normalizer: Tensor) -> Tensor:
        """Return how much every query attends to one key, float32 (heads, queries).

        Parameters
        ----------
        key
            Token index.
        log_normalizer
            float32 (heads, queries), see `SoftmaxRows`.
        """
        key_heads, _, dimension = self.key_vectors.shape
        queries = self.query_vectors.view(key_heads, -1, dimension)
        # One row times a transposed matrix: the other way round the same product takes five times as long.
        logits = torch.bmm(self.key_vectors[:, key, None] * self.scale, queries.mT)
        logits = logits.view(self.heads, self.queries)
        if self.bias is not None:
            logits.add_(self.bias[:, :, key].to(torch.float32))
        weights = torch.exp_(logits - log_normalizer)
        return weights.masked_fill_(log_normalizer == -torch.inf, 0.0)

    def columns(self, keys: slice, log_normalizer: Tensor | None, out: Tensor) -> Tensor:
        """Return how much every query attends to some keys, float32 (heads, keys, queries): columns as rows.

        Parameters
        ----------
        keys
            Token indices.
        log_normalizer
            float32 (heads, queries), see `SoftmaxRows`.
        out
            Contiguous buffer of that shape to write to.
        """
        vectors = self.key_vectors[:, keys] * self.scale
        if len(vectors) < self.heads:
            vectors = vectors.repeat_interleave(self.heads // len(vectors), dim=0)
        torch.baddbmm(-log_normalizer[:, None], vectors, self.query_vectors.mT, out=out)
        if self.bias is not None:
            out.add_(self.bias[:, :, keys].mT.to(torch.float32))
        out.exp_()
        return out if self.bias is None else out.masked_fill_(log_normalizer[:, None] == -torch.inf, 0.0)

    def softmax_rows(self, rows: slice, scratch: Scratch) -> SoftmaxRows:
        """Return a chunk's weights with entropy and normalizer.

        The weights lie in buffer 1 of `scratch`; buffer 0 is free again.
        """
        count = len(range(*rows.indices(self.queries)))
        logits = self.logits(rows, out=scratch.take(0, count))
        peak = logits.amax(dim=-1, keepdim=True)
        alive = None
        if self.bias is not None:
            alive = peak != -torch.inf
            peak = peak.masked_fill(~alive, 0.0)
        logits.sub_(peak)
        if alive is not None:
            logits.clamp_(min=_FAR_BELOW)
        weights = torch.softmax(logits, dim=-1, out=scratch.take(1, count))
        if alive is not None:
            weights.mul_(alive)
        # The largest weight is exp(0) / Z. As no term of this form is negative, a sharp row keeps its digits.
        log_sum = -torch.log(weights.amax(dim=-1))
        entropy = log_sum - logits.mul_(weights).sum(dim=-1)
        log_normalizer = peak[..., 0] + log_sum
        if alive is not None:
            entropy.masked_fill_(~alive[..., 0], 0.0)
            log_normalizer.masked_fill_(~alive[..., 0], -torch.inf)
        return SoftmaxRows(weights, entropy, log_normalizer)


class WeightScores:
    """Weights as they came out of the model's softmax, where queries and keys can't be had.

    Parameters
    ----------
    weights
        (heads, queries, keys), each row summing to 1.
    bias
        What was added to the logits before the softmax, where that is known: it tells which keys are
        forbidden. Broadcastable to the weights.
    """

    how = "weights"
    groups = 1

    def __init__(self, weights: Tensor, bias: Tensor | None = None) -> None:
        if weights.ndim != 3:
            raise ValueError(f"weights have three dimensions, not {weights.ndim}")
        self._weights = _owned(weights)
        self.heads, self.queries, self.keys = weights.shape
        self._allowed: Tensor | None = None
        if bias is not None:
            allowed = (bias > bias.amax(dim=-1, keepdim=True) + _FORBIDDEN).expand(weights.shape)
            self._allowed = None if bool(allowed.all()) else allowed

    @property
    def stacked(self) -> WeightScores:
        """Itself: there is one group."""
        return self

    def reach(self, rows: Rows) -> Tensor | None:
        """Return which keys some queries may look at, bool (rows, keys).

        None where all may look at all, which is also assumed where no bias is known: weights do not tell.
        """
        return None if self._allowed is None else self._allowed[:, rows].any(dim=0)

    def group_reach(self, rows: Rows) -> Tensor | None:
        """Return the same as bool (1, rows, keys): there is one group."""
        reach = self.reach(rows)
        return None if reach is None else reach[None]

    def allowed(self, rows: Rows) -> Tensor | None:
        """Return which keys each head lets some queries look at, bool (heads, rows, keys); None if all."""
        return None if self._allowed is None else self._allowed[:, rows]

    def part(self, heads: slice) -> WeightScores:
        """Return some of the heads, which share memory with these."""
        found = copy.copy(self)
        found._weights = self._weights[heads]
        found._allowed = None if self._allowed is None else self._allowed[heads]
        found.heads = len(found._weights)
        return found

    def picked(self, heads: list[int]) -> WeightScores:
        """Return a copy with the heads in another order."""
        found = WeightScores(self._weights[heads])
        found._allowed = None if self._allowed is None else self._allowed[heads]
        return found

    @property
    def device(self) -> torch.device:
        """Where the tensor lives."""
        return self._weights.device

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Everything this keeps in memory."""
        return (self._weights,)

    def weights(self, rows: Rows) -> Tensor:
        """Return attention weights of some queries, float32 (heads, rows, keys)."""
        return self._weights[:, rows]

    def column(self, key: int, log_normalizer: Tensor | None) -> Tensor:
        """Return how much every query attends to one key, float32 (heads, queries)."""
        return self._weights[:, :, key]

    def columns(self, keys: slice, log_normalizer: Tensor | None, out: Tensor) -> Tensor:
        """Return how much every query attends to some keys, as `QueryKeyScores.columns` does."""
        return out.copy_(self._weights[:, :, keys].mT)

    def softmax_rows(self, rows: slice, scratch: Scratch) -> SoftmaxRows:
        """Return a chunk's weights and entropy; there is no normalizer."""
        weights = self._weights[:, rows]
        return SoftmaxRows(weights, torch.special.entr(weights).sum(dim=-1), None)


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Return how much memory tensors keep alive, memory that several share counted once."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def _owned(tensor: Tensor) -> Tensor:
    """Return a contiguous float32 copy, or the tensor itself if it is that and keeps nothing else alive."""
    found = tensor.detach().to(torch.float32).contiguous()
    # A slice of a joint query-key-value tensor would keep all of it in memory.
    return found if found.untyped_storage().nbytes() == 4 * found.numel() else found.clone()
