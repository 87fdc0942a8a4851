"""Shapes and indices that a graph tells without a run are those of a run, for exports of all kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from tests.backends.onnx_wild import NEW, OLD, Choosing, Tower, built, export, grids, picture
from tests.backends.test_onnx_optimized import optimized, saved
from viewer.backends import onnx_probe
from viewer.backends.model import Job
from viewer.backends.onnx_arrangement import needed_shapes
from viewer.backends.onnx_found import OnnxProgram
from viewer.backends.onnx_layout import traced_nodes, unknown_controls
from viewer.backends.onnx_model import open_onnx
from viewer.backends.onnx_moves import moved_inputs
from viewer.backends.onnx_probe import probe, run_for_shapes
from viewer.backends.onnx_static import told_by_graph

PIXELS = picture((64, 64))


def asked(path: Path) -> tuple[OnnxProgram, Mapping[str, np.ndarray], list[str], list[str]]:
    """Open a model; name the shapes and indices that following its tokens takes."""
    program = open_onnx(path).runner.program
    nodes = traced_nodes(program.graph, program.found)
    names = [name for node in nodes for name in (*moved_inputs(node), *node.output) if name]
    names = list(dict.fromkeys([program.image, *needed_shapes(program.found), *names]))
    feeds = {program.image: PIXELS.numpy(), **program.fillers}
    return program, feeds, names, unknown_controls(program.graph, nodes)


def check_all_told(path: Path, pixels: torch.Tensor = PIXELS) -> None:
    program, feeds, names, controls = asked(path)
    feeds = {**feeds, program.image: pixels.numpy()}
    shapes, values = told_by_graph(program, feeds, names, controls)
    real_shapes, real_values = run_for_shapes(program, feeds, names, controls, Job())
    assert {name: shapes.get(name) for name in names} == real_shapes
    assert values.keys() == real_values.keys()
    for name, value in real_values.items():
        np.testing.assert_array_equal(values[name], value, strict=True)


@pytest.mark.parametrize("options", [OLD, NEW], ids=["older", "newer"])
@pytest.mark.parametrize("name", ["tower", "swin", "cait", "pvt-v2"])
def test_what_the_graph_tells_is_what_a_run_finds(name, options, tmp_path):
    net = built(Tower) if name == "tower" else grids(name)
    pixels = picture((64, 96)) if name == "pvt-v2" else PIXELS
    path = export(net, (pixels,), tmp_path / "net.onnx", **options)
    check_all_told(path, pixels)
    if name == "swin" and options is OLD:
        assert asked(path)[3]  # its windows are shifted by indices that are computed


@pytest.mark.parametrize("level", ["ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
def test_operators_of_onnx_runtime_tell_their_shapes(level, tmp_path):
    path = export(built(Tower), (PIXELS,), tmp_path / "tower.onnx")
    check_all_told(saved(path, tmp_path / "saved.onnx", level))


def test_fused_attention_tells_its_shapes(tmp_path):
    path = export(built(Tower), (PIXELS,), tmp_path / "tower.onnx")
    check_all_told(optimized(path, tmp_path / "fused.onnx"))


def test_what_the_picture_decides_only_a_run_tells(tmp_path):
    program, feeds, names, controls = asked(export(built(Choosing), (PIXELS,), tmp_path / "choosing.onnx"))
    _, values = told_by_graph(program, feeds, names, controls)
    assert set(controls) - set(values)
    _, indices = probe(program, feeds, Job(), {})
    _, real = run_for_shapes(program, feeds, names, controls, Job())
    for name in controls:
        np.testing.assert_array_equal(indices[name], real[name])


@pytest.fixture
def runs(monkeypatch) -> list[Sequence[str]]:
    """Names asked of each run."""
    asked_of: list[Sequence[str]] = []

    def counted(*given):
        asked_of.append(given[2])
        return run_for_shapes(*given)

    monkeypatch.setattr(onnx_probe, "run_for_shapes", counted)
    return asked_of


def test_a_shape_that_a_real_run_did_not_have_makes_the_model_run(tmp_path, runs):
    program, feeds, _, _ = asked(export(built(Tower), (PIXELS,), tmp_path / "tower.onnx"))
    queries = program.found[0].queries.tensor
    shapes, _ = probe(program, feeds, Job(), {})
    probe(program, feeds, Job(), {queries: np.zeros(shapes[queries])})
    assert not runs
    again, _ = probe(program, feeds, Job(), {queries: np.zeros((1, 2, 3))})
    assert len(runs) == 1
    assert again == shapes


def test_an_operator_of_which_nothing_tells_the_shape_makes_the_model_run(tmp_path, runs):
    path = export(built(Tower), (PIXELS,), tmp_path / "tower.onnx")
    proto = onnx.load(path)
    first = next(at for at, node in enumerate(proto.graph.node) if node.op_type == "Conv")
    made = proto.graph.node[first].output[0]
    # As many rows as are larger than the lowest number: all, but that only a run can tell.
    for node in proto.graph.node:
        for at, name in enumerate(node.input):
            if name == made:
                node.input[at] = "chosen"
    low = helper.make_tensor("low", TensorProto.FLOAT, [], [-1e30])
    proto.graph.initializer.append(low)
    extra = [
        helper.make_node("ReduceMax", [made], ["highest"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("Greater", ["highest", "low"], ["all"]),
        helper.make_node("Compress", [made, "all"], ["chosen"], axis=0),
    ]
    for at, node in enumerate(extra):
        proto.graph.node.insert(first + 1 + at, node)
    onnx.save(proto, tmp_path / "chosen.onnx")
    program, feeds, _, _ = asked(tmp_path / "chosen.onnx")
    shapes, _ = probe(program, feeds, Job(), {})
    assert len(runs) == 1
    assert shapes["chosen"][0] == 1
