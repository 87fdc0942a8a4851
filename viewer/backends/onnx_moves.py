"""Moving places through the operators of an ONNX graph: which move elements, mix them or leave them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import onnx

from viewer.backends.onnx_graph import attribute
from viewer.backends.onnx_places import (
    Places,
    UnknownPlace,
    at_fraction,
    average,
    has_place,
    merge,
    one_place,
    shrink,
    thin,
    unplaced,
)


class Setting(NamedTuple):
    """What a rule knows besides its operands.

    Attributes
    ----------
    node
        The operator.
    places
        Of each input; None for one that is absent.
    shapes
        Of each output, as they were in a real run.
    control
        Values of small integer inputs (indices, axes), by input position; None where there is no such input.
    """

    node: onnx.NodeProto
    places: Sequence[Places | None]
    shapes: Sequence[tuple[int, ...]]
    control: Callable[[int], npt.NDArray[np.int64] | None]


def _elementwise(at: Setting) -> Places:
    chosen = [places for places in at.places if places is not None]
    if at.node.op_type == "Where":
        chosen = chosen[1:]
    merged = thin(chosen[0])
    for places in chosen[1:]:
        merged = merge(merged, thin(places))
    return np.broadcast_to(merged, at.shapes[0])


def _keep(at: Setting) -> Places:
    return at.places[0]


def _reshape(at: Setting) -> Places:
    return at.places[0].reshape(at.shapes[0])


def _transpose(at: Setting) -> Places:
    return at.places[0].transpose(attribute(at.node, "perm"))


def _expand(at: Setting) -> Places:
    return np.broadcast_to(at.places[0], at.shapes[0])


def _concat(at: Setting) -> Places:
    present = [places for places in at.places if places is not None and places.size]
    axis = int(attribute(at.node, "axis")) % len(at.shapes[0])
    broadcast = [
        n for n in range(len(at.shapes[0])) if n != axis and all(places.strides[n] == 0 for places in present)
    ]
    cut = tuple(slice(0, 1) if n in broadcast else slice(None) for n in range(len(at.shapes[0])))
    joined = np.concatenate([places[cut] for places in present], axis=axis)
    return np.broadcast_to(shrink(joined, axis), at.shapes[0])


def _split(at: Setting) -> tuple[Places, ...]:
    axis = int(attribute(at.node, "axis", 0))
    ends = np.cumsum([shape[axis] for shape in at.shapes])[:-1]
    return tuple(np.split(at.places[0], ends, axis=axis))


def _slice(at: Setting) -> Places:
    places = at.places[0]
    names = ("starts", "ends", "axes", "steps")
    given = [
        at.control(n + 1) if n + 1 < len(at.node.input) else attribute(at.node, names[n]) for n in range(4)
    ]
    starts, ends = given[0], given[1]
    axes = range(len(starts)) if given[2] is None else given[2]
    steps = [1] * len(starts) if given[3] is None else given[3]
    cut = [slice(None)] * places.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = places.shape[axis]
        stop = None if step < 0 and end < -size else int(end)
        cut[int(axis)] = slice(int(start), stop, int(step))
    return places[tuple(cut)]


def _gather(at: Setting) -> Places:
    indices = at.control(1)
    axis = int(attribute(at.node, "axis", 0))
    taken = at.places[0].take(np.asarray(indices, np.int64), axis=axis)
    return taken.reshape(at.shapes[0])


def _pad(at: Setting) -> Places:
    pads = attribute(at.node, "pads") if len(at.node.input) < 2 else at.control(1)
    axes = at.control(3) if len(at.node.input) > 3 and at.node.input[3] else range(at.places[0].ndim)
    widths = [(0, 0)] * at.places[0].ndim
    for n, axis in enumerate(axes):
        widths[int(axis)] = (int(pads[n]), int(pads[n + len(axes)]))
    return np.pad(at.places[0], widths, constant_values=complex(np.nan, np.nan))


def _tile(at: Setting) -> Places:
    return np.tile(at.places[0], [int(count) for count in at.control(1)])


def _reduce(at: Setting) -> Places:
    """Keep the place in a mean over channels; one over tokens is no place at all."""
    axes = attribute(at.node, "axes") if len(at.node.input) < 2 else at.control(1)
    places = at.places[0]
    for axis in range(places.ndim) if axes is None or len(axes) == 0 else axes:
        places = np.broadcast_to(one_place(places, int(axis)), places.shape)
    cut = [slice(None)] * places.ndim
    for axis in range(places.ndim) if axes is None or len(axes) == 0 else axes:
        cut[int(axis)] = slice(0, 1)
    return places[tuple(cut)].reshape(at.shapes[0])


def _matmul(at: Setting) -> Places:
    """Keep the rows' places in a product with a matrix; weights times values also, whose rows are queries."""
    first, second = (0, 3) if at.node.op_type == "QLinearMatMul" else (0, 1)
    left, right = at.places[first], at.places[second]
    left = left.swapaxes(-1, -2) if attribute(at.node, "transA", 0) else left
    right = right.swapaxes(-1, -2) if attribute(at.node, "transB", 0) else right
    if has_place(left) or not has_place(right):
        rows = average(left, -1) if left.ndim > 1 else average(left, -1).reshape(1)
        return np.broadcast_to(rows, at.shapes[0])
    # Parameters times columns: kept if each column is one place (channels first), else a mixture.
    columns = one_place(right, -2) if right.ndim > 1 else one_place(right, -1)
    return np.broadcast_to(columns, at.shapes[0])


