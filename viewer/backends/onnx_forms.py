"""Which operators may stand between ``Q K^T``, the softmax and the values: tables, one row an operator.

A new exporter's habit is a new row. Whatever a row allows is checked against the model's real numbers.
"""

from __future__ import annotations

from typing import NamedTuple

from viewer.backends.onnx_found import Role


class Row(NamedTuple):
    """An operator that may stand between the logits' product and the softmax.

    Attributes
    ----------
    op
        ONNX operator.
    chain
        Operand positions through which the logits may come.
    role
        What the operator does to them; None for nothing.
    """

    op: str
    chain: tuple[int, ...]
    role: Role | None


BETWEEN = (
    Row("Mul", (0, 1), "factor"),
    Row("Div", (0,), "divisor"),
    Row("Add", (0, 1), "bias"),
    Row("Sub", (0,), "less"),
    Row("Where", (1, 2), "mask"),
    Row("Cast", (0,), None),
    Row("Identity", (0,), None),
    Row("Dropout", (0,), None),
    Row("Reshape", (0,), "view"),
    Row("Squeeze", (0,), "view"),
    Row("Unsqueeze", (0,), "view"),
    Row("Transpose", (0,), "view"),
    Row("Tanh", (0,), "other"),
    Row("Clip", (0,), "other"),
    Row("Max", (0, 1), "other"),
    Row("Min", (0, 1), "other"),
    Row("QLinearMul", (0, 3), "other"),
    Row("QLinearAdd", (0, 3), "other"),
    Row("QuantizeLinear", (0,), "other"),
    Row("DequantizeLinear", (0,), "other"),
)


class Behind(NamedTuple):
    """An operator that may stand between softmax and values.

    Attributes
    ----------
    op
        ONNX operator.
    chain
        Operand positions by which the weights may come in.
    rounds
        Whether it rounds them, to a coarser type or to integers.
    """

    op: str
    chain: tuple[int, ...]
    rounds: bool = False


AFTER = (
    Behind("Cast", (0,)),
    Behind("Identity", (0,)),
    Behind("Dropout", (0,)),
    Behind("Where", (1, 2)),  # guards that put 0 for a row without any key
    Behind("Reshape", (0,)),
    Behind("Squeeze", (0,)),
    Behind("Unsqueeze", (0,)),
    Behind("Transpose", (0,)),
    Behind("QuantizeLinear", (0,), rounds=True),
    Behind("DequantizeLinear", (0,), rounds=True),
    Behind("DynamicQuantizeLinear", (0,), rounds=True),
)

VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Transpose"})
MOVING = VIEWS | {"Flatten", "Expand"}
ELEMENTWISE = frozenset({row.op for row in BETWEEN} - VIEWS)
"""What leaves every number where it is."""

MIXING = ELEMENTWISE | MOVING | {"MatMul", "Gemm", "Conv", "Einsum", "BatchNormalization", "Sub", "Concat"}
"""Behind a softmax whose logits are not understood, the product is looked for through these."""

CHANGING = MIXING | {
    *("Slice", "Split", "Gather", "Neg", "Pow", "Reciprocal", "ReduceSum", "InstanceNormalization"),
    "LayerNormalization",
}
"""What may happen to weights that still are what the values are multiplied with."""
