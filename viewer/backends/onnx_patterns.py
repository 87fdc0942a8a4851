"""Finding attention in an ONNX graph: what may stand between ``Q K^T``, the softmax and the values.

A decomposed attention is ``product -> (BETWEEN rows)* -> Softmax -> (AFTER operators)* -> product``, the
last one with the values. What is allowed stands in tables, one row an operator, so that a new exporter's
habit is a new row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import onnx

from viewer.backends.onnx_found import Found, Operand, Role, Step, weights_output
from viewer.backends.onnx_graph import Graph, attribute, module_name, walk_back
from viewer.backends.onnx_products import FLOAT_PRODUCTS, PRODUCTS, query_key, value_operands


class Row(NamedTuple):
    """An operator that may stand between the logits' product and the softmax.

    Attributes
    ----------
    op
        ONNX operator.
    chain
        Operand positions through which the logits may come.
    role
        What the other operand does to them.
    """

    op: str
    chain: tuple[int, ...]
    role: Role


BETWEEN = (
    Row("Mul", (0, 1), "factor"),
    Row("Div", (0,), "divisor"),
    Row("Add", (0, 1), "bias"),
    Row("Where", (1, 2), "mask"),
    Row("Cast", (0,), "none"),
    Row("Identity", (0,), "none"),
    Row("Dropout", (0,), "none"),
)
_BETWEEN = {row.op: row for row in BETWEEN}

AFTER = {
    "Cast": (0,),
    "Identity": (0,),
    "Dropout": (0,),
    "Where": (1, 2),  # guards that put 0 for a row without any key
    "QuantizeLinear": (0,),
    "DequantizeLinear": (0,),
    "DynamicQuantizeLinear": (0,),
}
"""Operators that may stand between softmax and values, and the operands by which weights come in."""

# Behind a softmax whose logits are not understood, the product is looked for through these only: they leave
# every token where it is.
_ELEMENTWISE = frozenset(
    {
        *_BETWEEN,
        "Sub",
        "Tanh",
        "Clip",
        "Max",
        "Min",
        "QuantizeLinear",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
    }
)


_MOVING = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Expand"})
_CUTTING = frozenset({"Slice", "Split", "Gather", "Identity", "Cast", "Dropout", "Mul", "Div", "Neg"})
# What leaves an attention's output its own, but for a factor or some of its heads.
_PARTS = _MOVING | _CUTTING
_SUMS = {"Add": "added", "Sub": "subtracted", "Sum": "added", "Max": "compared", "Min": "compared"}
# What may happen to weights that still are what the values are multiplied with.
_CHANGES = _PARTS | _ELEMENTWISE | {"Concat", "Conv", "Pow", "Reciprocal", "ReduceSum", "Where"}
ALONE = "so neither map is what the model uses alone"


def find_attention(graph: Graph) -> tuple[Found, ...]:
    """Find all attention operations of a graph, in forward order, each with a name of its own."""
    found = []
    for node in graph.nodes:
        if node.op_type == "Softmax" and node.domain in ("", "ai.onnx"):
            match = _decomposed(graph, node)
        elif node.op_type == "Attention" and node.domain in ("", "ai.onnx"):
            match = _standard(graph, node)
        else:
            continue
        if match is not None:
            found.append(match)
    return _named(_mixed(graph, found))


def _mixed(graph: Graph, found: list[Found]) -> list[Found]:
    """Mark attentions whose outputs are added to, or subtracted from, one another's."""
    owners: dict[str, int] = {}
    for index, match in enumerate(found):
        waiting = [match.context.tensor]
        while waiting:
            name = waiting.pop()
            owners[name] = index
            for user in graph.users(name):
                if user.op_type in _PARTS:
                    waiting.extend(output for output in user.output if output and output not in owners)
    marked = list(found)
    for node in graph.nodes:
        mixed = [owners[name] for name in dict.fromkeys(node.input) if name in owners]
        if node.op_type in _SUMS and len(mixed) > 1:
            for index in mixed:
                reason = f"the outputs of two attentions are {_SUMS[node.op_type]}, {ALONE}"
                marked[index] = replace(marked[index], unclear=reason)
    return marked


def _named(found: list[Found]) -> tuple[Found, ...]:
    """Give names to operations without one, and number those that share a name."""
    names = [match.name or "attention" for match in found]
    unique: list[Found] = []
    for index, (match, name) in enumerate(zip(found, names, strict=True)):
        ordinal = names[:index].count(name)
        shared = names.count(name) > 1
        unique.append(replace(match, name=f"{name}.{ordinal}" if shared else name))
    return tuple(unique)


def _standard(graph: Graph, node: onnx.NodeProto) -> Found | None:
    """Describe an `Attention` operator of opset 23 or later."""
    queries, keys, values = node.input[:3]
    if graph.is_constant(values):
        return None
    needs_weights = float(attribute(node, "softcap", 0.0)) != 0 or any(node.input[4:6])
    return Found(
        name=module_name(node),
        queries=Operand(queries),
        keys=Operand(keys),
        values=Operand(values),
        context=Operand(node.output[0]),
        weights=weights_output(node) if needs_weights else "",
        node=node,
    )


