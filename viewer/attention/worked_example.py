"""Nine patches, small enough to follow attention by hand: every score, exponential and share.

Token `i` of the 3 x 3 grid is ``(2 * brightness, 0.1 * i)``; query and key are the token itself, and
scores are their dot products divided by the square root of two, as a token has two numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from viewer.attention.layout import TokenLayout
from viewer.attention.scores import QueryKeyScores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from viewer.attention.layer import AttentionLayer

GRID = (3, 3)
PATCHES = GRID[0] * GRID[1]
SCALE = 2**-0.5
DIAGONAL = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
"""Brightness of the nine patches, row by row: a bright diagonal, all else dark."""

_BRIGHT, _STEP = 2.0, 0.1  # what a bright patch, and each further patch, adds to a token


def tokens_of(brightness: Sequence[float]) -> torch.Tensor:
    """Return the nine tokens as one head, float32 (1, 9, 2).

    Parameters
    ----------
    brightness
        Of each patch, row by row, 0 to 1.
    """
    numbers = [[_BRIGHT * bright, _STEP * place] for place, bright in enumerate(brightness)]
    return torch.tensor([numbers], dtype=torch.float32)


def scores_of(brightness: Sequence[float]) -> QueryKeyScores:
    """Return the one head of nine patches; `brightness` as in `tokens_of`."""
    tokens = tokens_of(brightness)
    return QueryKeyScores(tokens, tokens, SCALE)


@dataclass(frozen=True)
class Key:
    """One key as a query sees it.

    Attributes
    ----------
    number
        Of the patch, 0 to 8, row by row.
    brightness
        0 to 1.
    hops
        Steps of a 3x3 convolution from the query: the larger of the distances in rows and in columns.
    score
        Scaled dot product with the query.
    exponential
        e to the score.
    share
        The exponential divided by the sum of all nine: the attention weight.
    """

    number: int
    brightness: float
    hops: int
    score: float
    exponential: float
    share: float


@dataclass(frozen=True)
class Sum:
    """All that goes into one query's softmax.

    Attributes
    ----------
    query
        Number of the query's patch.
    token
        The query's two numbers.
    keys
        The nine keys.
    total
        Sum of their exponentials.
    """

    query: int
    token: tuple[float, float]
    keys: tuple[Key, ...]
    total: float

    def reached(self, hops: int) -> tuple[Key, ...]:
        """Return the keys that so many stacked 3x3 convolutions reach from the query."""
        return tuple(key for key in self.keys if key.hops <= hops)


def explain(layer: AttentionLayer, query: tuple[int, int]) -> Sum:
    """Take one query's softmax apart, read from the layer that the views show.

    Parameters
    ----------
    layer
        Made from `scores_of`.
    query
        Row and column.
    """
    scores, token = layer.scores, layer.query_layout.token(query)
    logits = scores.logits([token])[0, 0].double().numpy()
    shares = layer.weights(query)[0]
    exponentials = np.exp(logits)
    rows, columns = np.divmod(np.arange(PATCHES), GRID[1])
    hops = np.maximum(abs(rows - query[0]), abs(columns - query[1]))
    bright = scores.key_vectors[0, :, 0] / _BRIGHT
    keys = tuple(
        Key(number, float(bright[number]), int(hops[number]), *map(float, found))
        for number, found in enumerate(zip(logits, exponentials, shares, strict=True))
    )
    first, second = scores.query_vectors[0, token].tolist()
    return Sum(token, (first, second), keys, float(exponentials.sum()))


def layout_of(input_size: tuple[int, int]) -> TokenLayout:
    """Return where nine patches sit on an input of (height, width) pixels; both sides are divisible by 3."""
    return TokenLayout.regular(GRID, (input_size[0] / GRID[0], input_size[1] / GRID[1]))
