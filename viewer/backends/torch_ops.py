"""Reading ATen operations: their names, their arguments by name, their tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

# Attention as one operation, on every kind of device. Each takes query, key and value first and returns
# the output, alone or first of a tuple.
FUSED = frozenset(
    {
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_fused_attention_overrideable",
        "_scaled_dot_product_attention_math_for_mps",
        "_scaled_dot_product_attention_math",
        "scaled_dot_product_attention",
    }
)
SOFTMAX = frozenset({"_softmax", "_safe_softmax", "softmax"})


@lru_cache(maxsize=4096)
def op_name(func: torch._ops.OpOverload) -> str:
    """Return an operation's name without namespace, overload or the underscore of in-place variants."""
    name = func._schema.name.partition("::")[2]
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def named_arguments(func: torch._ops.OpOverload, args: tuple, kwargs: dict) -> dict[str, Any]:
    """Return the arguments of a call by their names and in the order of the schema, defaults filled in."""
    schema = _arguments(func)
    found = {name: value for (name, _), value in zip(schema, args, strict=False)}
    found.update((name, kwargs.get(name, default)) for name, default in schema[len(args) :])
    return found


@lru_cache(maxsize=4096)
def _arguments(func: torch._ops.OpOverload) -> tuple[tuple[str, Any], ...]:
    """Return names and defaults; the schema itself is read from C++ anew each time."""
    return tuple((argument.name, argument.default_value) for argument in func._schema.arguments)


@lru_cache(maxsize=4096)
def writes(func: torch._ops.OpOverload) -> bool:
    """Return whether an operation writes into one of its arguments."""
    return func._schema.is_mutable


def call_shape(arguments: Iterable[object]) -> tuple:
    """Return what of a call's arguments decides where elements go: shapes, whole numbers and switches."""
    # This runs for each operation of each pass, so what is most frequent comes first.
    found: list[object] = []
    for value in arguments:
        if isinstance(value, Tensor):
            found.append(value.shape)
        elif isinstance(value, (int, str)):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.append(tuple(value) if value and type(value[0]) is int else call_shape(value))
        else:
            found.append(None)
    return tuple(found)


def all_tensors(values: Iterable[object]) -> list[Tensor]:
    """Return what `tensors_in` yields, sooner."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)) and value and type(value[0]) is not int:
            found.extend(all_tensors(value))
    return found


def tensors_in(values: object) -> Iterator[Tensor]:
    """Yield the tensors in arguments or results, in order, looking into lists and tuples."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from tensors_in(value)
