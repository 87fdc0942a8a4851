"""ONNX Runtime neither keeps nor sends telemetry."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import viewer


def test_nothing_is_written_into_the_users_folders(tmp_path):
    """Opening a model in a fresh process leaves cache and home as they were."""
    code = (
        "from onnx import helper as h, TensorProto as T, save\n"
        "from viewer.backends.devices import onnx_providers\n"
        "from viewer.backends.onnx_file import read_onnx\n"
        "from viewer.backends.onnx_session import open_session\n"
        "value = lambda name: h.make_tensor_value_info(name, T.FLOAT, [1])\n"
        "graph = h.make_graph([h.make_node('Relu', ['x'], ['y'])], 'g', [value('x')], [value('y')])\n"
        "save(h.make_model(graph, opset_imports=[h.make_opsetid('', 17)], ir_version=8), 'm.onnx')\n"
        "print(onnx_providers('cpu'), open_session(read_onnx('m.onnx')).run(None, {'x': __import__('numpy')"
        ".ones(1, 'f4')}))\n"
    )
    home, cache, work = (tmp_path / name for name in ("home", "cache", "work"))
    for folder in (home, cache, work):
        folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "ORT_"))}
    places = {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(cache),
        "PYTHONPATH": str(Path(viewer.__file__).parents[1]),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=work, env=kept | places, capture_output=True, text=True, check=True
    )
    assert "CPUExecutionProvider" in done.stdout
    assert not [path for folder in (home, cache) for path in folder.rglob("*") if "Microsoft" in path.parts]
    assert not list(cache.rglob("*"))