def _decomposed(graph: Graph, softmax: onnx.NodeProto) -> Found | None:
    """Describe the attention around a softmax; None where it is no attention."""
    axis = int(attribute(softmax, "axis", -1))
    if axis == 0:
        return None
    end = _value_product(graph, softmax.output[0])
    if end is None:
        return _with_changed_weights(graph, softmax)
    product, weights_first = end
    first, second = PRODUCTS[product.op_type]
    values = product.input[second if weights_first else first]
    if graph.is_constant(values):
        return None
    operands = value_operands(product, values, weights_first)
    if operands is None:
        return None
    around = Found(
        name=module_name(softmax) or module_name(product),
        queries=Operand(""),
        keys=Operand(""),
        values=operands[0],
        context=operands[1],
        quantized=product.op_type not in FLOAT_PRODUCTS,
    )
    match = _with_scores(graph, softmax, around)
    if match is not None and axis == -2:
        return replace(match, unclear="it normalizes its weights over the queries, not over the keys")
    if match is not None and _is_weights(graph, values):
        return replace(match, unclear=f"the weights of two attentions are multiplied, {ALONE}")
    return match


def _is_weights(graph: Graph, values: str) -> bool:
    """Whether what weights are multiplied with are weights themselves, made from queries and keys."""
    makers = walk_back(graph, values, frozenset({*AFTER, *_MOVING}))
    softmax = next((maker for maker in makers if maker.op_type == "Softmax"), None)
    return softmax is not None and _products_behind(graph, softmax, _ELEMENTWISE | _MOVING) is not None


def _products_behind(
    graph: Graph, softmax: onnx.NodeProto, through: frozenset[str]
) -> tuple[Operand, Operand] | None:
    """Return queries and keys behind a softmax, looked for through some operators."""
    for source in walk_back(graph, softmax.input[0], through):
        pair = query_key(source) if source.op_type in PRODUCTS else None
        if pair and not graph.is_constant(pair[1].tensor):
            return pair
    return None


def _with_changed_weights(graph: Graph, softmax: onnx.NodeProto) -> Found | None:
    """Describe attention whose weights become something else before they meet the values."""
    pair = _products_behind(graph, softmax, _ELEMENTWISE | _MOVING)
    if pair is None:
        return None
    waiting, seen, sums = [softmax.output[0]], set(), False
    while waiting:
        for user in graph.users(waiting.pop(0)):
            fixed = any(graph.is_constant(name) for name in user.input)
            if user.op_type in PRODUCTS and not fixed:
                what = f"two maps of weights are put together, {ALONE}" if sums else "its weights are changed"
                return Found(
                    name=module_name(softmax) or module_name(user),
                    queries=pair[0],
                    keys=pair[1],
                    values=Operand(user.input[1]),
                    context=Operand(user.output[0]),
                    weights=softmax.output[0],
                    unclear=what if sums else f"{what} between softmax and values",
                )
            if (user.op_type in _CHANGES or user.op_type in PRODUCTS) and user.output[0] not in seen:
                sums |= user.op_type in ("Add", "Sub") and not fixed
                seen.update(user.output)
                waiting.extend(user.output)
    return None


def _with_scores(graph: Graph, softmax: onnx.NodeProto, around: Found) -> Found | None:
    """Add where a softmax's logits come from: understood, or only its result, or known to be rearranged."""
    logits = _logits(graph, softmax.input[0], ())
    pair = query_key(logits[0]) if logits else None
    if logits and pair and not graph.is_constant(pair[1].tensor):
        scale = float(attribute(logits[0], "alpha", 1.0))
        return replace(around, queries=pair[0], keys=pair[1], steps=logits[1], scale=scale)
    for through, unclear in (
        (_ELEMENTWISE, ""),
        (
            _ELEMENTWISE | _MOVING,
            "its logits are rearranged on their way to the softmax, as windowed attention does",
        ),
    ):
        pair = _products_behind(graph, softmax, through)
        if pair is not None:
            return replace(around, queries=pair[0], keys=pair[1], weights=softmax.output[0], unclear=unclear)
    return None


def _value_product(graph: Graph, weights: str) -> tuple[onnx.NodeProto, bool] | None:
    """Follow weights forward to the product with the values; tell whether they are its first operand."""
    waiting = [weights]
    while waiting:
        name = waiting.pop(0)
        for user in graph.users(name):
            if user.op_type in PRODUCTS:
                first, second = PRODUCTS[user.op_type]
                if name == user.input[first]:
                    return user, True
                if name == user.input[second] and user.op_type == "Einsum":
                    return user, False
            elif any(user.input[at] == name for at in AFTER.get(user.op_type, ()) if at < len(user.input)):
                waiting.append(user.output[0])
    return None


def _logits(
    graph: Graph, name: str, steps: tuple[Step, ...]
) -> tuple[onnx.NodeProto, tuple[Step, ...]] | None:
    """Walk from the softmax's input back to the product; steps come in forward order."""
    maker = graph.maker(name)
    if maker is None:
        return None
    if maker.op_type in FLOAT_PRODUCTS:
        return maker, steps
    row = _BETWEEN.get(maker.op_type)
    if row is None:
        return None
    for at in row.chain:
        if at < len(maker.input):
            found = _logits(graph, maker.input[at], (*_step(maker, row, at), *steps))
            if found is not None:
                return found
    return None


def _step(node: onnx.NodeProto, row: Row, at: int) -> tuple[Step, ...]:
    """Describe what a node does to the logits that come in at one of its operands."""
    if row.role == "none":
        return ()
    if row.role == "mask":
        return (Step("mask", node.input[3 - at], condition=node.input[0], negated=at == 2),)
    return (Step(row.role, node.input[1 - at]),)
