"""What one query attends to in every layer and head at once, and who attends to it: the way of a hover."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

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
    raise NotImplementedError


def attention_to(
    record: AttentionRecord, measures: RecordMeasures, key: Query
) -> tuple[npt.NDArray[np.float32], ...]:
    """Return, for each layer, how much every query attends to one key: float32 (heads, queries).

    Raises
    ------
    LookupError
        If there is no such key.
    """
    raise NotImplementedError
