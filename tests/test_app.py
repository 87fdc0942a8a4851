"""The program as it is started: by subprocess, with and without a display, closed at any moment."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "resources" / "images" / "cat.jpg"

CLOSE_IN_MID_RUN = """
import sys
from PySide6.QtCore import QTimer
from viewer.app import Session, launch

moment = int(sys.argv[1])
old = Session._begin

def begin(self):
    old(self)
    QTimer.singleShot(moment, self.window.close)

Session._begin = begin
sys.exit(launch([sys.argv[2]] * 3, model="test_vit", weights=sys.argv[3]))
"""


@pytest.fixture(scope="session")
def weights(tmp_path_factory) -> Path:
    """A checkpoint of timm's test architecture."""
    import timm
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("weights") / "test_vit.safetensors"
    save_file(timm.create_model("test_vit", pretrained=False).state_dict(), path)
    return path


def python(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "2", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("moment", [0, 30, 300, 1500, 3000, 4500, 6000])
def test_closing_at_any_moment_ends_well(weights, moment):
    found = python("-c", CLOSE_IN_MID_RUN, moment, PICTURE, weights)
    assert (found.returncode, found.stderr, found.stdout) == (0, "", "")


COPY_AND_CLOSE = """
import sys
from PySide6.QtCore import QTimer
from PySide6.QtGui import QGuiApplication
from viewer.app import Session, launch

def watch(self):
    document = self.documents.current
    if document is not None and document.status == "done" and self.window.isVisible():
        self.copy("overlay")
        self._watch.stop()
        QGuiApplication.clipboard().dataChanged.connect(lambda: QTimer.singleShot(100, self.window.close))

def begin(self, old=Session._begin):
    old(self)
    self._watch = QTimer(self.window)
    self._watch.timeout.connect(lambda: watch(self))
    self._watch.start(50)

def tear_down(self, seconds, old=Session.tear_down):
    ended = old(self, seconds)
    print(QGuiApplication.clipboard().image().width() > 400)
    return ended

Session._begin, Session.tear_down = begin, tear_down
sys.exit(launch([sys.argv[1]], model="test_vit", weights=sys.argv[2]))
"""


def test_closing_after_copying_ends_well_and_leaves_the_figure(weights):
    found = python("-c", COPY_AND_CLOSE, PICTURE, weights)
    assert (found.returncode, found.stderr, found.stdout) == (0, "", "True\n")


# Interrupted when it is about to load a module.
INTERRUPTED = """
import os, runpy, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

module = sys.argv.pop(1)
sys.meta_path.insert(0, Interrupt())
sys.path.insert(0, ".")
runpy.run_path("main.py", run_name="__main__")
"""

STUCK = """
import sys, time
from PySide6.QtCore import QTimer
from viewer.app import Session, launch
from viewer.ui.jobs import Request

def begin(self, old=Session._begin):
    old(self)
    self.jobs.submit(Request("foreign code that does not listen", lambda job: time.sleep(60)))
    QTimer.singleShot(200, self.window.close)

Session._begin = begin
sys.exit(launch([]))
"""


def test_work_that_does_not_listen_does_not_keep_the_program_alive(own_settings):
    started = time.monotonic()
    found = python("-c", STUCK)
    assert (found.returncode, found.stderr, found.stdout) == (0, "", "")
    assert time.monotonic() - started < 30
    assert (own_settings / "patchreach" / "settings.json").exists()


@pytest.mark.parametrize(
    "environment",
    [
        {"DISPLAY": "", "WAYLAND_DISPLAY": ""},
        {"DISPLAY": ":4711", "WAYLAND_DISPLAY": ""},
        {"DISPLAY": "", "WAYLAND_DISPLAY": "wayland-4711"},
        {"DISPLAY": ":4711", "QT_QPA_PLATFORM": "xcb"},
        {"QT_QPA_PLATFORM": "nonsense"},
        {"QT_QPA_PLATFORM": "nonsense:key=value;xcb"},
        {"QT_QPA_PLATFORM": "eglfs", "QT_QPA_EGLFS_INTEGRATION": "none"},
        {"QT_QPA_PLATFORM": "linuxfb:fb=/dev/null"},
    ],
    ids=[
        "none",
        "X11 does not answer",
        "Wayland does not answer",
        "X11 asked for",
        "no such platform",
        "no such platform first",
        "no graphics card",
        "no frame buffer",
    ],
)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere there is always a display")
def test_without_a_display_one_sentence_and_exit_code_2(environment):
    found = python("main.py", "--sample", **{"QT_QPA_PLATFORM": "", **environment})
    assert found.returncode == 2
    assert found.stdout == ""
    assert len(found.stderr.splitlines()) == 1
    for command in ("measure", "render", "models"):
        assert f"patchreach {command}" in found.stderr


def test_a_screenshot_is_written_when_all_panels_are_filled(weights, tmp_path):
    from PIL import Image

    target = tmp_path / "window.png"
    arguments = [
        "--model",
        "test_vit",
        "--weights",
        weights,
        "--screenshot",
        target,
        "--fresh",
        "--theme",
        "dark",
    ]
    found = python("main.py", PICTURE, *arguments)
    assert (found.returncode, found.stderr) == (0, "")
    with Image.open(target) as image:
        assert image.width >= 640
        # Filled panels hold very many colours, an empty window hardly any.
        assert len(image.convert("RGB").getcolors(1 << 24)) > 2000


def test_the_shipped_photograph_is_shown_to_any_model(weights, tmp_path):
    arguments = [
        "--model",
        "test_vit",
        "--weights",
        weights,
        "--screenshot",
        tmp_path / "window.png",
        "--fresh",
    ]
    found = python("main.py", "--sample", *arguments)
    assert (found.returncode, found.stderr) == (0, "")
    assert (tmp_path / "window.png").stat().st_size > 10_000


def test_a_picture_that_cannot_be_shown_makes_the_screenshot_fail(weights, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"nothing")
    arguments = ["--model", "test_vit", "--weights", weights, "--screenshot", tmp_path / "window.png"]
    found = python("main.py", broken, *arguments)
    assert found.returncode == 1
    assert "broken.png" in found.stderr


def test_for_a_screenshot_nobody_is_asked_for_the_architecture_of_weights(weights, tmp_path):
    import torch
    from safetensors.torch import save_file

    target = tmp_path / "window.png"
    found = python("main.py", weights, PICTURE, "--screenshot", target, "--fresh")
    assert (found.returncode, found.stderr) == (0, "")
    other = tmp_path / "other.safetensors"
    save_file({"weight": torch.zeros(3)}, other)
    found = python("main.py", other, PICTURE, "--screenshot", target, "--fresh")
    assert found.returncode == 1
    assert found.stderr.startswith(f"patchreach: {other} holds 1 weights but not the architecture")


def test_of_a_study_alone_the_screenshot_is_its_window(weights, tmp_path):
    from PIL import Image

    folder, target = tmp_path / "study", tmp_path / "window.png"
    (tmp_path / "pictures").mkdir()
    shutil.copy(PICTURE, tmp_path / "pictures")
    model = ["--model", "test_vit", "--weights", weights, "--models", "1", "--workers", "1"]
    assert python("main.py", "study", tmp_path / "pictures", *model, "-o", folder).returncode == 0
    found = python("main.py", folder, "--screenshot", target, "--fresh", "--theme", "light")
    assert found.returncode == 0 and "patchreach:" not in found.stderr
    with Image.open(target) as image:
        assert (image.width, image.height) == (880, 620)
        assert len(image.convert("RGB").getcolors(1 << 24)) > 200


def test_a_screenshot_without_a_picture_says_so(tmp_path):
    target = tmp_path / "window.png"
    found = python("main.py", "--screenshot", target, "--fresh")
    assert found.returncode == 1
    assert found.stderr == (f"patchreach: no picture was opened, so {target} shows the window without one\n")


def test_choices_are_remembered_unless_fresh(weights, own_settings, tmp_path):
    file = own_settings / "patchreach" / "settings.json"
    start = [
        "main.py",
        PICTURE,
        "--model",
        "test_vit",
        "--weights",
        weights,
        "--screenshot",
        tmp_path / "w.png",
    ]
    assert python(*start, "--theme", "dark", "--fresh").returncode == 0
    assert not file.exists()
    assert python(*start, "--theme", "talk").returncode == 0
    remembered = json.loads(file.read_text())
    assert remembered["display"]["theme"] == "talk"
    assert remembered["recent_images"] == [str(PICTURE)]
    assert remembered["recent_models"][0]["model"] == "test_vit"
    # What nobody moved follows what is shown, at the next start too.
    assert remembered["splitters"] == {}
    before = file.read_bytes()
    assert python(*start, "--theme", "light", "--fresh").returncode == 0
    assert file.read_bytes() == before


@pytest.mark.skipif(os.name == "nt", reason="a terminal's interrupt")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("moment", [2.5, 5])
@pytest.mark.parametrize("screen", ["offscreen", "xvfb"])
def test_a_signal_closes_the_window_in_order(name, moment, screen, own_settings):
    if screen == "xvfb" and not shutil.which("Xvfb"):
        pytest.skip("no Xvfb here")
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen" if screen == "offscreen" else "xcb"}
    with x_server() if screen == "xvfb" else nullcontext(os.environ.get("DISPLAY", "")) as display:
        process = subprocess.Popen(
            [sys.executable, "main.py"],
            cwd=ROOT,
            env={**environment, "DISPLAY": display},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(moment)
        process.send_signal(getattr(signal, name))
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "", "")
    assert (own_settings / "patchreach" / "settings.json").exists()


@contextmanager
def x_server():
    """Run an X server of its own and give its address."""
    ours, theirs = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(theirs), "-screen", "0", "1600x1000x24", "-nolisten", "tcp"],
        pass_fds=(theirs,),
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    with os.fdopen(ours) as answer:
        number = answer.readline().strip()
    try:
        yield f":{number}"
    finally:
        server.terminate()
        server.wait(20)


