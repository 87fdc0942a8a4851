"""An option that was given does something, or is refused: nothing is ignored in silence."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from viewer.cli import main
from viewer.commands.idle import RULES, refuse_idle
from viewer.commands.parsers import COMMANDS, window_parser

# What is always of use, or whose absence or presence each command looks after itself.
_ALWAYS = {
    "": {"--help", "--sample", "--lesson", "--model", "--theme", "--fresh", "--screenshot", "--version"},
    "measure": {
        *("--help", "--model", "--weights", "--image-size", "--device", "--protocol", "--what-if"),
        *("--format", "--output"),
    },
    "render": {
        *("--help", "--model", "--weights", "--image-size", "--device", "--what-if", "--output"),
        *("--view", "--theme", "--ground", "--no-title"),
    },
    "study": {
        *("--help", "--model", "--weights", "--image-size", "--device", "--protocol", "--output"),
        *("--resume", "--engine", "--ray-address", "--workers", "--batch", "--part"),
    },
    "field": {"--help", "--model", "--effective", "--beside", "--image", "--format", "--output"},
    "models": {"--help", "--coverage", "--output"},
    "lesson": {"--help", "--output", "--format", "--theme", "--ground"},
}

_OPTIONS = {
    "--map": "rollout",
    "--fusion": "max",
    "--start-layer": "2",
    "--class": "3",
    "--layer": "1",
    "--head": "1",
    "--query": "0,0",
    "--direction": "to",
    "--ring": "1",
    "--protocol": "original",
    "--unit": "patches",
    "--x": "nmi",
    "--y": "entropy_nats",
    "--kinds": None,
    "--likeness": "centred",
    "--between": "heads",
    "--opacity": "0.3",
    "--no-fade": None,
    "--grid": None,
    "--color-scale": "per-head",
    "--colormap": "magma",
}
_SCENES = {
    "overlay": [],
    "rollout": ["--map", "rollout"],
    "class rollout": ["--map", "class-rollout"],
    "norms": ["--map", "norms"],
    "effective field": ["--map", "effective-field"],
    "heads": ["--view", "heads"],
    "scatter": ["--view", "scatter"],
    "likeness": ["--view", "likeness"],
    "all": ["--view", "all"],
}
_AS_OVERLAY = {"--ring", "--opacity", "--no-fade", "--grid", "--query", "--colormap"}  # tried out there


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A picture, and arguments that open a small model with a class token and a grid of 4 x 4 patches."""
    import timm
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("given")
    model, picture = folder / "tiny.safetensors", folder / "one.png"
    save_file(timm.create_model("test_vit", pretrained=False).state_dict(), model)
    Image.fromarray(np.random.default_rng(1).integers(0, 255, (80, 100, 3), np.uint8)).save(picture)
    named = ["--model", "test_vit", "--weights", str(model)]
    return ["render", str(picture), *named, "--image-size", "64", "--device", "cpu"]


def _drawn(given: list[str], path: Path, options: list[str]) -> np.ndarray | None:
    """Return a figure's pixels, None if it was refused."""
    path.unlink(missing_ok=True)
    code = main([*given, "-o", str(path), "--scale", "1", *options])
    assert path.exists() == (code == 0)
    return np.asarray(Image.open(path).convert("RGB")) if code == 0 else None


