"""Which of an attention's stacked products are heads of one group of tokens (a window), and which are groups.

Models stack batch, windows and heads in any order, so shapes do not tell. Places do: the heads of a group all
look at the same queries and keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from viewer.backends.position_call import Lost
from viewer.backends.position_math import shrink

# Places are compared in steps of an eighth of a pixel, off the fractions at which they usually lie, so that
# float noise does not tell apart what is the same.
_STEPS, _OFF = 8, 0.0137


@dataclass(frozen=True, eq=False)
class Grouping:
    """How stacked products fall into groups.

    Attributes
    ----------
    groups
        How many there are.
    order
        The stacked products, those of the first group first; None where they already lie so.
    queries, keys
        complex64 (groups * tokens of a group,), where the tokens of each group sit (see `positions`).
    """

    groups: int
    order: list[int] | None
    queries: Tensor
    keys: Tensor


def find_groups(queries: Tensor, keys: Tensor) -> Grouping | Lost:
    """Tell groups from heads.

    Parameters
    ----------
    queries, keys
        complex64 (stacked, tokens), where the tokens of each product sit; stride 0 where all are alike.
    """
    small = shrink(queries, (0,)), shrink(keys, (0,))
    if all(len(side) == 1 for side in small):
        return Grouping(1, None, *(side[0] for side in small))
    signatures = np.concatenate([_signature(queries), _signature(keys)], axis=1)
    members: dict[bytes, list[int]] = {}
    for index, signature in enumerate(signatures):
        members.setdefault(signature.tobytes(), []).append(index)
    if len({len(stacked) for stacked in members.values()}) != 1:
        return Lost("not every group of tokens has as many heads")
    order = [index for stacked in members.values() for index in stacked]
    first = [stacked[0] for stacked in members.values()]
    return Grouping(
        len(members),
        None if order == list(range(len(order))) else order,
        queries[first].flatten(),
        keys[first].flatten(),
    )


def _signature(places: Tensor) -> np.ndarray:
    real = torch.view_as_real(places.resolve_conj()).nan_to_num(-1e6)
    return ((real + _OFF) * _STEPS).floor().to(torch.int64).flatten(1).numpy()
