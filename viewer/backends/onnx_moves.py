"""Moving places through the operators of an ONNX graph: a table of which rule is whose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx
from torch import Tensor

from viewer.backends import onnx_rules as rules
from viewer.backends import onnx_sliding as sliding
from viewer.backends.onnx_places import UnknownPlace, has_place
from viewer.backends.onnx_rules import Rule, Setting, unplaced
from viewer.backends.position_call import Lost

_REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare")
CONTROLS = {
    "Slice": (1, 2, 3, 4), "Gather": (1,), "GatherElements": (1,), "GatherND": (1,), "ScatterND": (1,),
    "Pad": (1, 3), "Tile": (1,), **dict.fromkeys(_REDUCTIONS, (1,)),
}  # fmt: skip
"""Which inputs of an operator say how it moves elements, rather than being moved."""

_FAMILIES: tuple[tuple[Rule, str], ...] = (
    (rules.nowhere, "Shape Size"),
    (rules.over_channels, "GlobalAveragePool GlobalMaxPool QLinearGlobalAveragePool"),
    (rules.reshape, "Reshape Squeeze Unsqueeze Flatten"),
    (rules.transpose, "Transpose"),
    (rules.expand, "Expand"),
    (rules.concat, "Concat"),
    (rules.integer_concat, "QLinearConcat"),
    (rules.split, "Split"),
    (rules.cut, "Slice"),
    (rules.gather, "Gather"),
    (rules.gather_elements, "GatherElements"),
    (rules.gather_several, "GatherND"),
    (rules.put_several, "ScatterND"),
    (rules.pad, "Pad"),
    (rules.tile, "Tile"),
    (rules.einsum, "Einsum"),
    (rules.attention, "Attention MultiHeadAttention QAttention"),
    (
        rules.product,
        "MatMul FusedMatMul Gemm FusedGemm MatMulInteger MatMulIntegerToFloat DynamicQuantizeMatMul",
    ),
    (rules.integer_product, "QLinearMatMul QGemm"),
    (rules.packed_product, "MatMulNBits"),
    (sliding.window, "Conv FusedConv ConvInteger"),
    (sliding.integer_window, "QLinearConv"),
    (sliding.pool, "AveragePool MaxPool QLinearAveragePool"),
    (sliding.resize, "Resize Upsample"),
    (sliding.from_depth, "DepthToSpace"),
    (sliding.reordered, "ReorderInput ReorderOutput"),
    (
        rules.reduce,
        "ReduceMean ReduceSum ReduceMax ReduceMin ReduceL2 ReduceSumSquare ReduceProd QLinearReduceMean",
    ),
    (rules.elementwise, "Add Sub Mul Div Pow Min Max Sum Mean Where PRelu Mod And Or Xor Equal Greater Less"),
    (rules.elementwise, "GreaterOrEqual LessOrEqual BiasAdd BiasGelu FastGelu"),
    (rules.integer_sum, "QLinearAdd QLinearMul"),
    (rules.skip, "SkipLayerNormalization SkipSimplifiedLayerNormalization"),
    (
        rules.keep,
        "Identity Cast CastLike Dropout Softmax LogSoftmax QLinearSoftmax QuantizeLinear DequantizeLinear",
    ),
    (
        rules.keep,
        "LayerNormalization SimplifiedLayerNormalization RMSNormalization GroupNormalization LpNormalization",
    ),
    (
        rules.keep,
        "InstanceNormalization BatchNormalization RotaryEmbedding Clip Sqrt Exp Log Neg Abs Reciprocal Erf",
    ),
    (
        rules.keep,
        "Relu LeakyRelu Gelu Sigmoid Tanh Elu Selu Celu Mish Swish Softplus Softsign HardSwish HardSigmoid",
    ),
    (rules.keep, "DynamicQuantizeLinear ThresholdedRelu QuickGelu QLinearSigmoid QLinearLeakyRelu"),
    (rules.keep, "Floor Ceil Round Sign Sin Cos Not IsNaN IsInf Trilu"),
)
_RULES: dict[str, Rule] = {op: rule for rule, names in _FAMILIES for op in names.split()}


def move(at: Setting) -> tuple[Tensor, ...]:
    """Return the places of an operator's outputs.

    Raises
    ------
    UnknownPlace
        If it handles elements of the picture and no rule tells how; the text is a clause about the operator.
    """
    inner = any(entry.HasField("g") for entry in at.node.attribute)
    if not inner and not any(places is not None and has_place(places) for places in at.places):
        return _without_place(at)
    rule = _RULES.get(at.node.op_type)
    if rule is None:
        if inner:
            raise UnknownPlace(f"is {at.node.op_type}, whose inner graphs are not followed")
        raise UnknownPlace(f"is a {at.node.op_type}, which no rule covers")
    try:
        moved = rule(at)
    except (ValueError, TypeError, IndexError, RuntimeError) as error:
        raise UnknownPlace(f"could not be followed ({error})") from error
    moved = moved if isinstance(moved, tuple) else (moved,)
    return moved + tuple(unplaced(shape) for shape in at.shapes[len(moved) :])


_KEEP_LABELS = frozenset(
    (
        *(rules.reshape, rules.transpose, rules.expand, rules.concat, rules.split, rules.cut, rules.gather),
        *(rules.tile, rules.elementwise, rules.keep, rules.product, rules.skip),
    )
)


def _without_place(at: Setting) -> tuple[Tensor, ...]:
    """Return that nothing has a place, with the label of the parameter it stems from where it has one."""
    rule = _RULES.get(at.node.op_type)
    if rule in _KEEP_LABELS:
        try:
            moved = rule(at)
        except (ValueError, TypeError, IndexError, RuntimeError):
            moved = ()
        moved = moved if isinstance(moved, tuple) else (moved,)
        return moved + tuple(unplaced(shape) for shape in at.shapes[len(moved) :])
    return tuple(unplaced(shape) for shape in at.shapes)


def follow(
    nodes: Sequence[onnx.NodeProto],
    known: Mapping[str, Tensor],
    shapes: Mapping[str, tuple[int, ...]],
    control: Callable[[str], npt.NDArray[np.int64] | None],
    hand_on: Mapping[str, str],
    size: tuple[int, int],
) -> dict[str, Tensor | Lost]:
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
    hand_on
        By output of an attention: its queries, whose lack of a place the output shares.
    size
        Height and width of the picture.

    Returns
    -------
    dict
        Places of every tensor; where an operator could not be followed, the reason, also for all that
        is made of its outputs.
    """
    places: dict[str, Tensor | Lost] = dict(known)
    ages: dict[str, int] = {}
    for node in nodes:
        names = [name for name in node.output if name]
        inputs = [places.get(name) if name else None for name in node.input]
        moving = [one for at, one in enumerate(inputs) if at not in CONTROLS.get(node.op_type, ())]
        lost = next((one for one in moving if isinstance(one, Lost)), None)
        if lost is None:
            lost = _follow_node(node, names, inputs, places, shapes, control, hand_on, size, ages)
        if lost is not None:
            places.update(dict.fromkeys(names, lost))
        ages.update(dict.fromkeys(names, len(ages) + 1))
    return places


def _follow_node(
    node: onnx.NodeProto,
    names: Sequence[str],
    inputs: Sequence[Tensor | Lost | None],
    places: dict[str, Tensor | Lost],
    shapes: Mapping[str, tuple[int, ...]],
    control: Callable[[str], npt.NDArray[np.int64] | None],
    hand_on: Mapping[str, str],
    size: tuple[int, int],
    ages: Mapping[str, int],
) -> Lost | None:
    """Add the places of a node's outputs; return why not where they are not known."""
    queries = places.get(hand_on.get(names[0], "")) if names else None
    if isinstance(queries, Tensor) and not has_place(queries):
        # What gathers from everywhere sits nowhere itself.
        places.update((name, unplaced(shapes[name], float(queries.imag.flatten()[0]))) for name in names)
        return None
    setting = Setting(
        node=node,
        places=[None if isinstance(one, Lost) else one for one in inputs],
        shapes=[shapes[name] for name in names],
        control=lambda at: control(node.input[at]) if node.input[at] else None,
        size=size,
        ages=[ages.get(name, 0) for name in node.input],
    )
    try:
        places.update(zip(names, move(setting), strict=False))
    except UnknownPlace as error:
        return Lost(f"the operator {node.name or names[0]!r} {error}")
    return None