@pytest.mark.skipif(os.name == "nt", reason="a terminal's interrupt")
@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("viewer", []),
        ("viewer.cli", ["models"]),
        ("argparse", ["--help"]),
        ("viewer.backends.catalogue", ["models"]),
        ("viewer.ui.screen", []),
        ("PySide6.QtWidgets", []),
        ("viewer.app", []),
        ("viewer.ui.window", []),
    ],
)
def test_ctrl_c_while_the_program_starts_leaves_no_traceback(module, arguments):
    found = python("-c", INTERRUPTED, module, *arguments)
    assert (found.returncode, found.stderr) == (130, "")


@pytest.mark.skipif(os.name == "nt", reason="a terminal's interrupt")
@pytest.mark.parametrize("file", ["signature/loader.py", "signature/parser.py"])
def test_ctrl_c_deep_inside_qts_own_start_neither_aborts_nor_is_lost(file):
    code = """
import os, runpy, signal, sys

def watch(frame, event, argument):
    if frame.f_code.co_filename.endswith(f"shibokensupport/{file}"):
        sys.settrace(None)
        os.kill(os.getpid(), signal.SIGINT)

file = sys.argv.pop(1)
sys.path.insert(0, ".")
sys.settrace(watch)
runpy.run_path("main.py", run_name="__main__")
"""
    found = python("-c", code, file)
    assert (found.returncode, found.stderr) == (130, "")


