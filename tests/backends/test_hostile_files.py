"""Files made to harm or to hang: nothing of them runs, nothing is waited for, each gives a sentence."""

from __future__ import annotations

import json
import os
import pickle
import socket
import struct
import warnings
import zipfile

import pytest
import timm
import torch
from torch import nn

from tests.backends.test_checkpoints import _openai_clip, assert_loads, fresh, small
from viewer import open_model
from viewer.backends.checkpoint_files import read_state
from viewer.backends.checkpoints import load_checkpoint
from viewer.errors import ModelFileError, PatchreachError

CLIP = "vit_base_patch16_clip_quickgelu_224.openai"


class Node(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Trap(nn.Module):
    """Its `__setstate__` writes a file and prints, as soon as TorchScript's own loader opens it."""

    def __init__(self, target: str):
        super().__init__()
        self.target: str = target
        self.weight = nn.Parameter(torch.ones(2))
        self.training = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight

    @torch.jit.export
    def __getstate__(self):
        return self.target, self.weight, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[str, torch.Tensor, bool]):
        print("loaded")
        torch.save(state[1], state[0])
        self.target = state[0]
        self.weight = state[1]
        self.training = state[2]


def save_scripted(module, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, the files stay
        torch.jit.script(module).save(str(path))


def rewritten(path, change):
    """Write an archive anew with `change(name, bytes)` in place of each member."""
    with zipfile.ZipFile(path) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members:
            archive.writestr(name, change(name, data))


def tree(state):
    """Nest tensors by their dotted names, as OpenAI's CLIP archives have them."""
    root = Node()
    for key, value in state.items():
        *parents, leaf = key.split(".")
        module = root
        for parent in parents:
            if parent not in dict(module.named_children()):
                module.add_module(parent, Node())
            module = dict(module.named_children())[parent]
        module.register_parameter(leaf, nn.Parameter(value))
    return root


@pytest.fixture
def scripted(tmp_path):
    path = tmp_path / "program.pt"
    save_scripted(tree({"a.weight": torch.arange(6.0).reshape(2, 3).t(), "b": torch.ones(2).half()}), path)
    return path


def test_opening_a_torchscript_program_runs_none_of_its_code(tmp_path, capfd):
    target, path = tmp_path / "written.pt", tmp_path / "trap.pt"
    save_scripted(Trap(str(target)), path)
    target.unlink(missing_ok=True)
    with pytest.raises(ModelFileError, match="only its own code can read the state of the whole"):
        read_state(path)
    with pytest.raises(ModelFileError, match="is a TorchScript program"):
        open_model(path)
    with pytest.raises(ModelFileError, match="is a TorchScript program"):
        open_model("vit_tiny_patch16_224", weights=path)
    assert not target.exists()
    assert capfd.readouterr() == ("", "")
    with warnings.catch_warnings():  # the trap is one indeed
        warnings.simplefilter("ignore")
        torch.jit.load(str(path))
    assert target.exists()


def test_a_trap_inside_a_module_that_holds_weights(tmp_path):
    root, target, path = tree({"a.weight": torch.ones(2)}), tmp_path / "written.pt", tmp_path / "trap.pt"
    root.add_module("inner", Trap(str(target)))
    save_scripted(root, path)
    target.unlink(missing_ok=True)
    with pytest.raises(ModelFileError, match="the state of inner"):
        read_state(path)
    assert not target.exists()


def test_weights_of_a_torchscript_program_are_its_own(scripted):
    state = read_state(scripted)
    assert set(state) == {"a.weight", "b"}
    assert torch.equal(state["a.weight"], torch.arange(6.0).reshape(2, 3).t())
    assert torch.equal(state["b"], torch.ones(2).half())
    assert state["b"].dtype == torch.float16


def test_openai_clip_archives_load(tmp_path):
    trained = small(CLIP, num_classes=24)
    path = tmp_path / "clip.pt"
    save_scripted(
        tree({key: value.clone() for key, value in _openai_clip(trained.state_dict()).items()}), path
    )
    model = fresh(CLIP, num_classes=24)
    assert load_checkpoint(CLIP, model, path) == ()
    assert_loads(CLIP, model.state_dict(), trained, tmp_path / "again.pth", num_classes=24)


class Evil:
    def __reduce__(self):
        return os.system, ("touch written",)


@pytest.mark.parametrize(
    "payload",
    [
        pickle.dumps(Evil(), 2),
        b"\x80\x02c__builtin__\neval\nX\x04\x00\x00\x001234\x85R.",
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x0c\x00\x00\x00__defaults__Ns\x86b.",
        b"\x80\x02c__torch__\nA\n}X\x01\x00\x00\x00aK\x01sb.",
        b"\x80\x02(X\x07\x00\x00\x00storageK\x01tQ.",
        b"\x80\x02.",
        b"",
        b"no pickle",
    ],
)
def test_other_pickles_in_a_torchscript_program(scripted, payload, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rewritten(scripted, lambda name, data: payload if name.endswith("data.pkl") else data)
    with pytest.raises(ModelFileError, match="TorchScript program"):
        read_state(scripted)
    assert not (tmp_path / "written").exists()


def test_storages_are_held_to_their_lengths(scripted):
    rewritten(scripted, lambda name, data: data[:-4] if name.endswith("data/0") else data)
    with pytest.raises(ModelFileError, match="another length than told"):
        read_state(scripted)


def test_tensors_stay_inside_their_storages(scripted):
    sizes = b"(K\x03K\x02t"
    rewritten(
        scripted, lambda name, data: data.replace(sizes, b"(K\x04K\x02t") if "data.pkl" in name else data
    )
    with pytest.raises(ModelFileError, match="reaches past its storage"):
        read_state(scripted)


@pytest.fixture(params=["fifo", "socket", "device", "folder"])
def special(request, tmp_path):
    if request.param == "device":
        yield "/dev/zero"
    elif request.param == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(tmp_path / "s.pth"))
            yield str(tmp_path / "s.pth")
    else:
        path = tmp_path / "thing.pth"
        os.mkfifo(path) if request.param == "fifo" else path.mkdir()
        yield str(path)


@pytest.mark.timeout(60)
def test_what_is_no_file_is_not_opened(special):
    for given in (lambda: open_model(special), lambda: open_model("vit_tiny_patch16_224", weights=special)):
        with pytest.raises(ModelFileError, match=r"is a (named pipe|socket|device|folder), not a checkpoint"):
            given()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_an_onnx_name_that_is_no_file(tmp_path, kind):
    path = tmp_path / "m.onnx"
    os.mkfifo(path) if kind == "fifo" else path.symlink_to("/dev/zero")
    with pytest.raises(ModelFileError, match=r"is a (named pipe|device), not a file"):
        open_model(path)


@pytest.mark.parametrize("name", ["a" * 300, "a" * 300 + ".pth", "a" * 300 + ".onnx", "x\0y", "x\0y.pth", ""])
def test_names_no_file_can_have(name):
    with pytest.raises(PatchreachError):
        open_model(name)
    with pytest.raises(PatchreachError):
        open_model("vit_tiny_patch16_224", weights=name)


@pytest.mark.timeout(60)
def test_a_checkpoint_that_holds_itself(tmp_path):
    path, held = tmp_path / "w.pth", {}
    held["model"] = held
    torch.save(held, path)
    with pytest.raises(ModelFileError, match="nested without end"):
        read_state(path)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: torch.eye(3).to_sparse(), "sparse"),
        (lambda: torch.empty(3, 3, device="meta"), r"empty \(meta\)"),
        (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "quantized"),
    ],
)
def test_weights_that_are_no_plain_arrays(tmp_path, make, kind):
    path = tmp_path / "w.pth"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own notices about these tensors
        state = timm.create_model("vit_tiny_patch16_224", pretrained=False, depth=1).state_dict()
        torch.save(state | {"norm.weight": make()}, path)
        with pytest.raises(ModelFileError, match=kind):
            open_model("vit_tiny_patch16_224", weights=path)


@pytest.mark.parametrize(
    "header",
    [
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": ["x", "y"]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": []}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}},
        {"a": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, None]}},
        {"a": 3},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 2.5]}},
    ],
)
def test_garbage_in_a_safetensors_header(tmp_path, header):
    path, text = tmp_path / "w.safetensors", json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    with pytest.raises(ModelFileError, match="safetensors"):
        read_state(path)
