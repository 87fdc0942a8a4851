"""Models that want more than one float picture: texts beside it, bytes, channels last, heads of detectors."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from tests.backends.families import run_of
from tests.backends.onnx_tiny import HEADS, PICTURE, build, product, softmax
from tests.backends.onnx_wild import (
    Bytes,
    Choosing,
    Detector,
    DetrDecoder,
    Tower,
    Towers,
    built,
    export,
    grids,
    picture,
    truth,
)
from viewer.backends.onnx_model import open_onnx

PIXELS = picture((64, 64))


@pytest.fixture(scope="module")
def whole_clip(tmp_path_factory):
    inputs = (torch.zeros(1, 8, dtype=torch.int64), PIXELS, torch.ones(1, 8, dtype=torch.int64))
    names = ["input_ids", "pixel_values", "attention_mask"]
    return export(built(Towers), inputs, tmp_path_factory.mktemp("clip") / "clip.onnx", names)


def test_the_picture_tower_of_a_whole_clip(whole_clip):
    model = open_onnx(whole_clip, name="clip")
    record = model.attend(PIXELS)
    assert (
        "clip takes more than a picture; the rest was fed neutral values: "
        "input_ids (zeros), attention_mask (ones)." in record.notes
    )
    assert record.notes[-1] == (
        "The attention of text.attention is left out: its keys have no place on the picture."
    )
    assert record.verified
    for layer, weights in zip(record.layers, truth(built(Towers).vision, PIXELS), strict=True):
        assert layer.name.startswith("vision.layers")
        np.testing.assert_allclose(layer.scores.weights(slice(None)), weights, atol=1e-5)


def test_a_size_beside_the_picture_is_that_of_the_picture(tmp_path):
    def scaled(net):
        class Scaled(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.net = net

            def forward(self, pixel_values, orig_target_sizes):
                return self.net(pixel_values) * orig_target_sizes.repeat(1, 2)[:, None]

        return Scaled()

    inputs = (PIXELS, torch.tensor([[64, 64]]))
    path = export(scaled(built(Detector)), inputs, tmp_path / "m.onnx", ["pixel_values", "orig_target_sizes"])
    model = open_onnx(path)
    np.testing.assert_array_equal(model.input.fillers["orig_target_sizes"], [[64, 64]])
    assert model.attend(PIXELS).verified


def test_detector(tmp_path):
    """The encoder is shown; queries gather from the picture; what they say to one another has no place."""
    record = open_onnx(export(built(Detector), (PIXELS,), tmp_path / "detr.onnx")).attend(PIXELS)
    assert [(layer.name, layer.kind) for layer in record.layers] == [
        ("layers.0.attention", "self"),
        ("layers.1.attention", "self"),
        ("cross", "pool"),
        ("again", "pool"),
    ]
    cross = record.layers[3]
    assert cross.key_layout.grid == (4, 4)
    assert cross.query_layout.prefix_names == tuple(f"latent{n}" for n in range(1, 6))
    np.testing.assert_array_equal(cross.key_layout.patch_tokens, np.arange(16))
    assert record.notes[-1] == "The attention of among is left out: its keys have no place on the picture."
    assert record.verified
    assert record.prediction is None


def test_queries_that_attend_to_one_another_first_are_noted(tmp_path):
    """In PyTorch they are left out in the same words; the current exporter keeps only what they come to."""
    path = export(built(DetrDecoder), (PIXELS,), tmp_path / "detr.onnx")
    record = open_onnx(path).attend(PIXELS)
    assert [layer.name for layer in record.layers][-1] == "cross"
    assert len(record.layers) == 3
    assert record.notes[-1] == "The attention of among is left out: its keys have no place on the picture."
    run = run_of(built(DetrDecoder), PIXELS)
    assert run.notes[-1] == record.notes[-1]


def test_detector_that_chooses_its_queries(tmp_path):
    """What is chosen are tokens of the picture, others in each picture, and they fill no grid."""
    path = export(built(Choosing), (PIXELS,), tmp_path / "rtdetr.onnx")
    model = open_onnx(path)
    for seed in (1, 2):
        record = model.attend(picture((64, 64), seed))
        assert record.verified
        assert [layer.name for layer in record.layers] == [
            *("layers.0.attention", "layers.1.attention"),
            *("among", "cross"),
        ]
        for layer in record.layers[2:]:
            assert "its tokens have no patches on the picture: 5 tokens do not fill a grid" in layer.note
            assert not layer.query_layout.placed


def test_bytes_of_any_size_prepared_inside(tmp_path):
    image = torch.randint(0, 256, (1, 96, 128, 3), dtype=torch.uint8)
    axes = {"image": {1: "height", 2: "width"}}
    path = export(built(Bytes), (image,), tmp_path / "m.onnx", ["image"], **_OLD, dynamic_axes=axes)
    model = open_onnx(path, image_size=(96, 128))
    assert (model.input.dtype, model.input.layout) == (np.uint8, "NHWC")
    record = model.attend(image[0].numpy())
    np.testing.assert_array_equal(record.seen, image[0].numpy())
    assert record.verified
    assert record.grid == (4, 4)
    assert record.patch_px == (24.0, 32.0)  # in pixels of what goes in
    with torch.no_grad():
        inner = built(Bytes)
        pixels = (image.float() - inner.mean) / 58
        pixels = torch.nn.functional.interpolate(pixels.permute(0, 3, 1, 2), (64, 64), mode="bilinear")
    for layer, weights in zip(record.layers, truth(inner.tower, pixels), strict=True):
        np.testing.assert_allclose(layer.scores.weights(slice(None)), weights, atol=1e-4)


_OLD = {"dynamo": False, "opset_version": 17}


def test_keras_as_it_is_converted(tmp_path):
    """Channels last, and attention by Einsum with heads behind tokens, keys first."""
    body = """
      q6 = Mul (q4, half)
      s = Einsum <equation = "aecd,abcd->acbe"> (k4, q6)
      p = Softmax <axis = -1> (s)
      c4 = Einsum <equation = "acbe,aecd->abcd"> (p, v4)
      context = Transpose <perm = [0, 2, 1, 3]> (c4)
    """

    path = build(body, tmp_path / "keras.onnx")
    model = onnx.load(path)
    name = model.graph.input[0].name
    del model.graph.input[:]
    model.graph.input.append(helper.make_tensor_value_info("input_1", TensorProto.FLOAT, [None, 8, 12, 3]))
    model.graph.node.insert(0, helper.make_node("Transpose", ["input_1"], [name], perm=[0, 3, 1, 2]))
    onnx.save(model, path)
    opened = open_onnx(path)
    assert opened.preprocessing.layout == "NHWC"
    record = opened.attend(torch.from_numpy(PICTURE))
    (layer,) = record.layers
    assert layer.verdict.verified, layer.verdict.reason
    assert (layer.heads, layer.scores.how) == (HEADS, "query-key")
    np.testing.assert_allclose(layer.scores.weights(slice(None)), softmax(product() * 0.5), atol=1e-6)
    np.testing.assert_array_equal(layer.query_layout.patch_tokens, np.arange(6))
    np.testing.assert_array_equal(layer.key_layout.positions[4], (6, 6))


@pytest.mark.parametrize("batch", [2, 3])
def test_windows_in_a_fixed_batch(batch, tmp_path):
    """Windows of several pictures are stacked; only the first picture's are shown."""
    path = export(grids("swin"), (PIXELS.repeat(batch, 1, 1, 1),), tmp_path / "swin.onnx")
    single = export(grids("swin"), (PIXELS,), tmp_path / "one.onnx")
    record, alone = (open_onnx(file).attend(PIXELS) for file in (path, single))
    assert open_onnx(path).input.batch == batch
    assert record.verified
    for layer, twin in zip(record.layers, alone.layers, strict=True):
        assert (layer.heads, layer.scores.groups) == (twin.heads, twin.scores.groups)
        np.testing.assert_array_equal(layer.key_layout.positions, twin.key_layout.positions)
        np.testing.assert_allclose(layer.matrix(1), twin.matrix(1), atol=1e-5)


