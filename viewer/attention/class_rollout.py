"""Rollout weighted by the gradient of a class: which tokens speak for it.

Chefer, Gur and Wolf 2021, "Generic Attention-model Explainability for Interpreting Bi-Modal and
Encoder-Decoder Transformers", equations 5 and 6 for self-attention: of each layer the mean over heads of the
positive part of attention times its gradient, ``R <- R + mean_h(relu(dy/dA * A)) R`` from the first layer on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from viewer.attention.layout import TokenLayout

Weighted = Callable[[slice], "Tensor"]
"""Attention times its gradient for some queries, float32 (heads, rows, keys)."""

_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, eq=False)
class ClassRollout:
    """How much each token speaks for a class.

    Attributes
    ----------
    relevance
        float32 (tokens,), never negative, in the unit of the class's output, mostly a logit: attention times
        gradient. Tokens as the model has them.
    layout
        Where the tokens sit.
    start
        First layer that is in.
    target, name
        Number of the class, and what it is called; empty where that is not known.
    readers
        int64, the tokens that the class's output is read from behind the last layer: the class token, or all
        patches where they are averaged.
    """

    relevance: npt.NDArray[np.float32]
    layout: TokenLayout
    start: int
    target: int
    readers: npt.NDArray[np.int64]
    name: str = ""


class Relevance:
    """Collects the relevance of tokens for what is read behind the last layer; layers come last first.

    Only the rows of the product that are read are kept, so nothing of tokens x tokens is ever built.

    Parameters
    ----------
    readers
        int64, the tokens that are read; their mean is taken.
    tokens
        How many there are.
    """

    def __init__(self, readers: Tensor, tokens: int) -> None:
        self._first = torch.zeros(tokens, dtype=torch.float64, device=readers.device)
        self._first[readers] = 1 / max(len(readers), 1)
        self._row = self._first

    def take(self, weighted: Weighted, heads: int) -> None:
        """Go one layer back."""
        tokens = len(self._row)
        rows = max(16, min(512, _CHUNK_BYTES // (4 * heads * tokens)))
        found = self._row.clone()
        for start in range(0, tokens, rows):
            chunk = slice(start, min(start + rows, tokens))
            read = self._row[chunk]
            if bool(read.any()):
                found += read @ weighted(chunk).clamp_(min=0).mean(dim=0).double()
        self._row = found

    @property
    def relevance(self) -> Tensor:
        """Relevance of each token by way of the layers that were taken, float32 (tokens,)."""
        # What the identity gives a token that is read says nothing of attention.
        return (self._row - self._first).float()
