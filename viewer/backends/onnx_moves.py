"""Moving places through the operators of an ONNX graph: a table of which rule is whose."""

from __future__ import annotations

import onnx
from torch import Tensor

from viewer.backends import onnx_rules as rules
from viewer.backends import onnx_sliding as sliding
from viewer.backends.onnx_places import NO_LABEL, UnknownPlace, has_place
from viewer.backends.onnx_rules import Rule, Setting, unplaced

_REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare")
CONTROLS = {
    "Slice": (1, 2, 3, 4), "Gather": (1,), "GatherElements": (1,), "GatherND": (1,), "ScatterND": (1,),
    "Pad": (1, 3), "Tile": (1,), **dict.fromkeys(_REDUCTIONS, (1,)),
}  # fmt: skip
"""Which inputs of an operator say how it moves elements, rather than being moved."""
DECIDING = CONTROLS | {
    "Reshape": (1,), "Expand": (1,), "Unsqueeze": (1,), "Squeeze": (1,), "Split": (1,), "Upsample": (1,),
    "Resize": (1, 2, 3),
}  # fmt: skip
"""Those, and the inputs that say no more than what the result's shape does."""


def moved_inputs(node: onnx.NodeProto) -> list[str]:
    """Name the inputs of which an operator takes elements, rather than being told what to do with them."""
    deciding = DECIDING.get(node.op_type, ())
    return [name for at, name in enumerate(node.input) if name and at not in deciding]


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


FROM_PLACED = frozenset(
    op
    for op, rule in _RULES.items()
    if rule
    in (
        *(sliding.window, sliding.integer_window, rules.product, rules.integer_product, rules.einsum),
        *(rules.elementwise, rules.integer_sum, rules.skip, rules.attention),
    )
)
"""Operators whose results have the places of operands that have some; others but the first count by shape."""
_ONE_OPERAND = frozenset(
    (
        rules.reshape,
        rules.transpose,
        rules.expand,
        rules.split,
        rules.cut,
        rules.gather,
        rules.tile,
        rules.keep,
    )
)
_KEEP_LABELS = _ONE_OPERAND | {rules.concat, rules.elementwise, rules.product, rules.skip}


def _without_place(at: Setting) -> tuple[Tensor, ...]:
    """Return that nothing has a place, with the label of the parameter it stems from where it has one."""
    rule = _RULES.get(at.node.op_type)
    moved: Tensor | tuple[Tensor, ...] = ()
    if rule in _ONE_OPERAND and at.places[0] is not None and not any(at.places[0].stride()):
        label = float(at.places[0].imag.flatten()[0]) if at.places[0].numel() else NO_LABEL
        return tuple(unplaced(shape, label) for shape in at.shapes)
    if rule in _KEEP_LABELS:
        try:
            moved = rule(at)
        except (ValueError, TypeError, IndexError, RuntimeError):
            moved = ()
    moved = moved if isinstance(moved, tuple) else (moved,)
    return moved + tuple(unplaced(shape) for shape in at.shapes[len(moved) :])
