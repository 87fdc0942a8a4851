"""What each kind of ATen operation does to receptive fields (see `fields`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from viewer.backends.fields import (
    Companion,
    Seen,
    Whole,
    Window,
    product,
    rearranged,
    reduced,
    reshaped,
    sliced,
    slid,
    spread,
    stopped,
    together,
    transposed,
    with_gate,
)
from viewer.backends.torch_ops import FUSED, SOFTMAX, named_arguments, op_name, tensors_in

Rule = Callable[["Step"], "list[Companion | None]"]


@dataclass(frozen=True, eq=False)
class Step:
    """One operation: how it was called, what it returned, and what is known of tensors."""

    func: torch._ops.OpOverload
    args: tuple
    kwargs: dict
    outputs: list[Tensor]
    known: Callable[[Tensor], Companion | None]

    @property
    def name(self) -> str:
        """Name of the operation."""
        return op_name(self.func)

    def given(self) -> dict[str, Any]:
        """Return the arguments by name."""
        return named_arguments(self.func, self.args, self.kwargs)

    def first(self) -> tuple[Tensor, Companion | None]:
        """Return the first tensor it takes, and what that sees."""
        tensor = next(tensors_in(self.args))
        return tensor, self.known(tensor)


class Windows(NamedTuple):
    """What kind of layer an operation is, and its kernel, stride and dilation, each (y, x)."""

    kind: str
    sizes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def apply(step: Step) -> list[Companion | None]:
    """Return what an operation's results see, of which one input at least is `Seen`."""
    rule = _RULES.get(step.name)
    if rule is None and torch.Tag.pointwise in step.func.tags:
        rule = pointwise
    return [stopped(step.name)] * len(step.outputs) if rule is None else rule(step)


def windows_of(step: Step) -> Windows | None:
    """Return how an operation looks at what it takes in; None where it is no convolution and no pooling."""
    if step.name in _CONVOLUTIONS:
        given = step.given()
        kernel = tuple(given["weight"].shape[2:])
        kind = "transposed conv" if given["transposed"] else "conv"
        stride, dilation = (_for_each(given[name], len(kernel)) for name in ("stride", "dilation"))
        return Windows(kind, (kernel, stride, dilation))
    if step.name in _POOLS:
        given = step.given()
        count = len(given["kernel_size"]) if step.name.endswith("1d") else 2
        kernel = _for_each(given["kernel_size"], count)
        stride = _for_each(given["stride"] or kernel, count)
        dilation = _for_each(given.get("dilation") or 1, count)
        return Windows("max pool" if "max" in step.name else "average pool", (kernel, stride, dilation))
    return None


def pointwise(step: Step) -> list[Companion | None]:
    """Join what meets element by element."""
    inputs = list(tensors_in((*step.args, *step.kwargs.values())))
    parts = [(found, tensor.ndim) for tensor in inputs if (found := step.known(tensor)) is not None]
    return [together(parts, output.ndim) for output in step.outputs]


def keep(step: Step) -> list[Companion | None]:
    """Hand on what the first input sees; other results are statistics."""
    _, found = step.first()
    return [found] + [None] * (len(step.outputs) - 1)


def _convolution(step: Step) -> list[Companion | None]:
    given, windows = step.given(), windows_of(step)
    source, found = given["input"], step.known(given["input"])
    weight = step.known(given["weight"])
    if not isinstance(found, Seen):
        return [stopped(step.name)]
    padding = _for_each(given["padding"], len(windows.sizes[0]))
    moved = [None, None] + [
        Window(kernel, stride, before, dilation)
        for kernel, stride, dilation, before in zip(*windows.sizes, padding, strict=True)
    ]
    if found.axes[1]:
        return [Whole(False, step.name)]  # rows or columns lie where channels do, and are all taken together
    moved = moved[len(moved) - source.ndim :]
    slide = transposed if given["transposed"] else slid
    made = slide(found, moved, step.name)
    # Weights may be made from the picture as a whole.
    return [made if weight is None else together([(made, source.ndim), (weight, 0)], source.ndim)]


def _pool(step: Step) -> list[Companion | None]:
    source, found = step.first()
    (kernel, stride, dilation), given = windows_of(step).sizes, step.given()
    padding = _for_each(given["padding"], len(kernel))
    moved: list[Window | None] = [None] * (source.ndim - len(kernel))
    moved += [Window(*sizes) for sizes in zip(kernel, stride, padding, dilation, strict=True)]
    return [slid(found, moved, step.name)] + [None] * (len(step.outputs) - 1)


