"""TorchScript files: the same attention as the model they were made of, and nothing but computing."""

from __future__ import annotations

import warnings
import zipfile

import numpy as np
import pytest
import torch
from torch import nn

from tests.backends.test_exported_program import small
from tests.backends.test_hostile_files import Trap, rewritten, save_scripted
from tests.backends.timm_zoo import attending, build, picture, reference, same_attention
from viewer import open_model
from viewer.backends.model import Job
from viewer.backends.torchscript_program import recorded_size
from viewer.errors import Cancelled, InputError, ModelFileError


def save_traced(model, path, size=(64, 64)):
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, the files stay
        torch.jit.trace(model, torch.zeros(1, 3, *size)).save(str(path))
    return path


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    return save_traced(small(), tmp_path_factory.mktemp("traced") / "vit.pt")


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    path = tmp_path_factory.mktemp("scripted") / "vit.pt"
    save_scripted(small(), path)
    return path


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "vit_small_patch14_reg4_dinov2"])
@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize("kind", ["traced", "scripted"])
def test_it_shows_what_its_model_does(name, is_fused, kind, tmp_path):
    plain = attending(name, build(name, is_fused))
    tensor = picture(plain)
    size = tuple(tensor.shape[-2:])
    if kind == "traced":
        model = open_model(save_traced(plain.module, tmp_path / "m.pt", size))
    else:
        save_scripted(plain.module, tmp_path / "m.pt")
        model = open_model(tmp_path / "m.pt", image_size=size)
    assert model.preprocessing.size == size
    expected = reference(build(name, is_fused=False), tensor)
    wanted = plain.attend(tensor)
    # The interpreter may run a program in another way once it was run before.
    for _ in range(3):
        record = model.attend(tensor)
        assert record.verified
        assert record.output_unchanged
        np.testing.assert_allclose(record.output, wanted.output, rtol=0, atol=1e-5)
        same_attention(record, wanted, expected)


def test_the_fast_path_written_down_in_a_program_is_taken_apart(tmp_path):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, 48, 16, 16)
            self.layer = nn.TransformerEncoderLayer(48, 4, 96, batch_first=True)

        def forward(self, picture):
            return self.layer(self.patches(picture).flatten(2).transpose(1, 2)).mean(1)

    torch.manual_seed(0)
    model = Encoder().eval()
    save_scripted(model, tmp_path / "m.pt")
    tensor = torch.randn(1, 3, 64, 64)
    record = open_model(tmp_path / "m.pt", image_size=64).attend(tensor)
    assert len(record.layers) == 1
    assert record.verified
    assert record.output_unchanged
    with torch.no_grad():
        tokens = model.patches(tensor).flatten(2).mT.double()
        attention = model.layer.self_attn.double()
        _, weights = attention(tokens, tokens, tokens, average_attn_weights=False)
    found = np.stack([record.layers[0].matrix(head) for head in range(4)])
    np.testing.assert_allclose(found, weights[0].numpy(), rtol=0, atol=1e-5)


def test_windows(tmp_path):
    name, sizes = "swin_tiny_patch4_window7_224", {"depths": (2, 1), "num_heads": (2, 3), "embed_dim": 24}
    plain = attending(name, build(name, img_size=64, window_size=4, depth=None, **sizes))
    tensor = picture(plain)
    record = open_model(save_traced(plain.module, tmp_path / "m.pt")).attend(tensor)
    assert record.verified
    for layer, other in zip(record.layers, plain.attend(tensor).layers, strict=True):
        assert layer.name == other.name
        assert layer.scores.groups == other.scores.groups
        np.testing.assert_array_equal(layer.key_layout.positions, other.key_layout.positions)
        np.testing.assert_allclose(layer.matrix(1), other.matrix(1), rtol=0, atol=1e-5)


