"""Receptive fields read from ONNX graphs agree with those of the networks they were exported from."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import timm
import torch
from onnx import TensorProto, helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
from torch import nn

from tests.backends.test_receptive_field import RESNETS, STAGES
from viewer.backends.network_fields import NetworkFields
from viewer.backends.networks import network_fields
from viewer.backends.receptive_field import receptive_fields
from viewer.errors import ModelFileError

SIZE = (64, 64)


def exported(model: torch.nn.Module, path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.eval(), torch.zeros(1, 3, *SIZE), path, dynamo=False, opset_version=17, input_names=["x"]
        )
    return path


def rows(found: NetworkFields) -> list[tuple[object, ...]]:
    return [dataclasses.astuple(layer) for layer in found.layers]


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_resnets_have_the_published_fields(name: str, tmp_path: Path) -> None:
    found = network_fields(exported(timm.create_model(name), tmp_path / f"{name}.onnx"))
    assert found.backend == "onnx"
    assert [(stage.name, stage.field[0]) for stage in found.stages] == list(
        zip(STAGES, RESNETS[name], strict=True)
    )


@pytest.mark.parametrize("name", ["convnext_atto", "mobilenetv3_small_050"])
def test_every_row_agrees_with_the_module(name: str, tmp_path: Path) -> None:
    model = timm.create_model(name).eval()
    found = network_fields(exported(model, tmp_path / "it.onnx"))
    assert rows(found) == rows(receptive_fields(name, model, SIZE))


class _Pictures(CalibrationDataReader):
    def __init__(self) -> None:
        self._left = iter([{"x": np.ones((1, 3, *SIZE), np.float32)}])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._left, None)


@pytest.mark.parametrize("format", [QuantFormat.QOperator, QuantFormat.QDQ])
def test_rounded_weights_keep_the_fields(format: QuantFormat, tmp_path: Path) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU()
    )
    path = exported(nn.Sequential(model, nn.AdaptiveAvgPool2d(1)), tmp_path / "float.onnx")
    quantize_static(path, tmp_path / "int8.onnx", _Pictures(), quant_format=format)
    found = network_fields(tmp_path / "int8.onnx")
    assert [layer.field[0] for layer in found.layers if layer.kind != "stage"] == [7, 11, 19]
    assert found.end == ""


def _graph(nodes: list[onnx.NodeProto], path: Path) -> Path:
    weight = helper.make_tensor("w", TensorProto.FLOAT, (3, 3, 3, 3), [0.1] * 81)
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 3, "h", "w"))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weight],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def test_no_names_and_no_shapes_are_needed(tmp_path: Path) -> None:
    conv = helper.make_node("Conv", ["x", "w"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1])
    again = helper.make_node("Conv", ["a", "w"], ["b"], dilations=[2, 2], auto_pad="SAME_UPPER")
    pool = helper.make_node("AveragePool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2])
    total = helper.make_node("GlobalAveragePool", ["c"], ["y"])
    found = network_fields(_graph([conv, again, pool, total], tmp_path / "plain.onnx"))
    assert [(layer.field[0], layer.jump[0]) for layer in found.layers if layer.kind != "stage"] == [
        (3, 2),
        (11, 2),
        (13, 4),
    ]
    assert [stage.name for stage in found.stages] == ["stride 2", "stride 4"]


def test_what_is_not_known_ends_it_by_name(tmp_path: Path) -> None:
    conv = helper.make_node("Conv", ["x", "w"], ["a"], name="first")
    other = helper.make_node("NonZero", ["a"], ["y"], name="odd")
    found = network_fields(_graph([conv, other], tmp_path / "odd.onnx"))
    assert found.end == "No fields after odd: the trace of fields stopped at the operation 'NonZero'."


def test_a_file_without_a_picture_is_refused(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 8))],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "text.onnx")
    with pytest.raises(ModelFileError, match="no single input for a picture"):
        network_fields(tmp_path / "text.onnx")
