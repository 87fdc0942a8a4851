"""What is being done can be read: all of it where there is room, with dots where there is not."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from PySide6.QtWidgets import QLabel

from tests.ui.conftest import settle
from viewer.ui.elided import ElidedLabel
from viewer.ui.jobs import Request

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints", extend=True)


@pytest.fixture
def working(opened, qtbot):
    """Show words as those of work that runs."""
    gate = threading.Event()

    def show(words: str) -> QLabel:
        def work(job):
            while not gate.wait(0.01):
                job.step(words, 0.5)

        opened.jobs.submit(Request("work", work))
        activity = opened.window.activity
        qtbot.waitUntil(lambda: activity.doing == words and activity.isVisible())
        return activity.findChild(ElidedLabel)

    yield show
    gate.set()
    settle(qtbot, opened)


@pytest.mark.parametrize("theme", ["light", "talk"])
def test_what_is_being_done_is_shown_whole_beside_long_notes(opened, qtbot, working, theme):
    opened.display.set(replace(opened.display.value, theme=theme))
    opened.window.resize(1280, 860)
    image = opened.documents.current.image
    opened.documents.update(
        opened.documents.current.key, image=replace(image, notes=("a note that goes on and on " * 8,))
    )
    label = working("Measuring layer 10 of 12")
    qtbot.waitUntil(lambda: label.text() == "Measuring layer 10 of 12")
    assert label.fontMetrics().horizontalAdvance(label.text()) <= label.width()


def test_longer_words_than_there_is_room_for_end_in_dots_and_push_nothing_out(opened, qtbot, working):
    width = opened.window.width()
    label = working("Reading a picture with a name of many words " * 8)
    qtbot.waitUntil(lambda: label.text().endswith("…"))
    assert label.fontMetrics().horizontalAdvance(label.text()) <= label.width()
    assert label.toolTip() == label.whole
    assert opened.window.width() == width
    bar = opened.window.model_bar
    assert bar.rect().contains(opened.window.activity.geometry())
