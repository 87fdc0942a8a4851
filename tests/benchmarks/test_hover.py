"""A hover: from another query to every panel painted, at the size of the shipped models at 518 x 518."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from PySide6.QtWidgets import QApplication, QWidget

from tests.state.records import key_query_record, state_of
from viewer.state.selection import HeadRef
from viewer.ui.views import Views

HOVERS = 200


@pytest.mark.parametrize(("name", "heads", "allowed_ms"), [("S/14", 6, 16.0), ("B/14", 12, 25.0)])
def test_a_hover_is_painted_in_time(qtbot, capsys, name, heads, allowed_ms):
    torch.set_num_threads(2)
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
    whole, computing = np.percentile(found, 95, axis=0)
    parts = {part.accessibleName() or type(part).__name__: _painting(part) for part in _panels(views)}
    with capsys.disabled():
        print(
            f"\nhover ViT-{name} at 518 x 518: 95th percentile {whole:.1f} ms of {allowed_ms:.0f} allowed "
            f"({whole / allowed_ms:.2f}), computing and describing {computing:.1f} ms; painting alone: "
            + ", ".join(f"{part} {took:.1f} ms" for part, took in parts.items())
        )
    assert whole <= allowed_ms


def _hover(selection, query) -> tuple[float, float]:
    """Return seconds to the last pixel, and of them those before Qt paints."""
    start = time.perf_counter()
    selection.hover(query)
    described = time.perf_counter()
    QApplication.processEvents()
    return time.perf_counter() - start, described - start


def _panels(views: Views) -> list[QWidget]:
    return [views.image, views.heads, views.scatter, views.readout]


def _painting(panel: QWidget) -> float:
    """Return the median milliseconds that one panel takes to paint when nothing changed."""
    took = []
    for _ in range(30):
        start = time.perf_counter()
        panel.repaint()
        took.append(time.perf_counter() - start)
    return float(np.median(took)) * 1e3