@pytest.mark.skipif(os.name == "nt", reason="a terminal's interrupt")
@pytest.mark.parametrize("moment", ["Window.__init__", "Session._connect", "Session.tear_down", "Jobs.close"])
def test_ctrl_c_while_the_window_is_built_or_taken_apart_ends_well(moment):
    code = """
import os, signal, sys
from viewer import app

def interrupted(*arguments, **options):
    os.kill(os.getpid(), signal.SIGINT)
    result = whole(*arguments, **options)
    os.kill(os.getpid(), signal.SIGINT)
    return result

where, name = sys.argv[1].split(".")
whole = getattr(getattr(app, where), name)
setattr(getattr(app, where), name, interrupted)
if name in ("tear_down", "close"):
    app.Session._begin = lambda session: session.window.close()
sys.exit(app.launch([]))
"""
    found = python("-c", code, moment)
    assert (found.returncode, found.stderr) == (0, "")


def test_neither_torch_nor_matplotlib_is_loaded_before_the_window_shows():
    code = """
import sys
from viewer.app import Session
import viewer.app

def begin(self):
    heavy = {"torch", "timm", "onnx", "onnxruntime", "matplotlib", "pyarrow"} & set(sys.modules)
    print(sorted(heavy))
    self.window.close()

Session._begin = begin
sys.exit(viewer.app.launch([]))
"""
    found = python("-c", code)
    assert (found.returncode, found.stdout, found.stderr) == (0, "[]\n", "")
