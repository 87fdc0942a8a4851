"""Attention of the selected query in every layer and head, computed once for all views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from viewer.state.documents import ImageDocument
    from viewer.state.selection import Direction, Query


@dataclass(frozen=True, eq=False)
class Attended:
    """What one query attends to (or who attends to it).

    Attributes
    ----------
    query, direction
        What was asked.
    layers
        For each layer float32 (heads, tokens of the other side), token order as in the model.
    maps
        float32 (layers, most heads, R, C): attention on each patch; NaN where a layer has fewer heads.
    prefix
        float32 (layers, most heads, P): attention on each prefix token (zeros wide where there is none).
    """

    query: Query
    direction: Direction
    layers: tuple[npt.NDArray[np.float32], ...]
    maps: npt.NDArray[np.float32]
    prefix: npt.NDArray[np.float32]


def attended(document: ImageDocument, query: Query, direction: Direction) -> Attended | None:
    """Compute it; None while the document has no record (or, for direction "to", no measures) yet."""
    raise NotImplementedError
