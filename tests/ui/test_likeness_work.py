from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest

from viewer.state.likeness import NOT_YET, known
from viewer.state.selection import HeadRef

from .conftest import HEADS, LAYERS, settle

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints", extend=True)


def to_tab(session, title):
    bar = session.window.views.tabs.tabBar()
    place = next(place for place in range(bar.count()) if bar.tabText(place) == title)
    QTest.mouseClick(bar, Qt.MouseButton.LeftButton, pos=bar.tabRect(place).center())


def test_layers_are_compared_when_the_tab_is_looked_at_and_not_before(opened, qtbot):
    measures = opened.documents.current.measures
    assert known(measures) is None
    assert opened.scene.value.likeness.blank == NOT_YET
    to_tab(opened, "Likeness")
    settle(qtbot, opened)
    assert known(measures) is not None
    shown = opened.scene.value.likeness
    assert shown.values.shape == (LAYERS, LAYERS)
    assert opened.window.views.likeness.canvas._likeness is shown
    opened.display.set(replace(opened.display.value, likeness_of="heads"))
    assert opened.scene.value.likeness.values.shape == (HEADS, HEADS)
    # Another look at it computes nothing.
    to_tab(opened, "Scatter")
    to_tab(opened, "Likeness")
    assert not opened.jobs.busy


def test_what_was_cancelled_begins_again_with_the_next_look(opened, qtbot, monkeypatch):
    to_tab(opened, "Likeness")
    assert opened.jobs.busy
    opened.jobs.cancel()
    settle(qtbot, opened)
    measures = opened.documents.current.measures
    assert known(measures) is None
    opened.selection.select_head(HeadRef(1, 1))
    assert not opened.jobs.busy
    to_tab(opened, "Scatter")
    to_tab(opened, "Likeness")
    settle(qtbot, opened)
    assert known(measures) is not None


def test_the_next_picture_is_compared_too_while_the_tab_is_open(opened, qtbot, pictures):
    to_tab(opened, "Likeness")
    settle(qtbot, opened)
    opened.workflow.open_paths(pictures(2)[1:])
    settle(qtbot, opened)
    current = opened.documents.current
    assert current.image.name == "picture 1.png"
    assert known(current.measures) is not None
    assert opened.scene.value.likeness.values is not None


def test_it_is_copied_as_a_figure_also_before_anybody_looked(opened, qtbot):
    opened.copy("likeness")
    settle(qtbot, opened)
    assert QGuiApplication.clipboard().mimeData().data("image/png").startsWith(b"\x89PNG")
    assert known(opened.documents.current.measures) is not None


def test_arrow_keys_move_the_query_after_a_click_on_a_tab(opened):
    to_tab(opened, "Likeness")
    before = opened.selection.value.query
    QTest.keyClick(opened.window, Qt.Key.Key_Right)
    assert opened.selection.value.query == (before[0], before[1] + 1)
