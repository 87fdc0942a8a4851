"""Naming attention after the parameters that its queries and keys are made with."""

from __future__ import annotations

import re

import onnx

from viewer.backends.onnx_forms import MIXING
from viewer.backends.onnx_found import Found
from viewer.backends.onnx_graph import Graph, walk_back

_THROUGH = MIXING | {"Slice", "Split", "Gather", "Cast", "Identity", "LayerNormalization"}
# As PyTorch calls parameters: "blocks.0.attn.qkv.weight".
_PARAMETER = re.compile(r"([\w.-]+)\.(weight|bias)")


def parameters_module(graph: Graph, found: Found) -> str:
    """Return the module around the projections of queries and keys ("blocks.0.attn"); empty if unknown.

    Optimizers leave out what exporters note of modules, but parameters keep their names.
    """
    paths = [path for path in (_nearest(graph, side.tensor) for side in (found.queries, found.keys)) if path]
    if not paths:
        return ""
    shared = []
    for steps in zip(*paths, strict=False):
        if len(set(steps)) > 1:
            break
        shared.append(steps[0])
    # One projection makes both: the module is the one around it.
    return ".".join(shared[:-1] if shared in paths else shared)


def _nearest(graph: Graph, tensor: str) -> list[str]:
    """Return the path of the module whose parameter was used last on the way to a tensor."""
    for maker in walk_back(graph, tensor, _THROUGH, lambda node: not _module_of(graph, node)):
        path = _module_of(graph, maker)
        if path:
            return path
    return []


def _module_of(graph: Graph, node: onnx.NodeProto) -> list[str]:
    for name in node.input:
        told = _PARAMETER.fullmatch(name) if name in graph.initializers else None
        if told is not None and "." in name:
            return told[1].split(".")
    return []
