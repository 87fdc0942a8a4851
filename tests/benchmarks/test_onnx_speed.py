"""How much handing out queries and keys costs an ONNX model over running it plain."""

from __future__ import annotations

import statistics
import time

import numpy as np

from viewer.backends.model import Job
from viewer.backends.onnx_file import read_onnx
from viewer.backends.onnx_session import open_session, run_session
from viewer.backends.sample import open_sample, sample_path

_ROUNDS = 15


def _seconds(work):
    """Return the time a call takes, and the processor time, which other programs do not lengthen."""
    started, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started, time.process_time() - processor


def test_tapped_run_costs_at_most_15_percent_over_the_untapped_one(capsys):
    model = open_sample()
    picture = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    session = open_session(read_onnx(sample_path()))
    names = [output.name for output in session.get_outputs()]

    def plain():
        run_session(session, {model.input.name: picture}, names, Job(), "plain")

    def tapped():
        model.runner.run(picture, "NCHW", Job())

    first = _seconds(tapped)[0]
    plain()
    # In turns, so that what else the machine does falls on both.
    times = [(_seconds(plain), _seconds(tapped)) for _ in range(_ROUNDS)]
    plain_time, tapped_time = (statistics.median(pair[which][0] for pair in times) for which in (0, 1))
    plain_work, tapped_work = (statistics.median(pair[which][1] for pair in times) for which in (0, 1))
    ratio, work = tapped_time / plain_time, tapped_work / plain_work
    with capsys.disabled():
        print(
            f"\nsample at 224x224: untapped {plain_time:.3f} s, tapped {tapped_time:.3f} s, "
            f"ratio {ratio:.3f} (processor time {work:.3f}); first run with all checks {first:.2f} s"
        )
    assert min(ratio, work) <= 1.15
