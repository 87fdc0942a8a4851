"""Looking around in an ONNX graph: who makes a tensor, who uses it, what is fixed, what module it is of."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor

_SCOPES = "pkg.torch.onnx.name_scopes"
# Values of these nodes are what goes in, so a constant stays a constant through them.
_TRANSPARENT = {"Identity", "Cast"}
# What these give says nothing of the numbers that go in.
_SHAPES = {"Shape", "Size"}
STANDARD = ("", "ai.onnx")
"""Domains of the standard's own operators."""


class Graph:
    """The main graph of an ONNX model, with lookups by tensor name.

    Parameters
    ----------
    proto
        A model without local functions.
    folder
        Where its external weights lie.
    """

    def __init__(self, proto: onnx.ModelProto, folder: Path) -> None:
        self._folder = folder
        self.nodes = list(proto.graph.node)
        # Sequences and maps of tensors can't be compared or shown.
        self.outputs = [
            output.name
            for output in proto.graph.output
            if output.type.WhichOneof("value") in (None, "tensor_type")
        ]
        self.initializers = {tensor.name: tensor for tensor in proto.graph.initializer}
        self.inputs = [value for value in proto.graph.input if value.name not in self.initializers]
        self.opset = next(
            (entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), 1
        )
        self._makers = {name: at for at, node in enumerate(self.nodes) for name in node.output if name}
        self._users: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.input):
                self._users.setdefault(name, []).append(node)
        self._fed = {value.name for value in self.inputs}
        for node in self.nodes:
            if node.op_type not in _SHAPES and not self._fed.isdisjoint(taken(node)):
                self._fed.update(name for name in node.output if name)

    def maker(self, name: str) -> onnx.NodeProto | None:
        """Return the node whose output a tensor is; None for inputs and initializers."""
        at = self._makers.get(name)
        return None if at is None else self.nodes[at]

    def users(self, name: str) -> list[onnx.NodeProto]:
        """Return the nodes that take a tensor as input, in graph order."""
        return self._users.get(name, [])

    def census(self) -> dict[str, int]:
        """Return how often each operator occurs, constants left out."""
        return dict(Counter(node.op_type for node in self.nodes if node.op_type != "Constant"))

    def constant(self, name: str) -> npt.NDArray[np.generic] | None:
        """Return a tensor's value if the file fixes it; None otherwise."""
        while (maker := self.maker(name)) is not None and maker.op_type in _TRANSPARENT:
            name = maker.input[0]
        tensor = stored_tensor(self, name)
        return None if tensor is None else self._array(tensor)

    def is_constant(self, name: str) -> bool:
        """Whether the file fixes a tensor's value, found without reading it."""
        while (maker := self.maker(name)) is not None and maker.op_type in _TRANSPARENT:
            name = maker.input[0]
        return name in self.initializers if maker is None else maker.op_type == "Constant"

    def is_learned(self, name: str) -> bool:
        """Whether a tensor is the same for every input, be it stored or computed from what is."""
        return name not in self._fed

    def _array(self, tensor: onnx.TensorProto) -> npt.NDArray[np.generic]:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            loaded = onnx.TensorProto()
            loaded.CopyFrom(tensor)
            load_external_data_for_tensor(loaded, str(self._folder))
            tensor = loaded
        return numpy_helper.to_array(tensor)

    def ancestors(
        self,
        names: set[str],
        sources: Callable[[onnx.NodeProto], Iterable[str]] = lambda node: filter(None, node.input),
    ) -> list[onnx.NodeProto]:
        """Return the nodes that tensors depend on, in graph order; `sources` tells which inputs count."""
        waiting, found = list(names), set()
        while waiting:
            at = self._makers.get(waiting.pop())
            if at is not None and at not in found:
                found.add(at)
                waiting.extend(sources(self.nodes[at]))
        return [self.nodes[at] for at in sorted(found)]


def stored_tensor(graph: Graph, name: str) -> onnx.TensorProto | None:
    """Return what the file stores under a name, as an initializer or as a constant node; None otherwise."""
    maker = graph.maker(name)
    if maker is None:
        return graph.initializers.get(name)
    return _constant_tensor(maker) if maker.op_type == "Constant" else None


def attribute(node: onnx.NodeProto, name: str, default: object = None) -> object:
    """Return a node's attribute as a Python value, or the default where it has none."""
    for entry in node.attribute:
        if entry.name == name:
            value = onnx.helper.get_attribute_value(entry)
            return value.decode(errors="replace") if isinstance(value, bytes) else value
    return default


def module_name(node: onnx.NodeProto) -> str:
    """Return the module a node was exported from, such as ``"blocks.3.attn"``; empty where nothing tells.

    The current PyTorch exporter keeps scopes as metadata; the older one writes them into the node's name as a
    path, in which a list and its item are two steps ("/blocks/blocks.3/attn/Softmax").
    """
    scopes = next((entry.value for entry in node.metadata_props if entry.key == _SCOPES), "")
    if scopes:
        try:
            path = [str(scope) for scope in ast.literal_eval(scopes)[:-1] if scope]
        except (ValueError, SyntaxError, TypeError, RecursionError):
            return ""  # another exporter's habit
        return path[-1] if path else ""
    # Optimizers name nodes anew but keep the names of tensors.
    path = node.name if "/" in node.name or not node.output else node.output[0]
    steps: list[str] = []
    for step in path.split("/")[:-1]:
        if steps and step.startswith(f"{steps[-1]}."):
            steps[-1] = step
        elif step:
            steps.append(step)
    return ".".join(steps)


def walk_back(
    graph: Graph,
    name: str,
    through: frozenset[str],
    allowed: Callable[[onnx.NodeProto], bool] = lambda node: True,
) -> Iterator[onnx.NodeProto]:
    """Yield the nodes behind a tensor, nearest first.

    Behind an operator that is not in `through`, or that is not `allowed`, nothing follows.
    """
    waiting, seen = [name], {name}
    while waiting:
        maker = graph.maker(waiting.pop(0))
        if maker is None:
            continue
        yield maker
        if maker.op_type in through and allowed(maker):
            fresh = [source for source in maker.input if source and source not in seen]
            seen.update(fresh)
            waiting.extend(fresh)


def taken(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the tensors a node takes, those its inner graphs take from around it included."""
    yield from node.input
    for entry in node.attribute:
        for graph in (entry.g, *entry.graphs):
            for inner in graph.node:
                yield from taken(inner)


def _constant_tensor(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """Return the value of a Constant node, whichever attribute holds it."""
    if not node.attribute:
        return None
    entry = node.attribute[0]
    if entry.name == "value":
        return entry.t
    if entry.name in ("value_float", "value_floats"):
        return numpy_helper.from_array(np.asarray(onnx.helper.get_attribute_value(entry), np.float32))
    if entry.name in ("value_int", "value_ints"):
        return numpy_helper.from_array(np.asarray(onnx.helper.get_attribute_value(entry), np.int64))
    return None
