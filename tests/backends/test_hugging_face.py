"""Models of Hugging Face transformers, from folders that `save_pretrained` wrote."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pytest
import torch

from tests.backends.timm_zoo import Softmaxes, randomize, reference, windows_of_swin
from viewer import open_image, open_model
from viewer.attention.record import Provenance
from viewer.backends.hugging_face_model import load, wrap
from viewer.backends.hugging_face_towers import FAMILIES, prepare
from viewer.errors import CheckpointError, InputError, ModelFileError, OfflineError

transformers = pytest.importorskip("transformers")

WIDE = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 96,
    "patch_size": 16,
}
SQUARE = {**WIDE, "image_size": 64}
TEXT = {
    "hidden_size": 48,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 50,
}
CLASS = ("cls",)
REGISTERS = ("cls", "reg1", "reg2", "reg3", "reg4")

# model type: (class, its configuration, prefix tokens, grid, whether it ends in attention pooling)
ZOO = {
    "vit": ("ViTForImageClassification", {**SQUARE, "num_labels": 5}, CLASS, (4, 4), False),
    "deit": ("DeiTForImageClassificationWithTeacher", SQUARE, ("cls", "dist"), (4, 4), False),
    "beit": ("BeitModel", {**SQUARE, "use_relative_position_bias": True}, CLASS, (4, 4), False),
    "dinov2": ("Dinov2Model", SQUARE, CLASS, (4, 4), False),
    "dinov2_with_registers": ("Dinov2WithRegistersModel", SQUARE, REGISTERS, (4, 4), False),
    "dinov3_vit": ("DINOv3ViTModel", {**SQUARE, "num_register_tokens": 4}, REGISTERS, (4, 4), False),
    "clip": ("CLIPModel", {"vision_config": SQUARE, "text_config": TEXT}, CLASS, (4, 4), False),
    "siglip": ("SiglipModel", {"vision_config": SQUARE, "text_config": TEXT}, (), (4, 4), True),
    "siglip2_vision_model": ("Siglip2VisionModel", {**WIDE, "num_patches": 16}, (), (4, 4), True),
    "dpt": ("DPTModel", SQUARE, CLASS, (4, 4), False),
    "vit_mae": ("ViTMAEModel", SQUARE, CLASS, (4, 4), False),
}


def save(kind, folder, **options):
    """Save a small model with uneven attention."""
    name, arguments = ZOO[kind][:2]
    saved = getattr(transformers, name)
    torch.manual_seed(0)
    model = saved(saved.config_class(**{**arguments, **options})).eval()
    randomize(model)
    model.save_pretrained(folder)
    return model


def picture(size=(64, 64)):
    return torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(1))


def told_in(folder):
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("kind", ZOO)
def test_sdpa_and_eager_show_what_a_float64_softmax_gives(kind, tmp_path):
    save(kind, tmp_path)
    _, _, prefix, grid, pools = ZOO[kind]
    told, family = told_in(tmp_path), FAMILIES[kind]
    eager = load(tmp_path, kind, told, family, "eager").eval()
    assert eager.config._attn_implementation == "eager"
    prepare(eager, family)
    tensor = picture()
    # SigLIP's pooling is PyTorch's own attention, which is fused either way.
    expected = reference(eager, tensor)

    unfused = load(tmp_path, kind, told, family, "eager")
    records = [
        open_model(tmp_path).attend(tensor),
        wrap(kind, unfused, family, tmp_path, "cpu", Provenance(kind)).attend(tensor),
    ]
    for record in records:
        assert record.verified
        assert record.output_unchanged
        assert [layer.kind for layer in record.layers] == ["self", "self"] + ["pool"] * pools
        assert record.layout.prefix_names == prefix
        assert record.grid == grid
        for layer, weights in zip(record.layers, expected, strict=False):
            assert bool((weights.amax(-1).mean() * weights.shape[-1]) > 1.5)
            found = np.stack([layer.matrix(head) for head in range(layer.heads)])
            np.testing.assert_allclose(found, weights.numpy(), rtol=0, atol=1e-5)
    assert [layer.name for layer in records[0].layers] == [layer.name for layer in records[1].layers]
    np.testing.assert_allclose(records[0].output, records[1].output, rtol=0, atol=1e-4)


def exact(kind, folder, tensor):
    """Return each softmax of the eager model in float64, as the model has it, and the record."""
    told, family = told_in(folder), FAMILIES[kind]
    eager = load(folder, kind, told, family, "eager").eval().double()
    prepare(eager, family)
    with torch.no_grad(), Softmaxes() as found:
        eager(tensor.double())
    return found.weights, open_model(folder).attend(tensor)


def save_small(name, folder, **settings):
    saved = getattr(transformers, name)
    torch.manual_seed(0)
    model = saved(saved.config_class(**settings)).eval()
    randomize(model)
    model.save_pretrained(folder)


@pytest.mark.parametrize("kind", ["swin", "swinv2"])
def test_shifted_windows(kind, tmp_path):
    name = {"swin": "SwinModel", "swinv2": "Swinv2Model"}[kind]
    save_small(
        name,
        tmp_path,
        image_size=64,
        patch_size=4,
        embed_dim=24,
        depths=[2, 1],
        num_heads=[2, 3],
        window_size=4,
    )
    weights, record = exact(kind, tmp_path, picture())
    assert record.verified
    assert record.output_unchanged
    sides, shifts = (16, 16, 8), (0, 2, 0)
    for layer, windows, side, shift in zip(record.layers, weights, sides, shifts, strict=True):
        windows_of_swin(layer, windows, side, shift)


def test_hiera(tmp_path):
    sizes = {"image_size": [64, 64], "embed_dim": 24, "depths": [1, 1, 1, 1], "num_heads": [1, 2, 2, 2]}
    save_small("HieraModel", tmp_path, **sizes)
    weights, record = exact("hiera", tmp_path, picture())
    assert record.verified
    assert record.output_unchanged
    for layer, wanted in zip(record.layers, weights, strict=True):
        # (1, heads, windows, queries, keys): the tokens lie window by window.
        found = layer.scores.stacked.weights(slice(None)).unflatten(0, (layer.scores.groups, layer.heads))
        np.testing.assert_allclose(found.transpose(0, 1), wanted[0].numpy(), rtol=0, atol=1e-5)


def test_segformer_whose_keys_are_pooled(tmp_path):
    sizes = {
        "depths": [1, 1],
        "num_encoder_blocks": 2,
        "hidden_sizes": [16, 24],
        "num_attention_heads": [1, 2],
    }
    save_small("SegformerModel", tmp_path, **sizes, sr_ratios=[4, 2], patch_sizes=[7, 3], strides=[4, 2])
    model = open_model(tmp_path, image_size=64)
    weights, _ = exact("segformer", tmp_path, picture())
    record = model.attend(picture())
    assert record.verified
    assert [(layer.query_layout.grid, layer.key_layout.grid) for layer in record.layers] == [
        ((16, 16), (4, 4)),
        ((8, 8), (4, 4)),
    ]
    for layer, wanted in zip(record.layers, weights, strict=True):
        found = np.stack([layer.matrix(head) for head in range(layer.heads)])
        np.testing.assert_allclose(found, wanted[0].numpy(), rtol=0, atol=1e-5)


def test_the_output_is_that_of_the_model_itself(tmp_path):
    saved = save("vit", tmp_path)
    record = open_model(tmp_path).attend(picture())
    with torch.no_grad():
        logits = saved(picture()).logits[0]
    np.testing.assert_allclose(record.output, logits.numpy(), rtol=0, atol=1e-5)
    assert len(record.prediction.labels) == 5
    assert record.prediction.labels[0] == f"LABEL_{int(logits.argmax())}"
    assert record.provenance.model == str(tmp_path)
    assert len(record.provenance.model_sha256) == 64


@pytest.mark.parametrize("kind", ["vit", "clip", "siglip", "dinov2", "siglip2_vision_model"])
def test_other_sizes(kind, tmp_path):
    save(kind, tmp_path)
    record = open_model(tmp_path, image_size=(48, 96)).attend(picture((48, 96)))
    assert record.verified
    assert record.grid == (3, 6)
    with pytest.raises(InputError, match="multiples of its 16x16 pixel patch, not 50x50"):
        open_model(tmp_path, image_size=50)


def test_a_size_that_a_model_can_not_take(tmp_path):
    save("dpt", tmp_path)
    with pytest.raises(InputError, match="takes pictures of 64x64 pixels, not 80x80"):
        open_model(tmp_path, image_size=80)


def test_a_masked_autoencoder_sees_every_patch_in_order_and_says_so(tmp_path):
    save("vit_mae", tmp_path, mask_ratio=0.75)
    model = open_model(tmp_path)
    assert model.notes == (
        "In training, a masked autoencoder hides most patches at random; here it sees all, in order.",
    )
    first, second = model.attend(picture()), model.attend(picture())
    for one, other in zip(first.layers, second.layers, strict=True):
        assert one.key_layout.grid == (4, 4)
        y, x = np.mgrid[0:4, 0:4] * 16 + 8
        np.testing.assert_allclose(one.key_layout.positions[1:], np.stack([y.ravel(), x.ravel()], 1))
        np.testing.assert_array_equal(one.matrix(0), other.matrix(0))


def test_only_the_tower_of_clip(tmp_path):
    save("clip", tmp_path)
    model = open_model(tmp_path)
    assert model.notes == (
        "Only the vision tower is opened, not the text model: pictures are encoded, and no class is named.",
    )
    assert type(model.module).__name__ == "CLIPVisionModel"
    assert model.attend(picture()).prediction is None


def test_half_precision_weights_run_in_float32(tmp_path):
    save("vit", tmp_path).half().save_pretrained(tmp_path)
    model = open_model(tmp_path)
    assert next(model.module.parameters()).dtype == torch.float32
    assert model.attend(picture()).verified


def test_weights_spread_over_files(tmp_path):
    save("vit", tmp_path / "one").save_pretrained(tmp_path / "many", max_shard_size="50KB")
    assert not (tmp_path / "many" / "model.safetensors").exists()
    one, many = (open_model(tmp_path / name).attend(picture()) for name in ("one", "many"))
    np.testing.assert_array_equal(one.output, many.output)
    assert one.provenance.model_sha256 != many.provenance.model_sha256


# What is refused


@pytest.fixture
def vit(tmp_path):
    save("vit", tmp_path)
    return tmp_path


def change(folder, **entries):
    path = folder / "config.json"
    told = {**json.loads(path.read_text()), **entries}
    path.write_text(json.dumps({key: value for key, value in told.items() if value is not None}))


def refusal(folder):
    with pytest.raises(ModelFileError) as caught:
        open_model(folder)
    return str(caught.value)


def test_code_beside_a_model_does_not_run(vit):
    (vit / "evil.py").write_text("import pathlib; pathlib.Path(__file__).with_name('written').touch()\n")
    change(
        vit,
        auto_map={"AutoConfig": "evil.Config", "AutoModel": "evil.Model"},
        attn_implementation="org/kernel",
    )
    assert open_model(vit).attend(picture()).verified
    assert not (vit / "written").exists()
    change(vit, model_type="evil", auto_map={"AutoModel": "evil.Model"})
    assert refusal(vit).startswith(
        f"{vit} is a transformers model of type 'evil'. These can be opened: vit, deit, "
    )
    assert not (vit / "written").exists()


def test_pickled_weights_are_not_loaded(vit):
    model = open_model(vit).module
    torch.save(model.state_dict(), vit / "pytorch_model.bin")
    (vit / "model.safetensors").unlink()
    assert "can't be loaded by transformers" in refusal(vit)


def test_folders_that_hold_no_model(tmp_path, vit):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert (
        refusal(empty)
        == f"{empty} is a folder, not a checkpoint, and without the config.json of a transformers model."
    )
    (empty / "config.json").write_text("[1")
    assert refusal(empty) == f"{empty / 'config.json'} is no configuration of a model."
    (empty / "config.json").write_text('{"architecture": "vit_tiny_patch16_224"}')
    assert refusal(empty) == (
        f"{empty} holds a timm model. Open it by its name: --model vit_tiny_patch16_224 --weights "
        f"{empty / 'model.safetensors'}"
    )
    (empty / "config.json").write_text("{}")
    assert "is no transformers model: it names no type" in refusal(empty)
    with pytest.raises(InputError, match="holds its own weights"):
        open_model(vit, weights=vit / "model.safetensors")


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        (
            {"quantization_config": {"quant_method": "bitsandbytes"}},
            "has quantized weights, which Patchreach can't",
        ),
        (
            {"use_timm_backbone": True},
            "takes its backbone from another library (timm). Open that by its timm name.",
        ),
        ({"hidden_size": "many"}, "can't be loaded by transformers"),
        (
            {"hidden_size": 96},
            "has weights of other shapes than those of the ViTForImageClassification that config.json "
            "describes. Both must come from the same model.",
        ),
        ({"num_hidden_layers": 3}, "of the weights of a ViTForImageClassification (vit.layers.2"),
    ],
)
def test_configurations_that_can_not_be_used(vit, entries, sentence):
    change(vit, **entries)
    assert sentence in refusal(vit)


@pytest.mark.parametrize(
    ("side", "sentence"),
    [
        (10**6, " has a size of pictures that can't be: An input of 1000000 x 1000000 pixels is too large"),
        (0, "config.json has 0x0 pixels for the size of pictures."),
        (-5, "config.json has -5x-5 pixels for the size of pictures."),
    ],
)
def test_sizes_of_pictures_that_can_not_be(tmp_path, side, sentence):
    """Swin has no weights for each place, so that no other check finds it out."""
    sizes = {"image_size": 56, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 1]}
    transformers.SwinModel(transformers.SwinConfig(**sizes)).save_pretrained(tmp_path)
    change(tmp_path, image_size=side)
    text = refusal(tmp_path)
    assert sentence in text
    assert str(tmp_path) in text


def test_missing_weights_are_named(vit):
    change(vit, num_hidden_layers=3)
    with pytest.raises(CheckpointError) as caught:
        open_model(vit)
    assert len(caught.value.missing) == 16
    assert all(".2." in name for name in caught.value.missing)


def test_a_damaged_weight_file(vit):
    data = (vit / "model.safetensors").read_bytes()
    (vit / "model.safetensors").write_bytes(data[: len(data) // 2])
    assert "can't be loaded by transformers" in refusal(vit)


def test_without_transformers_it_says_how_to_get_it(vit, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert refusal(vit) == (
        f"{vit} needs Hugging Face transformers, which is not installed. Install it: "
        '`python -m pip install "patchreach[transformers]"`.'
    )


@pytest.mark.parametrize("name", ["hf:facebook/dinov2-small", "hf:org/no-such-model@main"])
def test_a_name_on_the_hub_without_a_network(name, monkeypatch, tmp_path):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    started = time.monotonic()
    with pytest.raises(OfflineError) as caught:
        open_model(name)
    assert time.monotonic() - started < 9
    assert str(caught.value) == (
        f"{name} could not be downloaded: there is no network connection to the model hub. Two ways out: "
        "give a folder on this computer that holds its config.json and model.safetensors (--model FOLDER), "
        "or open the sample model (--model sample)."
    )


def test_a_name_on_the_hub_from_the_cache(monkeypatch, tmp_path):
    """Laid out as the hub's client keeps it; what is not there can't be fetched."""
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    commit, repository = "0" * 40, tmp_path / "models--org--small"
    save("dinov2", repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    model = open_model("hf:org/small")
    assert model.name == "hf:org/small"
    assert model.attend(picture()).verified


# How pictures are prepared

PROCESSORS = [
    ("ViTImageProcessorPil", {"size": {"height": 64, "width": 64}}),
    (
        "DeiTImageProcessorPil",
        {"size": {"height": 80, "width": 80}, "crop_size": {"height": 64, "width": 64}},
    ),
    ("CLIPImageProcessorPil", {"size": {"shortest_edge": 64}, "crop_size": {"height": 64, "width": 64}}),
    ("BitImageProcessorPil", {"size": {"shortest_edge": 73}, "crop_size": {"height": 64, "width": 64}}),
    ("SiglipImageProcessorPil", {"size": {"height": 64, "width": 64}}),
    ("ViTImageProcessorPil", {"size": {"height": 64, "width": 64}, "do_normalize": False, "resample": 1}),
    ("ConvNextImageProcessorPil", {"size": {"shortest_edge": 64}, "crop_pct": 0.875}),
]


@pytest.mark.parametrize(("kind", "settings"), PROCESSORS)
@pytest.mark.parametrize("shape", [(90, 120), (120, 90), (64, 64), (40, 40)])
def test_pictures_are_prepared_as_the_image_processor_does(kind, settings, shape, vit):
    processor = getattr(transformers, kind)(**settings)
    processor.save_pretrained(vit)
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
    wanted = processor(pixels, return_tensors="pt")["pixel_values"]
    model = open_model(vit)
    assert model.preprocessing.assumed == ""
    from viewer.images.preprocess import prepare as prepare_picture

    found = prepare_picture(open_image(pixels), model.preprocessing).tensor
    np.testing.assert_allclose(found, wanted.numpy(), rtol=0, atol=2e-6)


def test_siglip_2_keeps_the_aspect_ratio(tmp_path):
    save("siglip2_vision_model", tmp_path)
    settings = {
        "max_num_patches": 32,
        "patch_size": 16,
        "resample": 2,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    model = open_model(tmp_path)
    assert model.preprocessing.crop_mode == "whole"
    record = model.attend(np.zeros((100, 200, 3), np.uint8))
    rows, columns = record.grid
    assert columns > rows
    assert rows * columns <= 32


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"image_mean": [0.5]}', '{"size": {"height": 0}}', '{"resample": 9}']
)
def test_settings_that_make_no_sense_are_left_alone_and_said(vit, text):
    (vit / "preprocessor_config.json").write_text(text)
    assert open_model(vit).preprocessing.assumed == (
        f"{vit} has no settings of an image processor; assumed: ImageNet mean and deviation, values 0 to 1, "
        "bicubic resizing, size 64x64."
    )
