"""Attention that is one operator: the standard's own, and those ONNX Runtime writes when it optimizes.

Each form says how queries, keys, values and output of the operator are had, as nodes put beside it: they are
computed from the same inputs, and nothing of the model depends on them. A new operator is a new row of
`FORMS`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from viewer.backends.onnx_found import Found, Operand, Step, weights_output
from viewer.backends.onnx_graph import STANDARD, attribute, module_name

_MICROSOFT = ("com.microsoft",)
_LOWEST = -10000.0
"""What ONNX Runtime's operators add to the logits of masked keys by default."""


class _NotUnderstood(Exception):
    """A form of the operator that is not covered; the text is a clause."""


class Beside:
    """Nodes put beside an operator.

    Parameters
    ----------
    node
        The operator.
    dims
        Shapes of what the file stores, and of what it describes, by name.
    """

    def __init__(self, node: onnx.NodeProto, dims: dict[str, tuple[int, ...]]) -> None:
        self.node = node
        self.nodes: list[onnx.NodeProto] = []
        self._dims = dims

    def input(self, at: int) -> str:
        """Name the input at a position; empty where it is absent."""
        return self.node.input[at] if at < len(self.node.input) else ""

    def rank(self, name: str, otherwise: int) -> int:
        """Return how many axes a tensor has, as far as the file tells."""
        return len(self._dims[name]) if name in self._dims else otherwise

    def width(self, name: str) -> int:
        """Return the size of a stored tensor's last axis."""
        if name not in self._dims:
            raise _NotUnderstood("its weights are not stored in the file")
        return self._dims[name][-1]

    def add(self, op: str, inputs: list[str], **attributes: object) -> str:
        """Put a standard operator beside; return its output's name."""
        name = f"{self.node.output[0]}/beside_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def fixed(self, value: Any) -> str:  # noqa: ANN401
        """Put a constant beside; return its name."""
        return self.add("Constant", [], value=numpy_helper.from_array(np.asarray(value)))

    def heads(self, name: str, count: int) -> str:
        """Split (batch, tokens, width) into (batch, heads, tokens, channels)."""
        split = self.add("Reshape", [name, self.fixed(np.array([0, 0, count, -1]))])
        return self.add("Transpose", [split], perm=[0, 2, 1, 3])

    def part(self, name: str, start: int, stop: int, axis: int) -> str:
        """Take a slice."""
        bounds = [self.fixed(np.array([value])) for value in (start, stop, axis)]
        return self.add("Slice", [name, *bounds])

    def allowed(self, mask: str) -> str:
        """Turn (batch, keys) numbers, 0 for masked keys, into conditions (batch, 1, 1, keys)."""
        if self.rank(mask, 2) != 2:
            raise _NotUnderstood("its mask is of a form that is not understood")
        wide = self.add("Reshape", [mask, self.fixed(np.array([0, 1, 1, -1]))])
        return self.add("Cast", [wide], to=onnx.TensorProto.BOOL)

    def found(self, queries: str, keys: str, values: str, context: str, **more: Any) -> Found:  # noqa: ANN401
        """Describe the operator."""
        scale = attribute(self.node, "scale")
        return Found(
            name=module_name(self.node) or self.node.name,
            queries=Operand(queries),
            keys=Operand(keys),
            values=Operand(values),
            context=Operand(context),
            scale=float(scale) if scale else None,
            **more,
        )


def _standard(beside: Beside) -> Found:
    """Describe `Attention` of opset 23 or later: heads as an axis, or side by side in the channels."""
    node = beside.node
    mask, past = beside.input(3), any(node.input[4:6])
    sides = [*node.input[:3], node.output[0]]
    if attribute(node, "q_num_heads") is not None:
        heads = int(attribute(node, "q_num_heads")), int(attribute(node, "kv_num_heads"))
        sides = [
            beside.heads(name, count)
            for name, count in zip(sides, (heads[0], *heads[1:] * 2, heads[0]), strict=True)
        ]
    needs_weights = float(attribute(node, "softcap", 0.0)) != 0 or past
    steps = (Step("causal"),) if attribute(node, "is_causal", 0) else ()
    if mask:
        steps = (*steps, Step("bias", mask))
    return beside.found(*sides, steps=steps, weights=weights_output(node) if needs_weights else "")


def _attention(beside: Beside) -> Found:
    """Describe `com.microsoft.Attention`: tokens go in, and one matrix makes queries, keys and values."""
    weights, bias = beside.input(1), beside.input(2)
    joint = beside.add("MatMul", [beside.input(0), weights])
    joint = beside.add("Add", [joint, bias]) if bias else joint
    if beside.input(4) or attribute(beside.node, "do_rotary", 0):
        raise _NotUnderstood("it has tokens of an earlier run, or rotary embeddings of its own")
    return _from_joint(beside, joint, beside.width(weights), mask=beside.input(3), bias=beside.input(5))


def _integer_attention(beside: Beside) -> Found:
    """Describe `com.microsoft.QAttention`: as `Attention`, but tokens and matrix are 8-bit integers."""
    if beside.input(8):
        raise _NotUnderstood("it has tokens of an earlier run")
    tokens, weights, bias, scale, weight_scale, mask, zero, weight_zero = (beside.input(n) for n in range(8))
    floats = [
        beside.add("DequantizeLinear", [name for name in (tokens, scale, zero) if name]),
        beside.add(
            "DequantizeLinear", [name for name in (weights, weight_scale, weight_zero) if name], axis=1
        ),
    ]
    joint = beside.add("Add", [beside.add("MatMul", floats), bias])
    return _from_joint(beside, joint, beside.width(weights), mask=mask, bias="")


