"""Sink tokens: keys that most queries look at, whatever they look for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from viewer.attention.layer import AttentionLayer
    from viewer.attention.measured import LayerMeasures


@dataclass(frozen=True)
class Sink:
    """A key of one head that is fed by more than `viewer.attention.measured.SINK_QUERIES` of the queries.

    Attributes
    ----------
    token
        Its index among the keys.
    key
        The prefix token's name, the patch as (row, column) of the keys' grid, or the index where no key has a
        place.
    received
        Mean attention on it, 0 to 1.
    fed
        Share of queries that spend more than `viewer.attention.measured.sink_threshold` on it. Where there
        are windows, both are over the queries of its own.
    """

    token: int
    key: str | tuple[int, int] | int
    received: float
    fed: float


def sinks_of(layer: AttentionLayer, measured: LayerMeasures) -> tuple[tuple[Sink, ...], ...]:
    """Return the sinks of every head, the strongest first; none where there is a single query."""
    if measured.entropy.shape[1] < 2:
        return ((),) * layer.heads
    return tuple(
        tuple(
            Sink(token, _key(layer, token), float(received[token]), float(fed[token]))
            for token in sorted(np.flatnonzero(there).tolist(), key=lambda at: -received[at])
        )
        for there, received, fed in zip(measured.sinks(), measured.received, measured.fed, strict=True)
    )


def _key(layer: AttentionLayer, token: int) -> str | tuple[int, int] | int:
    layout = layer.key_layout
    if not layout.placed:
        return token
    if layout.cells[token] >= 0:
        row, column = divmod(int(layout.cells[token]), layout.grid[1])
        return row, column
    return layout.prefix_names[int(np.flatnonzero(layout.prefix_tokens == token)[0])]
