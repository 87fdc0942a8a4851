"""Running an ONNX model as it is written, to find where the tokens of its attention sit."""

from __future__ import annotations

from collections.abc import Mapping
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
from viewer.backends.onnx_session import open_session, run_session

_SHAPE = "/patchreach_shape"


def find_plan(
    program: OnnxProgram, feeds: Mapping[str, npt.NDArray[Any]], layout: str, job: Job
) -> tuple[Planned, tuple[Arrangement | None, ...]]:
    """Run once unrewritten, for shapes and indices, and follow the tokens.

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
    shapes, indices = probe(program, feeds, job)
    with one_thread():  # what is computed here waits longer for helper threads than it takes
        return plan_attention(program, layout, shapes, indices)


def probe(
    program: OnnxProgram, feeds: Mapping[str, npt.NDArray[Any]], job: Job
) -> tuple[dict[str, tuple[int, ...]], dict[str, npt.NDArray[np.int64]]]:
    """Run on the CPU; return the shape of every tensor on the way, and the indices that only a run tells."""
    nodes = traced_nodes(program.graph, program.found)
    traced = (name for node in nodes for name in (*node.input, *node.output) if name)
    names = dict.fromkeys([program.image, *needed_shapes(program.found), *traced])
    stored = {
        name: tuple(program.graph.initializers[name].dims)
        for name in names
        if name in program.graph.initializers
    }
    asked = [name for name in names if name not in stored]
    shape_nodes = [onnx.helper.make_node("Shape", [name], [name + _SHAPE]) for name in asked]
    controls = unknown_controls(program.graph, nodes)
    wanted = [*controls, *(name + _SHAPE for name in asked)]
    session = open_session(program.file, outputs=wanted, nodes=shape_nodes, optimized=False)
    found = run_session(session, feeds, wanted, job, "Finding where tokens sit")
    shapes = {name: tuple(found[name + _SHAPE].tolist()) for name in asked}
    return stored | shapes, {name: found[name] for name in controls}