def _einsum(at: Setting) -> Places:
    equation = str(attribute(at.node, "equation")).replace(" ", "")
    inputs, _, result = equation.partition("->")
    subscript = inputs.split(",")[0]
    places, letters = at.places[0], list(subscript)
    if (
        "." in equation
        or not result
        or (len(at.places) > 1 and not has_place(places) and has_place(at.places[1]))
    ):
        raise UnknownPlace("multiplies tokens in a way that is not understood")
    for axis, letter in enumerate(letters):
        if letter not in result:
            places = average(places, axis)
    kept = [axis for axis, letter in enumerate(letters) if letter in result]
    places = thin(places)[tuple(slice(None) if axis in kept else 0 for axis in range(places.ndim))]
    letters = [letters[axis] for axis in kept]
    places = places.transpose([letters.index(letter) for letter in result if letter in letters])
    grown = tuple(slice(None) if letter in letters else None for letter in result)
    return np.broadcast_to(places[grown], at.shapes[0])


def _queries_place(at: Setting) -> Places:
    return np.broadcast_to(average(at.places[0], -1), at.shapes[0])


def _window(at: Setting) -> Places:
    """Convolutions and poolings average the window; coordinates run on past the border into the padding."""
    places, shape = at.places[0], at.shapes[0]
    spatial = places.ndim - 2
    kernel = attribute(at.node, "kernel_shape") or at.places[1].shape[2:]
    strides = attribute(at.node, "strides") or [1] * spatial
    dilations = attribute(at.node, "dilations") or [1] * spatial
    pads = attribute(at.node, "pads") or _automatic_pads(at, kernel, strides, dilations)
    moved = thin(one_place(places, 1))
    for n in range(spatial):
        axis = n + 2
        centre = np.arange(shape[axis]) * strides[n] - pads[n] + (kernel[n] - 1) * dilations[n] / 2
        whole = (*moved.shape[:axis], places.shape[axis], *moved.shape[axis + 1 :])
        moved = at_fraction(np.broadcast_to(moved, whole), axis, centre)
    return np.broadcast_to(moved, shape)


