"""The lesson in a whole window, under real keys and mouse: what leads through it, and what ends it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog, QLabel, QMenu, QPushButton, QScrollArea

from tests.state.records import document_of, key_query_record
from viewer.backends import sample as sample_model
from viewer.backends.opening import open_model
from viewer.backends.what_if import Change
from viewer.export.provenance import read_provenance
from viewer.images.decode import open_image
from viewer.state.lesson_stage import Stage
from viewer.state.lesson_steps import STEPS
from viewer.ui.jobs import Request
from viewer.ui.study_dialog import StudyDialog

from .conftest import drop, settle, urls
from .panels import pixels

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints", extend=True)
LEFT = Qt.MouseButton.LeftButton


@pytest.fixture(autouse=True)
def no_sample(tmp_path, monkeypatch):
    """A machine on which the sample model never was, and that has no connection."""
    monkeypatch.setattr(sample_model, "user_cache_path", lambda name: tmp_path / "cache" / name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))


@pytest.fixture(scope="session")
def stage() -> Stage:
    """As many layers, heads and patches as the sample model has, with other attention."""
    document = document_of(key_query_record(12, 6, (16, 16)))
    return Stage(open_model("worked-example"), document.image, document.record, document.measures)


@pytest.fixture
def lesson(sessions, qtbot):
    """A window that was started with the lesson."""
    session = sessions(lesson=True)
    settle(qtbot, session)
    assert session.lesson.lesson.value.ready
    return session


def press(session, key, times=1):
    for _ in range(times):
        QTest.keyClick(QApplication.focusWidget() or session.window, key)


def panel(session):
    return session.lesson.panel


def index(session) -> int:
    return session.lesson.lesson.value.index


def go_to(session, step: int) -> None:
    press(session, Qt.Key.Key_PageDown, times=step - index(session))
    QApplication.processEvents()  # a layout shows what came into it only later


def patch_centre(session, row: int, column: int) -> QPoint:
    image, overlay = session.window.views.image, session.scene.value.overlay
    layout = image._laid_out(overlay)
    return layout.cells(overlay.asked, (row, column, row + 1, column + 1)).center().toPoint()


def test_keys_and_buttons_lead_through_it(lesson):
    assert panel(lesson).isVisible()
    assert not lesson.window.film_strip.isVisible()
    press(lesson, Qt.Key.Key_PageUp)
    assert index(lesson) == 0
    assert not panel(lesson).back.isEnabled()
    press(lesson, Qt.Key.Key_PageDown, times=2)
    assert (index(lesson), panel(lesson).headline.text()) == (2, STEPS[2].title)
    QTest.mouseClick(panel(lesson).back, LEFT)
    assert index(lesson) == 1
    QTest.mouseClick(panel(lesson).forward, LEFT)
    assert "3 of 8" in panel(lesson).counter.text()
    assert panel(lesson).words.text().startswith("A 3x3 convolution joins")


def test_the_menu_begins_it_and_closing_brings_back_what_was_open(opened, qtbot):
    document, shown, selected = opened.documents.current, opened.display.value, opened.selection.value
    [action] = [
        action
        for menu in opened.window.findChildren(QMenu)
        for action in menu.actions()
        if "How far can a patch see?" in action.text()
    ]
    action.trigger()
    settle(qtbot, opened)
    assert opened.documents.current.image.name == "nine patches"
    assert opened.window.windowTitle().startswith("nine patches")
    press(opened, Qt.Key.Key_PageDown, times=3)
    QTest.mouseClick(panel(opened).close_button, LEFT)
    settle(qtbot, opened)
    assert opened.documents.current is document
    assert (opened.display.value, opened.selection.value) == (shown, selected)
    assert not panel(opened).isVisible()
    assert opened.window.film_strip.isVisible()
    press(opened, Qt.Key.Key_PageDown)
    assert opened.documents.current is document


def test_each_step_begins_with_picture_and_scatter_whatever_was_in_front(opened, qtbot):
    views = opened.window.views
    views.tabs.setCurrentWidget(views.likeness)
    press(opened, Qt.Key.Key_F8)
    assert not views.image.isVisible()
    opened.lesson.begin()
    settle(qtbot, opened)
    assert views.image.isVisible()
    assert views.scatter.isVisible()
    views.tabs.setCurrentWidget(views.likeness)
    press(opened, Qt.Key.Key_R)
    assert views.likeness.isVisible()
    press(opened, Qt.Key.Key_PageDown)
    assert views.scatter.isVisible()
    QTest.mouseClick(panel(opened).close_button, LEFT)
    settle(qtbot, opened)
    assert views.likeness.isVisible()


def test_the_nine_patches_are_not_offered_for_a_study(lesson, qtbot, model_request):
    def ask():
        [action] = [
            action
            for menu in lesson.window.findChildren(QMenu)
            for action in menu.actions()
            if "tudy a folder" in action.text()
        ]
        action.trigger()
        return lesson.window.findChildren(StudyDialog)

    assert ask() == []
    [sentence] = lesson.window.messages.texts
    assert sentence.startswith("The worked example attends over nine patches") and "Ctrl+M" in sentence
    lesson.window.model_asked.emit(model_request)
    settle(qtbot, lesson)
    assert lesson.lesson.lesson.value is None
    [dialog] = ask()
    assert any("test_vit" in label.text() for label in dialog.findChildren(QLabel))
    dialog.reject()


def test_pointing_at_a_patch_makes_it_ask(lesson):
    go_to(lesson, 1)
    image = lesson.window.views.image
    QTest.mouseMove(image, patch_centre(lesson, 1, 1))
    QTest.mouseMove(image, patch_centre(lesson, 0, 1))
    assert lesson.selection.value.query == (0, 1)
    rows = [panel(lesson).table.text(number) for number in range(9)]
    assert rows[0][0] == "0 (0, 0)"
    shown = lesson.scene.value.overlay.values.ravel()
    np.testing.assert_allclose([float(row[-1]) for row in rows], shown, atol=5e-4)
    assert "Patch 1 scores" in panel(lesson).words.text()


def test_convolutions_are_stacked_by_button_and_by_key(lesson):
    go_to(lesson, 2)
    assert panel(lesson).count.text() == "1 convolution"
    QTest.mouseClick(panel(lesson).more, LEFT)
    assert (lesson.display.value.ring, lesson.scene.value.overlay.ring) == (2, (0, 0, 3, 3))
    assert not panel(lesson).more.isEnabled()
    QTest.mouseClick(panel(lesson).fewer, LEFT)
    QTest.mouseClick(panel(lesson).fewer, LEFT)
    assert panel(lesson).count.text() == "0 convolutions"
    assert "knows only itself" in panel(lesson).words.text()
    press(lesson, Qt.Key.Key_R)
    assert panel(lesson).count.text() == "1 convolution"


def test_clicks_sliders_and_the_space_bar_change_brightness(lesson):
    go_to(lesson, 3)
    table = panel(lesson).table
    before = pixels(lesson.window.views.image)
    QTest.mouseClick(table.swatches[8], LEFT)
    assert lesson.lesson.lesson.brightness[8] == 0.0
    assert table.text(8)[-1] == table.text(1)[-1] == "0.024"
    assert (pixels(lesson.window.views.image) != before).any()
    table.swatches[1].setFocus()
    press(lesson, Qt.Key.Key_Space)
    assert lesson.lesson.lesson.brightness[1] == 1.0
    assert lesson.selection.value.pins == ()
    table.sliders[5].setFocus()
    press(lesson, Qt.Key.Key_Right, times=10)
    assert lesson.lesson.lesson.brightness[5] == pytest.approx(0.10, abs=0.6 / 255)
    assert lesson.selection.value.query == (0, 0)
    slider = table.sliders[5]
    QTest.mouseClick(slider, LEFT, pos=QPoint(slider.width() - 3, slider.height() // 2))
    assert lesson.lesson.lesson.brightness[5] > 0.15
    press(lesson, Qt.Key.Key_PageDown)
    assert index(lesson) == 4


def test_squares_can_be_changed_only_where_that_is_the_step(lesson):
    go_to(lesson, 1)
    QTest.mouseClick(panel(lesson).table.swatches[8], LEFT)
    assert lesson.lesson.lesson.brightness[8] == 1.0
    assert panel(lesson).table.sliders == []


def test_without_the_sample_a_sentence_says_what_is_missing(lesson, qtbot):
    go_to(lesson, 4)
    qtbot.waitUntil(lambda: bool(lesson.lesson.lesson.value.problem), timeout=60_000)
    words = panel(lesson).words.text()
    assert words.startswith(
        "This step needs the sample model, which can't be had now. The sample model could"
    )
    assert "point pip at a mirror" in words
    assert "The first four steps need no model." in words
    assert panel(lesson).again.isVisible()
    assert not panel(lesson).export.isEnabled()
    assert lesson.documents.current.image.name == "nine patches"
    press(lesson, Qt.Key.Key_PageUp)
    assert lesson.lesson.lesson.value.ready
    assert not panel(lesson).again.isVisible()


def test_the_sample_comes_on_when_it_is_there(lesson, qtbot, stage, monkeypatch):
    # Other attention in the sample's place, which is not on this machine.
    monkeypatch.setattr("viewer.state.lesson_stage.sample", lambda job: stage)
    go_to(lesson, 4)
    qtbot.waitUntil(lambda: lesson.lesson.lesson.value.ready, timeout=30_000)
    assert lesson.documents.current.record is stage.record
    assert panel(lesson).words.text().startswith("DINOv2 ViT-S/14 cuts the photograph")
    for step in range(5, 8):
        press(lesson, Qt.Key.Key_PageDown)
        assert panel(lesson).headline.text() == STEPS[step].title
        assert lesson.window.views.isVisible()
    press(lesson, Qt.Key.Key_PageDown)
    assert index(lesson) == 7
    assert not panel(lesson).forward.isEnabled()


def test_what_is_dropped_ends_it_and_is_opened_beside_what_was_there(opened, qtbot, pictures):
    document = opened.documents.current
    opened.lesson.begin()
    settle(qtbot, opened)
    [picture] = pictures(1, "others")
    assert drop(opened, urls(picture))
    settle(qtbot, opened)
    assert opened.lesson.lesson.value is None
    assert [found.image.path for found in opened.documents.all] == [document.image.path, picture]
    assert opened.documents.all[0] is document
    assert opened.documents.all[1].status == "done"


def test_closing_the_picture_ends_it(lesson):
    press(lesson, Qt.Key.Key_Delete)
    assert lesson.lesson.lesson.value is None
    assert lesson.documents.current is None
    assert lesson.window.stack.currentWidget() is lesson.window.welcome


def test_what_is_being_opened_is_opened_first(sessions, qtbot, model_request, pictures):
    session = sessions(model=model_request, files=tuple(map(str, pictures(2))), lesson=True)
    settle(qtbot, session)
    assert session.documents.current.image.name == "nine patches"
    session.lesson.end()
    settle(qtbot, session)
    assert [document.status for document in session.documents.all] == ["done", "done"]
    assert session.documents.model.name == model_request.model


def test_closing_the_window_in_it_remembers_the_settings_of_before(sessions, qtbot, own_settings):
    session = sessions()
    session.display.set(replace(session.display.value, opacity=0.4, ring=3))
    session.lesson.begin()
    settle(qtbot, session)
    assert session.display.value.ring == 0
    session.window.close()
    assert session.preferences.display.ring == 3
    assert session.preferences.display.opacity == 0.4


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_step_is_exported_as_a_slide(lesson, qtbot, tmp_path, monkeypatch, suffix):
    go_to(lesson, 1)
    target = tmp_path / f"slide{suffix}"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(target), ""))
    QTest.mouseClick(panel(lesson).export, LEFT)
    settle(qtbot, lesson)
    facts = read_provenance(target)
    assert facts["model"]["name"] == "worked-example"
    assert facts["lesson"] == "shares"
    assert any("Saved" in text for text in lesson.window.messages.texts)
    if suffix == ".png":
        assert open_image(target).pixels.shape[1] * 9 == open_image(target).pixels.shape[0] * 16


def test_a_kind_that_is_not_typed_is_taken_from_the_list(lesson, qtbot, tmp_path, monkeypatch):
    monkeypatch.setattr(
        QFileDialog, "getSaveFileName", lambda *_: (str(tmp_path / "step one"), "SVG drawing (*.svg)")
    )
    panel(lesson).export.click()
    settle(qtbot, lesson)
    assert (tmp_path / "step one.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    ("theme", "size"),
    [("light", (1280, 860)), ("dark", (1366, 768)), ("talk", (1280, 860)), ("talk", (1366, 768))],
)
def test_nothing_is_cut_and_the_views_have_room(lesson, stage, theme, size, qtbot):
    lesson.display.set(replace(lesson.display.value, theme=theme))
    lesson.window.resize(*size)
    lesson.lesson.lesson.provide("sample", stage)
    for step in range(8):
        lesson.lesson.lesson.go(step)
        QApplication.processEvents()
        found = panel(lesson)
        assert lesson.window.size().toTuple() == size
        area = found.findChild(QScrollArea)
        # Whole to the right; what is below may be scrolled to.
        assert area.widget().width() <= area.viewport().width()
        for label in area.widget().findChildren(QLabel):
            if label.isVisible() and not label.wordWrap():
                assert label.sizeHint().width() <= label.width() + 1, label.text()
        for button in found.findChildren(QPushButton):
            if button.isVisible():
                words = button.fontMetrics().horizontalAdvance(button.text())
                assert words <= button.width(), button.text()
        views = lesson.window.views
        assert views.width() >= 0.6 * size[0]
        assert views.image.height() >= 240


def test_themes_change_in_the_middle_of_it(lesson):
    go_to(lesson, 3)
    lesson.lesson.lesson.brighten(8, 0.5)
    lesson.display.set(replace(lesson.display.value, theme="talk"))
    assert panel(lesson).table.text(8)[1] == "0.50"
    assert panel(lesson).words.findChild(QLabel).font().pointSizeF() == pytest.approx(16.0)
    assert lesson.lesson.lesson.brightness[8] == pytest.approx(0.5, abs=0.6 / 255)


def test_work_that_waits_goes_on_after_it(sessions, qtbot, model_request, pictures):
    session = sessions(model=model_request, files=tuple(map(str, pictures(3))))
    qtbot.waitUntil(lambda: session.documents.current is not None, timeout=60_000)
    session.lesson.begin()
    qtbot.waitUntil(lambda: session.lesson.lesson.value is not None, timeout=60_000)
    session.jobs.submit(Request("Something else", lambda job: None))
    session.lesson.end()
    settle(qtbot, session)
    assert [document.status for document in session.documents.all] == ["done"] * 3


def test_what_ifs_are_back_with_their_model(opened, qtbot):
    changes = (Change("uniform"),)
    opened.what_if.set_changes(changes)
    settle(qtbot, opened)
    opened.lesson.begin()
    settle(qtbot, opened)
    assert opened.what_if.value.changes == ()
    opened.lesson.end()
    settle(qtbot, opened)
    assert opened.what_if.value.changes == changes
    assert opened.what_if.value.result.before is opened.documents.current.record


def test_other_preprocessing_is_worked_on_and_the_step_stays(lesson, qtbot):
    go_to(lesson, 3)
    how = replace(lesson.documents.model.preprocessing, size=(60, 90))
    lesson.window.preprocessing_asked.emit(how)
    press(lesson, Qt.Key.Key_PageUp)
    settle(qtbot, lesson)
    assert (index(lesson), lesson.lesson.lesson.value.ready) == (2, True)
    assert lesson.documents.current.record.input_size == (60, 90)
    press(lesson, Qt.Key.Key_PageDown)
    lesson.lesson.lesson.brighten(8, 0.0)
    assert lesson.documents.current.record.input_size == (60, 90)
    assert panel(lesson).table.text(8)[-1] == "0.024"
    lesson.window.preprocessing_asked.emit(replace(how, size=(64, 64)))
    settle(qtbot, lesson)
    assert any("divisible by 3, unlike 64 x 64 pixels" in text for text in lesson.window.messages.texts)
    assert lesson.lesson.lesson.value.ready


def test_squares_are_left_alone_while_they_are_worked_on(lesson, qtbot):
    go_to(lesson, 3)
    while_worked_on = []

    def darken(_model):
        # The new model is here, and the picture has not been through it.
        panel(lesson).brightened.emit(8, 0.0)
        while_worked_on.append(lesson.documents.current.record)

    lesson.documents.model_changed.connect(darken)
    lesson.window.preprocessing_asked.emit(replace(lesson.documents.model.preprocessing, size=(60, 90)))
    settle(qtbot, lesson)
    lesson.documents.model_changed.disconnect(darken)
    assert while_worked_on == [None]
    assert lesson.lesson.lesson.brightness[8] == pytest.approx(1.0, abs=0.6 / 255)
    panel(lesson).brightened.emit(8, 0.0)
    assert lesson.lesson.lesson.brightness[8] == 0.0


def test_preprocessing_of_its_model_ends_with_it(opened, qtbot):
    before = opened.documents.model
    opened.lesson.begin()
    settle(qtbot, opened)
    opened.window.preprocessing_asked.emit(replace(opened.documents.model.preprocessing, size=(60, 90)))
    opened.lesson.end()
    settle(qtbot, opened)
    assert opened.documents.model is before
    assert opened.documents.current.status == "done"


def test_preprocessing_that_was_asked_for_before_it_comes_first(opened, qtbot):
    opened.lesson.begin()
    opened.window.preprocessing_asked.emit(replace(opened.documents.model.preprocessing, size=(96, 96)))
    settle(qtbot, opened)
    assert opened.documents.model.name == "worked-example"
    opened.lesson.end()
    settle(qtbot, opened)
    assert opened.documents.model.preprocessing.size == (96, 96)
    assert opened.documents.current.status == "done"
