"""Local checkpoints: the layouts people have, and a true sentence for every file that is none."""

from __future__ import annotations

import argparse
import json
import re
import warnings

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
from torch import nn

from tests.backends.timm_zoo import attending, randomize
from viewer import open_model
from viewer.backends.checkpoint_files import read_state
from viewer.backends.checkpoints import load_checkpoint
from viewer.errors import CheckpointError, ModelFileError

SMALL = {"depth": 2, "embed_dim": 48, "num_heads": 3, "img_size": 64}


def small(name, **arguments):
    model = timm.create_model(name, pretrained=False, **{**SMALL, **arguments}).eval()
    randomize(model)
    return model


def fresh(name, **arguments):
    return timm.create_model(name, pretrained=False, **{**SMALL, **arguments}).eval()


def assert_loads(name, state, trained, path, **arguments):
    """Load into a fresh model and compare what both attend to."""
    torch.save(state, path)
    model = fresh(name, **arguments)
    notes = load_checkpoint(name, model, path)
    tensor = torch.randn(1, 3, 64, 64)
    expected = attending(name, trained).attend(tensor)
    found = attending(name, model).attend(tensor)
    for one, other in zip(found.layers, expected.layers, strict=True):
        np.testing.assert_allclose(one.matrix(0), other.matrix(0), rtol=0, atol=1e-6)
    return model, notes


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.pth"


def test_plain_state_dicts_of_both_formats(path, tmp_path):
    trained = small("vit_tiny_patch16_224")
    _, notes = assert_loads("vit_tiny_patch16_224", trained.state_dict(), trained, path)
    assert notes == ()
    safe = tmp_path / "weights.safetensors"
    safetensors.torch.save_file(trained.state_dict(), safe)
    model = fresh("vit_tiny_patch16_224")
    assert load_checkpoint("vit_tiny_patch16_224", model, safe) == ()
    assert all(torch.equal(value, trained.state_dict()[key]) for key, value in model.state_dict().items())


def test_old_pickle_format(path):
    trained = small("vit_tiny_patch16_224")
    torch.save(trained.state_dict(), path, _use_new_zipfile_serialization=False)
    assert set(read_state(path)) == set(trained.state_dict())


def test_format_is_told_by_contents_not_by_the_name(tmp_path):
    trained = small("vit_tiny_patch16_224")
    misnamed = tmp_path / "weights.bin"
    safetensors.torch.save_file(trained.state_dict(), misnamed)
    assert set(read_state(misnamed)) == set(trained.state_dict())


@pytest.mark.parametrize(
    "prefix", ["", "module.", "backbone.", "module.backbone.", "encoder.", "_orig_mod.", "model."]
)
@pytest.mark.parametrize("nest", [None, "model", "state_dict", "teacher"])
def test_nested_and_prefixed(nest, prefix, path):
    trained = small("vit_tiny_patch16_224")
    state = {prefix + key: value for key, value in trained.state_dict().items()}
    assert_loads("vit_tiny_patch16_224", {nest: state, "epoch": 3} if nest else state, trained, path)


def test_deit_training_file_with_command_line_and_numpy_numbers(path):
    trained = small("deit_tiny_distilled_patch16_224")
    state = {
        "model": trained.state_dict(),
        "optimizer": {"state": {}, "param_groups": [{"lr": 0.1}]},
        "epoch": 299,
        "args": argparse.Namespace(lr=0.1),
        "best": np.float64(81.2),
        "acc": np.float32(0.5),
    }
    assert_loads("deit_tiny_distilled_patch16_224", state, trained, path)


def test_deit3_layer_scale(path):
    trained = small("deit3_small_patch16_224")
    state = {re.sub(r"ls(\d)\.gamma", r"gamma_\1", key): value for key, value in trained.state_dict().items()}
    assert any("gamma_1" in key for key in state)
    assert_loads("deit3_small_patch16_224", {"model": state}, trained, path)


