"""In what order heads and groups of tokens lie in the tensors of an attention.

Windowed models give logits another shape to add a mask for each window, and back. All that is known of an
attention is brought into the order of its first product, *stacked*: (batch * windows * heads, tokens, ...).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from viewer.backends.onnx_found import Found, Operand, Step
from viewer.backends.position_call import Lost
from viewer.backends.position_math import shrink

Shape = tuple[int, ...]
_UNFIT = Lost("its tensors do not fit together")
REARRANGED = Lost("its logits are rearranged on their way to the softmax in a way that is not understood")


@dataclass(frozen=True, eq=False)
class Stage:
    """How heads and groups lie at one point on the way.

    Attributes
    ----------
    lead
        Shape ahead of the axes of tokens.
    order
        int64, of that shape: which of the stacked products lies there.
    """

    lead: Shape
    order: npt.NDArray[np.int64]

    def stacked(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Bring (lead..., a, b) into the order of the product, (stacked, a, b)."""
        if len(self.lead) and array.ndim > 2 and array.shape[-3] != self.lead[-1] and array.shape[-3] > 1:
            # Keys that serve several heads, which lie side by side.
            array = array.repeat(self.lead[-1] // array.shape[-3], axis=-3)
        tail = array.shape[-2:]
        if array.shape[:-2] != self.lead:
            array = np.broadcast_to(array, (*self.lead, *tail))
        flat = array.reshape(-1, *tail)
        return flat if self._in_order else flat[np.argsort(self.order.ravel())]

    @cached_property
    def _in_order(self) -> bool:
        return np.array_equal(self.order.ravel(), np.arange(self.order.size))


@dataclass(frozen=True, eq=False)
class Arrangement:
    """The order of everything in an attention at one input size.

    Attributes
    ----------
    product, softmax, end
        Of the logits' product, at the softmax, and of the product with the values.
    steps
        Ahead of each step to the softmax.
    shape
        Queries and keys of each product.
    mine
        Which of the stacked products belong to the first picture; None for all.
    """

    product: Stage
    steps: tuple[Stage, ...]
    softmax: Stage
    end: Stage
    shape: tuple[int, int]
    mine: list[int] | None = None

    @property
    def stacked(self) -> int:
        """Number of products, those of all pictures."""
        return self.product.order.size


def arranged_shape(operand: Operand, shapes: Mapping[str, Shape]) -> Shape:
    """Return the shape of an operand with its axes in order."""
    shape = shapes[operand.tensor]
    if operand.axes is None:
        return shape
    if operand.axes == (-1, -2):
        return (*shape[:-2], shape[-1], shape[-2])
    return tuple(shape[axis] for axis in operand.axes)


def arrange(found: Found, shapes: Mapping[str, Shape]) -> Arrangement | Lost:
    """Follow the order from shapes of a real run."""
    queries, keys = (arranged_shape(side, shapes) for side in (found.queries, found.keys))
    if min(len(queries), len(keys)) < 2:
        return REARRANGED
    try:
        lead = _lead(queries[:-2], keys[:-2])
    except ValueError:
        return REARRANGED
    shape = (queries[-2], keys[-2])
    product = Stage(lead, np.arange(int(np.prod(lead))).reshape(lead))
    stages, at = [], product
    for step in found.steps:
        stages.append(at)
        moved = _moved(at, step, shapes, shape)
        if moved is None:
            return REARRANGED
        at = moved
        problem = _problem(step, shapes)
        if problem and not found.weights:
            return Lost(problem)
        if step.role != "view" and not all(
            _fits(shapes[name][:-2], at) for name in (step.tensor, step.condition) if name
        ):
            return _UNFIT
    if found.softmax:
        problem = _softmax_problem(found, at, shape, shapes)
        if problem:
            return Lost(problem)
    end = at
    for step in found.after:
        moved = _moved(end, step, shapes, shape)
        if moved is None:
            return Lost("its weights are rearranged between softmax and values")
        end = moved
    if not all(_fits(arranged_shape(side, shapes)[:-2], end) for side in (found.values, found.context)):
        return _UNFIT
    return Arrangement(product, tuple(stages), at, end, shape)


def _fits(lead: Shape, at: Stage) -> bool:
    """Whether something stacked in some way can be brought into the order of the product."""
    if lead and at.lead and at.lead[-1] % max(lead[-1], 1) == 0:
        lead = (*lead[:-1], at.lead[-1])  # one for several heads
    try:
        return np.broadcast_shapes(lead, at.lead) == at.lead
    except ValueError:
        return False


def _lead(queries: Shape, keys: Shape) -> Shape:
    """Return how products are stacked; keys may serve several heads."""
    if queries[:-1] == keys[:-1] and queries and keys[-1] and queries[-1] % keys[-1] == 0:
        return queries
    return np.broadcast_shapes(queries, keys)


def _moved(at: Stage, step: Step, shapes: Mapping[str, Shape], shape: tuple[int, int]) -> Stage | None:
    """Return the order behind a step; None where tokens do not stay in the last two axes."""
    if step.role != "view":
        return at
    result = shapes[step.tensor]
    if step.axes is None:
        kept = result[-2:] == shape and int(np.prod(result[:-2])) == at.order.size
        return Stage(result[:-2], at.order.reshape(result[:-2])) if kept else None
    rank = len(step.axes)
    if rank != len(at.lead) + 2 or step.axes[-2:] != (rank - 2, rank - 1):
        return None
    order = at.order.transpose(step.axes[:-2])
    return Stage(order.shape, order)


def _problem(step: Step, shapes: Mapping[str, Shape]) -> str:
    """Say, as a clause, why a step can't be expressed by queries, keys and a bias; mostly empty."""
    if step.role in ("factor", "divisor"):
        factor = shapes[step.tensor]
        if int(np.prod(factor)) != 1 and (len(factor) < 3 or factor[-2:] != (1, 1)):
            return f"its logits are multiplied by a tensor of shape {factor}, not by a number or one a head"
    return ""


def _softmax_problem(found: Found, at: Stage, shape: tuple[int, int], shapes: Mapping[str, Shape]) -> str:
    real = shapes[found.softmax]
    axis = found.axis % len(real)
    if axis == len(real) - 2:
        return "it normalizes its weights over the queries, not over the keys"
    if axis != len(real) - 1:
        return "it normalizes its weights over heads or windows"
    if real != (*at.lead, *shape):
        return REARRANGED.reason
    return ""


def stacked_places(places: Tensor, at: Stage) -> Tensor:
    """Bring the places of tokens, (lead..., tokens), into the order of the product, (stacked, tokens)."""
    if at.lead and places.ndim > 1 and places.shape[-2] not in (1, at.lead[-1]):
        places = places.repeat_interleave(at.lead[-1] // places.shape[-2], dim=-2)
    few = shrink(places, range(places.ndim - 1))
    if few.shape[:-1].numel() == 1:
        return few.reshape(1, -1).expand(at.order.size, -1)
    flat = places.expand(*at.lead, places.shape[-1]).reshape(-1, places.shape[-1])
    order = at.order.ravel()
    if np.array_equal(order, np.arange(len(order))):
        return flat
    return flat[torch.from_numpy(np.argsort(order))]


def needed_shapes(found: Sequence[Found]) -> list[str]:
    """Name the tensors whose shapes `arrange` asks for."""
    names: list[str] = []
    for match in found:
        names += [side.tensor for side in (match.queries, match.keys, match.values, match.context)]
        names += [match.softmax, *(step.tensor for step in (*match.steps, *match.after))]
        names += [step.condition for step in match.steps]
    return list(dict.fromkeys(filter(None, names)))
