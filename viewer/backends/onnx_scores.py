"""From tapped tensors of an ONNX run to attention scores, and their check against the model's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from viewer.attention.scores import QueryKeyScores, WeightScores
from viewer.backends.onnx_arrangement import Arrangement, Stage
from viewer.backends.onnx_found import Found, Operand, Step
from viewer.backends.onnx_graph import Graph

Array = npt.NDArray[Any]
Look = Callable[[str], Array]
"""The value of a tensor by name: from the run, or fixed by the file."""


def tapped_tensors(found: Found) -> Iterator[str]:
    """Name what a run must hand out to make the scores of an operation and to check them."""
    if found.weights:
        yield found.weights
    else:
        yield from (found.queries.tensor, found.keys.tensor)
    for step in found.steps:
        if step.role != "view":
            yield from filter(None, (step.tensor, step.condition))
    yield from (found.values.tensor, found.context.tensor)
    yield from filter(None, (found.used, *(found.offsets or ())))


def make_scores(found: Found, arrangement: Arrangement, look: Look) -> QueryKeyScores | WeightScores:
    """Make the scores of one operation for the first picture of a batch, products stacked."""
    if found.weights:
        weights = _tensor(_mine(arrangement, arrangement.softmax, look(found.weights)))
        _, _, bias = _logits_of(found, arrangement, look)
        return WeightScores(weights, None if bias is None else _tensor(bias))
    queries = operand_values(found.queries, arrangement, arrangement.product, look)
    keys = operand_values(found.keys, arrangement, arrangement.product, look)
    scale, factor, bias = _logits_of(found, arrangement, look)
    queries = queries if factor is None else queries * factor
    scale = queries.shape[-1] ** -0.5 if found.scale is None else found.scale * scale
    return QueryKeyScores(_tensor(queries), _tensor(keys), scale, None if bias is None else _tensor(bias))


def _logits_of(
    found: Found, arrangement: Arrangement, look: Look
) -> tuple[float, Array | None, Array | None]:
    """Return what happens to the product: a factor, one that differs from head to head, and a bias."""
    scale, per_head, bias = 1.0, None, None
    for step, at in zip(found.steps, arrangement.steps, strict=True):
        if step.role in ("factor", "divisor"):
            factor = _factor(step, look)
            if factor.size == 1:
                scale *= float(factor.reshape(()))
            else:
                factor = _mine_or_one(arrangement, at, factor)
                per_head = factor if per_head is None else per_head * factor
            bias = None if bias is None else bias * factor
        else:
            bias = _shifted(bias, step, arrangement, at, look)
    return scale, per_head, bias


def _factor(step: Step, look: Look) -> Array:
    factor = np.asarray(look(step.tensor), np.float32)
    return 1 / factor if step.role == "divisor" else factor


def _shifted(bias: Array | None, step: Step, arrangement: Arrangement, at: Stage, look: Look) -> Array | None:
    """Return a bias with what one step adds to it."""
    if step.role in ("view", "other"):
        return bias
    if step.role == "causal":
        other = np.triu(np.full(arrangement.shape, -np.inf, np.float32), 1)[None]
        return other if bias is None else bias + other
    value = look(step.tensor)
    if value.dtype == bool:  # the standard operator's mask: true where a key may be looked at
        value = np.where(value, np.float32(0), np.float32(-np.inf))
    other = _mine_or_one(arrangement, at, np.asarray(value, np.float32))
    if step.role == "mask":
        stays = _mine_or_one(arrangement, at, look(step.condition).astype(bool)) != step.negated
        return np.where(stays, np.float32(0) if bias is None else bias, other)
    other = -other if step.role == "less" else other
    return other if bias is None else bias + other


def operand_values(operand: Operand, arrangement: Arrangement, at: Stage, look: Look) -> Array:
    """Return an operand for the first picture, (stacked, tokens, channels)."""
    return _mine(arrangement, at, operand.arrange(look(operand.tensor)))


def used_weights(found: Found, arrangement: Arrangement, look: Look) -> tuple[Array, Array, Array]:
    """Return weights, values and their product as they are where they were rounded, zero points taken off."""
    used = _mine(arrangement, arrangement.end, look(found.used))
    values, context = (
        operand_values(operand, arrangement, arrangement.end, look)
        for operand in (found.values, found.context)
    )
    if found.offsets is None:
        return used, values, context
    pairs = zip((used, values, context), found.offsets, strict=True)
    used, values, context = (
        side.astype(np.float32) - (look(zero).astype(np.float32) if zero else 0) for side, zero in pairs
    )
    return used, values, context


def _mine(arrangement: Arrangement, at: Stage, array: Array) -> Array:
    """Bring an array into the order of the product, the first picture's."""
    flat = at.stacked(array)
    return flat if arrangement.mine is None else flat[arrangement.mine]


def _mine_or_one(arrangement: Arrangement, at: Stage, array: Array) -> Array:
    """Do the same to what is added to the logits; what is one for all heads stays one."""
    if array.ndim < 2:
        array = array.reshape((1,) * (2 - array.ndim) + array.shape)
    if int(np.prod(array.shape[:-2])) == 1:
        return array.reshape(1, *array.shape[-2:])
    return _mine(arrangement, at, array)


def _tensor(array: Array) -> Tensor:
    # Copied, for ONNX Runtime's memory would stay with it; torch turns axes round faster than numpy.
    if array.dtype != np.float32 or not array.flags.writeable:
        return torch.from_numpy(np.array(array, np.float32, order="C"))
    return torch.from_numpy(array).clone(memory_format=torch.contiguous_format)


def lookup(graph: Graph, tensors: Mapping[str, Array], fixed: dict[str, Array]) -> Look:
    """Return a function giving tensors of a run, or values that the file fixes, read once into `fixed`."""

    def look(name: str) -> Array:
        if name in tensors:
            return tensors[name]
        if name not in fixed:
            fixed[name] = graph.constant(name)
        return fixed[name]

    return look
