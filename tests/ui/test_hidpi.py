from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_mouse_and_colours_meet_on_a_screen_of_twice_the_density():
    """Qt reads the factor once, when it starts: the panels' tests run again in a process of their own."""
    panels = ("test_image_panel.py", "test_heads_panel.py", "test_scatter_panel.py")
    files = [str(HERE / name) for name in panels]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        env={**os.environ, "QT_SCALE_FACTOR": "2", "QT_QPA_PLATFORM": "offscreen"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:]
