"""`patchreach field`: receptive fields of a network's layers, in every format."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from tests.export.svg import Svg
from viewer.cli import main
from viewer.export.provenance import read_provenance
from viewer.export.restore import restore


def test_a_table_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["field", "--model", "seresnet18"]) == 0
    text = capsys.readouterr().out
    lines = [line.split() for line in text.splitlines()]
    assert ["conv1", "conv", "7", "2", "1", "2", "7"] in lines
    assert ["=", "end", "of", "layer4", "stage", "32", "435*"] in lines
    assert "Marked *: units also depend on the whole picture" in text


def test_csv_and_json_hold_the_same(tmp_path: Path) -> None:
    for suffix in ("csv", "json"):
        assert main(["field", "--model", "resnet18", "-o", str(tmp_path / f"it.{suffix}")]) == 0
    with (tmp_path / "it.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = json.loads((tmp_path / "it.json").read_text())
    assert [row["name"] for row in rows] == [layer["name"] for layer in found["layers"]]
    assert rows[-1]["kind"] == "stage"
    assert float(rows[-1]["field_px_width"]) == found["layers"][-1]["field_px"][1] == 435
    assert (found["model"], found["backend"], found["effective"]) == ("resnet18", "torch", None)


def test_a_name_that_is_none_gets_near_ones_of_every_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["field", "--model", "resnet500"]) == 2
    assert "resnet50" in capsys.readouterr().err


def test_weights_alone_are_no_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "some.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    assert main(["field", "--model", str(tmp_path / "some.safetensors")]) == 2
    assert "receptive fields need a network" in capsys.readouterr().err


def test_what_holds_no_network_is_told_for_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "noise.pt").write_bytes(bytes(range(1, 200)))
    (tmp_path / "b").mkdir()
    for name, kind in (("a.png", "is a PNG picture"), ("noise.pt", "holds no program"), ("b", "is a folder")):
        assert main(["field", "--model", str(tmp_path / name)]) == 2
        said = capsys.readouterr().err
        assert f"{name} {kind}, and receptive fields need a network. Name the network: --model" in said


def test_an_unknown_suffix_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["field", "--model", "resnet18", "-o", str(tmp_path / "it.doc")]) == 2
    assert "name a .csv, .json or .txt file" in capsys.readouterr().err


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 255, (70, 90, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "noise.png")
    return tmp_path / "noise.png"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    save_file(timm.create_model("test_vit").state_dict(), tmp_path / "vit.safetensors")
    return tmp_path / "vit.safetensors"


def test_effective_fields_stand_beside_theoretical_ones(
    picture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--model", "test_resnet", "--image-size", "64", "--untrained", "--device", "cpu"]
    assert main(["field", *options, "--effective", str(picture), "-o", str(tmp_path / "it.json")]) == 0
    found = json.loads((tmp_path / "it.json").read_text())
    assert found["effective"] == {
        "images": 1,
        "input_size": [64, 64],
        "weights": "random, as initialized, zero norms set to 1",
    }
    stages = [layer for layer in found["layers"] if layer["kind"] == "stage"]
    assert all(0 < stage["effective_size_px"] <= stage["field_px"][0] for stage in stages)
    assert all(len(stage["effective_sigma_px"]) == 2 for stage in stages)
    assert main(["field", *options, "--effective", str(picture), str(tmp_path / "none.png")]) == 1
    said = capsys.readouterr()
    assert "mean over 1 picture, weights: random, as initialized, zero norms set to 1" in said.out
    assert "none.png" in said.err


def test_heads_that_reach_less_are_named_for_each_stage(
    picture: Path, checkpoint: Path, tmp_path: Path
) -> None:
    beside = ["--beside", "test_vit", "--beside-weights", str(checkpoint), "--image", str(picture)]
    for suffix in ("json", "txt"):
        assert main(["field", "--model", "resnet18", *beside, "-o", str(tmp_path / f"it.{suffix}")]) == 0
    found = json.loads((tmp_path / "it.json").read_text())
    stages = [layer for layer in found["layers"] if layer["kind"] == "stage"]
    assert [stage["as_attention_px"] for stage in stages][:2] == [0, 0]
    # Fields grow, so the heads that reach less can only become more.
    assert [len(stage["shorter_heads"]) for stage in stages] == sorted(
        len(stage["shorter_heads"]) for stage in stages
    )
    shorter = stages[-1]["shorter_heads"]
    assert [layer for layer, _ in shorter] == sorted(layer for layer, _ in shorter)
    lines = (tmp_path / "it.txt").read_text().splitlines()
    assert any("as attention px" in line and "shorter heads" in line for line in lines)
    assert f"{len(shorter)}: " in lines[-1]


def test_beside_wants_a_picture(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["field", "--model", "resnet18", "--beside", "sample"]) == 2
    assert "--beside MODEL and --image IMAGE go together" in capsys.readouterr().err


def test_a_figure_with_the_stages_of_a_network(picture: Path, checkpoint: Path, tmp_path: Path) -> None:
    options = ["--model", "test_vit", "--weights", str(checkpoint), "--view", "scatter"]
    target = tmp_path / "it.svg"
    compare = ["--compare", "test_resnet", "--compare-untrained"]
    assert main(["render", str(picture), *options, *compare, "-o", str(target)]) == 0
    text = target.read_text()
    assert "stages of test_resnet, as uniform attention over their fields" in text
    assert (
        "effective fields of its stages, this picture, weights: random, as initialized, zero norms set to 1"
        in text
    )
    assert ", effective" in " ".join(Svg(text).texts)


def test_a_figure_of_an_effective_field(picture: Path, checkpoint: Path, tmp_path: Path) -> None:
    options = ["--model", "test_vit", "--weights", str(checkpoint), "--layer", "1"]
    target = tmp_path / "it.svg"
    assert main(["render", str(picture), *options, "--map", "effective-field", "-o", str(target)]) == 0
    assert "Effective field behind the block of layer 1" in target.read_text()


def test_a_map_of_a_stage_comes_again_from_its_figure(
    picture: Path, checkpoint: Path, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    save_file(timm.create_model("test_resnet").state_dict(), tmp_path / "net.safetensors")
    other = tmp_path / "other.png"
    Image.fromarray(np.full((40, 60, 3), 90, np.uint8)).save(other)
    options = ["--model", "test_vit", "--weights", str(checkpoint), "--device", "cpu"]
    options += [
        "--map",
        "effective-field",
        "--compare",
        "test_resnet",
        "--stage",
        "layer2",
        "--over",
        str(other),
    ]
    target = tmp_path / "it.svg"
    weights = ["--compare-weights", str(tmp_path / "net.safetensors")]
    assert main(["render", str(picture), *options, *weights, "-o", str(target)]) == 0
    text = target.read_text()
    assert (
        "Effective field of test_resnet layer2, mean of 2 pictures: what its middle unit depends on" in text
    )
    assert "mean over 2 pictures, weights: net.safetensors" in " ".join(Svg(text).texts)
    facts = read_provenance(target)
    assert facts["averaged_pictures"] == 2
    shown = (facts["display"]["compare"], facts["display"]["compare_weights"], facts["display"]["stage"])
    assert shown == ("test_resnet", "net.safetensors", "layer2")
    # The checkpoint lies beside the figure.
    found = restore(target).display
    assert (found.map, found.compare, found.stage) == ("effective field", "test_resnet", "layer2")
    assert found.compare_weights == str(tmp_path / "net.safetensors")
    (tmp_path / "net.safetensors").unlink()
    assert restore(target).display.compare_weights == "net.safetensors"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--map", "effective-field", "--stage", "layer2"], "Name the network to compare with"),
        (
            ["--compare", "test_resnet", "--stage", "layer2"],
            "--stage chooses what --map effective-field shows",
        ),
        (
            [
                "--compare",
                "test_resnet",
                "--compare-untrained",
                "--map",
                "effective-field",
                "--stage",
                "layer9",
            ],
            "test_resnet has no stage layer9; it has conv1",
        ),
    ],
)
def test_what_a_stage_needs_is_said(
    picture: Path,
    checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    target = tmp_path / "it.png"
    options = ["--model", "test_vit", "--weights", str(checkpoint), *arguments]
    assert main(["render", str(picture), *options, "-o", str(target)]) == 2
    assert said in capsys.readouterr().err
    assert not target.exists()
