"""What each kind of ATen operation does to the places of elements (see `positions`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from viewer.backends.position_math import PADDING_LABEL, compact, mean_place, merge, shrink, slide, unplaced
from viewer.backends.torch_ops import FUSED, named_arguments, op_name, tensors_in


@dataclass(frozen=True, eq=False)
class Call:
    """One operation and what is known of its inputs.

    Attributes
    ----------
    func, args, kwargs
        The operation as it was called.
    outputs
        The tensors it returned.
    companion
        Returns a tensor's companion, None where it stems from parameters alone.
    label
        Returns the number of the parameter a tensor stems from.
    """

    func: torch._ops.OpOverload
    args: tuple
    kwargs: dict
    outputs: list[Tensor]
    companion: Callable[[Tensor], Tensor | None]
    label: Callable[[Tensor], int]

    def given(self) -> dict[str, Any]:
        """Return the arguments by name."""
        return named_arguments(self.func, self.args, self.kwargs)

    def full(self, tensor: Tensor) -> Tensor:
        """Return a tensor's companion, one without places where it has none."""
        companion = self.companion(tensor)
        return unplaced(tensor.shape, self.label(tensor)) if companion is None else companion


@dataclass(frozen=True)
class Lost:
    """Where an element sits is not known any more.

    Attributes
    ----------
    reason
        Why, as a clause.
    """

    reason: str


Companions = Sequence["Tensor | Lost | None"]
Rule = Callable[[Call], Companions]


def pointwise(call: Call) -> Companions:
    """Merge the elements at each index; what has no place has no say."""
    inputs = tensors_in((*call.args, *call.kwargs.values()))
    known = [companion for companion in map(call.companion, inputs) if companion is not None]
    return [merge(known, output.shape) for output in call.outputs]


def keep_first(call: Call) -> Companions:
    """Hand on the first input, element by element (norms, softmax, copies); other results are statistics."""
    first = next(tensors_in(call.args))
    return [call.companion(first)] + [None] * (len(call.outputs) - 1)


def nowhere(call: Call) -> Companions:
    """Give no place to new tensors that merely have another's shape."""
    return [None] * len(call.outputs)


def move(call: Call) -> Companions:
    """Do to the companion what was done to the data."""
    data, *rest = call.args
    # Companions live on the CPU; what remains are indices.
    rest = [_on_cpu(value) for value in rest]
    func = torch.reshape if op_name(call.func) in ("view", "_unsafe_view", "_reshape_alias") else call.func
    if func is torch.reshape:
        rest = rest[:1]
    found = func(call.full(data), *rest, **{name: _on_cpu(value) for name, value in call.kwargs.items()})
    return [part if 0 in part.stride() or part.numel() < 2 else compact(part) for part in tensors_in(found)]


def _on_cpu(value: object) -> object:
    if isinstance(value, Tensor):
        return value.cpu()
    return [_on_cpu(part) for part in value] if isinstance(value, (list, tuple)) else value


def join(call: Call) -> Companions:
    """Concatenate or stack companions, cut to 1 wherever all of them repeat."""
    given = call.given()
    parts = [call.full(tensor) for tensor in given["tensors"] if tensor.numel()]
    output = call.outputs[0]
    if op_name(call.func) == "stack":
        parts = [part.unsqueeze(given["dim"]) for part in parts]
    dim = given["dim"] % output.ndim
    repeats = [
        other
        for other in range(output.ndim)
        if other != dim and all(part.stride(other) == 0 or part.shape[other] == 1 for part in parts)
    ]
    return [torch.cat([shrink(part, repeats) for part in parts], dim).expand(output.shape)]


def pad(call: Call) -> Companions:
    """Give no place to padding."""
    given = call.given()
    padded = torch.constant_pad_nd(call.full(given["self"]), given["pad"], complex(torch.nan, PADDING_LABEL))
    return [compact(padded)]


def product(call: Call) -> Companions:
    """Hand on the place of a product's left rows: of a token through a projection, of the query."""
    given = call.given()
    left = given.get("batch1", given.get("mat1", given.get("input", given.get("self"))))
    right = given.get("batch2", given.get("mat2", given.get("weight", given.get("other"))))
    companion, columns = call.companion(left), call.companion(right)
    if companion is None:
        return [None]
    if columns is not None and _shared(companion, columns):
        return [mean_place(columns, (-1,), keepdim=True).expand(call.outputs[0].shape)]
    if columns is not None and right.ndim > 1 and _repeats(columns, -2) and not _repeats(companion, -1):
        # Values times weights, in that order: here the queries are the right one's columns.
        return [mean_place(columns, (-2,), keepdim=True).expand(call.outputs[0].shape)]
    return [mean_place(companion, (-1,), keepdim=True).expand(call.outputs[0].shape)]


def _repeats(companion: Tensor, dim: int) -> bool:
    return companion.stride(dim) == 0 or companion.shape[dim] == 1


