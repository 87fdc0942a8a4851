"""The residual stream that enters each attention of an ONNX graph: what its normalization is given.

Found by walking back from the queries over projections and views to the normalization, which is one operator,
or written out as difference, mean square and root.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from viewer.backends.onnx_graph import Graph, attribute

_NORMS = frozenset({"LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization"})
_SKIPS = frozenset({"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"})
_PROJECTIONS = frozenset({"MatMul", "Gemm", "Conv", "FusedMatMul", "MatMulNBits"})
_PASSED = _PROJECTIONS | frozenset(
    {
        *("Add", "Cast", "Concat", "DequantizeLinear", "Div", "Expand", "Flatten", "Gather", "Identity"),
        *("Mul", "Neg", "Pad", "QuantizeLinear", "Reshape", "RotaryEmbedding", "ScatterND", "Slice", "Split"),
        *("Squeeze", "Sub", "Transpose", "Unsqueeze"),
    }
)
# Of these only the first input is data.
_FIRST = frozenset({"Expand", "Gather", "Pad", "Reshape", "RotaryEmbedding", "Slice", "Split", "Squeeze"})
_ON_TO_ROOT = frozenset({"Add", "Cast", "Clip", "Div", "Max", "Pow", "Reciprocal", "Sqrt"})
_DEEPEST = 80  # nodes on the way; a projection of the stream is some ten nodes behind it
_NORM = "/patchreach_norm"


class StreamTensor(NamedTuple):
    """What a normalization is given.

    Attributes
    ----------
    tensor
        Name of a tensor of the graph whose tokens are those of the stream.
    added
        What the normalization adds to it by itself before all else; mostly nothing.
    """

    tensor: str
    added: tuple[str, ...] = ()

    @property
    def norms(self) -> str:
        """Name of the tensor of norms that `norm_nodes` makes."""
        return self.tensor + _NORM


def find_streams(graph: Graph, queries: Sequence[str]) -> tuple[StreamTensor | None, ...]:
    """Return the residual stream that each tensor of queries is made from; None where it is not found."""
    walk = _Walk(graph)
    return tuple(walk.stream(name) for name in queries)


def norm_nodes(graph: Graph, streams: Sequence[StreamTensor]) -> list[onnx.NodeProto]:
    """Return nodes that compute the length of each token's vector, float32 (..., tokens)."""
    nodes = []
    axes, inputs = {"axes": [-1]}, []
    if graph.opset >= 18 and streams:
        axes, inputs = {}, ["patchreach_last_axis"]
        last = numpy_helper.from_array(np.array([-1], np.int64))
        nodes.append(helper.make_node("Constant", [], inputs, value=last))
    for stream in streams:
        whole = stream.tensor
        for place, other in enumerate(stream.added):
            sum_ = f"{stream.norms}_sum{place}"
            nodes.append(helper.make_node("Add", [whole, other], [sum_]))
            whole = sum_
        # Squares of half precision overflow.
        cast = f"{stream.norms}_float"
        nodes.append(helper.make_node("Cast", [whole], [cast], to=onnx.TensorProto.FLOAT))
        nodes.append(helper.make_node("ReduceL2", [cast, *inputs], [stream.norms], keepdims=0, **axes))
    return nodes


class _Walk:
    """Walks back from queries to what the normalization before them is given."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[tuple[str, bool], StreamTensor | None] = {}

    def stream(self, name: str, projected: bool = False, depth: int = 0) -> StreamTensor | None:
        """Return the one stream that a tensor stems from; None where there is none, or several."""
        key = (name, projected)
        if key not in self._known:
            self._known[key] = None  # of a walk that is too deep nothing is known
            if depth < _DEEPEST:
                self._known[key] = self._found(name, projected, depth + 1)
        return self._known[key]

    def _found(self, name: str, projected: bool, depth: int) -> StreamTensor | None:
        node = self._graph.maker(name)
        if node is None:
            return None
        given = self._normalized(node)
        if given is not None:
            # Queries may be normalized again, behind their projection.
            return given if projected else self.stream(given.tensor, projected, depth)
        if node.op_type not in _PASSED:
            return None
        projected = projected or node.op_type in _PROJECTIONS
        inputs = node.input[:1] if node.op_type in _FIRST else node.input
        fed = [source for source in inputs if source and not self._graph.is_learned(source)]
        streams = {self.stream(source, projected, depth) for source in fed}
        return streams.pop() if len(streams) == 1 else None

    def _normalized(self, node: onnx.NodeProto) -> StreamTensor | None:
        """Return what a node normalizes; None where it is no normalization."""
        if node.op_type in _NORMS and node.input:
            return StreamTensor(node.input[0])
        if node.op_type in _SKIPS and len(node.input) > 1:
            if len(node.output) > 3 and node.output[3]:
                return StreamTensor(node.output[3])
            bias = node.input[4:5] if node.op_type == "SkipLayerNormalization" else node.input[3:4]
            return StreamTensor(node.input[0], tuple(filter(None, (node.input[1], *bias))))
        if node.op_type in ("Div", "Mul") and len(node.input) == 2:
            pairs = (tuple(node.input), tuple(node.input)[::-1])
            for data, root in pairs[:1] if node.op_type == "Div" else pairs:
                if self._squared(root) == self._uncast(data):
                    return StreamTensor(self._undifferenced(self._uncast(data)))
        return None

    def _squared(self, name: str) -> str:
        """Return what a root of a mean square over the last axis is of; empty where it is none."""
        rooted, graph = False, self._graph
        for _ in range(8):
            node = graph.maker(name)
            if node is None:
                return ""
            if node.op_type == "ReduceMean" and node.input:
                return self._of_square(node.input[0]) if rooted and self._last_axis(node) else ""
            if node.op_type not in _ON_TO_ROOT:
                return ""
            rooted |= node.op_type in ("Sqrt", "Pow")
            fed = [source for source in node.input if source and not graph.is_learned(source)]
            if len(fed) != 1:
                return ""
            name = fed[0]
        return ""

    def _of_square(self, name: str) -> str:
        node = self._graph.maker(name)
        if node is None or len(node.input) != 2:
            return ""
        if node.op_type == "Pow":
            power = self._graph.constant(node.input[1])
            return self._uncast(node.input[0]) if power is not None and float(power) == 2 else ""
        same = node.op_type == "Mul" and node.input[0] == node.input[1]
        return self._uncast(node.input[0]) if same else ""

    def _undifferenced(self, name: str) -> str:
        """Return what a mean was taken off from; the tensor itself where none was."""
        node = self._graph.maker(name)
        if node is not None and node.op_type == "Sub" and len(node.input) == 2:
            mean = self._graph.maker(self._uncast(node.input[1]))
            if mean is not None and mean.op_type == "ReduceMean" and self._last_axis(mean):
                return node.input[0]
        return name

    def _last_axis(self, node: onnx.NodeProto) -> bool:
        axes = attribute(node, "axes")
        if axes is None and len(node.input) > 1:
            fixed = self._graph.constant(node.input[1])
            axes = None if fixed is None else fixed.ravel().tolist()
        return axes is not None and list(axes) in ([-1], [2], [3])

    def _uncast(self, name: str) -> str:
        while (node := self._graph.maker(name)) is not None and node.op_type in ("Cast", "Identity"):
            if not node.input:
                break
            name = node.input[0]
        return name
