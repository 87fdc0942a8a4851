"""ONNX files that can't be opened say what they are; external weights stay in files of their own."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from tests.backends.onnx_tiny import PICTURE, PLAIN, build
from tests.backends.onnx_zoo import export, picture, true_attention
from viewer.backends.onnx_file import read_onnx
from viewer.backends.onnx_model import open_onnx
from viewer.errors import ModelFileError

BODY = f"{PLAIN} p = Softmax <axis = -1> (s)\n context = MatMul (p, v)"
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 97447603\n"
FOREIGN = {
    "empty": (b"", "is empty (0 bytes). Copy or download it again."),
    "page": (
        b"<!DOCTYPE html><html><body>Sign in</body></html>",
        "is a web page, not an ONNX model. "
        "The download link led to a page instead of the file; download the file itself.",
    ),
    "pointer": (
        LFS.encode(),
        "is a Git LFS pointer, not an ONNX model. Fetch the real file with `git lfs pull`.",
    ),
    "archive": (
        b"PK\x03\x04" + bytes(60),
        "is a ZIP archive (PyTorch checkpoints are such archives), not an ONNX model.",
    ),
    "pickle": (
        b"\x80\x02}q\x00" + bytes(60),
        "is a Python pickle (old PyTorch checkpoints are), not an ONNX model.",
    ),
    "safetensors": (
        b"\x10\x00\x00\x00\x00\x00\x00\x00" + b'{"a":{"dtype":1}}',
        "is a safetensors file, not an ONNX model.",
    ),
    "json": (b'{"model": "vit"}', "is JSON text, not an ONNX model."),
    "noise": (
        bytes(range(255, 0, -1)) * 4,
        "can't be read as an ONNX model: its 1,020 bytes are cut off, damaged or something else. "
        "Copy or download it again.",
    ),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_foreign_files_are_named(kind, tmp_path):
    data, sentence = FOREIGN[kind]
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelFileError) as caught:
        open_onnx(path)
    assert str(caught.value) == f"{path} {sentence}"


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(ModelFileError, match=r"none\.onnx does not exist\.$"):
        open_onnx(tmp_path / "none.onnx")
    with pytest.raises(ModelFileError, match=r"is a folder, not a file\.$"):
        open_onnx(tmp_path)


def test_every_cut_of_a_real_model_is_an_error_for_a_person(tmp_path):
    whole = build(BODY, tmp_path / "whole.onnx").read_bytes()
    cut = tmp_path / "cut.onnx"
    for end in range(1, len(whole), 97):
        cut.write_bytes(whole[:end])
        with pytest.raises(ModelFileError):
            open_onnx(cut)


def test_other_protobuf(tmp_path):
    path = tmp_path / "tensor.onnx"
    path.write_bytes(numpy_helper.from_array(np.arange(600, dtype=np.int64), "weights").SerializeToString())
    with pytest.raises(
        ModelFileError, match=r"tensor\.onnx (can't be read as|is a protobuf file, but not) an ONNX model"
    ):
        open_onnx(path)


def test_operators_that_the_runtime_lacks(tmp_path):
    path = build(BODY, tmp_path / "custom.onnx")
    model = onnx.load(path)
    softmax = next(node for node in model.graph.node if node.op_type == "Softmax")
    kept = softmax.output[0]
    softmax.output[0] = "before"
    model.graph.node.insert(
        list(model.graph.node).index(softmax) + 1, helper.make_node("Identity", ["before"], ["middle"])
    )
    model.graph.node.insert(
        list(model.graph.node).index(softmax) + 2, helper.make_node("Identity", ["middle"], [kept])
    )
    odd = next(node for node in model.graph.node if node.op_type == "Conv")
    odd.op_type, odd.domain = "DeformConv", "com.example"
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    onnx.save(model, path)
    with pytest.raises(ModelFileError) as caught:
        open_onnx(path)
    assert "can't be run by ONNX Runtime" in str(caught.value)
    assert "DeformConv" in str(caught.value)


def with_external_weights(folder: Path) -> tuple[Path, onnx.ModelProto]:
    path = build(BODY, folder / "model.onnx")
    model = onnx.load(path)
    onnx.save_model(model, path, save_as_external_data=True, location="model.bin", size_threshold=128)
    return path, onnx.load(path, load_external_data=False)


def test_external_weights_stay_where_they_are(tmp_path, monkeypatch):
    embedded = open_onnx(build(BODY, tmp_path / "embedded.onnx")).attend(torch.from_numpy(PICTURE))
    path, proto = with_external_weights(tmp_path)
    assert sum(tensor.data_location == TensorProto.EXTERNAL for tensor in proto.graph.initializer) == 4
    monkeypatch.chdir(Path(path.anchor))  # nothing may depend on the working folder
    file = read_onnx(path)
    assert file.external
    record = open_onnx(path).attend(torch.from_numpy(PICTURE))
    for one, other in zip(record.layers, embedded.layers, strict=True):
        assert torch.equal(one.scores.weights(slice(None)), other.scores.weights(slice(None)))
    assert record.verified


def test_exporters_own_external_weights(tmp_path):
    path = export("dinov2-registers", "dynamo-18", tmp_path / "model.onnx", external_data=True)
    assert (tmp_path / "model.onnx.data").stat().st_size > path.stat().st_size / 2
    record = open_onnx(path).attend(picture("dinov2-registers"))
    assert record.layout.prefix_names == ("cls", "reg1", "reg2", "reg3", "reg4")
    for layer, truth in zip(record.layers, true_attention("dinov2-registers"), strict=True):
        assert np.abs(layer.scores.weights(slice(None)).numpy() - truth).max() < 1e-5


def test_missing_and_short_external_weights(tmp_path):
    path, _ = with_external_weights(tmp_path)
    data = tmp_path / "model.bin"
    whole = data.read_bytes()
    data.write_bytes(whole[:100])
    with pytest.raises(
        ModelFileError, match=r"keeps its weights in model\.bin, which is cut off: 100 of at least"
    ):
        open_onnx(path)
    data.unlink()
    with pytest.raises(ModelFileError) as caught:
        open_onnx(path)
    assert str(caught.value) == (
        f"{path} keeps its weights in model.bin, which is missing. Put that file next to the model."
    )


@pytest.mark.parametrize(
    "place", ["../outside.bin", "/etc/hostname", "sub/../../outside.bin", "C:\\outside.bin"]
)
def test_external_weights_outside_the_folder_are_refused(place, tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    path, proto = with_external_weights(inside)
    shutil.copy(inside / "model.bin", tmp_path / "outside.bin")
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = place
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelFileError, match="asks for weights outside its own folder"):
        open_onnx(path)


def test_link_out_of_the_folder_is_refused(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    path, _ = with_external_weights(inside)
    shutil.move(inside / "model.bin", tmp_path / "outside.bin")
    (inside / "model.bin").symlink_to(tmp_path / "outside.bin")
    with pytest.raises(ModelFileError, match="asks for weights outside its own folder"):
        open_onnx(path)


def test_model_above_two_gibibytes(tmp_path):
    """A table of 2.2 GiB, a hole on disk, that the model reads one row of."""
    rows, width = 4_400, 134_217  # 2.2 GiB of float32, more than a protobuf can hold
    if psutil.virtual_memory().available < 9 << 30 or shutil.disk_usage(tmp_path).free < 4 << 30:
        pytest.skip("needs 9 GiB of memory and 4 GiB of disk")
    body = (
        f"row = Gather (table, first)\n total = ReduceSum <keepdims = 0> (row)\n {PLAIN} z = Add (s, total)\n"
    )
    path = build(
        body + "p = Softmax <axis = -1> (z)\n context = MatMul (p, v)", tmp_path / "huge.onnx", check=False
    )
    model = onnx.load(path)
    table = TensorProto(name="table", data_type=TensorProto.FLOAT, dims=[rows, width])
    table.data_location = TensorProto.EXTERNAL
    size = rows * width * 4
    for key, value in {"location": "huge.bin", "offset": "0", "length": str(size)}.items():
        table.external_data.add(key=key, value=value)
    model.graph.initializer.extend([table, numpy_helper.from_array(np.array([0]), "first")])
    path.write_bytes(model.SerializeToString())
    with (tmp_path / "huge.bin").open("wb") as hole:
        hole.truncate(size)
    assert size > 2 << 30

    opened = open_onnx(path)
    record = opened.attend(torch.from_numpy(PICTURE))
    assert record.verified
    assert record.grid == (2, 3)
    assert opened.file.proto.ByteSize() < 100_000
