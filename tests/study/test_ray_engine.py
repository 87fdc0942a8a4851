"""The engine for more than one machine gives the numbers of the local one."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from tests.study.conftest import command, draw_ten
from viewer.attention.measures import MEASURES
from viewer.cli import main
from viewer.study.actor import Actor
from viewer.study.measuring import Opening
from viewer.study.names import FAILED, SUMMARY, VALUES
from viewer.study.sources import Source

ROOT = Path(__file__).parents[2]
NUMBERS = ("mean", "sd", "se", "q1", "median", "q3")
installed = importlib.util.find_spec("ray") is not None


def run(arguments):
    # In a process of its own: Ray leaves threads and handlers behind in whoever started it.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "main.py", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)


@pytest.mark.skipif(not installed, reason="ray is not installed")
def test_ray_goes_on_with_what_local_began_and_ends_equal(opening, tmp_path):
    source, local, other = draw_ten(tmp_path / "pictures"), tmp_path / "local", tmp_path / "ray"
    (source / "6.png").write_bytes(b"")
    assert main(command(opening, source, local, "--part", "4")) == 1
    shutil.copytree(local, other)
    for path in (*sorted((other / VALUES).iterdir())[1:], other / SUMMARY, other / FAILED):
        path.unlink()
    engine = ["--engine", "ray", "--workers", "2", "--part", "3"]
    done = run(command(opening, source, other, "--resume", *engine))
    assert done.returncode == 1, done.stderr
    assert "6.png is empty" in done.stderr
    for name, keys in ((SUMMARY, NUMBERS), (VALUES, [measure.name for measure in MEASURES])):
        one, two = (pyarrow.parquet.read_table(folder / name) for folder in (local, other))
        assert one.num_rows == two.num_rows > 0
        same = [key for key in one.column_names if key not in keys]
        assert one.select(same).to_pylist() == two.select(same).to_pylist()
        for key in keys:
            np.testing.assert_allclose(one.column(key), two.column(key), rtol=1e-6, atol=1e-7)
    assert (other / FAILED).read_text() == (local / FAILED).read_text()


def test_what_an_actor_can_not_open_comes_back_as_a_sentence(opening):
    actor = Actor(Opening("no_such_model"), "renormalized", 1)
    for found in (actor.probe(), actor.results([], (2,))):
        assert found.startswith("No model is called 'no_such_model'")


def test_an_actor_gives_what_the_local_engine_gives(opening, pictures):
    from viewer.backends.model import Job
    from viewer.study.engines import LocalEngine

    entries = list(Source(str(pictures)).entries())
    local, actor = LocalEngine(opening, "original", 1), Actor(opening, "original", 1)
    probed = local.probe(Job())
    assert actor.probe() == probed
    heads = tuple(layer["heads"] for layer in probed["layers"])
    batches = list(local.results(entries, heads, Job()))
    one, (two, position) = [batch.results[0] for batch in batches], actor.results(entries, heads)
    assert position.pictures == len(one)
    assert [first[:4] for first in one] == [second[:4] for second in two]
    for first, second in zip(one, two, strict=True):
        np.testing.assert_allclose(first.values, second.values, rtol=1e-6, atol=1e-7)


@pytest.mark.skipif(installed, reason="ray is installed")
def test_without_ray_the_way_to_install_it_is_told(opening, tmp_path):
    source = draw_ten(tmp_path / "pictures")
    done = run(command(opening, source, tmp_path / "ray", "--engine", "ray"))
    assert done.returncode == 2
    assert 'pip install "patchreach[ray]"' in done.stderr


@pytest.mark.skipif(not installed, reason="ray is not installed")
def test_a_cluster_that_does_not_answer_is_said_at_once(opening, tmp_path):
    source = draw_ten(tmp_path / "pictures")
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # a port of our own, on which nobody listens
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        done = run(
            command(opening, source, tmp_path / "ray", "--engine", "ray", "--ray-address", address),
        )
    assert done.returncode == 2
    assert f"Ray could not be reached: nothing answers at {address} (" in done.stderr
