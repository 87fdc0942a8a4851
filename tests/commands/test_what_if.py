"""``measure`` and ``render`` of a changed model, without a window."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from viewer.cli import main
from viewer.export.provenance import read_provenance
from viewer.export.restore import restore

NOTE = "This is an intervention on a model that was not trained with it."


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """A picture, and the options that open a small model."""
    folder = tmp_path_factory.mktemp("what-if")
    torch.manual_seed(0)
    save_file(timm.create_model("test_vit", pretrained=False).state_dict(), folder / "net.safetensors")
    Image.radial_gradient("L").resize((200, 180)).convert("RGB").save(folder / "cat.png")
    weights = str(folder / "net.safetensors")
    return [str(folder / "cat.png"), "--model", "test_vit", "--weights", weights, "--device", "cpu"]


def measured(asked, capsys, *options):
    assert main(["measure", *asked, "--format", "json", *options]) == 0
    captured = capsys.readouterr()
    (found,) = json.loads(captured.out)
    return found, captured.err


def test_json_holds_after_before_classes_and_features(asked, capsys):
    plain, _ = measured(asked, capsys)
    changes = ["--what-if", "uniform:layer=1", "--what-if", "head-removed:layer=2,head=0"]
    found, said = measured(asked, capsys, *changes)
    assert plain["what_if"] is None
    what_if = found["what_if"]
    assert what_if["changes"] == ["uniform:layers=1,heads=all", "head-removed:layers=2,heads=0"]
    assert what_if["note"] == (f"What if: uniform attention in layer 1; head 0 of layer 2 removed. {NOTE}")
    assert what_if["note"] in said.replace("\n", " ")
    assert what_if["before"] == plain["layers"]
    # Before the change nothing differs, at it attention is uniform.
    assert found["layers"][0]["entropy_nats"] == plain["layers"][0]["entropy_nats"]
    rows, columns = found["grid"]
    uniform = np.log(rows * columns + found["prefix_tokens"])
    np.testing.assert_allclose(found["layers"][1]["entropy_nats"], uniform, atol=1e-4)
    assert found["layers"][1]["note"] == "what if: uniform attention in layer 1"
    assert 0 < what_if["features_cosine"] < 1
    assert what_if["features_of"] == "what the last projection (the classifier) sees"
    assert len(what_if["classes"]) >= 5
    assert {"class", "before", "after"} == set(what_if["classes"][0])
    assert found["verified"]


def test_no_table_is_without_a_word_of_it(asked, capsys, tmp_path):
    assert main(["measure", *asked, "--what-if", "cb"]) == 0
    text = capsys.readouterr().out
    assert f"What if: Context Broadcasting (strength 0.5) after the MLP of every layer. {NOTE}" in text
    assert "cosine of the final features before and after: 0." in text
    path = tmp_path / "heads.csv"
    assert main(["measure", *asked, "--what-if", "cb", "-o", str(path)]) == 0
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    assert {row["what_if"] for row in rows} == {"cb:layers=all,strength=0.5"}


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_figure_says_what_was_changed_and_asks_for_it_again(asked, tmp_path, suffix):
    path = tmp_path / f"figure{suffix}"
    options = ["--what-if", "local:hops=1", "--no-title", "--layer", "2", "-o", str(path)]
    assert main(["render", *asked, *options]) == 0
    assert read_provenance(path)["what_if"] == ["local:layers=all,heads=all,hops=1"]
    assert [change.text for change in restore(path).what_if] == ["local:layers=all,heads=all,hops=1"]
    if suffix == ".svg":
        # Also without a title.
        words = path.read_text(encoding="utf-8")
        assert "What if: attention within 1 hop in every layer." in words


def test_the_scatter_shows_both_sides(asked, tmp_path):
    path = tmp_path / "scatter.svg"
    assert main(["render", *asked, "--view", "scatter", "--what-if", "uniform", "-o", str(path)]) == 0
    words = path.read_text(encoding="utf-8")
    assert "the same head before the change" in words
    assert "What if · How far each head reaches" in words


WRONG = [
    ("unifrom", "there is no change 'unifrom'"),
    ("cb:strength=7", "strength of cb is a number from 0 to 1, not 7"),
    ("head-removed:layer=1", "head-removed wants to know which"),
]


@pytest.mark.parametrize(("text", "sentence"), WRONG)
def test_what_is_no_change_is_said(asked, capsys, text, sentence):
    with pytest.raises(SystemExit) as ended:
        main(["measure", *asked, "--what-if", text])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_layer_that_is_not_there_is_said(asked, capsys):
    assert main(["measure", *asked, "--what-if", "uniform:layer=12"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "What if: there is no layer 12 in test_vit; it has 6, from 0 on." in said