def test_dino_training_file_with_projection_head(path):
    trained = small("vit_small_patch16_224.dino")
    teacher = {f"backbone.{key}": value for key, value in trained.state_dict().items()}
    teacher |= {"head.mlp.0.weight": torch.zeros(8, 48), "head.last_layer.weight_v": torch.zeros(8, 8)}
    student = {f"module.{key}": torch.zeros_like(value) for key, value in teacher.items()}
    assert_loads(
        "vit_small_patch16_224.dino", {"student": student, "teacher": teacher, "epoch": 1}, trained, path
    )


def test_dinov2_original_names_and_registers(path):
    trained = small("vit_small_patch14_reg4_dinov2", img_size=70)
    state = dict(trained.state_dict())
    state["register_tokens"] = state.pop("reg_token")
    # The original adds a position to the class token; timm has it added already.
    extra = torch.randn(1, 1, 48)
    state["cls_token"] = state["cls_token"] - extra
    state["pos_embed"] = torch.cat([extra, state["pos_embed"]], 1)
    state["mask_token"] = torch.zeros(1, 48)
    torch.save(state, path)
    model = fresh("vit_small_patch14_reg4_dinov2", img_size=70)
    assert load_checkpoint("vit_small_patch14_reg4_dinov2", model, path) == ()
    for key, value in model.state_dict().items():
        torch.testing.assert_close(value, trained.state_dict()[key])


def test_mae_pretraining_file_without_its_decoder(path):
    trained = small("vit_base_patch16_224.mae")
    state = dict(trained.state_dict())
    state |= {
        "mask_token": torch.zeros(1, 1, 32),
        "decoder_pos_embed": torch.zeros(1, 17, 32),
        "decoder_blocks.0.attn.qkv.weight": torch.zeros(96, 32),
        "decoder_pred.bias": torch.zeros(768),
    }
    assert_loads("vit_base_patch16_224.mae", {"model": state}, trained, path)


def _openai_clip(state):
    """Rename a timm CLIP tower the way OpenAI's and OpenCLIP's files have it."""
    renamed = {}
    for key, value in state.items():
        if key == "head.bias":
            continue
        for mine, theirs in (
            ("patch_embed.proj", "conv1"), ("pos_embed", "positional_embedding"), ("norm_pre", "ln_pre"),
            ("blocks.", "transformer.resblocks."), ("norm1", "ln_1"), ("norm2", "ln_2"),
            ("attn.qkv.", "attn.in_proj_"), ("attn.proj", "attn.out_proj"), ("mlp.fc1", "mlp.c_fc"),
            ("mlp.fc2", "mlp.c_proj"), ("cls_token", "class_embedding"), ("head.weight", "proj"),
        ):  # fmt: skip
            key = key.replace(mine, theirs)
        key = re.sub(r"^norm\.", "ln_post.", key)
        if key == "proj":
            value = value.T.contiguous()
        if key in ("class_embedding", "positional_embedding"):
            value = value.squeeze(0)
        renamed[f"visual.{key}"] = value.squeeze(0) if key == "class_embedding" else value
    return renamed | {"logit_scale": torch.tensor(4.6), "text_projection": torch.zeros(4, 4)}


@pytest.mark.parametrize(
    "wrap", [lambda state: state, lambda state: {"state_dict": {f"module.{k}": v for k, v in state.items()}}]
)
def test_clip_original_names(path, wrap):
    trained = small("vit_base_patch16_clip_quickgelu_224.openai", num_classes=24)
    state = _openai_clip(trained.state_dict())
    assert_loads("vit_base_patch16_clip_quickgelu_224.openai", wrap(state), trained, path, num_classes=24)


def test_weights_inside_a_torchscript_program(path):
    class Tower(nn.Module):
        def __init__(self, state):
            super().__init__()
            for key, value in state.items():
                self.register_buffer(key.replace(".", "_"), value)

        def forward(self, x):
            return x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, the files stay
        torch.jit.script(Tower({"a.weight": torch.ones(2)})).save(str(path))
    assert set(read_state(path)) == {"a_weight"}


def test_positions_are_resampled_to_another_grid(path):
    trained = small("vit_tiny_patch16_224", img_size=96)
    torch.save(trained.state_dict(), path)
    model = fresh("vit_tiny_patch16_224", img_size=64)
    load_checkpoint("vit_tiny_patch16_224", model, path)
    expected = timm.layers.resample_abs_pos_embed(trained.pos_embed, [4, 4], num_prefix_tokens=1)
    torch.testing.assert_close(model.pos_embed, expected)


