"""What each kind of ATen operation does to the places of elements (see `positions`)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from viewer.backends import position_sliding as sliding
from viewer.backends.position_call import Call, Companions, Rule, stopped
from viewer.backends.position_math import PADDING_LABEL, compact, filled, joined, mean_of, mean_place, merge
from viewer.backends.torch_ops import FUSED, SOFTMAX, op_name, tensors_in


def pointwise(call: Call) -> Companions:
    """Merge the elements at each index; what has no place has no say.

    What is broadcast (a gate, a map of attention over the channels) modulates what is as large as the result
    and moves no element of it. Of as large ones the oldest comes first: a branch is added to a stream.
    """
    inputs = tensors_in((*call.args, *call.kwargs.values()))
    known = sorted((tensor for tensor in inputs if call.companion(tensor) is not None), key=call.age)
    found = []
    for output in call.outputs:
        whole = [call.companion(tensor) for tensor in known if tensor.shape == output.shape]
        others = [call.companion(tensor) for tensor in known if tensor.shape != output.shape]
        merged = [merge(companions, output.shape) for companions in (whole, others) if companions]
        found.append(merged[0] if len(merged) == 1 else filled(*merged))
    return found


def keep_first(call: Call) -> Companions:
    """Hand on the first input, element by element (norms, softmax, copies); other results are statistics."""
    first = next(tensors_in(call.args))
    return [call.companion(first)] + [None] * (len(call.outputs) - 1)


def softmax(call: Call) -> Companions:
    """Keep places, but for weights over tokens of queries that have none of their own."""
    given = call.given()
    companion = call.companion(given["self"])
    last = companion.ndim >= 2 and given["dim"] % companion.ndim == companion.ndim - 1
    learned = last and _repeats(companion, -2) and not _repeats(companion, -1)
    return [None if learned else companion]


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
    return [joined(parts, given["dim"] % output.ndim, output.shape)]


def pad(call: Call) -> Companions:
    """Give no place to padding, also where it mirrors what is inside."""
    given = call.given()
    amounts = given.get("pad", given.get("padding"))
    padded = torch.constant_pad_nd(call.full(given["self"]), amounts, complex(torch.nan, PADDING_LABEL))
    return [compact(padded)]


def product(call: Call) -> Companions:
    """Hand on the place of a product's left rows: of a token through a projection, of the query."""
    given = call.given()
    left = given.get("batch1", given.get("mat1", given.get("input", given.get("self"))))
    right = given.get("batch2", given.get("mat2", given.get("weight", given.get("other", given.get("vec")))))
    rows, columns = call.companion(left), call.companion(right)
    if rows is None:
        # Parameters times channels of tokens: a projection from the left. Queries that a model has learned
        # look the same until their softmax, see there.
        projected = columns is not None and right.ndim > 1 and _repeats(columns, -2)
        return [columns.narrow(-2, 0, 1).expand(call.outputs[0].shape) if projected else None]
    if right.ndim == 1:
        return [mean_place(rows, (-1,), keepdim=False)]
    return [product_place(rows, columns).expand(call.outputs[0].shape)]


def product_place(left: Tensor, right: Tensor | None) -> Tensor:
    """Return where the elements of a product sit, of which one side at least varies from place to place."""
    rows = mean_place(left, (-1,), keepdim=True)
    if right is None:
        return rows
    if _shared(left, right):
        return mean_place(right, (-1,), keepdim=True)
    if _repeats(rows, -2) and not bool(rows.real.isnan().all()):
        across = mean_place(right, (-2,), keepdim=True)
        if not _repeats(across, -1):
            # Values times weights, in that order, or channels mixed by weights: tokens are columns.
            return across
        if _repeats(left, -1) and left.shape[-1] == left.shape[-2] and not _repeats(right, -2):
            # Weights among the tokens of a window that the window as a whole gave: each answers for itself.
            return mean_place(right, (-1,), keepdim=True)
    return rows


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
    queries, values = (call.companion(call.given()[name]) for name in ("query", "value"))
    place = None if queries is None else product_place(queries, values).expand(call.outputs[0].shape)
    return [place] + [None] * (len(call.outputs) - 1)


