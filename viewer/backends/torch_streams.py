"""The residual stream that enters each attention of a PyTorch model: what its normalization is given.

Below the model's code there are no blocks, but each normalization is an operation, and what it gives goes on
to the queries by projections and views alone. What it was given is the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from viewer.backends.tensor_map import TensorMap
from viewer.backends.torch_ops import named_arguments, tensors_in

if TYPE_CHECKING:
    from viewer.backends.position_call import Lost
    from viewer.backends.positions import PositionTrace

_LAYER_NORMS = frozenset({"native_layer_norm", "layer_norm", "_fused_rms_norm", "rms_norm"})
# A root mean square written out: of the square of what comes in.
_SQUARE = "pow"
_ON_TO_ROOT = frozenset({"mean", "add", "rsqrt", "sqrt", "reciprocal", "clamp_min", "_to_copy"})
# Behind these it is no longer the normalized stream that goes on.
_ENDS = frozenset(
    {
        *("gelu", "relu", "silu", "sigmoid", "hardswish", "elu", "leaky_relu", "softplus", "mish"),
        "max_pool2d_with_indices",
    }
)
_PROJECTIONS = frozenset({"addmm", "mm", "linear", "convolution"})
_SUMS = frozenset({"add", "sub", "cat", "stack", "where"})


@dataclass(frozen=True, eq=False)
class Stream:
    """The residual stream before one normalization.

    Attributes
    ----------
    normalization
        Which of the pass's it is, counted from 0.
    norms
        float32 (tokens,), length of each token's vector, of all leading axes one after the other.
    places
        Where the tokens sit, complex64 (tokens,); None where positions are not followed.
    """

    normalization: int
    norms: Tensor
    places: Tensor | Lost | None = None


@dataclass(frozen=True, eq=False)
class _Normed:
    """Made from the output of a normalization.

    `projected` tells whether by a projection, `before` of what normalization its input was made.
    """

    index: int
    given: Tensor
    norms: Tensor
    before: _Normed | None = None
    projected: bool = False


class Streams:
    """Notes what normalizations are given during a pass.

    Parameters
    ----------
    trace
        Follows token positions in a pass that finds out which normalization is whose; None in later passes.
    wanted
        For such a later pass: the normalization ahead of each attention, None where there is none.
    """

    def __init__(self, trace: PositionTrace | None = None, wanted: Sequence[int | None] = ()) -> None:
        self._trace = trace
        self._wanted = tuple(wanted)
        self._known: dict[int, Tensor] = {}
        self._numbers = frozenset(index for index in self._wanted if index is not None)
        self._count = 0
        self._normed = TensorMap()
        self._roots = TensorMap()

    def follow(
        self, name: str, func: torch._ops.OpOverload, args: tuple, kwargs: dict, result: object
    ) -> None:
        """Note what an operation tells."""
        if name in _LAYER_NORMS or name == _SQUARE:
            given = _normalized(name, func, args, kwargs)
            if given is not None:
                self._take(name, given, result)
                return
        if self._trace is not None and (self._normed or self._roots):
            self._hand_on(name, args, kwargs, result)

    def entering(self, queries: Tensor, layer: int) -> Stream | None:
        """Return the stream that queries were made from, or that of the attention of that number."""
        if self._trace is None:
            index = self._wanted[layer] if layer < len(self._wanted) else None
            return None if index not in self._known else Stream(index, self._known[index])
        found = self._normed.get(queries)
        while found is not None and not found.projected:
            # Queries may be normalized again, behind their projection.
            found = found.before
        if found is None:
            return None
        places = self._trace.tokens(found.given, -2)
        return Stream(found.index, found.norms, places.reshape(-1) if isinstance(places, Tensor) else places)

    def _take(self, name: str, given: Tensor, result: object) -> None:
        index, self._count = self._count, self._count + 1
        if self._trace is None:
            if index in self._numbers:
                self._known[index] = _norms(given)
            return
        marks = self._roots if name == _SQUARE else self._normed
        marks[next(tensors_in(result))] = _Normed(index, given, _norms(given), self._normed.get(given))

    def _hand_on(self, name: str, args: tuple, kwargs: dict, result: object) -> None:
        """Tell what an operation makes of something normalized, or of the root of its mean square."""
        inputs = list(tensors_in((*args, *kwargs.values()) if kwargs else args))
        outputs = list(tensors_in(result))
        roots = [self._roots[tensor] for tensor in inputs if tensor in self._roots]
        normed = {found.index: found for found in map(self._normed.get, inputs) if found is not None}
        mark = next(iter(normed.values())) if len(normed) == 1 and name not in _ENDS else None
        if mark is not None and name in _SUMS:
            largest = max((tensor.numel() for tensor in inputs if tensor not in self._normed), default=0)
            # A sum with as many numbers is the residual stream again; a bias or an encoding is smaller.
            mark = mark if all(largest < tensor.numel() for tensor in outputs) else None
        if roots and name in ("mul", "div") and any(tensor is roots[0].given for tensor in inputs):
            mark = roots[0]
        if mark is not None and name in _PROJECTIONS:
            mark = replace(mark, projected=True)
        for output in outputs:
            if mark is not None:
                self._normed[output] = mark
            else:
                self._normed.pop(output, None)
            if roots and name in _ON_TO_ROOT:
                self._roots[output] = roots[0]


def _normalized(name: str, func: torch._ops.OpOverload, args: tuple, kwargs: dict) -> Tensor | None:
    """Return what is normalized over its last axis; None where another operation is at work."""
    given = args[0]
    if not isinstance(given, Tensor) or given.ndim < 3:
        return None
    if name == _SQUARE:
        return given if len(args) > 1 and not isinstance(args[1], Tensor) and args[1] == 2 else None
    return given if len(named_arguments(func, args, kwargs)["normalized_shape"]) == 1 else None


def _norms(given: Tensor) -> Tensor:
    return torch.linalg.vector_norm(given.detach(), dim=-1, dtype=torch.float32).reshape(-1)
