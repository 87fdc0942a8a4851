from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.export.scenes import make_document, make_record, make_scene
from viewer.attention.record import Provenance
from viewer.export import provenance
from viewer.export.figure import save
from viewer.export.requested import write
from viewer.export.restore import Restored, restore
from viewer.export.whereabouts import look_for
from viewer.state.requests import FigureRequest, ModelRequest, TableRequest


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def scene_of(picture: Path, model: str, weights: str, file: Path):
    """A scene of files at whole paths, as the window knows them."""
    record = make_record(1, 1, (4, 4))
    found = Provenance(model, sha256(file), weights, "torch", "cpu", str(picture), sha256(picture))
    return make_scene(make_document(replace(record, provenance=found)), (1, 1), (0, 0))


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "private" / "patient.png"
    path.parent.mkdir()
    path.write_bytes(b"the picture")
    return path


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "private" / "own.pth"
    path.write_bytes(b"the weights")
    return path


@pytest.fixture
def shown(tmp_path: Path, picture: Path, weights: Path) -> Restored:
    (tmp_path / "figures").mkdir()
    scene = scene_of(picture, "vit_tiny_patch16_224", str(weights), weights)
    return restore(save(scene, FigureRequest("overlay", tmp_path / "figures" / "fig.png", scale=1)))


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".json", ".csv", ".parquet"])
def test_no_file_that_is_handed_on_tells_of_folders(tmp_path, picture, weights, suffix) -> None:
    onnx = picture.with_name("net.onnx")
    onnx.write_bytes(b"the net")
    for model, checkpoint, file in (("vit_b", str(weights), weights), (str(onnx), "", onnx)):
        scene = scene_of(picture, model, checkpoint, file)
        path = tmp_path / f"out{suffix}"
        request = FigureRequest("all", path, 1) if suffix in (".png", ".svg", ".pdf") else TableRequest(path)
        content = write(scene, request).read_bytes()
        assert b"private" not in content and str(tmp_path).encode() not in content
        facts = provenance.of_record(scene.document.record)
        assert facts["image"] == {"name": "patient.png", "sha256": sha256(picture)}
        assert facts["model"]["sha256"] == sha256(file)
        assert {facts["model"]["name"], facts["model"]["weights"]} in ({"vit_b", "own.pth"}, {"net.onnx", ""})


def test_files_beside_the_figure_come_first_then_those_known(shown, picture, weights) -> None:
    assert (shown.image, shown.model.weights) == ("patient.png", "own.pth")
    found = look_for(shown, [picture], [weights])
    assert (found.image, found.missing) == (picture, ())
    assert found.model == ModelRequest("vit_tiny_patch16_224", str(weights), (64, 64))
    beside = shown.folder / "patient.png"
    beside.write_bytes(picture.read_bytes())
    assert look_for(shown, [picture], [weights]).image == beside


def test_another_file_of_the_same_name_is_not_taken_for_it(shown, picture, weights) -> None:
    (shown.folder / "patient.png").write_bytes(b"another picture")
    assert look_for(shown, [picture], [weights]).image == picture
    weights.write_bytes(b"trained on")
    found = look_for(shown, [], [weights])
    assert found.image is None and found.model is None
    assert len(found.missing) == 2


def test_what_is_gone_is_said_with_where_it_was_looked_for(shown, weights) -> None:
    found = look_for(shown, [], [weights])
    assert found.model is not None
    assert found.missing == (
        f"The figure's picture patient.png was not found, neither in the figure's folder {shown.folder} nor "
        "among the pictures open now or opened lately. Put it into that folder (the very same file) and open "
        "the figure again.",
    )
    nameless = look_for(replace(shown, image=""), [], [weights])
    assert nameless.missing == ("The figure shows a picture that had no file, so it can't be opened again.",)


def test_a_model_by_name_needs_no_file(shown) -> None:
    found = look_for(replace(shown, model=ModelRequest("sample"), model_sha256="c" * 64), [], [])
    assert found.model == ModelRequest("sample")


def test_an_onnx_file_is_looked_for(shown, picture) -> None:
    net = picture.with_name("net.onnx")
    net.write_bytes(b"the net")
    wanted = replace(shown, model=ModelRequest("net.onnx"), model_sha256=sha256(net))
    assert look_for(wanted, [picture], [net]).model == ModelRequest(str(net))
    assert "model net.onnx was not found" in look_for(wanted, [picture], []).missing[0]


@pytest.mark.parametrize("name", ["net.pt2", "net.pt", "net.ONNX"])
def test_programs_are_looked_for_too(shown, picture, name) -> None:
    net = picture.with_name(name)
    net.write_bytes(b"the net")
    wanted = replace(shown, model=ModelRequest(name), model_sha256=sha256(net))
    assert look_for(wanted, [picture], [net]).model == ModelRequest(str(net))
    assert f"model {name} was not found" in look_for(wanted, [picture], []).missing[0]


def test_a_folder_of_transformers_is_found_by_its_weights(shown, picture, tmp_path) -> None:
    folder = tmp_path / "private" / "swin"
    folder.mkdir()
    parts = {"model-00001-of-00002.safetensors": b"half", "model-00002-of-00002.safetensors": b"the rest"}
    for name, content in parts.items():
        (folder / name).write_bytes(content)
    whole = hashlib.sha256(b"".join(parts.values())).hexdigest()
    wanted = replace(shown, model=ModelRequest("swin"), model_sha256=whole)
    assert look_for(wanted, [picture], [folder]).model == ModelRequest(str(folder))
    other = replace(wanted, model_sha256="c" * 64)
    # It may be a model's name as well.
    assert look_for(other, [picture], [folder]).model == ModelRequest("swin")


@pytest.mark.parametrize(
    "name", ["hf:org/private", "torchvision/swin_t", "torchvision/vit_b_16.IMAGENET1K_V1"]
)
def test_public_names_keep_their_slash(tmp_path, picture, name) -> None:
    scene = scene_of(picture, name, "", picture)
    shown = restore(save(scene, FigureRequest("overlay", tmp_path / "fig.png", scale=1)))
    assert shown.model.model == name
    assert look_for(shown, [picture], []).model.model == name


def test_a_folder_called_like_a_library_is_a_folder() -> None:
    assert provenance.model_name("torchvision/private/net.pt2") == "net.pt2"
    assert provenance.model_name("/home/torchvision/swin_t") == "swin_t"