def test_functions_and_odd_names(tmp_path):
    """Bodies of local functions are opened up, and names may hold anything."""
    path = export(built(Tower), (PIXELS,), tmp_path / "m.onnx")
    model = onnx.load(path)
    names = {name for node in model.graph.node for name in (*node.input, *node.output) if name}
    odd = {name: f"{name} é/\\ü:☃{index}" for index, name in enumerate(sorted(names))}
    for node in model.graph.node:
        node.name = f"knoten {node.name} ☃"
        for side in (node.input, node.output):
            side[:] = [odd.get(name, name) for name in side]
    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        value.name = odd.get(value.name, value.name)
    softmax_nodes = [node for node in model.graph.node if node.op_type == "Softmax"]
    function = helper.make_function(
        "local", "Normalize", ["x"], ["y"],
        [helper.make_node("Softmax", ["x"], ["z"], axis=-1), helper.make_node("Identity", ["z"], ["y"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    for node in softmax_nodes:
        node.op_type, node.domain = "Normalize", "local"
        del node.attribute[:]
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("local", 1))
    onnx.save(model, path)
    record = open_onnx(path).attend(PIXELS)
    assert record.verified
    for layer, weights in zip(record.layers, truth(built(Tower), PIXELS), strict=True):
        np.testing.assert_allclose(layer.scores.weights(slice(None)), weights, atol=1e-5)


@pytest.mark.parametrize("opset", [11, 12, 13, 14, 16, 18, 20])
def test_every_opset_of_the_older_exporter(opset, tmp_path):
    path = export(built(Tower), (PIXELS,), tmp_path / "m.onnx", dynamo=False, opset_version=opset)
    check_opset(path, opset)


@pytest.mark.parametrize("opset", [18, 21, 23, 24])
def test_opsets_of_the_current_exporter(opset, tmp_path, program):
    path = export(program, (), tmp_path / "m.onnx", dynamo=True, opset_version=opset, external_data=False)
    check_opset(path, opset)


@pytest.fixture(scope="module")
def program():
    with torch.no_grad():
        return torch.export.export(built(Tower), (PIXELS,))


def check_opset(path, opset: int) -> None:
    assert {entry.version for entry in onnx.load(path).opset_import if not entry.domain} == {opset}
    record = open_onnx(path).attend(PIXELS)
    assert record.verified
    for layer, weights in zip(record.layers, truth(built(Tower), PIXELS), strict=True):
        assert layer.scores.how == "query-key"
        np.testing.assert_allclose(layer.scores.weights(slice(None)), weights, atol=1e-5)
        assert layer.key_layout.prefix_names == ("cls",)
        np.testing.assert_array_equal(layer.key_layout.positions[1], (8, 8))


@pytest.mark.parametrize("opset", [11, 12, 14])
def test_windows_in_older_opsets(opset, tmp_path):
    if opset < 14:
        from tests.backends.timm_zoo import fused

        with fused(False):
            path = export(grids("swin-v2"), (PIXELS,), tmp_path / "m.onnx", dynamo=False, opset_version=opset)
    else:
        path = export(grids("swin"), (PIXELS,), tmp_path / "m.onnx", dynamo=False, opset_version=opset)
    record = open_onnx(path).attend(PIXELS)
    assert record.verified
    assert record.layers[0].scores.groups == 16
