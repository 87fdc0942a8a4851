"""What the graph of an ONNX model tells of shapes and indices at one input size without running the model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from viewer.backends.onnx_found import OnnxProgram
from viewer.backends.onnx_graph import attribute, stored_tensor
from viewer.backends.onnx_session import RuntimeErrors, bare_session

Shape = tuple[int, ...]
Values = dict[str, npt.NDArray[Any]]

_SHAPES = ("Shape", "Size")
_INTEGERS = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)
# Shapes and indices are made of integers and of a few factors; more than this are weights.
_MOST_INTEGERS, _MOST_NUMBERS = 1 << 16, 64


def told_by_graph(
    program: OnnxProgram,
    feeds: Mapping[str, npt.NDArray[Any]],
    names: Sequence[str],
    controls: Sequence[str],
) -> tuple[dict[str, Shape], Values]:
    """Find shapes and values that follow from the inputs' shapes, as ONNX Runtime does before a run.

    It is given the graph without its weights, so that this takes about as long as reading that graph.

    Parameters
    ----------
    program
        The model.
    feeds
        What its inputs take; of the picture's, only the shape counts.
    names
        Tensors whose shapes are wanted.
    controls
        Tensors whose values are wanted.

    Returns
    -------
    dict
        Shapes by name; what is not there only a run can tell, such as how many elements are not zero.
    dict
        Values of `controls` by name, as far as they are made of shapes and of what the file fixes.
    """
    graph = program.graph
    shapes = {name: tuple(feeds[name].shape) for name in feeds}
    shapes |= {name: tuple(tensor.dims) for name in names if (tensor := stored_tensor(graph, name))}
    measured = [node.input[0] for node in graph.nodes if node.op_type in _SHAPES]
    asked = [name for name in dict.fromkeys([*names, *measured]) if name not in shapes]
    asked = [name for name in asked if graph.maker(name) is not None]
    try:
        session = bare_session(_without_weights(program, feeds, asked), program.file)
    except RuntimeErrors:
        return shapes, {}
    for output in session.get_outputs():
        # ONNX Runtime's bindings hand out an empty list both for a single number and for what has any shape.
        if output.shape and all(isinstance(size, int) for size in output.shape):
            shapes[output.name] = tuple(output.shape)
    shapes |= {name: () for name in asked if _is_single(graph.maker(name), name)}
    fillers = {name: value for name, value in feeds.items() if name != program.image}
    single = [name for name in names if name not in shapes]
    values = _values(program, shapes, fillers, [*controls, *single])
    shapes |= {name: values[name].shape for name in single if name in values}
    return shapes, {name: values[name] for name in controls if name in values}


def _without_weights(
    program: OnnxProgram, feeds: Mapping[str, npt.NDArray[Any]], outputs: Iterable[str]
) -> onnx.ModelProto:
    """Copy a model's graph; the picture and weights become inputs of known shape, and no other is told."""
    nodes, weights, kept = [], [], []
    stored = dict(program.graph.initializers)
    for node in program.graph.nodes:
        tensor = stored_tensor(program.graph, node.output[0]) if node.op_type == "Constant" else None
        if tensor is None:
            nodes.append(node)
        else:
            stored[node.output[0]] = tensor
    for name, tensor in stored.items():
        if _small(tensor):
            copy = TensorProto()
            copy.CopyFrom(tensor)
            copy.name = name
            kept.append(copy)
        else:
            weights.append(_input(name, tensor.data_type, tensor.dims))
    for value in program.graph.inputs:
        if value.name == program.image:
            weights.append(_input(value.name, value.type.tensor_type.elem_type, feeds[value.name].shape))
        else:
            kept.append(numpy_helper.from_array(feeds[value.name], value.name))
    return _model(program, nodes, weights, kept, outputs)


def _values(
    program: OnnxProgram,
    shapes: Mapping[str, Shape],
    fillers: Mapping[str, npt.NDArray[Any]],
    wanted: Sequence[str],
) -> Values:
    """Compute those tensors that are made of known shapes and small constants alone."""
    graph = program.graph
    stored = {name: tensor for name, tensor in graph.initializers.items() if _small(tensor)}
    kept: dict[str, TensorProto] = {}
    nodes, have = [], set(stored) | set(fillers)
    for node in graph.ancestors(set(wanted), _made_of):
        if node.op_type in _SHAPES:
            if node.input[0] in shapes:
                value = _shape_value(node, shapes[node.input[0]])
                kept[node.output[0]] = numpy_helper.from_array(value, node.output[0])
                have.add(node.output[0])
        elif have.issuperset(filter(None, node.input)) and not _has_inner_graph(node):
            nodes.append(node)
            have.update(filter(None, node.output))
    found = [name for name in dict.fromkeys(wanted) if name in have]
    used = {name for node in nodes for name in node.input}.union(found)
    kept |= {name: tensor for name, tensor in stored.items() if name in used}
    kept |= {name: numpy_helper.from_array(fillers[name], name) for name in used.intersection(fillers)}
    if not found:
        return {}
    try:
        session = bare_session(_model(program, nodes, [], kept.values(), found), program.file)
        return dict(zip(found, session.run(found, {}), strict=True))
    except RuntimeErrors:
        return {}


def _model(
    program: OnnxProgram,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    stored: Iterable[TensorProto],
    outputs: Iterable[str],
) -> onnx.ModelProto:
    # What the file itself says of shapes in between is left out: it may be of another size, or wrong.
    whole = program.file.proto
    graph = onnx.GraphProto(name="shapes", node=nodes, input=inputs, initializer=stored)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    # Before version 4 what is stored had to be an input too.
    version = max(whole.ir_version, 4)
    return onnx.ModelProto(ir_version=version, opset_import=whole.opset_import, graph=graph)


def _input(name: str, kind: int, dims: Sequence[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, list(dims))


def _small(tensor: TensorProto) -> bool:
    most = _MOST_INTEGERS if tensor.data_type in _INTEGERS else _MOST_NUMBERS
    return math.prod(tensor.dims) <= most


def _made_of(node: onnx.NodeProto) -> Iterable[str]:
    """Yield what a node's values depend on; shapes are known."""
    return () if node.op_type in _SHAPES else filter(None, node.input)


def _shape_value(node: onnx.NodeProto, shape: Shape) -> npt.NDArray[np.int64]:
    if node.op_type == "Size":
        return np.array(math.prod(shape), np.int64)
    return np.array(shape[attribute(node, "start", 0) : attribute(node, "end")], np.int64)


def _is_single(maker: onnx.NodeProto, name: str) -> bool:
    """Whether the standard says that a tensor is a single number, as scale and zero point of one are."""
    return maker.op_type == "DynamicQuantizeLinear" and name != maker.output[0]


def _has_inner_graph(node: onnx.NodeProto) -> bool:
    return any(entry.HasField("g") for entry in node.attribute)
