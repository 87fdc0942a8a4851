"""Matrix products of an ONNX graph, read as queries times keys or as weights times values."""

from __future__ import annotations

import onnx

from viewer.backends.onnx_found import Operand
from viewer.backends.onnx_graph import attribute

PRODUCTS = {
    "MatMul": (0, 1),
    "FusedMatMul": (0, 1),  # what ONNX Runtime writes into models that it saves optimized
    "Einsum": (0, 1),
    "MatMulInteger": (0, 1),
    "QLinearMatMul": (0, 3),
}
"""Operators that multiply two tensors, and which inputs those are."""

ZERO_POINTS = {"MatMulInteger": (2, 3, -1), "QLinearMatMul": (2, 5, 7)}
"""Which inputs of products of integers are the zero points of both sides and of the result; -1 for none."""

FLOAT_PRODUCTS = ("MatMul", "FusedMatMul", "Einsum")
"""Those whose result is what the model goes on with; the others multiply integers."""


def sides(product: onnx.NodeProto) -> tuple[str, str]:
    """Name the two tensors that are multiplied."""
    first, second = PRODUCTS[product.op_type]
    return product.input[first], product.input[second]


def query_key(product: onnx.NodeProto) -> tuple[Operand, Operand] | None:
    """Return the operands of a logits product as queries and keys, each (heads..., tokens, channels)."""
    first, second = PRODUCTS[product.op_type]
    if product.op_type != "Einsum":
        # A fused product may itself exchange the last two axes of either side.
        turned_query, turned_key = attribute(product, "transA", 0), attribute(product, "transB", 0)
        queries = Operand(product.input[first], (-1, -2) if turned_query else None)
        return queries, Operand(product.input[second], None if turned_key else (-1, -2))
    terms = _einsum_terms(product)
    if terms is None:
        return None
    left, right, result = terms
    query, key = result[-2], result[-1]
    names = {True: product.input[0], False: product.input[1]}
    queries_left = query in left
    pair = []
    for token, from_left in ((query, queries_left), (key, not queries_left)):
        subscript = left if from_left else right
        summed = [letter for letter in subscript if letter not in result]
        if token not in subscript or len(summed) != 1:
            return None
        order = [letter for letter in result[:-2] if letter in subscript] + [token, summed[0]]
        pair.append(Operand(names[from_left], tuple(subscript.index(letter) for letter in order)))
    return pair[0], pair[1]


def value_operands(
    product: onnx.NodeProto, values: str, weights_first: bool, turned: bool = False
) -> tuple[Operand, Operand] | None:
    """Return values and context of the product of weights and values, each (heads..., tokens, channels).

    `turned` tells that the last two axes of the weights were exchanged before.
    """
    if product.op_type != "Einsum":
        axes = None if weights_first else (-1, -2)
        swapped = attribute(product, "transB" if weights_first else "transA", 0)
        held = (-1, -2) if bool(swapped) != (axes is not None) else None
        return Operand(values, held), Operand(product.output[0], axes)
    terms = _einsum_terms(product)
    if terms is None or turned:
        return None
    left, right, result = terms
    weights, held = (left, right) if weights_first else (right, left)
    query, key, lead = weights[-2], weights[-1], weights[:-2]
    channel = [letter for letter in held if letter not in weights]
    if len(channel) != 1 or key not in held or key in result or query not in result:
        return None
    values_axes = tuple(held.index(letter) for letter in [*lead, key, channel[0]])
    context_axes = tuple(result.index(letter) for letter in [*lead, query, channel[0]])
    return Operand(values, values_axes), Operand(product.output[0], context_axes)


def _einsum_terms(node: onnx.NodeProto) -> tuple[str, str, str] | None:
    """Split a two-operand Einsum equation; None where it has another form."""
    equation = str(attribute(node, "equation")).replace(" ", "")
    inputs, arrow, result = equation.partition("->")
    terms = inputs.split(",")
    if not arrow or len(terms) != 2 or "." in equation or len(result) < 2:
        return None
    return terms[0], terms[1], result
