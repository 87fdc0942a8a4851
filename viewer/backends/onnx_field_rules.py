"""What each kind of ONNX operator does to receptive fields (see `fields`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import onnx

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
from viewer.backends.onnx_graph import Graph, attribute

NUMBERS = frozenset(["Shape", "Size"])
"""Operators whose results say nothing of the numbers that go in."""


@dataclass(frozen=True, eq=False)
class At:
    """One node, and what is known of tensors.

    Attributes
    ----------
    node, graph
        Where.
    known
        Returns what a tensor sees; None for one that stems from no picture.
    shape
        Returns a tensor's shape, None where the file does not tell.
    """

    node: onnx.NodeProto
    graph: Graph
    known: Callable[[str], Companion | None]
    shape: Callable[[str], tuple[int, ...] | None]

    @property
    def name(self) -> str:
        """The operator."""
        return self.node.op_type

    @property
    def first(self) -> Companion | None:
        """What the first input sees."""
        return self.known(self.node.input[0])

    def numbers(self, name: str, at: int) -> list[int] | None:
        """Return integers that are an attribute in older opsets and an input in newer ones."""
        found = attribute(self.node, name)
        if found is None and at < len(self.node.input) and self.node.input[at]:
            found = self.graph.constant(self.node.input[at])
            return None if found is None else [int(value) for value in found.flatten()]
        several = found if isinstance(found, list) else [found]
        return None if found is None else [int(value) for value in several]


class Windows(NamedTuple):
    """What kind of layer a node is, and its kernel, stride and dilation, each (y, x)."""

    kind: str
    sizes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def apply(at: At) -> Companion | None:
    """Return what a node's results see, of which one input at least is `Seen`."""
    if at.name in NUMBERS:
        return None
    rule = _RULES.get(at.name)
    return stopped(at.name) if rule is None else rule(at)


def windows_of(at: At) -> Windows | None:
    """Return how a node looks at what it takes in; None where it is no convolution and no pooling."""
    kind = _WINDOWED.get(at.name)
    if kind is None:
        return None
    kernel = attribute(at.node, "kernel_shape")
    if kernel is None and "conv" in kind:
        shape = _weight_shape(at, at.node.input[3 if at.name == "QLinearConv" else 1])
        kernel = None if shape is None else shape[2:]
    if kernel is None:
        return None
    stride = attribute(at.node, "strides") or [1] * len(kernel)
    dilation = attribute(at.node, "dilations") or [1] * len(kernel)
    return Windows(kind, (tuple(kernel), tuple(stride), tuple(dilation)))


def _weight_shape(at: At, name: str) -> tuple[int, ...] | None:
    """Return a weight's shape, also of one that is kept as rounded numbers."""
    while (maker := at.graph.maker(name)) is not None and maker.op_type in (
        "DequantizeLinear",
        "Identity",
        "Cast",
    ):
        name = maker.input[0]
    stored = at.graph.initializers.get(name)
    return tuple(stored.dims) if stored is not None else at.shape(name)


def _window(at: At) -> Companion:
    found, windows = at.first, windows_of(at)
    if windows is None or not isinstance(found, Seen):
        return stopped(at.name)
    last = bool(attribute(at.node, "channels_last", 0)) or at.name.startswith("Nhwc")
    channels = len(found.axes) - 1 if last else 1
    if "conv" in windows.kind and found.axes[channels]:
        return Whole(False, at.name)  # rows or columns lie where channels do, and are all taken together
    before = _before(at, windows)
    moved: list[Window | None] = [
        Window(kernel, stride, pad, dilation)
        for kernel, stride, dilation, pad in zip(*windows.sizes, before, strict=True)
    ]
    moved = [None, *moved, None] if last else [None, None, *moved]
    slide = transposed if windows.kind == "transposed conv" else slid
    return slide(found, moved, at.name)


