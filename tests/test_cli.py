"""The command line, run as people run it: real pictures, a real (small, untrained) model, real processes."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from PIL import Image

from viewer.cli import main
from viewer.version import __version__

ROOT = Path(__file__).parents[1]
ARCHITECTURE = "vit_tiny_patch16_224"


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run ``python main.py`` in a process of its own, without a display."""
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    environment = {name: value for name, value in os.environ.items() if name not in hidden} | settings
    command = [sys.executable, "main.py", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Arguments that open a small model on pictures of 64 x 64 pixels: a grid of 4 x 4 patches."""
    import timm
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    save_file(timm.create_model(ARCHITECTURE, pretrained=False).state_dict(), path)
    return ["--model", ARCHITECTURE, "--weights", str(path), "--image-size", "64", "--device", "cpu"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("pictures")
    generator = np.random.default_rng(1)
    paths = [folder / "one.png", folder / "zwei é.png"]
    for path in paths:
        Image.fromarray(generator.integers(0, 255, (80, 100, 3), np.uint8)).save(path)
    return [str(path) for path in paths]


# -- help, version, display --


def test_version_and_help_load_nothing_heavy() -> None:
    heavy = ("torch", "timm", "onnxruntime", "onnx", "matplotlib", "PySide6", "pyqtgraph", "numpy")
    for arguments in (
        ["--version"],
        ["--help"],
        ["measure", "--help"],
        ["render", "--help"],
        ["models", "-h"],
    ):
        program = (
            "import sys; from viewer.cli import main\n"
            f"try: main({arguments})\nexcept SystemExit as end: print('ended', end.code)\n"
            f"print('loaded', [name for name in {heavy} if name in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
        assert "ended 0" in done.stdout, done.stderr
        assert "loaded []" in done.stdout


def test_version_names_the_program() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"patchreach {__version__}\n")


def test_help_names_the_commands() -> None:
    done = run("--help")
    assert done.returncode == 0
    for command in (
        "measure IMAGE ... --model MODEL",
        "render IMAGE --model MODEL -o FIG",
        "models [PATTERN]",
    ):
        assert command in done.stdout


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere there is always a display")
@pytest.mark.parametrize("arguments", [[], ["--sample"], ["./measure"]])
def test_no_display_gives_one_sentence_and_2(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    for command in ("patchreach measure", "patchreach render", "patchreach models"):
        assert command in done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="X11")
def test_a_display_that_does_not_answer_is_no_display() -> None:
    done = run(DISPLAY=":987")
    assert done.returncode == 2
    assert "patchreach measure" in done.stderr


# -- usage --


USAGE = [
    (["measure", "a.png"], "--model"),
    (["measure", "--model", "sample"], "IMAGE"),
    (["render", "a.png", "--model", "sample"], "-o"),
    (["render", "a.png", "--model", "sample", "-o", "f.png", "--scale", "5"], "1, 2, 3, 4"),
    (["render", "a.png", "--model", "sample", "-o", "f.png", "--query", "4;5"], "ROW,COLUMN"),
    (["render", "a.png", "--model", "sample", "-o", "f.png", "--head", "most"], "'most'"),
    (["render", "a.png", "--model", "sample", "-o", "f.png", "--opacity", "2"], "0 to 1"),
    (["render", "a.png", "--model", "sample", "-o", "f.png", "--colormap", "jet"], "viridis"),
    (["measure", "a.png", "--model", "sample", "--image-size", "0x3"], "224x320"),
    (["measure", "a.png", "--model", "sample", "--mod", "x"], "--mod"),
    (["measure", "", "--model", "sample"], "it is empty"),
    (["measure", "a.png", "--model", ""], "it is empty"),
    (["measure", "a.png", "--model", "sample", "--weights", ""], "it is empty"),
    ([""], "it is empty"),
    (["--bogus"], "--bogus"),
]


def test_help_names_every_colour_map(capsys: pytest.CaptureFixture) -> None:
    from viewer.state.colormaps import COLORMAPS

    with pytest.raises(SystemExit):
        main(["render", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"{COLORMAPS[0]} (default), {', '.join(COLORMAPS[1:])}" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    USAGE,
)
def test_wrong_usage_is_explained_with_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert said in capsys.readouterr().err


# -- measure --


def test_measure_writes_json_as_documented(
    model: list[str], pictures: list[str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    target = tmp_path / "out.json"
    assert main(["measure", *pictures, *model, "-o", str(target)]) == 0
    assert capsys.readouterr().out == ""
    found = json.loads(target.read_text(encoding="utf-8"))
    assert [entry["image"] for entry in found] == pictures
    for entry in found:
        assert entry["model"] == ARCHITECTURE
        assert (entry["backend"], entry["device"]) == ("torch", "cpu")
        assert (entry["input_size"], entry["grid"], entry["patch_px"]) == ([64, 64], [4, 4], [16, 16])
        assert (entry["prefix_tokens"], entry["protocol"], entry["verified"]) == (1, "renormalized", True)
        assert len(entry["layers"]) == 12
        for layer in entry["layers"]:
            assert layer["kind"] == "self"
            for key in ("mean_distance_px", "mean_distance_patches", "entropy_nats", "prefix_mass"):
                assert len(layer[key]) == layer["heads"] == 3
            assert np.allclose(np.divide(layer["mean_distance_px"], layer["mean_distance_patches"]), 16)
    # The same number as from the Python interface, by the definition.
    from viewer import open_image, open_model

    layer = open_model(ARCHITECTURE, model[3], 64, "cpu").attend(open_image(pictures[0])).layers[3]
    matrix = layer.matrix(head=2)[1:, 1:].astype(np.float64)
    y, x = np.divmod(np.arange(16), 4)
    apart = 16 * np.hypot(y[:, None] - y, x[:, None] - x)
    distance = ((matrix * apart).sum(1) / matrix.sum(1)).mean()
    assert found[0]["layers"][3]["mean_distance_px"][2] == pytest.approx(distance, abs=1e-4)


def test_measure_says_which_layer_is_not_verified_and_why(
    pictures: list[str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    import timm
    import torch
    from safetensors.torch import save_file

    net = timm.create_model(ARCHITECTURE, pretrained=False)
    with torch.no_grad():
        net.blocks[2].attn.qkv.weight.fill_(torch.nan)
    path = tmp_path / "broken.safetensors"
    save_file(net.state_dict(), path)
    asked = ["--model", ARCHITECTURE, "--weights", str(path), "--image-size", "64", "--device", "cpu"]
    assert main(["measure", pictures[0], *asked]) == 0
    said = capsys.readouterr().err
    assert f"{pictures[0]}: layer 2 is not verified: the model's numbers are not finite" in said
    assert "layer 1 is not verified" not in said


def test_measure_prints_a_table_or_what_is_asked_for(
    model: list[str], pictures: list[str], capsys: pytest.CaptureFixture
) -> None:
    assert main(["measure", pictures[0], *model, "--protocol", "original"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == pictures[0]
    assert "protocol original" in lines[2]
    assert len(lines) == 4 + 12 * 3
    # Options may stand between the pictures.
    assert main(["measure", pictures[0], *model, pictures[1], "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 2 * 12 * 3
    assert {row["image"] for row in rows} == set(pictures)


def test_measure_writes_parquet(model: list[str], pictures: list[str], tmp_path: Path) -> None:
    assert main(["measure", *pictures, *model, "-o", str(tmp_path / "t.parquet")]) == 0
    frame = pyarrow.parquet.read_table(tmp_path / "t.parquet")
    assert frame.num_rows == 2 * 12 * 3
    facts = json.loads(frame.schema.metadata[b"patchreach"])
    assert [image["name"] for image in facts["image"]] == [Path(path).name for path in pictures]
    assert re.fullmatch("[0-9a-f]{64}", facts["model"]["sha256"])


def test_measure_does_the_rest_when_some_fail(
    model: list[str], pictures: list[str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    empty, text = tmp_path / "empty.png", tmp_path / "text.jpg"
    empty.write_bytes(b"")
    text.write_text("no picture")
    target = tmp_path / "out.csv"
    arguments = [str(empty), pictures[0], str(text), "missing.png"]
    assert main(["measure", *arguments, *model, "-o", str(target)]) == 1
    rows = list(csv.DictReader(io.StringIO(target.read_text(encoding="utf-8"))))
    assert {row["image"] for row in rows} == {pictures[0]}
    problems = [line for line in capsys.readouterr().err.splitlines() if "note:" not in line]
    assert [any(name in line for line in problems) for name in (str(empty), str(text), "missing.png")]
    assert len(problems) == 3


def test_measure_with_nothing_done_is_2_and_writes_nothing(
    model: list[str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    target = tmp_path / "out.json"
    assert main(["measure", "missing.png", *model, "-o", str(target)]) == 2
    assert "missing.png" in capsys.readouterr().err
    assert not target.exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["--model", "vit_tinny_patch16_224"], "vit_tinny_patch16_224"),
        (["--model", "missing.onnx"], "missing.onnx"),
        (["--model", "sample", "-o", "out.xlsx"], ".csv, .json, .parquet"),
        (["--model", "sample", "-o", "no/such/folder/out.csv"], "there is no folder"),
    ],
)
def test_what_can_not_be_begun_is_said_in_one_sentence(
    changes: list[str], said: str, pictures: list[str], capsys: pytest.CaptureFixture
) -> None:
    assert main(["measure", pictures[0], *changes]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert said in found.err
    assert "Traceback" not in found.err


# -- render --


@pytest.mark.parametrize(
    ("view", "suffix"), [("overlay", "png"), ("heads", "svg"), ("scatter", "pdf"), ("all", "svg")]
)
def test_render_makes_every_view(
    model: list[str], pictures: list[str], tmp_path: Path, view: str, suffix: str
) -> None:
    from viewer.export.restore import restore

    path = tmp_path / f"fig.{suffix}"
    arguments = ["--view", view, "--layer", "3", "--head", "1", "--query", "2,1"]
    assert main(["render", pictures[0], *model, "-o", str(path), *arguments]) == 0
    found = restore(path)
    assert found.view == view
    assert found.selection.pins == ((2, 1),)
    assert found.selection.head == (3, 1)
    assert found.model.model == ARCHITECTURE
    assert found.image == Path(pictures[0]).name


def test_a_figure_of_a_whole_picture_asks_for_the_whole_picture_again(
    model: list[str], pictures: list[str], tmp_path: Path
) -> None:
    from viewer.export.restore import restore

    path = tmp_path / "fig.png"
    assert main(["render", pictures[0], *model, "--image-size", "whole", "-o", str(path)]) == 0
    assert restore(path).model.image_size == "whole"


def test_render_draws_the_very_figure_of_the_window(
    model: list[str], pictures: list[str], tmp_path: Path
) -> None:
    from viewer import open_image, open_model
    from viewer.export.figure import draw
    from viewer.state.display import Display, DisplayValue
    from viewer.state.documents import Documents
    from viewer.state.requests import FigureRequest
    from viewer.state.scene import Scene
    from viewer.state.selection import HeadRef, Selection, SelectionValue

    path = tmp_path / "fig.png"
    looks = ["--protocol", "original", "--theme", "dark", "--ring", "1", "--grid"]
    looks += [
        "--no-fade",
        "--color-scale",
        "per-head",
        "--colormap",
        "magma",
        "--opacity",
        "0.5",
        "--scale",
        "1",
    ]
    choice = ["--view", "overlay", "--head", "max", "--query", "2,1", "--direction", "from"]
    assert main(["render", pictures[0], *model, "-o", str(path), *choice, *looks]) == 0

    documents, selection, display = Documents(), Selection(), Display()
    scene = Scene(documents, selection, display)
    image = open_image(pictures[0])
    document = documents.add(image)
    record = open_model(ARCHITECTURE, model[3], 64, "cpu").attend(image)
    documents.update(document.key, record=record, status="measuring")
    selection.set(SelectionValue(pins=((2, 1),), head=HeadRef(11, None), fusion="max"))
    display.set(DisplayValue("original", "px", "per head", "magma", 0.5, False, True, 1, "dark"))
    drawn = draw(scene.value, FigureRequest("overlay", scale=1, ground="dark"))
    with Image.open(path) as first, Image.open(io.BytesIO(drawn)) as second:
        np.testing.assert_array_equal(np.asarray(first), np.asarray(second))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-o", "fig.jpg"], ".png, .svg, .pdf"),
        (["-o", "no/such/folder/fig.png"], "there is no folder"),
        (["-o", "n" * 300 + ".png"], "can't be written ("),
        (["-o", "fig.png", "--layer", "12"], "There is no layer 12; the model has 12, from 0 on."),
        (["-o", "fig.png", "--head", "3"], "There is no head 3 in layer 11; it has 3, from 0 on."),
        (["-o", "fig.png", "--query", "4,0"], "There is no patch (4, 0); the grid has 4 rows and 4 columns"),
        (["-o", "fig.png", "--query", "reg1"], "this model's prefix tokens: cls"),
    ],
)
def test_what_can_not_be_rendered_is_said_and_nothing_is_written(
    arguments: list[str],
    said: str,
    model: list[str],
    pictures: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["render", pictures[0], *model, *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "target"),
    [
        (["render"], "photo.png"),
        (["render"], "link.svg"),
        (["measure", "--format", "csv"], "photo.png"),
        (["measure", "--format", "csv"], "weights.safetensors"),
        (["measure", "--format", "json"], "net.onnx"),
    ],
)
def test_nothing_that_was_given_is_overwritten(
    command: list[str],
    target: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (8, 8)).save("photo.png")
    for name in ("weights.safetensors", "net.onnx"):
        Path(name).write_bytes(b"weights")
    Path("link.svg").symlink_to("photo.png")
    before = Path(target).read_bytes()
    model = (
        ["--model", "net.onnx"]
        if target == "net.onnx"
        else ["--model", "x", "--weights", "weights.safetensors"]
    )
    assert main([*command, "photo.png", *model, "-o", target]) == 2
    assert "made from that very file" in capsys.readouterr().err
    assert Path(target).read_bytes() == before


# -- models --


def test_models_lists_names_that_fit(capsys: pytest.CaptureFixture) -> None:
    assert main(["models", "vit_tiny_patch16_224"]) == 0
    assert ARCHITECTURE in capsys.readouterr().out.splitlines()
    assert main(["models", "sampl?"]) == 0
    assert capsys.readouterr().out == "sample\n"
    assert main(["models", "no such name"]) == 2
    assert "'no such name'" in capsys.readouterr().err
    assert main(["models", "*vit_tinny_patch16_224"]) == 2
    assert f"Did you mean {ARCHITECTURE}" in capsys.readouterr().err
    assert main(["models", "*convnext*"]) == 2
    said = capsys.readouterr().err
    assert "timm has models whose names fit '*convnext*'" in said
    assert "none of those attends with a softmax" in said


# -- processes --


def test_a_reader_that_leaves_early_is_no_error() -> None:
    writer = subprocess.Popen(
        [sys.executable, "main.py", "models"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    writer.stdout.close()
    problems = writer.stderr.read()
    writer.stderr.close()
    assert writer.wait(60) == 141
    assert problems == b""


FULL = "can't be written to the standard output (No space left on device)."
CLOSED = "can't be written: the standard output is closed."


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full and a shell")
@pytest.mark.parametrize(
    ("arguments", "streams", "code", "said"),
    [
        # What the parser writes; it loads nothing.
        ("--help", ">/dev/full", 2, FULL),
        ("--version", ">/dev/full", 2, FULL),
        ("--version", "2>&-", 0, ""),
        # Commands: text, a sentence on what is wrong, bytes, a file.
        ("MEASURE", ">/dev/full", 2, FULL),
        ("MEASURE", "<&- >&- 2>&-", 2, ""),
        ("models --output x", "2>/dev/full", 2, ""),
        ("models --output x", ">&- 2>&-", 2, ""),
        ("render", "2>/dev/full", 2, ""),
        ("render", "2>&-", 2, ""),
        ("MEASURE --format parquet", ">/dev/full", 2, FULL),
        ("MEASURE", ">&-", 2, CLOSED),
        ("MEASURE", "2>&-", 0, ""),
        ("MEASURE -o FILE", ">/dev/full 2>/dev/full", 0, ""),
    ],
)
def test_streams_that_are_full_or_closed(
    arguments: str, streams: str, code: int, said: str, pictures: list[str], tmp_path: Path
) -> None:
    target = tmp_path / "found.json"
    measure = shlex.join(["measure", pictures[0], "--model", "worked-example", "--device", "cpu"])
    line = arguments.replace("MEASURE", measure).replace("FILE", str(target))
    command = f"{shlex.quote(sys.executable)} main.py {line} {streams}"
    # Without a buffer argparse itself would meet the full disk, and pass over it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    notes = [line for line in done.stderr.splitlines() if not line.startswith("patchreach: note:")]
    assert (done.returncode, notes) == (code, [f"patchreach: The results {said}"] if said else [])
    assert target.exists() == ("FILE" in arguments)
    if target.exists():
        assert json.loads(target.read_text())[0]["image"] == pictures[0]


@pytest.mark.parametrize(
    "option", ["--image-size", "--ring", "--layer", "--head", "--query", "--scale", "--opacity"]
)
@pytest.mark.parametrize("value", ["9" * 5000, "9" * 5000 + "x9", "x" * 5000])
def test_endless_numbers_are_refused_in_own_words(
    option: str, value: str, capsys: pytest.CaptureFixture
) -> None:
    value = f"{value},0" if option == "--query" else value
    with pytest.raises(SystemExit) as ended:
        main(["render", "a.png", "--model", "sample", "-o", "f.png", option, value])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    last = said.splitlines()[-1]
    assert "Exceeds" not in said and "invalid" not in said
    assert f"argument {option}: " in last and len(last) < 250


@pytest.mark.skipif(sys.platform == "win32", reason="terminals of Unix")
def test_progress_is_seen_at_a_terminal_and_ctrl_c_ends_quietly(
    model: list[str], pictures: list[str]
) -> None:
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "main.py", "measure", *pictures * 500, *model]
    worker = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    seen = b""
    while b"\r\x1b[K" not in seen:
        seen += os.read(ours, 1024)
    worker.send_signal(signal.SIGINT)
    assert worker.wait(60) == 130
    seen += os.read(ours, 65536)
    os.close(ours)
    assert b"Traceback" not in seen
    assert seen.rstrip(b"\r\n^C").endswith(b"\x1b[K")


def test_progress_is_silent_where_nobody_looks(model: list[str], pictures: list[str]) -> None:
    done = run("measure", pictures[0], *model, "--format", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout)[0]["image"] == pictures[0]
    assert "\x1b" not in done.stderr
    assert all(line.startswith("patchreach: note:") for line in done.stderr.splitlines())