# timm's resampling of bias tables warns about the way it indexes.
@pytest.mark.filterwarnings("ignore:torch.searchsorted", "ignore:Using a non-tuple sequence")
def test_relative_position_tables_are_resampled(path):
    trained = small("beit_base_patch16_224", img_size=96)
    torch.save(trained.state_dict(), path)
    model = fresh("beit_base_patch16_224", img_size=64)
    load_checkpoint("beit_base_patch16_224", model, path)
    assert model.blocks[0].attn.relative_position_bias_table.shape[0] == 7 * 7 + 3


def test_missing_classifier_is_a_note(path):
    trained = small("vit_tiny_patch16_224")
    state = {key: value for key, value in trained.state_dict().items() if not key.startswith("head.")}
    model, notes = assert_loads("vit_tiny_patch16_224", state, trained, path)
    assert notes == (
        "The checkpoint has no classifier (head), so vit_tiny_patch16_224 shows attention "
        "but names no class.",
    )
    assert attending("vit", model).attend(torch.randn(1, 3, 64, 64)).prediction is None


def test_classifier_of_another_dataset_is_taken_as_it_is(path):
    trained = small("vit_tiny_patch16_224", num_classes=10)
    model, notes = assert_loads("vit_tiny_patch16_224", trained.state_dict(), trained, path)
    assert (model.num_classes, notes) == (10, ())
    best = attending("vit", model).attend(torch.randn(1, 3, 64, 64)).prediction
    assert set(best.labels) < {f"class {index}" for index in range(10)}


def test_classifier_on_an_architecture_without_one(path):
    trained = small("vit_small_patch14_dinov2", img_size=70, num_classes=10)
    torch.save(trained.state_dict(), path)
    model = fresh("vit_small_patch14_dinov2", img_size=70)
    assert model.num_classes == 0
    load_checkpoint("vit_small_patch14_dinov2", model, path)
    assert model.num_classes == 10


def test_missing_and_unexpected_parameters_are_named_and_counted(path):
    trained = small("vit_tiny_patch16_224")
    state = dict(trained.state_dict())
    del state["blocks.0.norm1.weight"], state["blocks.1.attn.qkv.bias"]
    state["blocks.2.extra"] = torch.zeros(1)
    torch.save(state, path)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint("vit_tiny_patch16_224", fresh("vit_tiny_patch16_224"), path)
    assert caught.value.missing == ("blocks.0.norm1.weight", "blocks.1.attn.qkv.bias")
    assert caught.value.unexpected == ("blocks.2.extra",)
    assert str(caught.value) == (
        f"{path} does not fit vit_tiny_patch16_224: it lacks 2 parameters (blocks.0.norm1.weight, "
        "blocks.1.attn.qkv.bias), and has 1 parameter (blocks.2.extra) that it has no use for. "
        "Is it a checkpoint of another architecture?"
    )


def test_weights_of_another_architecture(path):
    torch.save(timm.create_model("resnet18").state_dict(), path)
    with pytest.raises(CheckpointError, match=r"lacks 30 parameters .* 26 more"):
        load_checkpoint("vit_tiny_patch16_224", fresh("vit_tiny_patch16_224"), path)


def test_wider_model_of_the_same_family(path):
    torch.save(small("vit_tiny_patch16_224", embed_dim=96).state_dict(), path)
    with pytest.raises(
        CheckpointError, match=r"of another shape \(cls_token is \(1, 1, 96\), not \(1, 1, 48\)\)"
    ):
        load_checkpoint("vit_tiny_patch16_224", fresh("vit_tiny_patch16_224"), path)


class _Evil:
    def __reduce__(self):
        return (exec, ("import pathlib; pathlib.Path('evil').touch()",))


def test_pickled_objects_are_refused(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"model": _Evil()}, path)
    with pytest.raises(ModelFileError, match=r"holds a pickled Python object .*any code\. Where you trust"):
        read_state(path)
    assert not (tmp_path / "evil").exists()


def _cut(path, share=0.6):
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


