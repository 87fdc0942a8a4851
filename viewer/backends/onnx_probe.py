"""Finding the shapes and indices that tell where the tokens of an ONNX model's attention sit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from viewer.attention.query import one_thread
from viewer.backends.layer_plans import Planned
from viewer.backends.model import Job
from viewer.backends.onnx_arrangement import Arrangement, needed_shapes
from viewer.backends.onnx_found import OnnxProgram
from viewer.backends.onnx_layout import plan_attention, traced_nodes, unknown_controls
from viewer.backends.onnx_moves import moved_inputs
from viewer.backends.onnx_session import open_session, run_session
from viewer.backends.onnx_static import told_by_graph

Shapes = dict[str, tuple[int, ...]]
Indices = dict[str, npt.NDArray[np.int64]]

_SHAPE = "/patchreach_shape"


def find_plan(
    program: OnnxProgram,
    feeds: Mapping[str, npt.NDArray[Any]],
    layout: str,
    job: Job,
    seen: Mapping[str, npt.NDArray[Any]],
) -> tuple[Planned, tuple[Arrangement | None, ...]]:
    """Find shapes and indices, and follow the tokens.

    Parameters
    ----------
    program
        The model.
    feeds
        What its inputs take.
    layout
        "NCHW" or "NHWC".
    job
        Told of progress; cancels.
    seen
        Tensors of a real run, by name, whose shapes must be those that were found.

    Returns
    -------
    tuple
        See `onnx_layout.plan_attention`.

    Raises
    ------
    Cancelled
        If the job was cancelled.
    LayoutError
        If the place of no operation's tokens can be found.
    """
    shapes, indices = probe(program, feeds, job, seen)
    with one_thread():  # what is computed here waits longer for helper threads than it takes
        return plan_attention(program, layout, shapes, indices)


def probe(
    program: OnnxProgram,
    feeds: Mapping[str, npt.NDArray[Any]],
    job: Job,
    seen: Mapping[str, npt.NDArray[Any]],
) -> tuple[Shapes, Indices]:
    """Return the shape of every tensor on the way, and the indices that the file does not fix.

    The graph tells them without a run, mostly. Where it leaves some open, or tells a shape that a real run
    did not have, the model runs once as it is written.
    """
    nodes = traced_nodes(program.graph, program.found)
    traced = (name for node in nodes for name in (*moved_inputs(node), *node.output) if name)
    names = list(dict.fromkeys([program.image, *needed_shapes(program.found), *traced]))
    controls = unknown_controls(program.graph, nodes)
    shapes, indices = told_by_graph(program, feeds, names, controls)
    if any(shapes[name] != value.shape for name, value in seen.items() if name in shapes):
        shapes, indices = {}, {}
    if all(name in shapes for name in names) and all(name in indices for name in controls):
        return shapes, indices
    return run_for_shapes(program, feeds, names, controls, job)


def run_for_shapes(
    program: OnnxProgram,
    feeds: Mapping[str, npt.NDArray[Any]],
    names: Sequence[str],
    controls: Sequence[str],
    job: Job,
) -> tuple[Shapes, Indices]:
    """Run on the CPU as the model is written; return shapes of `names` and values of `controls`."""
    initializers = program.graph.initializers
    stored = {name: tuple(initializers[name].dims) for name in names if name in initializers}
    asked = [name for name in names if name not in stored]
    shape_nodes = [onnx.helper.make_node("Shape", [name], [name + _SHAPE]) for name in asked]
    wanted = [*controls, *(name + _SHAPE for name in asked)]
    session = open_session(program.file, outputs=wanted, nodes=shape_nodes, optimized=False)
    found = run_session(session, feeds, wanted, job, "Finding where tokens sit")
    shapes = {name: tuple(found[name + _SHAPE].tolist()) for name in asked}
    return stored | shapes, {name: found[name] for name in controls}
