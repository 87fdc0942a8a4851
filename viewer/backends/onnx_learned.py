"""Noticing attention of learned tokens among one another, which is the same for every picture."""

from __future__ import annotations

import onnx

from viewer.backends.onnx_forms import AFTER, BETWEEN
from viewer.backends.onnx_graph import Graph, module_name, walk_back
from viewer.backends.onnx_products import PRODUCTS, sides

_BETWEEN = frozenset(row.op for row in BETWEEN)
_AFTER = frozenset(row.op for row in AFTER)


def among_learned(graph: Graph, softmax: onnx.NodeProto) -> str | None:
    """Say that an attention is left out as a detector's learned queries attend to one another; None if not.

    Parameters
    ----------
    graph
        The model's.
    softmax
        One that is no attention of the picture's tokens.
    """
    if not graph.is_learned(softmax.output[0]):
        return None
    makers = walk_back(graph, softmax.input[0], _BETWEEN)
    logits = next((node for node in makers if node.op_type in PRODUCTS), None)
    if logits is None or any(map(graph.is_constant, sides(logits))):
        return None  # a table of learned weights
    product = _product_with(graph, softmax.output[0])
    if product is None:
        return None
    name = module_name(product) or module_name(softmax).removesuffix(".softmax") or softmax.name
    return f"The attention of {name or 'learned tokens'} is left out: its keys have no place on the picture."


def _product_with(graph: Graph, weights: str) -> onnx.NodeProto | None:
    """Return the product of weights with values."""
    waiting = [weights]
    while waiting:
        for user in graph.users(waiting.pop()):
            if user.op_type in PRODUCTS:
                return user
            if user.op_type in _AFTER:
                waiting.append(user.output[0])
    return None
