"""The table of families, as the command line makes it."""

from __future__ import annotations

import pytest
import timm

from viewer.cli import main


def test_table_of_some_families(tmp_path, capsys):
    target = tmp_path / "table.md"
    assert main(["models", "e*ormer_v2", "--coverage", "-o", str(target)]) == 0
    lines = target.read_text().splitlines()
    assert lines[2].startswith("Made by `patchreach models --coverage`")
    assert f"timm {timm.__version__}" in lines[2]
    assert lines[4].startswith("| timm module | model | parameters | layers |")
    cells = [cell.strip() for cell in lines[6].strip("|").split("|")]
    assert cells[:7] == [
        *("efficientformer_v2", "efficientformerv2_s0", "3.6 M", "5", "self", "weights, query-key"),
        "7x7, 7x7 to 14x14",
    ]
    assert cells[7] == "traced"
    assert cells[8].startswith("verified; ")
    assert lines[-1] == (
        "Modules: 1; attending with a softmax: 1. Of these verified: 1 (100%), shown but not verified: 0, "
        "refused: 0."
    )
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("levit_128s*", "; models so called are of levit."),
        ("swinn_transformer", "; near ones are swin_transformer, "),
        ("zzzz", "; such a name is 'levit'."),
    ],
)
def test_names_of_models_are_no_modules(pattern, found, capsys):
    assert main(["models", pattern, "--coverage"]) == 2
    said = capsys.readouterr().err
    assert f"--coverage takes names of timm's modules (families of models), and none fits {pattern!r}" in said
    assert found in said


def test_lines_come_to_the_terminal_as_they_are_made(capsys):
    assert main(["models", "starnet", "--coverage"]) == 0
    out = capsys.readouterr().out
    assert "| starnet | starnet_s050 | 0.5 M |" in out
    assert "no softmax attention: It is a convolutional network" in out
    assert "Modules: 1; attending with a softmax: 0. Of these" in out


def test_a_family_that_fails_is_named_and_the_others_are_done(monkeypatch, capsys):
    made = timm.create_model

    def broken(name, **arguments):
        if name.startswith("pit"):
            raise ZeroDivisionError("no")
        return made(name, **arguments)

    monkeypatch.setattr(timm, "create_model", broken)
    assert main(["models", "p[iv]t*", "--coverage"]) == 1
    captured = capsys.readouterr()
    assert "| pvt_v2 | pvt_v2_b0 | 3.7 M | 8 | self | query-key |" in captured.out
    assert "pit could not be run: ZeroDivisionError: no" in captured.err
    assert "failed: ZeroDivisionError: no" in captured.out


def test_no_such_family_and_no_such_folder(tmp_path, capsys):
    assert main(["models", "no such family", "--coverage"]) == 2
    assert "'no such family'" in capsys.readouterr().err
    assert main(["models", "iformer", "--coverage", "-o", str(tmp_path / "none" / "t.md")]) == 2
    assert "no folder" in capsys.readouterr().err
    assert main(["models", "vit", "-o", str(tmp_path / "t.md")]) == 2
    assert "-o goes with --coverage" in capsys.readouterr().err