@pytest.mark.parametrize("scene", _SCENES)
def test_each_option_changes_a_figure_or_is_refused_in_a_sentence(
    given: list[str], scene: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    plain = _drawn(given, tmp_path / "it.png", _SCENES[scene])
    assert plain is not None
    for option, value in _OPTIONS.items():
        if option in _SCENES[scene] or (scene == "all" and option in _AS_OVERLAY):
            continue
        capsys.readouterr()
        drawn = _drawn(given, tmp_path / "it.png", [*_SCENES[scene], option, *([value] if value else [])])
        said = capsys.readouterr().err
        if drawn is None:
            assert said.startswith("patchreach: --"), option
            assert said.count("\n") == 1
            assert option in said
        else:
            assert drawn.shape != plain.shape or (drawn != plain).any(), option


def test_every_option_of_every_command_has_a_rule_or_is_always_of_use() -> None:
    for command, make in {"": window_parser, **COMMANDS}.items():
        there = {action.option_strings[-1] for action in make()._actions if action.option_strings}
        ruled = {rule.option for rule in RULES.get(command, ())}
        assert there == ruled | _ALWAYS[command]
        assert not ruled & _ALWAYS[command]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["render", "--view", "scatter", "--stage=layer1", "--compare", "x"], "--stage is about the picture"),
        (["render", "--compare", "resnet18"], "--view overlay as it is asked for shows neither"),
        (["render", "--view", "scatter", "--y", "nmi", "--compare", "resnet18"], "--compare draws levels on"),
        (["render", "--view", "all", "--y", "nmi", "--compare", "resnet18"], "--compare draws levels on"),
        (
            ["render", "--view", "heads", "--compare-weights", "a.pth"],
            "--compare-weights is for effective fields",
        ),
        (["render", "--over", "a.png"], "--over adds pictures to effective fields"),
        (["render", "--view", "likeness", "--head", "max"], "--head max has no part in likeness"),
        (
            ["render", "--view", "all", "--map", "norms", "--head", "max"],
            "--head max has no part beside --map norms",
        ),
        (["render", "--view", "scatter", "--query", "none", "--direction", "to"], "--direction turns"),
        (["render", "--ring", "2", "--query", "cls"], "--ring goes around a patch, and --query cls is none."),
        (["render", "--query", "none"], "--query none leaves nothing to show here"),
        (["render", "--scale", "3", "-o", "it.svg"], "--scale multiplies the pixels of a PNG"),
        (["lesson", "-o", "slides", "--format", "pdf", "--scale", "2"], "--scale multiplies the pixels"),
        (["field", "--model", "resnet18", "--weights", "a.pth"], "--weights is for effective fields"),
        (["field", "--model", "resnet18", "--untrained"], "--untrained is for effective fields"),
        (["field", "--model", "resnet18", "--device", "cpu"], "theoretical fields are read without a run"),
        (
            ["field", "--model", "resnet18", "--protocol", "original"],
            "--protocol is about the model of --beside",
        ),
        (["field", "--model", "a.onnx", "--image-size", "64"], "read without a picture's size"),
        (
            ["study", "a", "--model", "b", "-o", "c", "--engine", "ray", "--models", "2"],
            "of the local engine",
        ),
        (["measure", "a.png", "--model", "worked-example", "--device", "mps"], "on the CPU alone"),
    ],
)
def test_what_would_be_ignored_is_said_with_2_and_nothing_is_written(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    command, *more = arguments
    if command == "render":
        more = ["a.png", "--model", "worked-example", *([] if "-o" in more else ["-o", "it.png"]), *more]
    assert main([command, *more]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_how_a_model_is_opened_wants_the_model(capsys: pytest.CaptureFixture) -> None:
    for option in ("--weights", "--image-size", "--device"):
        assert main(["a.png", option, "64"]) == 2
        assert f"{option} says how --model is opened" in capsys.readouterr().err


def test_a_scatter_without_the_dots_of_a_query(given: list[str], tmp_path: Path) -> None:
    from viewer.export.restore import restore

    path = tmp_path / "it.svg"
    for query, words in (("1,2", 1), ("none", 0)):
        assert main([*given, "--view", "scatter", "--query", query, "-o", str(path)]) == 0
        assert path.read_text().count("the same head, for patch") == words
    assert restore(path).selection.pins == ()
    maps = ["--map", "norms", "--query", "none"]
    assert main([*given, *maps, "-o", str(path)]) == 0
    assert "Orange frame" not in path.read_text()


def test_no_command_of_the_readme_is_refused() -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    lines = [line.partition("#")[0] for line in text.splitlines() if line.startswith("patchreach ")]
    assert len(lines) > 12
    for line in lines:
        command, *arguments = shlex.split(line)[1:]
        if command in COMMANDS:
            refuse_idle(command, COMMANDS[command]().parse_intermixed_args(arguments), arguments)
