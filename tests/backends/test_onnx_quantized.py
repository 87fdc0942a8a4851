"""Models in 8 bits and in half precision: how much of their attention can be had, and how right it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.backends.onnx_wild import Tower, built, export, grids, picture, truth
from viewer.backends.onnx_model import open_onnx
from viewer.errors import ModelFileError

PIXELS = picture((64, 64))
ROUNDS = "weights of the softmax, which the model rounds before use"


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    return export(built(Tower), (PIXELS,), tmp_path_factory.mktemp("tower") / "tower.onnx")


class Pictures:
    """What static quantization looks at to choose its scales."""

    def __init__(self, name: str) -> None:
        self._left = iter([{name: picture((64, 64), seed).numpy()} for seed in (1, 2)])

    def get_next(self):
        return next(self._left, None)


def dynamic(source: Path, target: Path, **extra: object) -> Path:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # Older versions have no convolution of integers that are signed.
    quantize_dynamic(
        source, target, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul"], extra_options=extra
    )
    return target


def static(source: Path, target: Path, form: str) -> Path:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Reader(Pictures, CalibrationDataReader):
        pass

    name = onnx.load(source).graph.input[0].name
    quantize_static(source, target, Reader(name), quant_format=getattr(QuantFormat, form))
    return target


def check(path: Path, how: str, note: str, off: float) -> None:
    """See that maps are near those of the float model, and verified as those of this one."""
    record = open_onnx(path).attend(PIXELS)
    assert record.verified, [layer.verdict.reason for layer in record.layers]
    for layer, weights in zip(record.layers, truth(built(Tower), PIXELS), strict=True):
        assert (layer.scores.how, layer.note) == (how, note)
        found = layer.scores.weights(slice(None)).numpy()
        np.testing.assert_allclose(found, weights, atol=off)
        assert np.abs(found - weights).mean() < off / 20
        np.testing.assert_allclose(found.sum(-1), 1, atol=1e-5)
        assert layer.key_layout.grid == (4, 4)
        assert layer.key_layout.prefix_names == ("cls",)


def test_dynamic_with_attention_in_floats(plain, tmp_path):
    check(dynamic(plain, tmp_path / "q.onnx"), "query-key", "", 0.1)


def test_dynamic_with_attention_in_integers(plain, tmp_path):
    path = dynamic(plain, tmp_path / "q.onnx", MatMulConstBOnly=False)
    check(path, "weights", ROUNDS, 0.15)


def test_static(plain, tmp_path):
    check(static(plain, tmp_path / "q.onnx", "QDQ"), "weights", ROUNDS, 0.4)


@pytest.mark.parametrize("form", ["dynamic", "QDQ"])
def test_windows_of_which_parts_are_masked(form, tmp_path):
    """What a mask forbids is out of reach, though only the softmax's result can be had."""
    source = export(grids("swin"), (PIXELS,), tmp_path / "swin.onnx")
    if form == "dynamic":
        path = dynamic(source, tmp_path / "q.onnx", MatMulConstBOnly=False)
    else:
        path = static(source, tmp_path / "q.onnx", form)
    record, floats = (open_onnx(file).attend(PIXELS) for file in (path, source))
    assert record.verified
    for layer, twin in zip(record.layers, floats.layers, strict=True):
        assert (layer.scores.how, layer.scores.groups) == ("weights", twin.scores.groups)
        mine, its = layer.matrix(1), twin.matrix(1)
        np.testing.assert_array_equal(np.isnan(mine), np.isnan(its))
        assert np.nanmean(np.abs(mine - its)) < 0.02
        np.testing.assert_array_equal(layer.key_layout.positions, twin.key_layout.positions)


def test_four_bit_weights(plain, tmp_path):
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(onnx.load(plain), block_size=16, is_symmetric=True)
    quantizer.process()
    quantizer.model.save_model_to_file(str(tmp_path / "q.onnx"))
    assert "MatMulNBits" in {node.op_type for node in onnx.load(tmp_path / "q.onnx").graph.node}
    check(tmp_path / "q.onnx", "query-key", "", 0.5)


def test_integers_throughout(plain, tmp_path):
    """Each operator takes and gives integers; the softmax is computed beside, before it is rounded."""
    path = static(plain, tmp_path / "q.onnx", "QOperator")
    assert "QLinearSoftmax" in {node.op_type for node in onnx.load(path).graph.node}
    check(path, "weights", ROUNDS, 0.5)


def test_integers_as_the_runtime_fuses_them(plain, tmp_path):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    options.log_severity_level = 4
    source = static(plain, tmp_path / "q.onnx", "QDQ")
    onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    check(tmp_path / "fused.onnx", "weights", ROUNDS, 0.4)


def test_half_precision(plain, tmp_path):
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(plain), keep_io_types=True), tmp_path / "half.onnx")
    check(tmp_path / "half.onnx", "query-key", "", 0.01)
    onnx.save(convert_float_to_float16(onnx.load(plain), keep_io_types=False), tmp_path / "half.onnx")
    assert open_onnx(tmp_path / "half.onnx").input.dtype is np.float16
    check(tmp_path / "half.onnx", "query-key", "", 0.01)


def in_bfloat16(tensor: TensorProto, name: str) -> TensorProto:
    """Return a tensor with the lower half of each float cut off."""
    bits = numpy_helper.to_array(tensor).astype(np.float32).view(np.uint32) >> 16
    return helper.make_tensor(
        name, TensorProto.BFLOAT16, tensor.dims, bits.astype(np.uint16).tobytes(), raw=True
    )


def test_stored_in_bfloat16(plain, tmp_path):
    """Weights are stored in half the space and cast when they are used."""
    model = onnx.load(plain)
    casts = []
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and len(tensor.dims) > 1:
            name = tensor.name
            tensor.CopyFrom(in_bfloat16(tensor, f"{name}/stored"))
            casts.append(helper.make_node("Cast", [f"{name}/stored"], [name], to=TensorProto.FLOAT))
    assert casts
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*casts, *nodes])
    onnx.save(model, tmp_path / "brain.onnx")
    check(tmp_path / "brain.onnx", "query-key", "", 0.05)


@pytest.mark.parametrize("input_too", [True, False])
def test_computed_in_bfloat16_is_refused_where_it_can_not_run(input_too, plain, tmp_path):
    model = onnx.load(plain)
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(in_bfloat16(tensor, tensor.name))
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].t.data_type == TensorProto.FLOAT:
            node.attribute[0].t.CopyFrom(in_bfloat16(node.attribute[0].t, ""))
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.BFLOAT16
    if input_too:
        model.graph.input[0].type.tensor_type.elem_type = TensorProto.BFLOAT16
    else:
        first = next(node for node in model.graph.node if node.op_type == "Conv")
        cast = helper.make_node("Cast", [first.input[0]], ["brain"], to=TensorProto.BFLOAT16)
        first.input[0] = "brain"
        model.graph.node.insert(0, cast)
        model.opset_import[0].version = 22  # the first in which convolutions take it
    onnx.save(model, tmp_path / "brain.onnx")
    said = (
        "takes its picture as bfloat16"
        if input_too
        else r"can't be run by ONNX Runtime \S+: .*implementation for"
    )
    with pytest.raises(ModelFileError, match=said):
        open_onnx(tmp_path / "brain.onnx")