def reduce(call: Call) -> Companions:
    """Average what a sum, mean, norm or extreme takes together; a mean over the picture has no place."""
    given = call.given()
    companion = call.full(given["self"])
    dims = given.get("dim")
    if dims is None or dims == []:
        dims = list(range(companion.ndim))
    dims = [dims] if isinstance(dims, int) else list(dims)
    keepdim = bool(given.get("keepdim", False))
    if call.name == "mean":
        return [mean_of(companion, dims, keepdim, call.size).expand(call.outputs[0].shape)]
    return [mean_place(companion, dims, keepdim).expand(output.shape) for output in call.outputs]


def copy(call: Call) -> Companions:
    """Take over the places of what is copied from."""
    given = call.given()
    companion = call.companion(given["src"])
    return [None if companion is None else companion.expand(call.outputs[0].shape)]


def put(call: Call) -> Companions:
    """Do to the companion what was done to the data: some elements were set to those of another tensor."""
    given = call.given()
    if given.get("accumulate") or given.get("reduce"):
        return [stopped(call.name)]
    found = call.full(given.pop("self")).clone(memory_format=torch.contiguous_format)
    if call.name == "index_put":
        indices = [index if index is None else index.cpu() for index in given["indices"]]
        return [compact(torch.ops.aten.index_put(found, indices, _set_to(call, given["values"])))]
    if call.name == "scatter":
        source = given.get("src", given.get("value"))
        source = _set_to(call, source).expand(given["index"].shape)
        return [compact(found.scatter_(given["dim"], given["index"].cpu(), source))]
    source = call.full(given.pop("src", None) if "src" in given else given.pop("source"))
    where = [_on_cpu(value) for value in given.values()]
    if call.name == "index_copy":
        return [compact(found.index_copy_(where[0], where[1], source.contiguous()))]
    func = {"slice_scatter": torch.slice_scatter, "select_scatter": torch.select_scatter}[call.name]
    return [compact(func(found, source, *where))]


def _set_to(call: Call, value: object) -> Tensor:
    if isinstance(value, Tensor):
        return call.full(value)
    return torch.tensor(complex(torch.nan, 0), dtype=torch.complex64)


def order(call: Call) -> Companions:
    """Put places in the order that values are put in; what tells the order goes with them."""
    given = call.given()
    companion = call.full(given["self"])
    indices = call.outputs[-1].cpu()
    found = companion.gather(given["dim"], indices) if companion.ndim else companion
    return [compact(found)] * len(call.outputs)


def running(call: Call) -> Companions:
    """Keep places where those that are added up one by one are alike."""
    given = call.given()
    companion = call.full(given["self"])
    same = _repeats(companion, given["dim"]) or bool(companion.real.isnan().all())
    return [companion if same else stopped(call.name)] * len(call.outputs)


def gated(call: Call) -> Companions:
    """Merge the two halves that a gated linear unit multiplies."""
    given = call.given()
    return [merge(call.full(given["self"]).chunk(2, given["dim"]), call.outputs[0].shape)]


def complex_pairs(call: Call) -> Companions:
    """Make one of pairs of numbers, or pairs of one."""
    companion = call.full(next(tensors_in(call.args)))
    if call.name == "view_as_complex":
        return [mean_place(companion, (-1,), keepdim=False)]
    return [companion[..., None].expand(call.outputs[0].shape)]


def strided(call: Call) -> Companions:
    """Look at a companion that lies in memory as the data does."""
    given = call.given()
    data = given["self"]
    offset = given["storage_offset"]
    start = 0 if offset is None else offset - data.storage_offset()
    return [compact(laid_out(call.full(data), data).as_strided(given["size"], given["stride"], start))]


def laid_out(companion: Tensor, data: Tensor) -> Tensor:
    """Return a companion whose elements lie in memory as those of the data do."""
    return torch.empty_strided(data.shape, data.stride(), dtype=companion.dtype).copy_(companion)


