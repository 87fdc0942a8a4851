"""Choosing the map above the picture, and what is worked out for it meanwhile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import timm
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from safetensors.torch import save_file

from tests.ui.conftest import LAYERS, settle
from viewer.app import Session
from viewer.attention.rollout import rollout
from viewer.state.display import DisplayValue
from viewer.state.maps import MAPS
from viewer.state.preferences import load, settings_path
from viewer.state.requests import FigureRequest, ModelRequest

PATCH = (3, 4)


def pick(combo, value: object) -> None:
    """Choose an entry as a person does."""
    place = combo.findData(value)
    combo.setCurrentIndex(place)
    combo.activated.emit(place)


@pytest.fixture
def shown(opened) -> Session:
    opened.selection.pin(PATCH)
    return opened


def test_a_rollout_is_worked_out_once_and_shown(qtbot, shown):
    bar, scene = shown.window.views.map_bar, shown.scene
    assert not bar.start.isVisible()
    pick(bar.kind, "rollout")
    settle(qtbot, shown)
    record = scene.value.document.record
    row = rollout(record).matrix[record.layout.token(PATCH)]
    np.testing.assert_array_equal(scene.value.overlay.values.ravel(), row[record.layout.patch_tokens])
    assert bar.start.isVisible()
    assert bar.fusion.isVisible()
    assert not bar.target.isVisible()
    kept = dict(scene.value.document.maps)
    pick(bar.kind, "attention")
    pick(bar.kind, "rollout")
    assert not shown.jobs.busy
    assert all(scene.value.document.maps[key] is value for key, value in kept.items())


def test_its_options_work_out_another(qtbot, shown):
    bar = shown.window.views.map_bar
    pick(bar.kind, "rollout")
    pick(bar.fusion, "max")
    assert bar.start.maximum() == LAYERS - 1
    bar.start.setValue(2)
    settle(qtbot, shown)
    assert shown.display.value == replace(DisplayValue(), map="rollout", rollout_fusion="max", start_layer=2)
    assert ("rollout", "max", 2) in shown.scene.value.document.maps
    title = shown.scene.value.overlay.title
    assert title.startswith(f"Rollout of layers 2 to {LAYERS - 1}, max of heads: what patch")


def test_a_class_is_chosen_from_the_best_or_by_its_number(qtbot, shown):
    bar = shown.window.views.map_bar
    pick(bar.kind, "class rollout")
    settle(qtbot, shown)
    best = int(np.argmax(shown.scene.value.document.record.output))
    assert bar.target.isVisible()
    assert bar.target.currentText().startswith(f"{best}: ")
    assert f"class {best} (" in shown.scene.value.overlay.title
    assert shown.scene.value.overlay.values.max() > 0
    second = bar.target.itemData(1)
    bar.target.setCurrentIndex(1)
    bar.target.activated.emit(1)
    settle(qtbot, shown)
    assert shown.display.value.map_class == second
    shown.window.activateWindow()
    QTest.mouseClick(bar.target.lineEdit(), Qt.MouseButton.LeftButton)
    qtbot.waitUntil(bar.target.hasFocus)
    bar.target.lineEdit().selectAll()
    QTest.keyClicks(bar.target.lineEdit(), "7")
    QTest.keyClick(bar.target.lineEdit(), Qt.Key.Key_Return)
    assert not bar.target.hasFocus()
    settle(qtbot, shown)
    assert shown.display.value.map_class == 7
    assert shown.scene.value.overlay.title.endswith("what speaks for class 7 (cock)")


def test_what_is_no_number_leaves_the_class_as_it_was(qtbot, shown):
    bar = shown.window.views.map_bar
    pick(bar.kind, "class rollout")
    settle(qtbot, shown)
    before = bar.target.currentText()
    bar.target.lineEdit().setText("cat?")
    QTest.keyClick(bar.target.lineEdit(), Qt.Key.Key_Return)
    assert shown.display.value.map_class == -1
    bar.target.lineEdit().clearFocus()
    bar.paint(shown.scene.value)
    assert bar.target.currentText() == before


def test_norms_are_there_at_once(shown):
    pick(shown.window.views.map_bar.kind, "norms")
    assert not shown.jobs.busy
    overlay = shown.scene.value.overlay
    assert overlay.title.startswith("Norms of the residual stream entering layer")
    assert np.isfinite(overlay.values).all()


def test_a_cancelled_rollout_goes_back_to_attention(qtbot, shown):
    titles: list[str] = []

    def cancel(title: str) -> None:
        titles.append(title)
        shown.jobs.cancel()

    shown.jobs.started.connect(cancel)
    pick(shown.window.views.map_bar.kind, "rollout")
    settle(qtbot, shown)
    shown.jobs.started.disconnect(cancel)
    assert titles == ["Rolling attention out, picture 0.png"]
    assert shown.display.value.map == "attention"
    assert shown.scene.value.document.maps == {}
    pick(shown.window.views.map_bar.kind, "rollout")
    settle(qtbot, shown)
    assert shown.scene.value.overlay.values is not None


def test_onnx_says_on_the_picture_why_there_is_no_class_rollout(qtbot, sessions, onnx_file, pictures):
    from viewer.state.requests import ModelRequest

    session = sessions(model=ModelRequest(str(onnx_file)), files=tuple(map(str, pictures(1))))
    settle(qtbot, session)
    pick(session.window.views.map_bar.kind, "class rollout")
    settle(qtbot, session)
    assert session.scene.value.overlay.blank == (
        "it needs gradients, which ONNX Runtime does not compute; open the same weights in PyTorch"
    )
    pick(session.window.views.map_bar.kind, "rollout")
    settle(qtbot, session)
    session.selection.pin(PATCH)
    assert session.scene.value.overlay.values is not None


def test_the_view_menu_offers_every_kind(shown):
    (menu,) = [
        action.menu()
        for action in shown.window.menuBar().findChildren(type(shown.window.menuBar().actions()[0]))
        if action.menu() is not None and action.text() == "Map"
    ]
    menu.aboutToShow.emit()
    assert [action.data() for action in menu.actions()] == [row.kind for row in MAPS]
    assert [action.data() for action in menu.actions() if action.isChecked()] == ["attention"]


def test_another_model_begins_with_its_own_class_and_layers(qtbot, shown, onnx_file, tmp_path, model_request):
    bar, chosen = shown.window.views.map_bar, {"start_layer": 2, "map_class": 7}
    pick(bar.kind, "class rollout")
    shown.display.set(replace(shown.display.value, **chosen))
    shown.export(FigureRequest("overlay", tmp_path / "figure.png"))
    settle(qtbot, shown)
    # As many layers, and ImageNet's classes too.
    shown.window.model_asked.emit(ModelRequest(str(onnx_file)))
    settle(qtbot, shown)
    assert (shown.display.value.start_layer, shown.display.value.map_class) == (2, 7)
    deeper = tmp_path / "deeper.safetensors"
    save_file(timm.create_model("test_vit2", pretrained=False, num_classes=10).state_dict(), deeper)
    shown.window.model_asked.emit(ModelRequest("test_vit2", str(deeper)))
    settle(qtbot, shown)
    assert len(shown.documents.current.record.layers) == 8
    assert (shown.display.value.start_layer, shown.display.value.map_class) == (0, -1)
    assert (bar.start.value(), bar.target.currentIndex()) == (0, 0)
    assert shown.scene.value.overlay.title.startswith(
        "Class rollout of layers 0 to 7: what speaks for class "
    )
    # A figure asks for its own, whatever model is open.
    shown.window.paths_dropped.emit([tmp_path / "figure.png"])
    settle(qtbot, shown)
    assert shown.documents.model.name == model_request.model
    assert (shown.display.value.start_layer, shown.display.value.map_class) == (2, 7)
    assert "class 7 (cock)" in shown.scene.value.overlay.title
    # Another size of the same model is no other model.
    shown.window.model_asked.emit(replace(model_request, image_size=96))
    settle(qtbot, shown)
    assert (shown.display.value.start_layer, shown.display.value.map_class) == (2, 7)
    # The next session may begin with any model.
    shown.window.close()
    assert load(settings_path()).display == replace(DisplayValue(), map="class rollout")
