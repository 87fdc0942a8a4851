"""What one query attends to in every layer and head at once, and who attends to it: the way of a hover."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from viewer.attention.layer import AttentionLayer
    from viewer.attention.layout import Query
    from viewer.attention.record import AttentionRecord
    from viewer.attention.sweep import RecordMeasures


def attention_from(record: AttentionRecord, query: Query) -> tuple[npt.NDArray[np.float32], ...]:
    """Return, for each layer, what the query attends to: float32 (heads, keys).

    A layer that lacks the query (attention pooling has one learned query of its own) answers with its only
    query's weights.

    Raises
    ------
    LookupError
        If there is no such query.
    """
    record.layout.token(query)
    with one_thread():
        return tuple(_row(layer, query) for layer in record.layers)


def attention_to(
    record: AttentionRecord, measures: RecordMeasures, key: Query
) -> tuple[npt.NDArray[np.float32], ...]:
    """Return, for each layer, how much every query attends to one key: float32 (heads, queries).

    Raises
    ------
    LookupError
        If there is no such key.
    """
    columns = []
    with one_thread():
        for layer, measured in zip(record.layers, measures.layers, strict=True):
            normalizer = measured.log_normalizer
            if normalizer is not None:
                normalizer = torch.tensor(normalizer, device=layer.scores.device)
            column = layer.scores.column(layer.key_layout.token(key), normalizer)
            columns.append(column.cpu().numpy())
    return tuple(columns)


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


def _row(layer: AttentionLayer, query: Query) -> npt.NDArray[np.float32]:
    token = 0 if layer.scores.queries == 1 else layer.query_layout.token(query)
    return layer.scores.weights([token])[:, 0].cpu().numpy()