def _shared(queries: Tensor, values: Tensor) -> bool:
    """Return whether all windows are asked the same queries, each answered for a window of as many tokens.

    Then an output belongs to its window's token rather than to the query, which stands for many.
    """
    if queries.ndim < 3 or queries.shape[:-1] != values.shape[:-1]:
        return False
    lead = range(queries.ndim - 2)
    few, many = (compact(side).stride() for side in (queries, values))
    return any(
        few[dim] == 0 != many[dim] and queries.shape[dim] > 1 and few[-2] != 0 for dim in lead
    ) and not any(many[dim] == 0 != few[dim] for dim in lead)


def fused_attention(call: Call) -> Companions:
    """Hand on the query's place."""
    companion, values = (call.companion(call.given()[name]) for name in ("query", "value"))
    rest: list[Tensor | None] = [None] * (len(call.outputs) - 1)
    if companion is not None and values is not None and _shared(companion, values):
        companion = values
    if companion is None:
        return [None, *rest]
    return [mean_place(companion, (-1,), keepdim=True).expand(call.outputs[0].shape), *rest]


def reduce(call: Call) -> Companions:
    """Average what a sum, mean, norm or extreme takes together."""
    given = call.given()
    companion = call.full(given["self"])
    dims = given.get("dim")
    if dims is None or dims == []:
        dims = list(range(companion.ndim))
    dims = [dims] if isinstance(dims, int) else list(dims)
    keepdim = bool(given.get("keepdim", False))
    return [mean_place(companion, dims, keepdim).expand(output.shape) for output in call.outputs]


def convolution(call: Call) -> Companions:
    """Average the receptive field of a convolution."""
    given = call.given()
    source = given["input"]
    spatial = source.ndim - 2
    if given["transposed"]:
        return [Lost("the trace of positions stopped at a transposed convolution")]
    companion = mean_place(call.full(source), (1,), keepdim=True)
    kernel = given["weight"].shape[2:]
    for axis in range(spatial):
        companion = slide(
            companion,
            axis + 2,
            kernel[axis],
            *(_of_axis(given[name], axis) for name in ("stride", "padding", "dilation")),
        )
    return [companion.expand(call.outputs[0].shape)]


def pool(call: Call) -> Companions:
    """Average a pooling window, whatever it takes of the values."""
    given = call.given()
    companion, output = call.full(given["self"]), call.outputs[0]
    spatial = len(given["kernel_size"])
    for axis in range(spatial):
        dim = companion.ndim - spatial + axis
        kernel = _of_axis(given["kernel_size"], axis)
        stride = _of_axis(given["stride"] or given["kernel_size"], axis)
        padding = _of_axis(given["padding"], axis)
        dilation = _of_axis(given.get("dilation") or [1], axis)
        reach = (output.shape[dim] - 1) * stride + (kernel - 1) * dilation + 1
        extra = max(0, reach - companion.shape[dim] - 2 * padding)
        companion = slide(companion, dim, kernel, stride, padding, dilation, extra)
        companion = companion.narrow(dim, 0, output.shape[dim])
    return [companion.expand(output.shape)] + [None] * (len(call.outputs) - 1)


def _of_axis(values: int | Sequence[int], axis: int) -> int:
    if isinstance(values, int):
        return values
    return values[axis if len(values) > 1 else 0]


_MOVES = (
    "_reshape_alias _unsafe_view alias expand flip gather index index_select permute pixel_shuffle "
    "pixel_unshuffle repeat reshape roll select slice split split_with_sizes squeeze t transpose unbind "
    "unfold unsqueeze view"
)
_KEEPS = (
    "_fused_rms_norm _log_softmax _native_batch_norm_legit_no_training _safe_softmax _softmax _to_copy clone "
    "cudnn_batch_norm detach lift_fresh native_batch_norm native_dropout native_group_norm native_layer_norm"
)
_NOWHERE = (
    "empty_like full_like new_empty new_full new_ones new_zeros ones_like rand_like randn_like zeros_like"
)
_PRODUCTS = "addmm baddbmm bmm linear matmul mm"
_REDUCTIONS = "amax amin linalg_vector_norm logsumexp max mean min norm std sum var var_mean"
# Pointwise, though not every overload is marked so.
_UNTAGGED = "hardswish masked_fill prelu where"
_POOLS = "avg_pool1d avg_pool2d max_pool2d_with_indices max_pool2d"

_RULES: dict[str, Rule] = {
    **dict.fromkeys(_MOVES.split(), move),
    **dict.fromkeys(_KEEPS.split(), keep_first),
    **dict.fromkeys(_NOWHERE.split(), nowhere),
    **dict.fromkeys(_PRODUCTS.split(), product),
    **dict.fromkeys(_REDUCTIONS.split(), reduce),
    **dict.fromkeys(_POOLS.split(), pool),
    **dict.fromkeys(FUSED, fused_attention),
    **dict.fromkeys(_UNTAGGED.split(), pointwise),
    "cat": join,
    "stack": join,
    "constant_pad_nd": pad,
    "convolution": convolution,
    "_convolution": convolution,  # as traced TorchScript programs have it
}


def rule_for(name: str, func: torch._ops.OpOverload) -> Rule | None:
    """Return the rule for an operation, None where there is none."""
    if name in _RULES:
        return _RULES[name]
    return pointwise if torch.Tag.pointwise in func.tags else None
