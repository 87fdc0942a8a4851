"""Running an ONNX model as it is written, to find where the tokens of its attention sit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from viewer.attention.layout import TokenLayout
from viewer.backends.model import Job
from viewer.backends.one_grid import require_one_grid
from viewer.backends.onnx_found import OnnxProgram
from viewer.backends.onnx_layout import layouts_of, traced_nodes, unknown_controls
from viewer.backends.onnx_places import UnknownPlace
from viewer.backends.onnx_session import open_session, run_session
from viewer.errors import LayoutError

_SHAPE = "/patchreach_shape"


def find_layouts(
    program: OnnxProgram, feed: npt.NDArray[Any], layout: str, job: Job
) -> tuple[tuple[TokenLayout, TokenLayout], ...]:
    """Run once unrewritten, for shapes and indices, and follow the tokens.

    Parameters
    ----------
    program
        The model.
    feed
        What the picture's input takes.
    layout
        "NCHW" or "NHWC".
    job
        Told of progress; cancels.

    Returns
    -------
    tuple
        Layouts of queries and keys, for each operation.

    Raises
    ------
    Cancelled
        If the job was cancelled.
    LayoutError
        If the place of the tokens can't be found, or the operations have grids of their own.
    """
    shapes, indices = _probe(program, feed, job)
    try:
        layouts = layouts_of(program.graph, program.found, (program.image, layout), shapes, indices)
    except UnknownPlace as error:
        raise LayoutError(program.name, str(error)) from error
    named = zip(program.found, layouts, strict=True)
    require_one_grid(program.name, ((match.name, *sides) for match, sides in named))
    return tuple(layouts)


def _probe(
    program: OnnxProgram, feed: npt.NDArray[Any], job: Job
) -> tuple[dict[str, tuple[int, ...]], dict[str, npt.NDArray[np.int64]]]:
    """Run on the CPU; return the shape of every tensor on the way, and the indices that only a run tells."""
    nodes = traced_nodes(program.graph, program.found)
    operands = [operand.tensor for match in program.found for operand in (match.queries, match.keys)]
    names = dict.fromkeys(
        [*operands, *(name for node in nodes for name in (*node.input, *node.output) if name)]
    )
    shape_nodes = [onnx.helper.make_node("Shape", [name], [name + _SHAPE]) for name in names]
    controls = unknown_controls(program.graph, nodes)
    wanted = [*controls, *(name + _SHAPE for name in names)]
    session = open_session(program.file, outputs=wanted, nodes=shape_nodes, optimized=False)
    found = run_session(session, {program.image: feed}, wanted, job, "Finding where tokens sit")
    shapes = {name: tuple(found[name + _SHAPE].tolist()) for name in names}
    return shapes, {name: found[name] for name in controls}
