"""The what-if lab in a whole window, with a real, small model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import Qt

from tests.ui.conftest import settle
from viewer.backends.what_if import NO_GRADIENTS, WHY_NOT_ONNX, parse
from viewer.export.provenance import read_provenance
from viewer.state.requests import FigureRequest, ModelRequest
from viewer.state.selection import HeadRef

UNIFORM = parse("uniform:layer=2")


@pytest.fixture
def lab(opened):
    opened.window.views.tabs.setCurrentWidget(opened.what_ifs.panel)
    opened.selection.select_head(HeadRef(2, 1))
    return opened


def choose(panel, kind):
    panel.form.kind.setCurrentIndex(panel.form.kind.findData(kind))
    panel.form.kind.activated.emit(panel.form.kind.currentIndex())


def cells(panel, name):
    rows = [row for row in range(panel.table.rowCount()) if panel.table.item(row, 0).text().startswith(name)]
    return [panel.table.item(rows[0], column).text() for column in (1, 2, 3)]


def test_a_change_is_added_run_at_once_and_undone(lab, qtbot):
    panel, line = lab.what_ifs.panel, lab.what_ifs.line
    assert not line.isVisible()
    choose(panel, "uniform")
    # The shown layer and head are proposed; all heads are meant.
    assert (panel.form.layers.currentText(), panel.form.heads.currentText()) == ("2", "1")
    panel.form.heads.setEditText("all")
    qtbot.mouseClick(panel.form.add, Qt.MouseButton.LeftButton)
    settle(qtbot, lab)
    assert lab.what_if.value.changes == (UNIFORM,)
    assert lab.scene.value.document.record.what_if == (UNIFORM.text,)
    assert line.isVisible()
    assert line.words.whole == "What if: uniform attention in layer 2"
    keys = lab.documents.current.record.layers[2].scores.keys
    before, after, difference = map(float, cells(panel, "entropy (nats)"))
    assert after == pytest.approx(np.log(keys), abs=1e-3)
    assert difference == pytest.approx(after - before, abs=2e-3)
    qtbot.mouseClick(panel.undo, Qt.MouseButton.LeftButton)
    settle(qtbot, lab)
    assert lab.what_if.value.changes == ()
    assert panel.table.rowCount() == 0
    assert not line.isVisible()
    assert lab.scene.value.document.record is lab.documents.current.record


def test_a_number_that_is_turned_runs_again(lab, qtbot):
    panel = lab.what_ifs.panel
    choose(panel, "cb")
    panel.form.layers.setEditText("all")
    qtbot.mouseClick(panel.form.add, Qt.MouseButton.LeftButton)
    settle(qtbot, lab)
    first = lab.what_if.value.result
    panel.form.amount.setValue(0.25)
    settle(qtbot, lab)
    assert lab.what_if.value.changes == (parse("cb:strength=0.25"),)
    assert lab.what_if.value.result not in (None, first)
    assert panel.changes.item(0).text() == "Context Broadcasting (strength 0.25) after the MLP of every layer"


def test_one_switch_shows_either_side_in_all_views(lab, qtbot):
    lab.what_if.add(UNIFORM)
    settle(qtbot, lab)
    result = lab.what_if.value.result
    scatter = lab.scene.value.scatter
    hollow = scatter.reference("before")
    qtbot.mouseClick(lab.what_ifs.line.switch, Qt.MouseButton.LeftButton)
    assert lab.scene.value.document.record is result.before
    # What was hollow are the dots now, and there is nothing else beside them.
    np.testing.assert_array_equal(lab.scene.value.scatter.y, hollow.y)
    assert lab.scene.value.scatter.reference("before") is None
    assert lab.what_ifs.panel.before.isChecked()
    qtbot.mouseClick(lab.what_ifs.panel.after, Qt.MouseButton.LeftButton)
    assert lab.scene.value.document.record is result.after
    assert np.abs(lab.scene.value.scatter.y - hollow.y).max() > 0


def test_what_is_wrong_is_said_in_the_panel(lab, qtbot):
    panel = lab.what_ifs.panel
    choose(panel, "uniform")
    panel.form.layers.setEditText("two")
    qtbot.mouseClick(panel.form.add, Qt.MouseButton.LeftButton)
    assert panel.caption.text() == "'two' names no layers; write all, 3, 0-3 or 0-3+7."
    panel.form.layers.setEditText("77")
    qtbot.mouseClick(panel.form.add, Qt.MouseButton.LeftButton)
    settle(qtbot, lab)
    assert "there is no layer 77" in panel.caption.text()
    assert lab.what_if.value.result is None


def test_lists_of_layers_and_heads_may_have_commas(lab):
    form = lab.what_ifs.panel.form
    choose(lab.what_ifs.panel, "uniform")
    for layers, heads in (("0-3,5", "0,1"), ("0-3, 5,", "0+1"), (" 0-3+5 ", "0 , 1")):
        form.layers.setEditText(layers)
        form.heads.setEditText(heads)
        assert form.change == parse("uniform:layers=0-3+5,heads=0+1")


def test_the_number_of_hops_is_written_as_people_say_it(lab):
    form = lab.what_ifs.panel.form
    choose(lab.what_ifs.panel, "local")
    said = [form.amount.text()]
    form.amount.setValue(3)
    said.append(form.amount.text())
    form.load(parse("local:layers=1,hops=1"))
    said.append(form.amount.text())
    assert said == ["1 hop", "3 hops", "1 hop"]
    choose(lab.what_ifs.panel, "temperature")
    assert "hop" not in form.amount.text()


def test_an_onnx_model_says_why_not_and_what_to_do(sessions, qtbot, onnx_file, pictures):
    session = sessions(model=ModelRequest(str(onnx_file)), files=tuple(map(str, pictures(1))))
    settle(qtbot, session)
    session.window.views.tabs.setCurrentWidget(session.what_ifs.panel)
    assert session.what_ifs.panel.refusal.isVisible()
    assert session.what_ifs.panel.refusal.text() == WHY_NOT_ONNX
    session.what_if.add(UNIFORM)
    settle(qtbot, session)
    assert session.scene.value.document.record.what_if == ()


def test_a_figure_keeps_its_what_if_and_opens_with_it_again(lab, qtbot, tmp_path):
    lab.what_if.add(UNIFORM)
    settle(qtbot, lab)
    path = tmp_path / "figure.png"
    lab.export(FigureRequest("overlay", path))
    settle(qtbot, lab)
    assert read_provenance(path)["what_if"] == [UNIFORM.text]
    lab.what_if.clear()
    settle(qtbot, lab)
    lab.workflow.open_paths([path])
    settle(qtbot, lab)
    assert lab.what_if.value.changes == (UNIFORM,)
    assert lab.scene.value.document.record.what_if == (UNIFORM.text,)


def test_other_maps_of_the_changed_model_are_its_own(lab, qtbot):
    lab.what_if.add(parse("local:hops=1"))
    settle(qtbot, lab)
    lab.display.set(replace(lab.display.value, map="rollout"))
    settle(qtbot, lab)
    changed = lab.scene.value.overlay
    lab.what_if.show("before")
    settle(qtbot, lab)
    plain = lab.scene.value.overlay
    assert changed.title.startswith("What if · ")
    assert changed.values.shape == plain.values.shape
    assert np.nanmax(np.abs(changed.values - plain.values)) > 1e-2
    lab.what_if.show("after")
    lab.display.set(replace(lab.display.value, map="class rollout"))
    settle(qtbot, lab)
    assert NO_GRADIENTS in lab.scene.value.overlay.blank