_MOVES = (
    "_reshape_alias _unsafe_view alias channel_shuffle diagonal expand flip gather index index_select "
    "native_channel_shuffle permute pixel_unshuffle repeat reshape roll rot90 select slice split "
    "split_with_sizes squeeze t transpose unbind unfold unsafe_split unsafe_split_with_sizes unsqueeze view"
)
_KEEPS = (
    "_batch_norm_no_update _fused_rms_norm _log_softmax _native_batch_norm_legit "
    "_native_batch_norm_legit_no_training _to_copy clone contiguous cudnn_batch_norm "
    "detach imag lift_fresh native_batch_norm native_dropout native_group_norm native_layer_norm real "
    "tril triu"
)
_NOWHERE = (
    "empty_like fill full_like new_empty new_empty_strided new_full new_ones new_zeros ones_like rand_like "
    "randn_like zero zeros_like"
)
_PRODUCTS = "addmm baddbmm bmm linear matmul mm mv"
_REDUCTIONS = (
    "all amax amin any argmax argmin linalg_vector_norm logsumexp max mean min norm prod std sum var var_mean"
)
# Pointwise, though not every overload is marked so.
_UNTAGGED = "complex hardswish masked_fill polar prelu where"
_PADS = "constant_pad_nd reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d"
_PUTS = "index_copy index_put scatter select_scatter slice_scatter"
_POOLS = "avg_pool1d avg_pool2d max_pool2d_with_indices max_pool2d"
_ADAPTIVE = "_adaptive_avg_pool2d adaptive_avg_pool2d adaptive_avg_pool1d adaptive_max_pool2d"
_UPSAMPLES = (
    "_upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d "
    "upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d"
)

_RULES: dict[str, Rule] = {
    **dict.fromkeys(_MOVES.split(), move),
    **dict.fromkeys(_KEEPS.split(), keep_first),
    **dict.fromkeys(_NOWHERE.split(), nowhere),
    **dict.fromkeys(_PRODUCTS.split(), product),
    **dict.fromkeys(_REDUCTIONS.split(), reduce),
    **dict.fromkeys(_PUTS.split(), put),
    **dict.fromkeys(_POOLS.split(), sliding.pool),
    **dict.fromkeys(_ADAPTIVE.split(), sliding.adaptive_pool),
    **dict.fromkeys(_UPSAMPLES.split(), sliding.upsample),
    **dict.fromkeys(("argsort", "sort", "topk"), order),
    **dict.fromkeys(("cummax", "cumsum"), running),
    **dict.fromkeys(("view_as_complex", "view_as_real"), complex_pairs),
    **dict.fromkeys(FUSED, fused_attention),
    **dict.fromkeys(SOFTMAX, softmax),
    **dict.fromkeys(_UNTAGGED.split(), pointwise),
    "cat": join,
    "stack": join,
    **dict.fromkeys(_PADS.split(), pad),
    "as_strided": strided,
    "copy": copy,
    "glu": gated,
    "im2col": sliding.unfold,
    "col2im": sliding.fold,
    "pixel_shuffle": sliding.pixel_shuffle,
    "convolution": sliding.convolution,
    "_convolution": sliding.convolution,  # as traced TorchScript programs have it
}


class Ruled(NamedTuple):
    """How an operation is followed.

    Attributes
    ----------
    rule
        None where there is none.
    sends
        Whether it moves elements to where its indices say.
    reads_more
        Whether it looks at more than shapes, whole numbers and companions.
    """

    rule: Rule | None
    sends: bool
    reads_more: bool


@lru_cache(maxsize=4096)
def rule_for(name: str, func: torch._ops.OpOverload) -> Ruled:
    """Return the rule for an operation, and what it asks for."""
    rule = _RULES.get(name, pointwise if torch.Tag.pointwise in func.tags else None)
    return Ruled(rule, rule in (move, put), rule in (order, strided, put, sliding.upsample))