def _automatic_pads(
    at: Setting, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """Return the leading pads that `auto_pad` asks for."""
    mode = attribute(at.node, "auto_pad", "NOTSET")
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        return [0] * len(kernel)
    pads = []
    for n, size in enumerate(at.places[0].shape[2:]):
        reach = (kernel[n] - 1) * dilations[n] + 1
        total = max(0, (at.shapes[0][n + 2] - 1) * strides[n] + reach - size)
        pads.append(total // 2 if mode == "SAME_UPPER" else total - total // 2)
    return pads


def _nowhere(at: Setting) -> Places:
    return unplaced(at.shapes[0])


_MOVES: dict[str, Callable[[Setting], Places | tuple[Places, ...]]] = {
    "Transpose": _transpose,
    "Expand": _expand,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Gather": _gather,
    "Pad": _pad,
    "Tile": _tile,
    "Einsum": _einsum,
    "Attention": _queries_place,
}
_FAMILIES = (
    (_nowhere, "Shape Size GlobalAveragePool GlobalMaxPool"),
    (_reshape, "Reshape Squeeze Unsqueeze Flatten"),
    (_matmul, "MatMul FusedMatMul Gemm MatMulInteger QLinearMatMul"),
    (_window, "Conv ConvInteger AveragePool MaxPool"),
    (_reduce, "ReduceMean ReduceSum ReduceMax ReduceMin ReduceL2 ReduceSumSquare"),
    (_elementwise, "Add Sub Mul Div Pow Min Max Sum Where PRelu Mod"),
    (
        _keep,
        "Identity Cast CastLike Dropout Softmax LogSoftmax QuantizeLinear DequantizeLinear",
    ),
    (
        _keep,
        "LayerNormalization SimplifiedLayerNormalization RMSNormalization GroupNormalization LpNormalization",
    ),
    (
        _keep,
        "InstanceNormalization BatchNormalization RotaryEmbedding Clip Sqrt Exp Log Neg Abs Reciprocal Erf",
    ),
    (
        _keep,
        "Relu LeakyRelu Gelu Sigmoid Tanh Elu Selu Celu Mish Swish Softplus Softsign HardSwish HardSigmoid",
    ),
    (_keep, "DynamicQuantizeLinear ThresholdedRelu QuickGelu FastGelu BiasGelu"),
)
_MOVES |= {op: rule for rule, names in _FAMILIES for op in names.split()}


def move(at: Setting) -> tuple[Places, ...]:
    """Return the places of an operator's outputs.

    Raises
    ------
    UnknownPlace
        If it handles elements of the picture and no rule tells how; the text is a clause about the operator.
    """
    rule = _MOVES.get(at.node.op_type)
    if rule is None:
        if any(entry.HasField("g") for entry in at.node.attribute):
            raise UnknownPlace(f"is {at.node.op_type}, whose inner graphs are not followed")
        if any(places is not None and has_place(places) for places in at.places):
            raise UnknownPlace(f"is a {at.node.op_type}, which no rule covers")
        return tuple(unplaced(shape) for shape in at.shapes)
    try:
        moved = rule(at)
    except (ValueError, TypeError, IndexError) as error:
        raise UnknownPlace(f"could not be followed ({error})") from error
    moved = moved if isinstance(moved, tuple) else (moved,)
    rest = tuple(unplaced(shape) for shape in at.shapes[len(moved) :])
    return moved + rest


def follow(
    nodes: Sequence[onnx.NodeProto],
    known: Mapping[str, Places],
    shapes: Mapping[str, tuple[int, ...]],
    control: Callable[[str], npt.NDArray[np.int64] | None],
) -> dict[str, Places]:
    """Move places through nodes in graph order.

    Parameters
    ----------
    nodes
        What to go through.
    known
        Places of the picture and of parameters.
    shapes
        Of every tensor, from a real run.
    control
        Values of small integer tensors by name.

    Returns
    -------
    dict
        Places of every tensor.

    Raises
    ------
    UnknownPlace
        At the first operator that can't be followed; the text names it.
    """
    places = dict(known)
    for node in nodes:
        names = [name for name in node.output if name]
        setting = Setting(
            node=node,
            places=[places.get(name) if name else None for name in node.input],
            shapes=[shapes[name] for name in names],
            control=lambda n, node=node: control(node.input[n]) if node.input[n] else None,
        )
        try:
            moved = move(setting)
        except UnknownPlace as error:
            raise UnknownPlace(f"the operator {node.name or names[0]!r} {error}") from error
        places.update(zip(names, moved, strict=False))
    return places
