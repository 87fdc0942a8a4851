"""Inputs, sizes, types, preprocessing and predictions of ONNX models."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import threading
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import timm
import torch
from onnx import TensorProto, helper, numpy_helper
from timm.data import ImageNetInfo

from tests.backends.onnx_zoo import SMALL, export, picture, true_attention
from viewer.backends.model import Job
from viewer.backends.onnx_file import read_onnx
from viewer.backends.onnx_found import OnnxProgram
from viewer.backends.onnx_graph import Graph
from viewer.backends.onnx_layout import prefix_names
from viewer.backends.onnx_model import OnnxModel, open_onnx
from viewer.backends.onnx_patterns import find_attention
from viewer.backends.onnx_runner import OnnxRunner
from viewer.errors import Cancelled, DeviceError, InputError, ModelFileError
from viewer.images.decode import open_image
from viewer.images.preprocess import Preprocessing, prepare

COLOURS = np.random.default_rng(3).integers(0, 256, (120, 200, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def vit_path(tmp_path_factory) -> Path:
    return export("deit", "torchscript-17", tmp_path_factory.mktemp("model") / "deit.onnx")


def dynamic_net() -> torch.nn.Module:
    """Return a model without position embeddings, whose exports take any size."""
    torch.manual_seed(0)
    return timm.create_model(
        "vit_tiny_patch16_224",
        img_size=64,
        num_classes=1000,
        dynamic_img_size=True,
        pos_embed="none",
        **SMALL,
    ).eval()


@pytest.fixture(scope="module")
def dynamic_path(tmp_path_factory) -> Path:
    """Export a model that takes any batch and any multiple of its patch."""
    path = tmp_path_factory.mktemp("dynamic") / "vit.onnx"
    axes = {"picture": {0: "batch", 2: "height", 3: "width"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter deprecates itself and warns of constants it traces
        torch.onnx.export(
            dynamic_net(), (torch.zeros(1, 3, 64, 64),), path, opset_version=17, dynamo=False,
            input_names=["picture"], dynamic_axes=axes,
        )  # fmt: skip
    return path


@pytest.fixture(scope="module")
def dynamo_dynamic_path(tmp_path_factory) -> Path:
    """Export the same with the current exporter."""
    path = tmp_path_factory.mktemp("dynamic") / "vit.onnx"
    rows, columns = torch.export.Dim("rows", min=2, max=64), torch.export.Dim("columns", min=2, max=64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            dynamic_net(), (torch.zeros(1, 3, 64, 96),), path, opset_version=18, dynamo=True, verbose=False,
            dynamic_shapes={"x": {2: 16 * rows, 3: 16 * columns}},
        )  # fmt: skip
    return path


def rewrite(source: Path, target: Path, change) -> Path:
    model = onnx.load(source)
    change(model)
    onnx.save(model, target)
    return target


def weights(model: OnnxModel, image) -> list[torch.Tensor]:
    return [layer.scores.weights(slice(None)) for layer in model.attend(image).layers]


def test_record_of_a_picture(vit_path, tmp_path):
    model = open_onnx(vit_path)
    path = tmp_path / "colours.png"
    from PIL import Image

    Image.fromarray(COLOURS).save(path)
    image = open_image(path)
    record = model.attend(image)
    prepared = prepare(image, model.preprocessing)
    np.testing.assert_array_equal(record.seen, prepared.seen)
    assert record.box == prepared.box
    assert record.input_size == (64, 64)
    session = onnxruntime.InferenceSession(vit_path, providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {session.get_inputs()[0].name: prepared.tensor})
    np.testing.assert_allclose(record.output, logits[0], rtol=1e-4, atol=1e-5)
    order = np.argsort(-logits[0])[:5]
    assert record.prediction.labels == tuple(f"class {index}" for index in order)
    shares = np.exp(logits[0] - logits[0].max()) / np.exp(logits[0] - logits[0].max()).sum()
    np.testing.assert_allclose(record.prediction.probabilities, shares[order], rtol=1e-4)
    facts = record.provenance
    assert facts.model == str(vit_path)
    assert facts.model_sha256 == hashlib.sha256(vit_path.read_bytes()).hexdigest()
    assert (facts.backend, facts.device, facts.image) == ("onnx", "cpu", str(path))
    assert facts.image_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert "64x64" in facts.preprocessing


def test_array_and_tensor_are_the_same_as_the_picture(vit_path):
    model = open_onnx(vit_path)
    prepared = prepare(open_image(COLOURS), model.preprocessing)
    for one, other in zip(
        weights(model, COLOURS), weights(model, torch.from_numpy(prepared.tensor)), strict=True
    ):
        assert torch.equal(one, other)


def test_second_run_answers_for_its_own_picture(vit_path):
    model = open_onnx(vit_path)
    first = weights(model, COLOURS)
    other = weights(model, 255 - COLOURS)
    again = weights(model, COLOURS)
    assert all(torch.equal(one, same) for one, same in zip(first, again, strict=True))
    assert not torch.equal(first[1], other[1])


@pytest.mark.parametrize("exporter", ["torchscript-17", "dynamo-18", "dynamo-23"])
@pytest.mark.parametrize("family", ["beit", "siglip"])
def test_fixed_batch_of_three(family, exporter, tmp_path, monkeypatch):
    import tests.backends.onnx_zoo as zoo

    three = picture(family).repeat(3, 1, 1, 1)
    monkeypatch.setattr(zoo, "picture", lambda _: three)
    zoo._program.cache_clear()
    path = export(family, exporter, tmp_path / "three.onnx")
    zoo._program.cache_clear()
    monkeypatch.undo()
    model = open_onnx(path)
    assert model.input.batch == 3
    record = model.attend(picture(family))
    for layer, truth in zip(record.layers, true_attention(family), strict=True):
        found = layer.scores.weights(slice(None)).numpy()
        assert found.shape == truth.shape
        assert np.abs(found - truth).max() < 1e-5
    assert record.verified


@pytest.mark.parametrize("exporter", ["dynamic_path", "dynamo_dynamic_path"])
def test_any_size(exporter, request):
    path = request.getfixturevalue(exporter)
    model = open_onnx(path)
    assert model.preprocessing.size == (224, 224)
    assert "assumed: size 224x224; ImageNet mean and deviation" in model.notes[0]
    record = model.attend(COLOURS)
    assert record.grid == (14, 14)
    assert record.verified
    small = open_onnx(path, image_size=(64, 96))
    assert "size" not in small.preprocessing.assumed.split("assumed:")[1]
    record = small.attend(COLOURS)
    assert record.grid == (4, 6)
    assert record.seen.shape == (64, 96, 3)
    changed = small.with_preprocessing(replace(small.preprocessing, size=(96, 32)))
    assert changed.attend(COLOURS).grid == (6, 2)
    with pytest.raises(InputError, match="multiples of its 16x16 pixel patch, not 65x64"):
        small.with_preprocessing(replace(small.preprocessing, size=(65, 64)))


def test_whole_picture(dynamic_path, vit_path):
    model = open_onnx(dynamic_path, image_size="whole")
    record = model.attend(COLOURS)
    rows, columns = record.grid
    assert record.input_size == (rows * 16, columns * 16)
    assert rows * columns <= 14 * 14
    assert columns / rows == pytest.approx(200 / 120, rel=0.1)
    assert record.box == pytest.approx((0, 0, 200, 120))
    assert model.why_not_whole == ""
    with pytest.raises(InputError, match="takes only pictures of 64x64 pixels"):
        open_onnx(vit_path, image_size="whole")
    assert "takes only pictures of 64x64 pixels" in open_onnx(vit_path).why_not_whole


def test_a_model_of_one_free_side_takes_no_picture_whole(dynamic_path, tmp_path):
    def fix_width(model):
        model.graph.input[0].type.tensor_type.shape.dim[3].dim_value = 64

    path = rewrite(dynamic_path, tmp_path / "column.onnx", fix_width)
    model = open_onnx(path, image_size=(96, 64))
    assert model.attend(COLOURS).grid == (6, 4)
    assert model.why_not_whole == f"{path} takes only pictures of anyx64 pixels, so it can't take them whole."
    with pytest.raises(InputError, match="takes only pictures of anyx64"):
        open_onnx(path, image_size="whole")


def test_classes_of_imagenet(dynamic_path):
    model = open_onnx(dynamic_path, image_size=64)
    info = ImageNetInfo("imagenet-1k")
    assert list(model.labels) == [info.index_to_description(index) for index in range(1000)]
    assert len(model.attend(COLOURS).prediction.labels) == 5


def test_class_names_of_the_file(vit_path, tmp_path):
    def add(model):
        helper.set_model_props(model, {"names": str({index: f"thing {index}" for index in range(10)})})

    record = open_onnx(rewrite(vit_path, tmp_path / "named.onnx", add)).attend(COLOURS)
    assert all(label.startswith("thing ") for label in record.prediction.labels)


def test_features_are_no_classes(tmp_path):
    assert open_onnx(export("clip", "dynamo-20", tmp_path / "clip.onnx")).attend(COLOURS).prediction is None
    assert (
        open_onnx(export("dinov2", "torchscript-17", tmp_path / "d.onnx")).attend(COLOURS).prediction is None
    )


def test_other_size_is_refused(vit_path):
    with pytest.raises(InputError, match=r"takes pictures of 64x64 pixels, not 96x64"):
        open_onnx(vit_path, image_size=(96, 64))
    with pytest.raises(InputError, match=r"takes pictures of 64x64 pixels, not 32x32"):
        open_onnx(vit_path).attend(torch.zeros(1, 3, 32, 32))
    with pytest.raises(InputError, match="'big' is no input size"):
        open_onnx(vit_path, image_size="big")


def test_size_that_only_the_run_refuses(dynamic_path, tmp_path):
    def blur(model):  # without a stride to read, the patch is not known
        conv = next(node for node in model.graph.node if node.op_type == "Conv")
        model.graph.node.insert(
            0, helper.make_node("Conv", ["picture", "one"], ["blurred"], pads=[0, 0, 0, 0])
        )
        model.graph.initializer.append(
            numpy_helper.from_array(np.eye(3, dtype=np.float32)[..., None, None], "one")
        )
        conv.input[0] = "blurred"

    def fix_positions(model):
        blur(model)
        maker = next(node for node in model.graph.node if node.op_type == "LayerNormalization")
        model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 17, 48), np.float32), "positions"))
        at = list(model.graph.node).index(maker)
        model.graph.node.insert(at, helper.make_node("Add", [maker.input[0], "positions"], ["placed"]))
        maker.input[0] = "placed"

    model = open_onnx(rewrite(dynamic_path, tmp_path / "rigid.onnx", fix_positions), image_size=96)
    assert model.input.patch is None
    with pytest.raises(
        InputError, match=r"can't take an input of 1x3x96x96: Attempting to broadcast an axis"
    ):
        model.attend(COLOURS)


def test_channels_last(vit_path, tmp_path):
    def turn(model):
        name = model.graph.input[0].name
        old = model.graph.input[0]
        model.graph.input.remove(old)
        model.graph.input.insert(0, helper.make_tensor_value_info("nhwc", TensorProto.FLOAT, [1, 64, 64, 3]))
        model.graph.node.insert(0, helper.make_node("Transpose", ["nhwc"], [name], perm=[0, 3, 1, 2]))

    plain, turned = open_onnx(vit_path), open_onnx(rewrite(vit_path, tmp_path / "nhwc.onnx", turn))
    assert turned.preprocessing.layout == "NHWC"
    for one, other in zip(weights(plain, COLOURS), weights(turned, COLOURS), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)
    record = turned.attend(picture("deit"))
    np.testing.assert_array_equal(record.layout.positions[1], (8, 8))
    np.testing.assert_array_equal(record.layout.positions[2], (8, 24))
    with pytest.raises(InputError, match="takes its input as NHWC, not NCHW"):
        turned.with_preprocessing(replace(turned.preprocessing, layout="NCHW"))


@pytest.mark.parametrize(("kind", "dtype"), [(TensorProto.FLOAT16, np.float16), (TensorProto.UINT8, np.uint8),
                                             (TensorProto.DOUBLE, np.float64)])  # fmt: skip
def test_input_types(kind, dtype, vit_path, tmp_path):
    def retype(model):
        name = model.graph.input[0].name
        model.graph.input.remove(model.graph.input[0])
        model.graph.input.insert(0, helper.make_tensor_value_info("typed", kind, [1, 3, 64, 64]))
        model.graph.node.insert(0, helper.make_node("Cast", ["typed"], [name], to=TensorProto.FLOAT))

    typed, plain = open_onnx(rewrite(vit_path, tmp_path / "typed.onnx", retype)), open_onnx(vit_path)
    assert typed.input.dtype is dtype
    if dtype is np.uint8:
        assert typed.preprocessing.value_range == (0, 255)
        assert "no normalization, values 0 to 255" in typed.preprocessing.assumed
        plain = plain.with_preprocessing(replace(typed.preprocessing, assumed=""))
    for one, other in zip(weights(typed, COLOURS), weights(plain, COLOURS), strict=True):
        torch.testing.assert_close(one, other, atol=5e-3 if dtype is np.float16 else 1e-6, rtol=0)


def test_half_precision_model(tmp_path):
    import tests.backends.onnx_zoo as zoo

    # A copy: the family's model serves other tests, and float16 would round its weights.
    net = copy.deepcopy(zoo.model("deit", fused=False)).half()
    with pytest.warns():
        torch.onnx.export(
            net, (picture("deit").half(),), tmp_path / "half.onnx", opset_version=17, dynamo=False
        )
    record = open_onnx(tmp_path / "half.onnx").attend(picture("deit"))
    assert record.verified, [layer.verdict for layer in record.layers]
    for layer, truth in zip(record.layers, true_attention("deit"), strict=True):
        found = layer.scores.weights(slice(None))
        assert found.dtype == torch.float32
        assert np.abs(found.numpy() - truth).max() < 0.02
        np.testing.assert_allclose(found.sum(-1), 1, atol=1e-6)


def test_preprocessing_the_file_tells(vit_path, tmp_path):
    def tell(model):
        helper.set_model_props(
            model,
            {
                "mean": "[0.5, 0.5, 0.5]",
                "std": "0.5 0.25 0.5",
                "interpolation": "bilinear",
                "crop_pct": "0.9",
            },
        )

    model = open_onnx(rewrite(vit_path, tmp_path / "told.onnx", tell))
    assert model.preprocessing == Preprocessing(
        (64, 64), (0.5, 0.5, 0.5), (0.5, 0.25, 0.5), interpolation="bilinear", crop_pct=0.9
    )
    assert model.notes == ()

    def tell_bytes(model):
        helper.set_model_props(
            model, {"image_mean": "(123.7, 116.3, 103.5)", "image_std": "(58.4, 57.1, 57.4)"}
        )

    model = open_onnx(rewrite(vit_path, tmp_path / "bytes.onnx", tell_bytes))
    assert model.preprocessing.value_range == (0.0, 255.0)
    assert model.preprocessing.mean == (123.7, 116.3, 103.5)


@pytest.mark.parametrize("place", ["", "onnx"])
def test_preprocessing_told_beside_the_file(place, vit_path, tmp_path):
    (tmp_path / place).mkdir(exist_ok=True)
    path = Path(shutil.copy(vit_path, tmp_path / place / "model.onnx"))
    config = {
        "image_mean": [0.48, 0.46, 0.41],
        "image_std": [0.27, 0.26, 0.28],
        "resample": 2,
        "do_center_crop": True,
        "size": {"shortest_edge": 256},
        "crop_size": {"height": 224, "width": 224},
    }
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    assert open_onnx(path).preprocessing == Preprocessing(
        (64, 64), (0.48, 0.46, 0.41), (0.27, 0.26, 0.28), interpolation="bilinear", crop_pct=224 / 256
    )
    half = [0.5, 0.5, 0.5]
    config = {"image_mean": half, "image_std": half, "resample": 3, "size": {"height": 224, "width": 224}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    assert open_onnx(path).preprocessing == Preprocessing(
        (64, 64), (0.5,) * 3, (0.5,) * 3, crop_mode="squash"
    )
    (tmp_path / "preprocessor_config.json").write_text("not JSON")
    assert open_onnx(path).preprocessing.assumed


def test_assumptions_are_said_and_can_be_replaced(vit_path):
    model = open_onnx(vit_path, name="mine")
    assert model.notes == (
        "mine does not say how it wants pictures; assumed: "
        "ImageNet mean and deviation, values 0 to 1, bicubic resizing.",
    )
    assert model.attend(COLOURS).notes == model.notes
    chosen = model.with_preprocessing(replace(model.preprocessing, mean=(0, 0, 0), std=(1, 1, 1), assumed=""))
    assert chosen.notes == ()
    assert not torch.equal(weights(model, COLOURS)[1], weights(chosen, COLOURS)[1])
    assert chosen.runner is model.runner


def test_models_that_need_more_than_numbers(vit_path, tmp_path):
    def add_text(model):
        model.graph.input.append(helper.make_tensor_value_info("caption", TensorProto.STRING, [1]))

    with pytest.raises(
        ModelFileError, match=r"needs more than a picture: caption\. Export the vision tower alone\."
    ):
        open_onnx(rewrite(vit_path, tmp_path / "text.onnx", add_text))


def test_device_that_is_not_there(vit_path):
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    with pytest.raises(DeviceError, match="finds no device 'cuda' here"):
        open_onnx(vit_path, device="cuda")


def test_device_that_can_not_be_used_is_replaced_with_a_note(vit_path):
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    file = read_onnx(vit_path)
    graph = Graph(file.proto, file.folder)
    providers = [("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"]
    program = OnnxProgram("deit", file, graph, find_attention(graph, {}).found, graph.inputs[0].name)
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"):  # ONNX Runtime's own, beside ours
        runner = OnnxRunner(program, "cuda:0", providers)
    assert runner.device == "cpu"
    assert runner.notes == ("cuda:0 is not usable by ONNX Runtime here; deit runs on the CPU.",)
    assert runner.run(picture("deit").numpy(), "NCHW", Job()).unchanged


def test_cancel_before_and_during_a_run(dynamic_path):
    model = open_onnx(dynamic_path, image_size=896)
    early = Job()
    early.cancel()
    with pytest.raises(Cancelled):
        model.attend(COLOURS, early)
    running = Job(lambda doing, share: doing == "Running the model" and running.cancel())
    threads = threading.active_count()
    with pytest.raises(Cancelled):
        model.attend(COLOURS, running)
    assert threading.active_count() == threads
    assert model.with_preprocessing(replace(model.preprocessing, size=(64, 64))).attend(COLOURS).verified


def test_names_of_prefix_tokens():
    assert prefix_names(["cls_token"]) == ["cls"]
    assert prefix_names([""]) == ["cls"]
    assert prefix_names(["embeddings.cls_token", "dist_token"]) == ["cls", "dist"]
    assert prefix_names(["expand", "expand_1"], distilled=True) == ["cls", "dist"]
    assert prefix_names(["expand", "expand_1"]) == ["cls", "prefix1"]
    assert prefix_names(["cls_token"] + ["register_tokens"] * 4) == ["cls", "reg1", "reg2", "reg3", "reg4"]
    assert prefix_names(["reg_token", "reg_token", "cls_token"]) == ["reg1", "reg2", "cls"]
    assert prefix_names(["expand"] + ["expand_1"] * 2) == ["cls", "reg1", "reg2"]
    assert prefix_names(["vision_model.embeddings.class_embedding"]) == ["cls"]
    assert prefix_names(["", "", ""]) == ["prefix0", "prefix1", "prefix2"]
