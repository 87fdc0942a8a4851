"""A hover: from another query to every panel painted, at the size of the shipped models at 518 x 518."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
from PySide6.QtWidgets import QApplication, QWidget

from tests.state.records import key_query_record, state_of
from viewer.state.selection import HeadRef
from viewer.ui.views import Views

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints", extend=True)
HOVERS = 200


@pytest.mark.parametrize(("name", "heads", "allowed_ms"), [("S/14", 6, 16.0), ("B/14", 12, 25.0)])
def test_a_hover_is_painted_in_time(qtbot, capsys, name, heads, allowed_ms):
    _, selection, display, scene = state_of(key_query_record(12, heads, (37, 37)))
    selection.select_head(HeadRef(3, 2))
    views = Views(selection, display)
    qtbot.addWidget(views)
    views.resize(1400, 900)
    scene.changed.connect(views.paint)
    views.paint(scene.value)
    with qtbot.waitExposed(views):
        views.show()
    rng = np.random.default_rng(0)
    queries = [tuple(map(int, query)) for query in rng.integers(0, 37, (HOVERS + 20, 2))]
    found = np.array([_hover(selection, query) for query in queries])[20:] * 1e3
    wall, described, busy = np.percentile(found, 95, axis=0)
    plot = views.scatter.plot.viewport()
    panels = {"picture": views.image, "heads": views.heads.canvas, "scatter": plot, "words": views.readout}
    parts = {what: _painting(panel) for what, panel in panels.items()}
    # A machine that does other things too takes turns: then the thread's own time is what the hover needs.
    crowded = os.getloadavg()[0] > os.cpu_count()
    took = busy if crowded else wall
    with capsys.disabled():
        print(
            f"\nhover ViT-{name} at 518 x 518, 95th percentile: {wall:.1f} ms on the clock ({described:.1f} "
            f"before painting), {busy:.1f} ms of one processor, of {allowed_ms:.0f} allowed "
            f"({took / allowed_ms:.2f}{', machine crowded: by processor time' if crowded else ''}); "
            "painting alone: " + ", ".join(f"{part} {took:.1f} ms" for part, took in parts.items())
        )
    assert took <= allowed_ms


def _hover(selection, query) -> tuple[float, float, float]:
    """Return seconds to the last pixel, those before Qt paints, and this thread's processor time of all."""
    start, busy = time.perf_counter(), time.thread_time()
    selection.hover(query)
    described = time.perf_counter()
    QApplication.processEvents()
    return time.perf_counter() - start, described - start, time.thread_time() - busy


def _painting(panel: QWidget) -> float:
    """Return the median milliseconds that one panel takes to paint when nothing changed."""
    took = []
    for _ in range(30):
        start = time.thread_time()
        panel.repaint()
        took.append(time.thread_time() - start)
    return float(np.median(took)) * 1e3
