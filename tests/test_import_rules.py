"""Rooms import one way, and nothing heavy is loaded before it is needed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).parents[1]


def modules_of(*rooms: str) -> list[str]:
    """Names of all modules in some rooms of viewer/, as they are on disk."""
    files = sorted(file for room in rooms for file in (ROOT / "viewer" / room).rglob("*.py"))
    parts = [file.relative_to(ROOT).with_suffix("").parts for file in files]
    return [".".join(part[:-1] if part[-1] == "__init__" else part) for part in parts]


def loaded_after_importing(modules: list[str], watched: set[str]) -> set[str]:
    """Which of the watched packages a fresh interpreter holds after importing modules."""
    program = (
        "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\nprint(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *modules], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return watched & set(done.stdout.split())


QT = {"PySide6", "pyqtgraph"}
HEAVY = {"torch", "timm", "onnx", "onnxruntime", "matplotlib"}


def test_contracts_hold(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True) == EXIT_STATUS_SUCCESS, capsys.readouterr().out


def test_modules_are_found_on_disk():
    assert "viewer.state.scene" in modules_of("state")
    assert loaded_after_importing(["json", "viewer.state.scene"], {"json", "psygnal", "PySide6"}) == {
        "json",
        "psygnal",
    }


@pytest.mark.parametrize(
    ("modules", "unwanted"),
    [
        pytest.param(["viewer"], QT | HEAVY | {"numpy"}, id="viewer"),
        pytest.param(["viewer.cli"], QT | HEAVY, id="cli"),
        pytest.param(modules_of("state"), QT | HEAVY, id="state"),
        pytest.param(modules_of("images"), QT | HEAVY, id="images"),
        pytest.param(modules_of("attention"), QT | (HEAVY - {"torch"}), id="attention"),
        pytest.param(modules_of("backends", "export", "commands"), QT, id="backends, export and commands"),
        # Decoding processes load what they need of it, and not a model's libraries.
        pytest.param(modules_of("study"), QT | HEAVY | {"ray"}, id="study"),
    ],
)
def test_importing_loads_nothing_heavy(modules, unwanted):
    assert loaded_after_importing(modules, unwanted) == set()


def test_every_library_that_is_asked_for_is_used():
    """What nobody imports is only waited for at installing."""
    project = (ROOT / "pyproject.toml").read_text()
    listed = re.search(r"\ndependencies = \[(.*?)\n\]", project, re.DOTALL)[1]
    names = re.findall(r'"([A-Za-z0-9-]+)', listed)
    modules = {"pillow": "PIL", "PySide6-Essentials": "PySide6"}
    source = "\n".join(file.read_text() for file in (ROOT / "viewer").rglob("*.py"))
    assert len(names) > 10
    for name in names:
        module = modules.get(name, name.replace("-", "_"))
        assert re.search(rf'(import |from |import_module\("|\(")({module})\b', source), name
