"""Arguments and files that make no sense: each gives a sentence of our own, never a raw traceback."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from tests.backends.onnx_tiny import build
from tests.backends.test_onnx_file import BODY, PICTURE, with_external_weights
from tests.backends.timm_zoo import attending
from tests.backends.timm_zoo import build as build_timm
from viewer import open_model
from viewer.backends.onnx_model import open_onnx
from viewer.errors import DeviceError, InputError, ModelFileError, PatchreachError


@pytest.fixture(scope="module")
def vit():
    return attending("vit_tiny_patch16_224", build_timm("vit_tiny_patch16_224"))


@pytest.fixture(scope="module")
def record(vit):
    return vit.attend(torch.zeros(1, 3, 64, 64))


@pytest.mark.parametrize(
    "size", [(224,), (), (True, 224), True, 224.0, (224.0, 224), "big", (0, 4), [224, 224]]
)
def test_what_is_no_input_size(size):
    with pytest.raises(InputError, match="is no input size"):
        open_model("vit_tiny_patch16_224", image_size=size)


@pytest.mark.parametrize("device", [None, 0, "", "gpu", torch.device("cpu")])
def test_what_is_no_device(device, tmp_path):
    with pytest.raises(DeviceError, match="is no device"):
        open_model("vit_tiny_patch16_224", device=device)
    with pytest.raises(DeviceError, match="is no device"):
        open_model(build(BODY, tmp_path / "m.onnx"), device=device)


@pytest.mark.filterwarnings("ignore")  # PyTorch's own notices about these tensors
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(1, 3, 64, 64, device="meta"),
        lambda: torch.zeros(1, 3, 64, 64).to_sparse(),
        lambda: torch.nested.nested_tensor([torch.zeros(3, 64, 64)]),
        lambda: torch.quantize_per_tensor(torch.zeros(1, 3, 64, 64), 0.1, 0, torch.quint8),
        lambda: torch.zeros(1, 3, 64, 64, dtype=torch.complex64),
        lambda: torch.zeros(0),
    ],
)
def test_what_is_no_tensor_to_attend_to(vit, make):
    with pytest.raises(InputError, match="takes"):
        vit.attend(make())


@pytest.mark.parametrize(
    "query", [None, (1,), (), (0, 0, 0), 1.5, True, (0.0, 0.0), (None, 0), np.nan, [0, 0], -1, "x"]
)
def test_what_is_no_query(record, query):
    with pytest.raises(LookupError, match="There is no"):
        record.layers[0].weights(query)


@pytest.mark.parametrize("head", [True, None, 1.0, "0", -1, 3, (0,)])
def test_what_is_no_head(record, head):
    with pytest.raises(LookupError, match="There is no head"):
        record.layers[0].matrix(head)


def test_numpy_numbers_are_numbers(record):
    layer = record.layers[0]
    assert np.array_equal(layer.weights((np.int64(1), np.int32(2))), layer.weights((1, 2)))
    assert np.array_equal(layer.matrix(np.int64(1)), layer.matrix(1))


CONFIGS = [
    b"", b"\xff\xfe", b"[1]", b"3", b"null", b'{"image_mean": 1}', b"[" * 20000,
    b'{"image_mean": [0.5, 0.5, NaN], "image_std": [0.5, 0.5, 0.5]}',
    b'{"image_mean": [0.5], "image_std": [0.5], "resample": [2]}',
    *(
        b'{"image_mean": [0.5], "image_std": [0.5], "do_center_crop": 1, ' + sizes
        for sizes in (
            b'"size": {"shortest_edge": 0}, "crop_size": {}}',
            b'"size": {"shortest_edge": "x"}, "crop_size": {}}',
            b'"size": {"shortest_edge": 9}, "crop_size": {"height": -3}}',
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("text", CONFIGS)
def test_garbage_beside_the_file_is_left_alone_and_said(text, tmp_path):
    path = build(BODY, tmp_path / "m.onnx")
    (tmp_path / "preprocessor_config.json").write_bytes(text)
    model = open_onnx(path)
    assert "ImageNet mean" in model.preprocessing.assumed
    assert model.attend(torch.from_numpy(PICTURE)).verified


@pytest.mark.timeout(60)
def test_a_pipe_beside_the_file_is_not_read(tmp_path):
    path = build(BODY, tmp_path / "m.onnx")
    os.mkfifo(tmp_path / "preprocessor_config.json")
    assert "ImageNet mean" in open_onnx(path).preprocessing.assumed


def test_a_deviation_of_zero_is_not_divided_by(tmp_path):
    path = build(BODY, tmp_path / "m.onnx")
    config = {"image_mean": [0.5] * 3, "image_std": [0.0] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    assert min(open_onnx(path).preprocessing.std) > 0


def changed(path, change):
    """Save a model anew after `change(proto)`."""
    proto = onnx.load(path, load_external_data=False)
    change(proto)
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize("offset", ["garbage", "-5", "1e3", "", "9" * 30, "½"])
@pytest.mark.parametrize("key", ["offset", "length"])
def test_garbage_for_where_external_weights_lie(tmp_path, key, offset):
    path, _ = with_external_weights(tmp_path)

    def spoil(proto):
        entry = next(tensor for tensor in proto.graph.initializer if tensor.external_data).external_data.add()
        entry.key, entry.value = key, offset

    with pytest.raises(ModelFileError, match="no numbers for where weights lie"):
        open_onnx(changed(path, spoil))


@pytest.mark.parametrize("name", [b"context4", b"Softmax", b"picture", b"patch_weight", b"perm"])
def test_names_that_are_no_text(tmp_path, name):
    path = build(BODY, tmp_path / "m.onnx")
    path.write_bytes(path.read_bytes().replace(name, b"\xff\xfe" + name[2:]))
    with pytest.raises(ModelFileError, match="some of its names are no text"):
        open_onnx(path)


def test_a_graph_that_hands_nothing_out(tmp_path):
    path = changed(build(BODY, tmp_path / "m.onnx"), lambda proto: proto.graph.ClearField("output"))
    with pytest.raises(ModelFileError, match="hands nothing out"):
        open_onnx(path)


def test_a_sequence_beside_the_output_is_passed_by(tmp_path):
    def add(proto):
        proto.graph.node.append(helper.make_node("SequenceConstruct", ["out", "out"], ["both"]))
        proto.graph.output.append(helper.make_tensor_sequence_value_info("both", TensorProto.FLOAT, None))

    plain = open_onnx(build(BODY, tmp_path / "p.onnx")).attend(torch.from_numpy(PICTURE))
    record = open_onnx(changed(build(BODY, tmp_path / "m.onnx"), add)).attend(torch.from_numpy(PICTURE))
    assert record.verified
    assert record.output_unchanged
    assert np.array_equal(record.output, plain.output)


def test_nodes_in_reverse_order_are_put_in_order(tmp_path):
    def turn(proto):
        nodes = list(proto.graph.node)[::-1]
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del proto.graph.node[:]
        proto.graph.node.extend(copies)

    plain = open_onnx(build(BODY, tmp_path / "p.onnx")).attend(torch.from_numpy(PICTURE))
    record = open_onnx(changed(build(BODY, tmp_path / "m.onnx"), turn)).attend(torch.from_numpy(PICTURE))
    assert record.verified
    for one, other in zip(record.layers, plain.layers, strict=True):
        assert np.array_equal(one.matrix(0), other.matrix(0))
        assert np.array_equal(one.key_layout.positions, other.key_layout.positions)


def test_nodes_in_a_circle(tmp_path):
    def tie(proto):
        proto.graph.node[0].input[0] = "out"

    with pytest.raises(ModelFileError, match="in a circle"):
        open_onnx(changed(build(BODY, tmp_path / "m.onnx"), tie))


@pytest.mark.parametrize("kind", ["input", "output", "attribute"])
def test_nodes_that_lack_what_they_need(tmp_path, kind):
    """Every node in turn loses its inputs, outputs or attributes: a sentence, or it did not matter."""
    whole = onnx.load(build(BODY, tmp_path / "m.onnx"))
    for at in range(len(whole.graph.node)):
        broken = onnx.ModelProto.FromString(whole.SerializeToString())
        broken.graph.node[at].ClearField(kind)
        path = tmp_path / f"{at}.onnx"
        path.write_bytes(broken.SerializeToString())
        with contextlib.suppress(PatchreachError):
            open_onnx(path).attend(torch.from_numpy(PICTURE))


def test_the_hash_is_of_what_was_opened_and_what_runs(tmp_path):
    path = build(BODY, tmp_path / "m.onnx")
    was = hashlib.sha256(path.read_bytes()).hexdigest()
    model = open_onnx(path)
    before = open_onnx(path).attend(torch.from_numpy(PICTURE))
    path.write_bytes(b"replaced")
    record = model.attend(torch.from_numpy(PICTURE))
    assert record.provenance.model_sha256 == was
    assert record.output_unchanged
    assert np.array_equal(record.output, before.output)


def test_external_weights_replaced_after_opening(tmp_path):
    path, _ = with_external_weights(tmp_path)
    model = open_onnx(path)
    data = (tmp_path / "model.bin").read_bytes()
    (tmp_path / "model.bin").write_bytes(bytes(len(data)))
    os.utime(tmp_path / "model.bin", ns=(1, 1))
    with pytest.raises(ModelFileError, match=r"model\.bin, which changed since the model was opened"):
        model.attend(torch.from_numpy(PICTURE))
