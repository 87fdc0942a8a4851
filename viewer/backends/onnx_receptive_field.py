"""The theoretical receptive field of every layer of an ONNX network, read from its graph; nothing is run."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property

import onnx
from onnx import shape_inference

from viewer.backends import onnx_field_rules as rules
from viewer.backends.fields import Companion, Seen, Whole, picture
from viewer.backends.network_fields import MIXED, Collector, NetworkFields, layer, stage_of
from viewer.backends.onnx_file import OnnxFile
from viewer.backends.onnx_graph import Graph, module_name
from viewer.backends.position_call import Lost

_NCHW, _NHWC = ((), (), (0,), (1,)), ((), (0,), (1,), ())


def onnx_receptive_fields(name: str, file: OnnxFile, input_name: str, layout: str) -> NetworkFields:
    """Follow the graph.

    Parameters
    ----------
    name
        What to call the network.
    file
        As `viewer.backends.onnx_file.read_onnx` gives it.
    input_name
        The input a picture goes into.
    layout
        "NCHW" or "NHWC".
    """
    graph = Graph(file.proto, file.folder)
    shapes = _Shapes(file.proto)
    known: dict[str, Companion] = {input_name: picture(_NHWC if layout == "NHWC" else _NCHW)}
    collector, end = Collector(), ""
    for node in graph.nodes:
        if not any(name in known for name in node.input):
            continue
        found = _followed(rules.At(node, graph, known.get, shapes.of))
        known.update({out: found for out in node.output if out and found is not None})
        if any(isinstance(known.get(name), Seen) for name in node.input):
            end = end or _tell(collector, rules.At(node, graph, known.get, shapes.of), found)
    return NetworkFields(name, "onnx", collector.rows(), end)


def _followed(at: rules.At) -> Companion | None:
    """Return what a node's results see, of which one input at least is known."""
    known = [found for name in at.node.input if (found := at.known(name)) is not None]
    lost = next((found for found in known if isinstance(found, Lost)), None)
    if lost is not None:
        return None if at.node.op_type in rules.NUMBERS else lost
    if any(isinstance(found, Seen) for found in known):
        return rules.apply(at)
    mixed = next((found for found in known if isinstance(found, Whole) and not found.uniform), known[0])
    return None if at.node.op_type in rules.NUMBERS else mixed


def _tell(collector: Collector, at: rules.At, found: Companion | None) -> str:
    """Take the layer that a node is; return where and why fields end, if they do."""
    module, label = module_name(at.node), at.node.name or next(iter(at.node.output), "")
    if isinstance(found, Seen):
        # Where no name tells the stage, the stride does.
        stage = stage_of(module) if module else f"stride {found.jump[0]:g}"
        windows = rules.windows_of(at)
        if windows is not None:
            collector.add(layer(module or label, windows.kind, found, windows.sizes), stage)
        if not found.blocks:
            collector.passed(stage, found)
        return ""
    where = module or label
    if isinstance(found, Lost):
        return f"No fields after {where}: {found.reason}."
    if isinstance(found, Whole) and not found.uniform:
        return MIXED.format(where)
    return ""


class _Shapes:
    """Shapes of a graph's tensors, inferred only once they are asked for; a batch of any size counts as 1."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self._proto = proto

    @cached_property
    def _known(self) -> dict[str, tuple[int | None, ...]]:
        graph = self._proto.graph
        # It fails on models over 2 GB and on graphs that make no sense.
        with suppress(RuntimeError, ValueError, TypeError):
            graph = shape_inference.infer_shapes(self._proto).graph
        return {value.name: _dims(value) for value in (*graph.input, *graph.value_info, *graph.output)}

    def of(self, name: str) -> tuple[int, ...] | None:
        dims = self._known.get(name)
        if not dims:
            return None
        dims = (dims[0] or 1, *dims[1:])
        return None if None in dims else dims  # type: ignore[return-value]


def _dims(value: onnx.ValueInfoProto) -> tuple[int | None, ...]:
    return tuple(dim.dim_value or None for dim in value.type.tensor_type.shape.dim)
