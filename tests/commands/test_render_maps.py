"""Maps other than attention by `render`, and what it says where a model has none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from viewer.cli import main
from viewer.commands.parsers import COMMANDS
from viewer.export.provenance import read_provenance
from viewer.export.restore import restore
from viewer.state.maps import MAPS

ARCHITECTURE = "vit_tiny_patch16_224"


@pytest.fixture(scope="module")
def picture(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("picture") / "noise.png"
    Image.fromarray(np.random.default_rng(1).integers(0, 255, (80, 80, 3), np.uint8)).save(path)
    return str(path)


def weights(folder: Path, architecture: str) -> str:
    import timm
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    path = folder / f"{architecture}.safetensors"
    save_file(timm.create_model(architecture, pretrained=False).state_dict(), path)
    return str(path)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> list[str]:
    path = weights(tmp_path_factory.mktemp("model"), ARCHITECTURE)
    return ["--model", ARCHITECTURE, "--weights", path, "--image-size", "64", "--device", "cpu"]


def test_the_command_line_knows_every_map():
    (option,) = [action for action in COMMANDS["render"]()._actions if action.dest == "map"]
    assert [name.replace("-", " ") for name in option.choices] == [row.kind for row in MAPS]


@pytest.mark.parametrize(
    ("arguments", "title"),
    [
        (
            ["--map", "rollout", "--fusion", "max", "--start-layer", "3", "--query", "2,1"],
            "Rollout of layers 3 to 11, max of heads: what patch (row 2, column 1) draws on",
        ),
        (
            ["--map", "class-rollout", "--class", "7"],
            "Class rollout of layers 0 to 11: what speaks for class 7",
        ),
        (["--map", "norms", "--layer", "5"], "Norms of the residual stream entering layer 5:"),
    ],
)
def test_each_is_drawn_with_its_title_and_comes_again_from_its_figure(
    model, picture, tmp_path, arguments, title
):
    path = tmp_path / "map.svg"
    assert main(["render", picture, *model, "-o", str(path), *arguments]) == 0
    text = path.read_text(encoding="utf-8")
    assert title.partition(":")[0] in text
    display = read_provenance(path)["display"]
    found = restore(path).display
    assert found.map == display["map"] == arguments[1].replace("-", " ")
    assert (found.rollout_fusion, found.start_layer, found.map_class) == (
        display["rollout_fusion"],
        display["start_layer"],
        display["map_class"],
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--compare", "resnet18", "--compare-untrained", "--stage", "layer2"], "resnet18 (random weights)"),
        (["--layer", "3"], f"{ARCHITECTURE} with {ARCHITECTURE}.safetensors"),
    ],
)
def test_under_the_title_stands_of_what_and_of_how_many_pictures_a_field_is(
    model, picture, tmp_path, arguments, named
):
    path, other = tmp_path / "map.svg", tmp_path / "other.png"
    Image.open(picture).rotate(90).save(other)
    options = ["--map", "effective-field", "--over", str(other), "-o", str(path)]
    assert main(["render", picture, *model, *options, *arguments]) == 0
    assert f">{named}  ·  mean of 2 pictures, shown: noise.png<" in path.read_text(encoding="utf-8")


def test_the_class_of_a_figure_is_kept_also_where_it_is_the_best(model, picture, tmp_path):
    path = tmp_path / "map.png"
    assert main(["render", picture, *model, "-o", str(path), "--map", "class-rollout"]) == 0
    assert restore(path).display.map_class == -1


def test_layers_with_other_tokens_are_said_and_nothing_is_written(picture, tmp_path, capsys):
    path = tmp_path / "map.png"
    model = ["--model", "swin_tiny_patch4_window7_224", "--device", "cpu"]
    swin = weights(tmp_path, "swin_tiny_patch4_window7_224")
    assert main(["render", picture, *model, "--weights", swin, "-o", str(path), "--map", "rollout"]) == 2
    said = capsys.readouterr().err
    assert "The rollout map can't be had: a rollout needs the same tokens in every layer, but" in said
    assert "layer 0 attends within windows" in said
    assert not path.exists()


def test_a_class_there_is_not_is_said(model, picture, tmp_path, capsys):
    path = tmp_path / "map.png"
    arguments = ["--map", "class-rollout", "--class", "1000"]
    assert main(["render", picture, *model, "-o", str(path), *arguments]) == 2
    assert "there is no class 1000; the model has 1000, from 0 on" in capsys.readouterr().err


def test_norms_stand_in_the_table(model, picture, capsys):
    assert main(["measure", picture, *model, "--format", "json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    for layer in entry["layers"]:
        assert 0 < layer["median_norm"] <= layer["largest_norm"]
        assert layer["high_norm_patches"] == len(layer["high_norm_at"])