def _from_joint(beside: Beside, joint: str, width: int, mask: str, bias: str) -> Found:
    """Describe an operator by queries, keys and values side by side, (batch, tokens, width)."""
    node = beside.node
    heads = int(attribute(node, "num_heads"))
    sizes = attribute(node, "qkv_hidden_sizes") or [width // 3] * 3
    ends = np.cumsum([0, *sizes]).tolist()
    parts = [beside.heads(beside.part(joint, start, stop, 2), heads) for start, stop in pairwise(ends)]
    return beside.found(*parts, beside.heads(node.output[0], heads), steps=_added(beside, mask, bias))


def _multi_head(beside: Beside) -> Found:
    """Describe `com.microsoft.MultiHeadAttention`: queries, keys and values come projected, or packed."""
    node = beside.node
    query, key, value, bias, mask, added = (beside.input(n) for n in range(6))
    if any(beside.input(n) for n in (6, 7, 8, 9)):
        raise _NotUnderstood("it has tokens of an earlier run")
    heads = int(attribute(node, "num_heads"))
    if not key:  # (batch, tokens, heads, 3, channels)
        if bias:
            raise _NotUnderstood("it adds a bias to packed queries, keys and values")
        parts = [_unpacked(beside, query, which) for which in range(3)]
    else:
        sides = [query, key, value]
        if bias:
            width = beside.width(bias) // 3
            sides = [
                beside.add("Add", [side, beside.part(bias, n * width, (n + 1) * width, 0)])
                for n, side in enumerate(sides)
            ]
        packed = [_unpacked(beside, key, which) for which in range(2)] if not value else []
        parts = [beside.heads(query, heads), *packed] if packed else [
            side if beside.rank(side, 3) == 4 else beside.heads(side, heads) for side in sides
        ]  # fmt: skip
    return beside.found(*parts, beside.heads(node.output[0], heads), steps=_added(beside, mask, added))


def _unpacked(beside: Beside, packed: str, which: int) -> str:
    taken = beside.add("Gather", [packed, beside.fixed(np.array(which))], axis=3)
    return beside.add("Transpose", [taken], perm=[0, 2, 1, 3])


def _added(beside: Beside, mask: str, bias: str) -> tuple[Step, ...]:
    """Describe what the operators add to the logits."""
    steps: list[Step] = []
    if attribute(beside.node, "unidirectional", 0):
        steps.append(Step("causal"))
    if bias:
        steps.append(Step("bias", bias))
    if mask:
        lowest = float(attribute(beside.node, "mask_filter_value", _LOWEST))
        steps.append(Step("mask", beside.fixed(np.float32(lowest)), condition=beside.allowed(mask)))
    return tuple(steps)


class Form(NamedTuple):
    """An operator that is attention.

    Attributes
    ----------
    op, domains
        Which.
    describe
        Puts what is needed beside it, and describes it.
    """

    op: str
    domains: tuple[str, ...]
    describe: Callable[[Beside], Found]


FORMS = (
    Form("Attention", STANDARD, _standard),
    Form("Attention", _MICROSOFT, _attention),
    Form("QAttention", _MICROSOFT, _integer_attention),
    Form("MultiHeadAttention", _MICROSOFT, _multi_head),
)
AS_FLOATS = ":as_floats"
"""What the name of an integer softmax's result is followed by where the same softmax gives floats."""
_FORMS = {(form.op, domain): form for form in FORMS for domain in form.domains}


def _softmax_in_floats(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Compute beside a softmax of integers, which rounds its result to 8 bits, the same without rounding."""
    beside = Beside(node, {})
    logits = beside.add("DequantizeLinear", list(node.input[:3]))
    name, called = (part + AS_FLOATS for part in (node.output[0], node.name or node.output[0]))
    axis = int(attribute(node, "axis", -1))
    return [*beside.nodes, helper.make_node("Softmax", [logits], [name], called, axis=axis)]


def put_beside(proto: onnx.ModelProto) -> dict[str, Found | str]:
    """Add to a graph what makes its attention operators readable.

    Returns
    -------
    dict
        By the operator's first output: what it is, or a sentence saying why it could not be read.
    """
    graph = proto.graph
    dims = {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in (*graph.value_info, *graph.input)
        if value.type.tensor_type.HasField("shape")
    }
    dims |= {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    described: dict[str, Found | str] = {}
    added: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type == "QLinearSoftmax":
            added += _softmax_in_floats(node)
        form = _FORMS.get((node.op_type, node.domain))
        if form is None and not ("Attention" in node.op_type and node.output):
            continue
        called = node.name or node.output[0]
        beside = Beside(node, dims)
        try:
            if form is None:
                raise _NotUnderstood("no form covers it")
            described[node.output[0]] = form.describe(beside)
        except _NotUnderstood as error:
            described[node.output[0]] = (
                f"The operator {called!r}, a {node.op_type}, could not be read: {error}."
            )
        else:
            added += beside.nodes
    graph.node.extend(added)
    return described
