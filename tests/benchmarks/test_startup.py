"""How soon the window is on the screen, with the sample model loading behind it."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
WANTED_SECONDS = 1.0
RUNS = 5

CODE = """
import sys, time
from viewer.cli import main
import viewer.app

def begin(self, old=viewer.app.Session._begin):
    # The window's first paint event is over, and what it painted is on the screen.
    print(time.time(), time.process_time(), flush=True)
    old(self)
    self.window.close()

viewer.app.Session._begin = begin
sys.exit(main(["--fresh", "--sample"]))
"""


def test_window_is_on_the_screen_within_a_second(capsys):
    seconds, working = [], []
    for _ in range(RUNS + 1):
        started = time.time()
        found = subprocess.run(
            [sys.executable, "-c", CODE],
            cwd=ROOT,
            env=dict(os.environ),
            capture_output=True,
            text=True,
            timeout=60,
        )
        painted, worked = map(float, found.stdout.split())
        seconds.append(painted - started)
        working.append(worked)
    # The first run reads the libraries from the disk.
    median = statistics.median(seconds[1:])
    with capsys.disabled():
        shown = ", ".join(f"{value:.2f}" for value in seconds)
        print(f"\nprocess start to first paint: {shown} s; median {median:.2f} of {WANTED_SECONDS} s wanted")
        print(f"of it at work on a processor: median {statistics.median(working[1:]):.2f} s")
    assert median < WANTED_SECONDS