BAD = {
    "empty": (lambda path: path.write_bytes(b""), r"is empty \(0 bytes\)\. Copy or download it again"),
    "web page": (lambda path: path.write_text("<!DOCTYPE html><title>Sign in</title>"), "is a web page"),
    "git lfs pointer": (
        lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
        r"is a Git LFS pointer.*\. Fetch the real file with `git lfs pull`",
    ),
    "picture": (lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(99)), "is a PNG picture"),
    "noise": (
        lambda path: path.write_bytes(np.random.default_rng(0).bytes(999)),
        "is no checkpoint that PyTorch or safetensors knows",
    ),
    "cut archive": (
        lambda path: (torch.save({"a": torch.zeros(999)}, path), _cut(path)),
        r"is a ZIP archive without its end\. It was not copied or downloaded whole",
    ),
    "cut old pickle": (
        lambda path: (
            torch.save({"a": torch.zeros(999)}, path, _use_new_zipfile_serialization=False),
            _cut(path),
        ),
        "is a damaged or incomplete PyTorch file",
    ),
    "cut safetensors": (
        lambda path: (safetensors.torch.save_file({"a": torch.zeros(1000)}, path), _cut(path)),
        r"holds only 2,\d\d\d of 4,\d\d\d bytes\. It was not copied or downloaded whole",
    ),
    "cut safetensors header": (
        lambda path: (safetensors.torch.save_file({"a": torch.zeros(1000)}, path), _cut(path, 0.01)),
        r"holds only \d+ of \d+ bytes",
    ),
    "other archive": (
        lambda path: __import__("zipfile").ZipFile(path, "w").writestr("a.txt", "hello"),
        "is a ZIP archive without a PyTorch checkpoint in it",
    ),
    "a tensor": (lambda path: torch.save(torch.zeros(3), path), "holds Tensor instead of named weights"),
    "no weights": (
        lambda path: torch.save({"epoch": 3, "lr": 0.1}, path),
        "holds no weights, only epoch, lr",
    ),
    "json": (lambda path: path.write_text(json.dumps({"a": 1})), "is JSON text"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_files_that_are_no_checkpoint_are_called_by_their_name(kind, suffix, tmp_path):
    make, sentence = BAD[kind]
    path = tmp_path / f"weights{suffix}"
    make(path)
    with pytest.raises(ModelFileError, match=sentence) as caught:
        read_state(path)
    assert str(caught.value).startswith(str(path))
    with pytest.raises(ModelFileError, match=sentence):
        open_model(str(path))


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(ModelFileError, match="does not exist"):
        open_model("vit_tiny_patch16_224", weights=tmp_path / "no.pth")
    with pytest.raises(ModelFileError, match="is a folder, not a checkpoint"):
        open_model("vit_tiny_patch16_224", weights=tmp_path)


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}, {"pickle_protocol": 4}])
def test_a_pickled_model_is_told_from_other_pickles(path, options):
    torch.save({"epoch": 3, "model": small("vit_tiny_patch16_224")}, path, **options)
    with pytest.raises(ModelFileError) as caught:
        open_model(path)
    named = "" if options.get("pickle_protocol") else " (timm.models.vision_transformer.VisionTransformer)"
    assert str(caught.value) == (
        f"{path} holds a whole pickled model{named}, and opening such an object can run any code. Two safe "
        "ways, where you trust the file: load it in Python yourself and save its weights alone, with "
        "`torch.save(model.state_dict(), FILE)`, to be joined with their architecture (--model NAME "
        "--weights FILE); or export it as a program, with "
        "`torch.export.save(torch.export.export(model.eval(), (picture,)), 'FILE.pt2')` or "
        "`torch.onnx.export(model.eval(), (picture,), 'FILE.onnx')`."
    )


def test_an_exported_program_is_no_checkpoint(tmp_path):
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(nn.Linear(2, 2), (torch.zeros(1, 2),)), path)
    with pytest.raises(ModelFileError) as caught:
        open_model("vit_tiny_patch16_224", weights=path)
    assert str(caught.value) == (
        f"{path} is an exported PyTorch program (.pt2), not a checkpoint. It needs no architecture: "
        f"--model {path}"
    )
