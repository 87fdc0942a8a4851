"""`patchreach field`: receptive fields of a network's layers, in every format."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from viewer.cli import main


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


def test_an_unknown_suffix_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["field", "--model", "resnet18", "-o", str(tmp_path / "it.doc")]) == 2
    assert "name a .csv, .json or .txt file" in capsys.readouterr().err