def _before(at: At, windows: Windows) -> list[int]:
    """Return the padding at the start; for "SAME" as where strides divide the sides."""
    mode = attribute(at.node, "auto_pad", "NOTSET")
    pads = attribute(at.node, "pads")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            max(0, (kernel - 1) * dilation + 1 - stride)
            for kernel, stride, dilation in zip(*windows.sizes, strict=True)
        ]
        return [total // 2 if mode == "SAME_UPPER" else total - total // 2 for total in totals]
    return list(pads[: len(windows.sizes[0])]) if pads else [0] * len(windows.sizes[0])


def _whole(at: At) -> Companion:
    return Whole(True, at.name)


def _mixed(at: At) -> Companion:
    return Whole(False, at.name)


def _elementwise(at: At) -> Companion | None:
    known = [found for name in at.node.input if (found := at.known(name)) is not None]
    ndim = max((len(found.axes) for found in known if isinstance(found, Seen)), default=0)
    return together([(found, len(found.axes) if isinstance(found, Seen) else 0) for found in known], ndim)


def _keep(at: At) -> Companion | None:
    return at.first


def _reduce(at: At) -> Companion | None:
    found, axes = at.first, at.numbers("axes", 1)
    if not isinstance(found, Seen):
        return stopped(at.name)
    if not axes and attribute(at.node, "noop_with_empty_axes", 0):
        return found
    dims = [axis % len(found.axes) for axis in axes] if axes else range(len(found.axes))
    return reduced(found, dims, bool(attribute(at.node, "keepdims", 1)), at.name)


def _reshape(at: At) -> Companion:
    found = at.first
    before, after = at.shape(at.node.input[0]), at.shape(at.node.output[0])
    if not isinstance(found, Seen) or before is None or after is None:
        return stopped(at.name)
    return reshaped(found, before, after, at.name)


def _flatten(at: At) -> Companion:
    found = at.first
    axis = int(attribute(at.node, "axis", 1)) % max(len(found.axes), 1) if isinstance(found, Seen) else 0
    if isinstance(found, Seen) and not any(found.axes[:axis]):
        return Whole(True, at.name)
    return stopped(at.name)


def _transpose(at: At) -> Companion:
    found = at.first
    if not isinstance(found, Seen):
        return stopped(at.name)
    return rearranged(found, attribute(at.node, "perm") or range(len(found.axes))[::-1])


def _unsqueeze(at: At) -> Companion:
    found, axes = at.first, at.numbers("axes", 1)
    if not isinstance(found, Seen) or axes is None:
        return stopped(at.name)
    ndim = len(found.axes) + len(axes)
    new, old = {axis % ndim for axis in axes}, iter(range(len(found.axes)))
    return rearranged(found, [None if dim in new else next(old) for dim in range(ndim)])


def _squeeze(at: At) -> Companion:
    found, axes = at.first, at.numbers("axes", 1)
    if not isinstance(found, Seen) or axes is None:
        return stopped(at.name)
    gone = {axis % len(found.axes) for axis in axes}
    return rearranged(found, [dim for dim in range(len(found.axes)) if dim not in gone])


def _expand(at: At) -> Companion:
    found, shape = at.first, at.shape(at.node.output[0])
    if not isinstance(found, Seen):
        return stopped(at.name)
    more = 0 if shape is None else len(shape) - len(found.axes)
    return rearranged(found, [None] * more + list(range(len(found.axes))))


def _split(at: At) -> Companion:
    found = at.first
    if not isinstance(found, Seen) or found.axes[int(attribute(at.node, "axis", 0))]:
        return stopped(at.name)
    return found


def _gather(at: At) -> Companion:
    found, chosen = at.first, at.graph.constant(at.node.input[1])
    axis = int(attribute(at.node, "axis", 0))
    if not isinstance(found, Seen) or found.axes[axis] or chosen is None or chosen.ndim > 1:
        return stopped(at.name)
    axis %= len(found.axes)
    return found if chosen.ndim else rearranged(found, [dim for dim in range(len(found.axes)) if dim != axis])


def _slice(at: At) -> Companion:
    found, starts = at.first, at.numbers("starts", 1)
    if not isinstance(found, Seen) or starts is None:
        return stopped(at.name)
    axes, steps = at.numbers("axes", 3) or range(len(starts)), at.numbers("steps", 4) or [1] * len(starts)
    made: Companion = found
    for axis, start, step in zip(axes, starts, steps, strict=True):
        if not isinstance(made, Seen) or not made.axes[axis]:
            continue
        if start < 0 or step < 1:
            return stopped(at.name)
        made = sliced(made, axis % len(found.axes), start, step, at.name)
    return made


def _concat(at: At) -> Companion | None:
    axis = int(attribute(at.node, "axis", 1))
    known = [found for name in at.node.input if (found := at.known(name)) is not None]
    # Tokens of a map may be joined by others that stem from no picture (a class token).
    if any(isinstance(found, Seen) and len(found.axes[axis]) == 1 for found in known):
        return stopped(at.name)
    return _elementwise(at)


def _pad(at: At) -> Companion:
    found, pads = at.first, at.numbers("pads", 1)
    if not isinstance(found, Seen) or pads is None:
        return stopped(at.name)
    axes = at.numbers("axes", 3) or range(len(pads) // 2)
    windows: list[Window | None] = [None] * len(found.axes)
    for axis, before in zip(axes, pads, strict=False):
        windows[axis] = Window(1, 1, before)
    return slid(found, windows, at.name)


def _resize(at: At) -> Companion:
    found, factors = at.first, _factors(at)
    if factors is None or not isinstance(found, Seen):
        return stopped(at.name)
    reach = {"nearest": 0, "linear": 1, "cubic": 3}.get(str(attribute(at.node, "mode", "nearest")), 1)
    made: Companion = found
    for dim, factor in enumerate(factors):
        if isinstance(made, Seen) and factor != 1 and made.axes[dim]:
            made = spread(made, dim, factor, 0.5 / factor - 0.5, reach)
    return made


def _factors(at: At) -> list[float] | None:
    for place in (2, 1):  # Resize; Upsample and older ones
        if place < len(at.node.input) and at.node.input[place]:
            scales = at.graph.constant(at.node.input[place])
            if scales is not None and scales.size and scales.dtype.kind == "f":
                return [float(scale) for scale in scales]
    before, after = at.shape(at.node.input[0]), at.shape(at.node.output[0])
    if before is None or after is None:
        return None
    return [made / given for given, made in zip(before, after, strict=True)]


def _to_depth(at: At) -> Companion:
    factor, found = int(attribute(at.node, "blocksize", 1)), at.first
    if not isinstance(found, Seen):
        return stopped(at.name)
    return slid(found, [None, None, Window(factor, factor), Window(factor, factor)], at.name)


def _from_depth(at: At) -> Companion:
    factor, found = int(attribute(at.node, "blocksize", 1)), at.first
    for dim in (2, 3):
        if isinstance(found, Seen):
            found = spread(found, dim, factor, 0.5 / factor - 0.5, 0)
    return found or stopped(at.name)


def _product(at: At) -> Companion | None:
    second = 3 if at.name in ("QLinearMatMul", "QGemm") else 1
    sides = [at.known(at.node.input[place]) for place in (0, second)]
    for place, name in enumerate(("transA", "transB")):
        side = sides[place]
        if attribute(at.node, name, 0) and isinstance(side, Seen):
            sides[place] = rearranged(
                side, [*range(len(side.axes) - 2), len(side.axes) - 1, len(side.axes) - 2]
            )
    return product(*sides, at.name)


def _softmax(at: At) -> Companion:
    """Keep fields; over places what each is divided by is the same for all."""
    found = at.first
    if not isinstance(found, Seen):
        return stopped(at.name)
    return with_gate(found, bool(found.axes[int(attribute(at.node, "axis", -1))]))


def _norm(at: At) -> Companion | None:
    """Keep fields; statistics over rows or columns make every unit depend a little on all of them."""
    found = at.first
    if not isinstance(found, Seen):
        return stopped(at.name)
    axis = int(attribute(at.node, "axis", -1)) % len(found.axes)
    over_places = at.name in ("InstanceNormalization", "GroupNormalization") or any(found.axes[axis:])
    return with_gate(found, over_places)


Rule = Callable[[At], "Companion | None"]
_WINDOWED = {
    **dict.fromkeys(("Conv", "FusedConv", "QLinearConv", "ConvInteger", "NhwcFusedConv"), "conv"),
    "ConvTranspose": "transposed conv",
    **dict.fromkeys(("MaxPool", "NhwcMaxPool"), "max pool"),
    **dict.fromkeys(("AveragePool", "LpPool", "QLinearAveragePool"), "average pool"),
}
_FAMILIES: tuple[tuple[Rule, str], ...] = (
    (_whole, "GlobalAveragePool GlobalMaxPool GlobalLpPool QLinearGlobalAveragePool"),
    (_mixed, "Attention MultiHeadAttention QAttention"),
    (_elementwise, "Add Sub Mul Div Pow Min Max Sum Mean Where PRelu Mod And Or Xor Equal Greater Less"),
    (_elementwise, "GreaterOrEqual LessOrEqual BiasAdd BiasGelu FastGelu QLinearAdd QLinearMul"),
    (
        _keep,
        "Identity Cast CastLike Dropout QuantizeLinear DequantizeLinear BatchNormalization Clip Sqrt Exp Log",
    ),
    (
        _keep,
        "Neg Abs Reciprocal Erf Relu LeakyRelu Gelu Sigmoid Tanh Elu Selu Celu Mish Swish Softplus Softsign",
    ),
    (_keep, "HardSwish HardSigmoid DynamicQuantizeLinear ThresholdedRelu QuickGelu QLinearSigmoid"),
    (_keep, "QLinearLeakyRelu Floor Ceil Round Sign Sin Cos Not LRN"),
    (_reduce, "ReduceMean ReduceSum ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceSumSquare ReduceProd"),
    (_product, "MatMul Gemm FusedMatMul FusedGemm MatMulInteger QLinearMatMul QGemm"),
    (_norm, "LayerNormalization SimplifiedLayerNormalization RMSNormalization GroupNormalization"),
    (_norm, "InstanceNormalization"),
    (_softmax, "Softmax LogSoftmax QLinearSoftmax"),
    (_reshape, "Reshape"),
    (_flatten, "Flatten"),
    (_transpose, "Transpose"),
    (_unsqueeze, "Unsqueeze"),
    (_squeeze, "Squeeze"),
    (_expand, "Expand"),
    (_split, "Split"),
    (_gather, "Gather"),
    (_slice, "Slice"),
    (_concat, "Concat QLinearConcat"),
    (_pad, "Pad"),
    (_resize, "Resize Upsample"),
    (_to_depth, "SpaceToDepth"),
    (_from_depth, "DepthToSpace"),
)
_RULES: dict[str, Rule] = {
    **{name: rule for rule, names in _FAMILIES for name in names.split()},
    **dict.fromkeys(_WINDOWED, _window),
}
