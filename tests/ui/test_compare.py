"""Comparing with a convolutional network in the window, and the slider of stacked convolutions."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QFontMetricsF
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QComboBox

from tests.state.records import random_record, state_of
from tests.ui.conftest import settle
from tests.ui.panels import show
from viewer.app import Session
from viewer.backends.networks import network_fields
from viewer.state import comparison
from viewer.ui.network_picker import NetworkPicker
from viewer.ui.scatter_panel import ScatterPanel
from viewer.ui.toolbar import build_toolbar

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints", extend=True)


@pytest.fixture(autouse=True)
def nothing_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_networks", {})


def test_a_network_is_chosen_read_and_left_again(qtbot, opened: Session) -> None:
    picker = ask(opened)
    picker.name.setCurrentText("resnet18")
    picker.buttons.button(picker.buttons.StandardButton.Ok).click()
    assert opened.display.value.compare == "resnet18"
    settle(qtbot, opened)
    reference = opened.scene.value.scatter.reference("network")
    assert "of 12 heads are shorter" in reference.told
    assert "layer1: field 43 px" in opened.window.views.scatter._legend.toolTip()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    again = ask(opened)
    assert again.name.currentText() == "resnet18"
    again.none.click()
    assert opened.display.value.compare == ""
    assert opened.scene.value.scatter.reference("network") is None


def test_what_is_no_network_is_said_and_forgotten(qtbot, opened: Session) -> None:
    opened.display.set(replace(opened.display.value, compare="resnet18x"))
    settle(qtbot, opened)
    assert opened.display.value.compare == ""
    assert any("No model is called 'resnet18x'" in text for text in opened.window.messages.texts)


def test_what_fails_late_does_not_take_away_what_was_chosen_since(qtbot, opened: Session) -> None:
    comparison.keep(network_fields("resnet18"))
    for name in ("resnet18x", "resnet18"):
        opened.display.set(replace(opened.display.value, compare=name))
    settle(qtbot, opened)
    assert opened.display.value.compare == "resnet18"
    assert any("No model is called 'resnet18x'" in text for text in opened.window.messages.texts)


def pick(combo: QComboBox, place: int) -> None:
    """Choose an entry with the keyboard, as a person does."""
    combo.setFocus()
    QTest.keyClick(combo, Qt.Key.Key_Home)
    for _ in range(place):
        QTest.keyClick(combo, Qt.Key.Key_Down)


def test_the_map_shows_a_stage_and_the_scatter_its_levels(qtbot, sessions, model_request, pictures) -> None:
    session = sessions(model=model_request, files=tuple(map(str, pictures(2))))
    settle(qtbot, session)
    bar = session.window.views.map_bar
    session.display.set(replace(session.display.value, map="effective field"))
    settle(qtbot, session)
    assert not bar.stage.isVisible()
    assert "mean over 2 pictures" in session.scene.value.overlay.caption
    picker = ask(session)
    picker.name.setCurrentText("test_resnet")
    picker.weights.setCurrentIndex(picker.weights.findData("untrained"))
    picker.weights.activated.emit(picker.weights.currentIndex())
    picker.buttons.button(picker.buttons.StandardButton.Ok).click()
    settle(qtbot, session)
    assert session.display.value.compare_weights == "untrained"
    scatter = session.scene.value.scatter
    assert "mean over 2 pictures, weights: random" in scatter.reference("network effective").label
    assert session.window.views.scatter.plot._lines["network effective"].isVisible()
    assert bar.stage.isVisible()
    stages = [bar.stage.itemText(place) for place in range(bar.stage.count())]
    assert stages[0] == "this model"
    pick(bar.stage, stages.index("test_resnet layer2"))
    assert session.display.value.stage == "layer2"
    assert not session.jobs.busy
    assert session.scene.value.overlay.title == (
        "Effective field of test_resnet layer2, mean of 2 pictures: what its middle unit depends on"
    )
    shown = session.scene.value.overlay.values
    # The same average for the other picture, without more work.
    session.documents.show(session.documents.all[1].key)
    assert not session.jobs.busy
    assert (session.scene.value.overlay.values == shown).all()
    again = ask(session)
    assert again.weights.currentData() == "untrained"
    again.none.click()
    assert (session.display.value.compare, session.display.value.stage) == ("", "")
    assert session.scene.value.overlay.title.startswith("Effective field behind the block of layer")


def test_a_picture_that_is_opened_is_in_the_average(qtbot, opened: Session, pictures) -> None:
    opened.display.set(replace(opened.display.value, map="effective field"))
    settle(qtbot, opened)
    assert "whose vector's gradient this is, this picture" in opened.scene.value.overlay.caption
    opened.workflow.open_paths(pictures(2)[1:])
    settle(qtbot, opened)
    assert "mean over 2 pictures" in opened.scene.value.overlay.caption


def test_cancelling_keeps_theoretical_fields_alone(qtbot, opened: Session) -> None:
    def cancel(title: str) -> None:
        if "network's gradients" in title:
            opened.jobs.cancel()

    opened.jobs.started.connect(cancel)
    wished = replace(opened.display.value, compare="test_resnet", compare_weights="untrained")
    opened.display.set(wished)
    settle(qtbot, opened)
    opened.jobs.started.disconnect(cancel)
    assert opened.display.value == replace(wished, compare_weights="")
    assert opened.scene.value.scatter.reference("network") is not None
    assert opened.scene.value.scatter.reference("network effective") is None


def test_weights_that_can_not_be_had_are_said(qtbot, opened: Session, tmp_path) -> None:
    weights = str(tmp_path / "none.safetensors")
    wished = {"compare": "test_resnet", "compare_weights": weights, "stage": "layer2"}
    opened.display.set(replace(opened.display.value, map="effective field", **wished))
    settle(qtbot, opened)
    assert "none.safetensors" in opened.scene.value.overlay.blank
    assert any("no effective fields of test_resnet" in why for why in opened.scene.value.scatter.missing)
    assert any("none.safetensors" in text for text in opened.window.messages.texts)


def test_weights_that_fail_leave_the_levels_that_were_drawn_and_are_tried_again(
    qtbot, opened: Session, tmp_path
) -> None:
    choose(opened, "untrained")
    settle(qtbot, opened)
    for _ in range(2):
        choose(opened, str(tmp_path / "none.safetensors"))
        settle(qtbot, opened)
        (said,) = opened.window.messages.texts
        assert said.startswith("No effective fields of test_resnet: ")
        assert "none.safetensors" in said
        assert opened.display.value.compare_weights == "untrained"
        assert opened.scene.value.scatter.reference("network effective") is not None
        opened.window.messages.clear()


def test_trained_weights_without_a_connection_are_said_in_words_of_the_window(
    qtbot, opened: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    choose(opened, "trained")
    settle(qtbot, opened)
    (said,) = opened.window.messages.texts
    assert "test_resnet could not be downloaded" in said
    assert "View menu" in said
    assert "--" not in said


def choose(session: Session, weights: str) -> None:
    """Compare with a small network and weights, as the dialog does."""
    picker = ask(session)
    picker.name.setCurrentText("test_resnet")
    picker._take_weights(weights)
    picker.buttons.button(picker.buttons.StandardButton.Ok).click()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


def ask(session: Session) -> NetworkPicker:
    action = next(
        action
        for menu in session.window.menuBar().actions()
        for action in menu.menu().actions()
        if "convolutional" in action.text()
    )
    action.trigger()
    return session.window.findChild(NetworkPicker)


def test_words_of_levels_never_lie_on_one_another(qtbot) -> None:
    _, selection, display, scene = state_of(random_record(layers=4, heads=3, grid=(10, 10)))
    panel = ScatterPanel(selection, display)
    holder = show(qtbot, panel, scene, "scatter", (700, 520))
    comparison.keep(network_fields("resnet18"))
    display.set(replace(display.value, compare="resnet18"))
    for height in (520, 300):
        holder.resize(700, height)
        qtbot.wait(20)
        shown = panel.plot._notes.shown
        box = panel.plot.getPlotItem().getViewBox()
        heights = [box.mapViewToScene(QPointF(0, level)).y() for level, _ in shown]
        line = QFontMetricsF(panel.plot._notes._axis.style["tickFont"]).height()
        assert shown[0][1].startswith("layer4")
        assert all(below - above >= line - 0.01 for above, below in pairwise(heights))
    assert "layer2: field 99 px" in panel._legend.toolTip()


def test_a_slider_chooses_the_number_of_convolutions(qtbot) -> None:
    documents, selection, display, _ = state_of(random_record())
    bar = build_toolbar(documents, selection, display)
    qtbot.addWidget(bar)
    bar.resize(1200, 40)
    bar.show()
    slider = bar.overlay.ring
    assert (slider.value(), slider.maximum()) == (0, 13)
    slider.setFocus()
    for _ in range(3):
        qtbot.keyClick(slider, Qt.Key.Key_Right)
    assert display.value.ring == 3
    display.set(replace(display.value, ring=5))
    assert slider.value() == 5
    qtbot.keyClick(slider, Qt.Key.Key_End)
    assert display.value.ring == 13
