"""Decoding in other processes: in order, whatever happens to them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest

from viewer.images.decode import open_image
from viewer.images.preprocess import Preprocessing
from viewer.study.decoding import Failed, Prepared, Preparing, in_processes, in_threads
from viewer.study.sources import Source

PREPARING = Preparing(Preprocessing((32, 32)), None)
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Deadly:
    """An entry that ends its process, as a decoder's crash does."""

    name: str
    place: int = -1

    def open(self):
        os._exit(9)


@dataclass(frozen=True)
class Slow:
    """An entry that takes a while, the longer the earlier it comes."""

    name: str
    place: int

    def open(self):
        time.sleep(0.05 * (4 - self.place % 5))
        return open_image(np.full((8, 8, 3), 10 * self.place, np.uint8), self.name)


@pytest.mark.parametrize("decoder", [in_processes, in_threads])
def test_pictures_come_in_their_order_from_any_number_of_workers(decoder):
    entries = [Slow(str(number), number) for number in range(9)]
    found = list(decoder(entries, PREPARING, 3))
    assert [one.place for one in found] == list(range(9))
    assert all(one.tensor.shape == (1, 3, 32, 32) and one.tensor.dtype == np.float32 for one in found)


def test_a_crash_costs_one_picture(pictures):
    entries = list(Source(str(pictures)).entries())
    entries[3] = Deadly("deadly.png")
    found = list(in_processes(entries, PREPARING, 2))
    assert [type(one) for one in found] == [Prepared] * 3 + [Failed] + [Prepared] * 6
    assert found[3].reason == "deadly.png makes its decoder crash, or needs more memory than there is."
    assert [one.name for one in found[4:]] == [entry.name for entry in entries[4:]]


def test_sources_are_read_no_further_ahead_than_needed():
    taken = []

    def endless():
        for number in range(10**9):
            taken.append(number)
            yield Slow(str(number), 4)

    found = in_threads(endless(), PREPARING, 1)
    next(found)
    found.close()
    assert len(taken) <= 6


def test_whole_pictures_get_a_size_each():
    preparing = Preparing(Preprocessing((64, 64), crop_mode="whole"), (16, 16))
    assert preparing.at((100, 400)).size == (32, 128)
    assert preparing.at((100, 100)).size == (64, 64)


def test_decoding_processes_load_no_model_library():
    program = (
        "import sys, viewer.study.decoding, viewer.study.entries\n"
        "print([name for name in ('torch', 'onnxruntime', 'pyarrow', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there a process ends its children otherwise")
def test_decoding_processes_end_with_a_killed_parent(tmp_path):
    program = (
        "from tests.study.test_decoding import *\n"
        "if __name__ == '__main__':\n"
        "    found = in_processes((Slow(str(n), 0) for n in range(10**6)), PREPARING, 2)\n"
        "    print(next(found).name, flush=True)\n"
        "    time.sleep(60)\n"
    )
    script = tmp_path / "decode.py"
    script.write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen([sys.executable, str(script)], env=environment, stdout=subprocess.PIPE)
    try:
        assert parent.stdout.readline().strip() == b"0"
        children = psutil.Process(parent.pid).children(recursive=True)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    assert len(children) >= 2
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]
