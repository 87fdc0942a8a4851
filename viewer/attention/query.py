"""What one query attends to in every layer and head at once, and who attends to it: the way of a hover."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from viewer.attention.layer import AttentionLayer
    from viewer.attention.layout import Query
    from viewer.attention.record import AttentionRecord
    from viewer.attention.sweep import RecordMeasures


def attention_from(record: AttentionRecord, query: Query) -> tuple[npt.NDArray[np.float32], ...]:
    """Return, for each layer, what the query attends to: float32 (heads, keys).

    A patch is one of the record's grid; in a layer with another grid its place is what counts. A layer of
    attention pooling, which has one learned query of its own, answers with that. Keys out of the query's
    reach are NaN, and so is all of a layer that lacks the query.

    Raises
    ------
    LookupError
        If there is no such query in any layer.
    """
    record.require(query)
    with one_thread():
        return tuple(_row(record, layer, query) for layer in record.layers)


def attention_to(
    record: AttentionRecord, measures: RecordMeasures, key: Query
) -> tuple[npt.NDArray[np.float32], ...]:
    """Return, for each layer, how much every query attends to one key: float32 (heads, queries).

    Queries that can't reach the key are NaN; `key` is as in `attention_from`.

    Raises
    ------
    LookupError
        If there is no such key in any layer.
    """
    record.require(key)
    with one_thread():
        return tuple(
            _column(record, layer, measured.log_normalizer, key)
            for layer, measured in zip(record.layers, measures.layers, strict=True)
        )


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute without torch's helper threads.

    The products are too small to share out, and threads that wait for one another stall as soon as something
    else runs: a hover while a picture was measured took 20 to 400 milliseconds with two threads, 2 with one.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _row(record: AttentionRecord, layer: AttentionLayer, query: Query) -> npt.NDArray[np.float32]:
    token = 0 if layer.scores.queries == 1 else record.token_in(layer.query_layout, query)
    if token is None:
        return np.full((layer.heads, layer.scores.keys), np.nan, np.float32)
    return layer.weights(token)


def _column(
    record: AttentionRecord,
    layer: AttentionLayer,
    log_normalizer: npt.NDArray[np.float32] | None,
    key: Query,
) -> npt.NDArray[np.float32]:
    token = record.token_in(layer.key_layout, key)
    if token is None:
        return np.full((layer.heads, layer.scores.queries), np.nan, np.float32)
    column = layer.column(token, log_normalizer)
    # Where windows overlap, a patch is a key of several of them, each with queries of its own.
    cell = layer.key_layout.cells[token]
    if layer.scores.groups > 1 and cell >= 0:
        for other in np.flatnonzero(layer.key_layout.cells == cell):
            if other != token:
                column = np.fmax(column, layer.column(int(other), log_normalizer))
    return column