def _adaptive_pool(step: Step) -> list[Companion | None]:
    source, found = step.first()
    output = step.outputs[0]
    for dim in range(source.ndim):
        before, after = source.shape[dim], output.shape[dim]
        if before == after or not isinstance(found, Seen) or not found.axes[dim]:
            continue
        if after == 1:
            found = Whole(True, step.name)
        else:
            # Windows may differ by a unit; the widest counts.
            widest = max(-(-(at + 1) * before // after) - at * before // after for at in range(after))
            windows = [None] * dim + [Window(widest, before / after)] + [None] * (source.ndim - dim - 1)
            found = slid(found, windows, step.name)
    return [found] + [None] * (len(step.outputs) - 1)


def _upsample(step: Step) -> list[Companion | None]:
    source, found = step.first()
    reach = 0 if "nearest" in step.name else 3 if "bicubic" in step.name else 1
    for dim in range(2, source.ndim):
        factor = step.outputs[0].shape[dim] / source.shape[dim]
        if isinstance(found, Seen) and factor != 1:
            found = spread(found, dim, factor, 0.5 / factor - 0.5, reach)
    return [found]


def _pad(step: Step) -> list[Companion | None]:
    given = step.given()
    source, found = step.first()
    amounts = given.get("pad", given.get("padding"))
    windows: list[Window | None] = [None] * source.ndim
    for place in range(len(amounts) // 2):
        windows[source.ndim - 1 - place] = Window(1, 1, amounts[2 * place])
    return [slid(found, windows, step.name)]


def _pixel_shuffle(step: Step) -> list[Companion | None]:
    given, (source, found) = step.given(), step.first()
    together_ = "unshuffle" in step.name
    factor = given["downscale_factor" if together_ else "upscale_factor"]
    for dim in (source.ndim - 2, source.ndim - 1):
        if isinstance(found, Seen) and together_:
            windows = [None] * dim + [Window(factor, factor)] + [None] * (source.ndim - dim - 1)
            found = slid(found, windows, step.name)
        elif isinstance(found, Seen):
            found = spread(found, dim, factor, 0.5 / factor - 0.5, 0)
    return [found]


def _reshape(step: Step) -> list[Companion | None]:
    source, found = step.first()
    return [reshaped(found, source.shape, step.outputs[0].shape, step.name)]


def _permute(step: Step) -> list[Companion | None]:
    given, (source, found) = step.given(), step.first()
    dims = list(range(source.ndim))
    if "dims" in given:
        dims = [dim % source.ndim for dim in given["dims"]]
    elif "dim0" in given:
        one, other = given["dim0"] % source.ndim, given["dim1"] % source.ndim
        dims[one], dims[other] = dims[other], dims[one]
    else:
        dims.reverse()  # t
    return [rearranged(found, dims)]


def _unsqueeze(step: Step) -> list[Companion | None]:
    given, (source, found) = step.given(), step.first()
    dims: list[int | None] = list(range(source.ndim))
    dims.insert(given["dim"] % (source.ndim + 1), None)
    return [rearranged(found, dims)]


def _squeeze(step: Step) -> list[Companion | None]:
    given, (source, found) = step.given(), step.first()
    asked = given.get("dim")
    asked = range(source.ndim) if asked is None else [asked] if isinstance(asked, int) else asked
    gone = {dim % source.ndim for dim in asked if source.shape[dim] == 1}
    return [rearranged(found, [dim for dim in range(source.ndim) if dim not in gone])]


def _expand(step: Step) -> list[Companion | None]:
    source, found = step.first()
    return [rearranged(found, [None] * (step.outputs[0].ndim - source.ndim) + list(range(source.ndim)))]


def _parts(step: Step) -> list[Companion | None]:
    """Cut a tensor into parts, or take one: of channels each sees what the whole does."""
    given, (source, found) = step.given(), step.first()
    dim = given.get("dim", 0) % source.ndim
    if found.axes[dim] and step.name != "slice":
        return [stopped(step.name)] * len(step.outputs)
    if step.name == "slice":
        start = given["start"] or 0
        start = start + source.shape[dim] if start < 0 else start
        return [sliced(found, dim, start, given["step"], step.name)]
    if step.name in ("select", "unbind"):
        found = rearranged(found, [at for at in range(source.ndim) if at != dim])
    return [found] * len(step.outputs)


def _join(step: Step) -> list[Companion | None]:
    """Put tensors side by side: where channels are, units see what any of them sees."""
    given, output = step.given(), step.outputs[0]
    dim = given["dim"] % output.ndim
    parts = [(found, part.ndim) for part in given["tensors"] if (found := step.known(part)) is not None]
    if step.name == "stack":
        parts = [
            (rearranged(found, [*range(dim), None, *range(dim, ndim)]), ndim + 1)
            if isinstance(found, Seen)
            else (found, ndim + 1)
            for found, ndim in parts
        ]
    # Tokens of a map may be joined by others that stem from no picture (a class token).
    if any(isinstance(found, Seen) and len(found.axes[dim]) == 1 for found, _ in parts):
        return [stopped(step.name)]
    return [together(parts, output.ndim)]


def _reduce(step: Step) -> list[Companion | None]:
    given, (source, found) = step.given(), step.first()
    dims = given.get("dim")
    dims = range(source.ndim) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    made = reduced(found, [dim % source.ndim for dim in dims], bool(given.get("keepdim")), step.name)
    return [made] * len(step.outputs)


def _softmax(step: Step) -> list[Companion | None]:
    """Keep fields; over places what each is divided by is the same for all."""
    given, (source, found) = step.given(), step.first()
    over_places = bool(found.axes[given["dim"] % source.ndim])
    return [with_gate(found, over_places)]


def _norm(step: Step) -> list[Companion | None]:
    """Keep fields; statistics over rows or columns make every unit depend a little on all of them."""
    given, (source, found) = step.given(), step.first()
    over = given.get("normalized_shape")
    if over is not None:
        dims = range(source.ndim - len(over), source.ndim)
        taken = any(found.axes[dim] for dim in dims)
    else:
        taken = "group" in step.name or bool(given.get("training", "no_training" not in step.name))
    return [with_gate(found, taken)] + [None] * (len(step.outputs) - 1)


def _product(step: Step) -> list[Companion | None]:
    given = step.given()
    left = given.get("batch1", given.get("mat1", given.get("input", given.get("self"))))
    right = given.get("batch2", given.get("mat2", given.get("weight", given.get("vec"))))
    found = product(step.known(left), step.known(right), step.name)
    if step.name == "linear" and isinstance(found, Seen):
        found = rearranged(found, range(left.ndim))
    return [found]


def _attention(step: Step) -> list[Companion | None]:
    return [Whole(False, step.name)] + [None] * (len(step.outputs) - 1)


def _nothing(step: Step) -> list[Companion | None]:
    return [None] * len(step.outputs)


def _copy(step: Step) -> list[Companion | None]:
    given = step.given()
    source = step.known(given["src"])
    return [None if source is None else together([(source, given["src"].ndim)], step.outputs[0].ndim)]


def _for_each(values: int | Sequence[int], count: int) -> tuple[int, ...]:
    given = (values,) if isinstance(values, int) else tuple(values)
    return given * count if len(given) == 1 else given


_CONVOLUTIONS = frozenset(["convolution", "_convolution"])
_POOLS = frozenset(["avg_pool1d", "avg_pool2d", "max_pool2d", "max_pool2d_with_indices"])
_KEEPS = (
    "_to_copy alias channel_shuffle clone contiguous detach dropout glu lift_fresh native_channel_shuffle "
    "native_dropout"
)
_NORMS = (
    "_batch_norm_no_update _fused_rms_norm _native_batch_norm_legit _native_batch_norm_legit_no_training "
    "cudnn_batch_norm native_batch_norm native_group_norm native_layer_norm"
)
_NOTHING = (
    "empty_like fill full_like new_empty new_empty_strided new_full new_ones new_zeros ones_like rand_like "
    "randn_like zero zeros_like"
)
_REDUCTIONS = "amax amin linalg_vector_norm logsumexp max mean min norm prod std sum var var_mean"
_UPSAMPLES = (
    "_upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact2d upsample_bicubic2d "
    "upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d"
)
_PADS = "constant_pad_nd reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d"
_ADAPTIVE = "_adaptive_avg_pool2d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d"

_RULES: dict[str, Rule] = {
    **dict.fromkeys(_CONVOLUTIONS, _convolution),
    **dict.fromkeys(_POOLS, _pool),
    **dict.fromkeys(_ADAPTIVE.split(), _adaptive_pool),
    **dict.fromkeys(_KEEPS.split(), keep),
    **dict.fromkeys(_NORMS.split(), _norm),
    **dict.fromkeys(_NOTHING.split(), _nothing),
    **dict.fromkeys(_REDUCTIONS.split(), _reduce),
    **dict.fromkeys(_UPSAMPLES.split(), _upsample),
    **dict.fromkeys(_PADS.split(), _pad),
    **dict.fromkeys(("pixel_shuffle", "pixel_unshuffle"), _pixel_shuffle),
    **dict.fromkeys(("_reshape_alias", "_unsafe_view", "reshape", "view"), _reshape),
    **dict.fromkeys(("permute", "t", "transpose"), _permute),
    **dict.fromkeys(("select", "slice", "split", "split_with_sizes", "unbind", "unsafe_split"), _parts),
    **dict.fromkeys(("cat", "stack"), _join),
    **dict.fromkeys(("addmm", "baddbmm", "bmm", "linear", "mm", "mv"), _product),
    **dict.fromkeys(SOFTMAX, _softmax),
    **dict.fromkeys(FUSED, _attention),
    **dict.fromkeys(("hardswish", "masked_fill", "polar", "prelu", "where"), pointwise),
    "copy": _copy,
    "expand": _expand,
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
}
