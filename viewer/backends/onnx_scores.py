"""From tapped tensors of an ONNX run to attention scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from viewer.attention.scores import QueryKeyScores, WeightScores
from viewer.backends.onnx_found import Found, Operand
from viewer.backends.onnx_graph import Graph, attribute
from viewer.backends.onnx_places import UnknownPlace
from viewer.errors import InputError

Array = npt.NDArray[Any]
Look = Callable[[str], Array]
"""The value of a tensor by name: from the run, or fixed by the file."""


def tapped_tensors(graph: Graph, found: Found) -> list[str]:
    """Name what a run must hand out to make the scores of an operation."""
    if found.weights:
        return [found.weights]
    names = [found.queries.tensor, found.keys.tensor]
    names += [name for step in found.steps for name in (step.tensor, step.condition)]
    if found.node is not None and len(found.node.input) > 3:
        names.append(found.node.input[3])
    return [name for name in names if name and not graph.is_constant(name)]


def checked_tensors(found: Found) -> list[str]:
    """Name what a run must hand out besides to verify an operation: values and what they were made into."""
    return [] if found.quantized or found.unclear else [found.values.tensor, found.context.tensor]


def make_scores(found: Found, look: Look, batch: int) -> QueryKeyScores | WeightScores:
    """Make the scores of one operation for the first picture of a batch.

    Raises
    ------
    InputError
        If the logits are changed in a way that queries, keys and a bias can't express.
    UnknownPlace
        If it attends within windows or other groups of tokens.
    """
    if found.weights:
        return WeightScores(_tensor(_heads(found, look(found.weights), batch)))
    queries, keys = (split_heads(found, operand, look, batch) for operand in (found.queries, found.keys))
    if found.node is not None:
        return _standard_scores(found, queries, keys, look)
    scale, bias = found.scale, None
    for step in found.steps:
        other = np.asarray(look(step.tensor), np.float32)
        if step.role in ("factor", "divisor"):
            factor = 1 / other if step.role == "divisor" else other
            if factor.size == 1:
                scale *= float(factor.reshape(()))
            else:
                queries = queries * _per_head(found, factor)
            bias = None if bias is None else bias * (factor if factor.size == 1 else _per_head(found, factor))
        elif step.role == "bias":
            bias = _first(other, batch) if bias is None else bias + _first(other, batch)
        else:
            stays = _first(look(step.condition).astype(bool), batch) != step.negated
            bias = np.where(stays, np.float32(0) if bias is None else bias, _first(other, batch))
    return QueryKeyScores(_tensor(queries), _tensor(keys), scale, None if bias is None else _tensor(bias))


def split_heads(found: Found, operand: Operand, look: Look, batch: int) -> Array:
    """Return one operand for the first picture, (heads, tokens, channels)."""
    array = look(operand.tensor)
    if found.node is not None and array.ndim == 3:
        # The standard operator also takes heads side by side in the channels.
        kind = "q_num_heads" if operand in (found.queries, found.context) else "kv_num_heads"
        heads = int(attribute(found.node, kind, 1))
        array = array.reshape(*array.shape[:2], heads, -1).swapaxes(1, 2)
    return _heads(found, operand.arrange(array), batch)


def _standard_scores(found: Found, queries: Array, keys: Array, look: Look) -> QueryKeyScores:
    """Apply the scale, mask and causality of an `Attention` operator."""
    node = found.node
    scale = attribute(node, "scale") or queries.shape[-1] ** -0.5
    bias = None
    if len(node.input) > 3 and node.input[3]:
        mask = look(node.input[3])
        bias = np.where(mask, 0, -np.inf) if mask.dtype == bool else mask
        bias = bias[0] if bias.ndim == 4 else bias
    if attribute(node, "is_causal", 0):
        ahead = np.triu(np.full((queries.shape[1], keys.shape[1]), -np.inf, np.float32), 1)
        bias = ahead if bias is None else bias + ahead
    return QueryKeyScores(
        _tensor(queries), _tensor(keys), float(scale), None if bias is None else _tensor(np.asarray(bias))
    )


def _heads(found: Found, array: Array, batch: int) -> Array:
    """Return the first picture of (batch, heads, tokens, channels) or (batch * heads, tokens, channels)."""
    if array.ndim >= 4:
        groups = int(np.prod(array.shape[:-3]))
        if groups not in (1, batch):
            raise UnknownPlace(f"{found.name} attends within {groups // batch} separate groups of tokens")
        array = array.reshape(groups, *array.shape[-3:])[0]
    elif array.ndim == 3 and batch > 1 and len(array) % batch == 0:
        array = array[: len(array) // batch]
    return array.reshape(-1, *array.shape[-2:])


def _first(array: Array, batch: int) -> Array:
    """Return what of a bias or mask belongs to the first picture, broadcastable to (heads, queries, keys)."""
    if array.ndim == 4:
        return array[0]
    if array.ndim == 3 and batch > 1 and len(array) > 1 and len(array) % batch == 0:
        return array[: len(array) // batch]
    return array


def _per_head(found: Found, factor: Array) -> Array:
    """Return a factor of its own for each head, (heads, 1, 1)."""
    if factor.ndim < 3 or factor.shape[-2:] != (1, 1):
        raise InputError(
            f"{found.name} multiplies its logits by a tensor of shape {factor.shape}; Patchreach can show "
            "attention whose logits are scaled by a number or by one number for each head."
        )
    return factor.reshape(-1, 1, 1)


def _tensor(array: Array) -> Tensor:
    array = np.ascontiguousarray(array, np.float32)
    # What the file fixes is read-only memory, and what is sliced from a batch would keep all of it.
    return torch.from_numpy(array if array.flags.writeable and array.base is None else array.copy())


def lookup(graph: Graph, tensors: Mapping[str, Array], fixed: dict[str, Array]) -> Look:
    """Return a function giving tensors of a run, or values that the file fixes, read once into `fixed`."""

    def look(name: str) -> Array:
        if name in tensors:
            return tensors[name]
        if name not in fixed:
            fixed[name] = graph.constant(name)
        return fixed[name]

    return look