class Branches(nn.Module):
    """Which of its two attentions runs depends on the picture."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 16, 16)
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(picture).flatten(2).transpose(1, 2)
        if bool(picture.sum() > 0):
            keys = self.first(tokens)
            weights = torch.bmm(tokens, keys.transpose(1, 2)).softmax(-1)
        else:
            keys = self.second(tokens)
            weights = torch.bmm(tokens, keys.transpose(1, 2)).softmax(-1)
        return torch.bmm(weights, tokens).mean(1)


def test_attention_in_branches_has_no_name_rather_than_a_wrong_one(tmp_path):
    torch.manual_seed(0)
    save_scripted(Branches().eval(), tmp_path / "m.pt")
    model = open_model(tmp_path / "m.pt", image_size=64)
    for sign in (1, -1):
        [layer] = model.attend(torch.full((1, 3, 64, 64), 0.5 * sign)).layers
        assert layer.name == "attention 0"
        assert layer.verdict.verified


def test_a_traced_program_knows_its_size(traced, scripted, tmp_path):
    assert recorded_size(traced) == (64, 64)
    assert recorded_size(scripted) is None
    wide = small(img_size=(48, 80))
    assert open_model(save_traced(wide, tmp_path / "w.pt", (48, 80))).preprocessing.size == (48, 80)
    with pytest.raises(InputError, match="takes pictures of 64x64 pixels, not 80x80"):
        open_model(traced, image_size=80)


@pytest.mark.parametrize("size", [None, "whole"])
def test_a_scripted_program_is_asked_for_its_size(scripted, size):
    with pytest.raises(InputError) as caught:
        open_model(scripted, image_size=size)
    assert str(caught.value) == (
        f"{scripted} is a TorchScript program that does not say its input size; give it: --image-size 224, "
        "or --image-size 384x512 for height and width."
    )


def test_a_wrong_size_stops_with_a_sentence(scripted):
    model = open_model(scripted, image_size=80)
    with pytest.raises(InputError, match=r"could not run on a picture of 80x80 pixels: .*Input height"):
        model.attend(torch.zeros(1, 3, 80, 80))


def test_cancelling_reaches_through_the_interpreter(traced):
    job = Job(lambda doing, share: job.cancel() if "layer" in doing else None)
    with pytest.raises(Cancelled):
        open_model(traced).attend(torch.zeros(1, 3, 64, 64), job)


# What is refused


class Saves(nn.Module):
    def __init__(self, target: str):
        super().__init__()
        self.target = target
        self.conv = nn.Conv2d(3, 4, 16, 16)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        if picture.sum() > 1e9:
            torch.save(picture, self.target)
        return self.conv(picture)


class Prints(Saves):
    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        print(picture.shape)
        return self.conv(picture)


class Reads(Saves):
    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        return self.conv(picture) + torch.from_file(self.target, False, 4)


class Forks(Saves):
    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        return torch.jit.wait(torch.jit.fork(self.conv, picture))


class Hidden(Saves):
    """Harm in a method that the program does not call itself."""

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        return self.conv(picture)

    @torch.jit.export
    def train(self, mode: bool):
        torch.save(self.conv.weight, self.target)
        return self


@pytest.mark.parametrize(
    ("kind", "operator"),
    [
        (Saves, "aten::save"),
        (Prints, "prim::Print"),
        (Reads, "aten::from_file"),
        (Forks, "prim::fork"),
        (Hidden, "aten::save"),
    ],
)
def test_only_plain_operators_run(kind, operator, tmp_path, capfd):
    path, target = tmp_path / "m.pt", tmp_path / "written"
    save_scripted(kind(str(target)), path)
    with pytest.raises(ModelFileError) as caught:
        open_model(path, image_size=64)
    assert str(caught.value) == (
        f"{path} is a TorchScript program that uses {operator}, and only PyTorch's plain tensor operators "
        "are run. Other ways: export the model to ONNX, or save its weights alone and give the architecture "
        "(--model NAME --weights FILE)."
    )
    assert not target.exists()
    assert capfd.readouterr() == ("", "")


def test_programs_of_several_inputs(tmp_path):
    class Two(nn.Module):
        def forward(self, picture: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
            return picture + text

    save_scripted(Two(), tmp_path / "m.pt")
    with pytest.raises(
        ModelFileError, match=r"with 2 inputs \(picture, text\), not a single picture\. Other ways"
    ):
        open_model(tmp_path / "m.pt", image_size=64)


def test_code_that_runs_on_opening_is_not_opened(tmp_path, capfd):
    path, target = tmp_path / "m.pt", tmp_path / "written"
    save_scripted(Trap(str(target)), path)
    target.unlink(missing_ok=True)
    with pytest.raises(ModelFileError, match=r"with code that runs when it is opened, .*\(__setstate__\)"):
        open_model(path, image_size=64)
    assert not target.exists()
    assert capfd.readouterr() == ("", "")


def test_hooks_do_not_run(tmp_path):
    class Hooked(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 16, 16)

        def forward(self, picture: torch.Tensor) -> torch.Tensor:
            return self.conv(picture)

    def hook(self, given: tuple[torch.Tensor], result: torch.Tensor) -> torch.Tensor:
        return result + 1

    model = Hooked()
    model.register_forward_hook(hook)
    save_scripted(model, tmp_path / "m.pt")
    with pytest.raises(ModelFileError, match=r"\(_hooks__\)"):
        open_model(tmp_path / "m.pt", image_size=64)


@pytest.mark.parametrize("ending", [".py", "data.pkl", "constants.pkl"])
def test_damaged_programs(traced, tmp_path, ending):
    path = tmp_path / "m.pt"
    path.write_bytes(traced.read_bytes())
    rewritten(path, lambda name, data: data[: len(data) // 2] if name.endswith(ending) else data)
    with pytest.raises(ModelFileError, match="TorchScript program"):
        open_model(path)


def test_two_parts_of_one_name(traced, tmp_path):
    path = tmp_path / "m.pt"
    path.write_bytes(traced.read_bytes())
    with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr(archive.namelist()[0], b"")
    with pytest.raises(ModelFileError, match="two of its parts have the same name"):
        open_model(path)
