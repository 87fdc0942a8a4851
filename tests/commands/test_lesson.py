"""``patchreach lesson``: the slides without a display, and without the sample model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from viewer.backends import sample as sample_model
from viewer.cli import main
from viewer.images.decode import open_image
from viewer.state.lesson_stage import sample_is_here
from viewer.state.lesson_steps import STEPS, slide_name

ROOT = Path(__file__).parents[2]


@pytest.fixture
def offline(tmp_path, monkeypatch):
    monkeypatch.setattr(sample_model, "user_cache_path", lambda name: tmp_path / "cache" / name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))


def test_without_the_sample_four_steps_are_drawn_and_the_others_named(offline, tmp_path, capsys):
    folder = tmp_path / "new" / "slides"
    assert main(["lesson", "-o", str(folder), "--scale", "1"]) == 1
    names = [slide_name(index, ".png") for index in range(4)]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert {open_image(folder / name).pixels.shape for name in names} == {(720, 1280, 3)}
    found = capsys.readouterr()
    assert found.out.splitlines() == [str(folder / name) for name in names]
    assert (
        "5-from-eye-to-eye, 6-early-and-near, 7-near-and-far, 8-what-distance-hides are missing" in found.err
    )
    assert "they need the sample model. The sample model could not be fetched." in found.err


def test_formats_and_grounds(offline, tmp_path):
    assert main(["lesson", "-o", str(tmp_path), "--format", "svg", "--ground", "transparent"]) == 1
    assert (tmp_path / "2-shares.svg").read_bytes().startswith(b"<?xml")


def test_a_folder_that_cannot_be_is_said(offline, tmp_path, capsys):
    (tmp_path / "file").write_text("no folder")
    assert main(["lesson", "-o", str(tmp_path / "file" / "slides")]) == 2
    assert "can't be made" in capsys.readouterr().err


@pytest.mark.skipif(not sample_is_here(), reason="the sample model was not fetched on this machine")
def test_all_steps_need_no_display_and_no_qt(tmp_path):
    code = (
        "import sys; sys.modules['PySide6'] = None; from viewer.cli import main; "
        f"sys.exit(main(['lesson', '-o', {str(tmp_path)!r}, '--scale', '1']))"
    )
    environment = {
        key: value for key, value in os.environ.items() if key not in ("DISPLAY", "QT_QPA_PLATFORM")
    }
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        slide_name(index, ".png") for index in range(len(STEPS))
    ]


def test_the_window_begins_with_the_lesson_when_asked_to(tmp_path):
    shot = tmp_path / "window.png"
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),  # no sample model, and none is asked for at its beginning
        "PIP_NO_INDEX": "1",
        "QT_QPA_PLATFORM": "offscreen",
    }
    command = [sys.executable, "main.py", "--lesson", "--fresh", "--theme", "talk", "--screenshot", str(shot)]
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)
    assert (found.returncode, found.stderr) == (0, "")
    assert open_image(shot).pixels.std() > 10
