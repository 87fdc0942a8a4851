"""Which work is done next, what becomes of work that is overtaken, and the model nobody chose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication

from viewer.app import Session, Start
from viewer.images.samples import SAMPLES

from .conftest import GRID, drop, settle, urls


def statuses(session):
    return [document.status for document in session.documents.all]


def test_the_picture_on_the_screen_comes_first(opened, qtbot, pictures):
    order = []
    opened.documents.changed.connect(
        lambda key: order.append(key) if opened.documents.get(key).status == "running" else None
    )
    opened.workflow.open_paths(pictures(4, "more"))
    qtbot.waitUntil(lambda: len(opened.documents.all) == 5, timeout=30_000)
    last = opened.documents.all[-1]
    opened.documents.show(last.key)
    settle(qtbot, opened)
    assert statuses(opened) == ["done"] * 5
    assert order.index(last.key) < len(order) - 1


def test_a_new_model_runs_every_picture_again(opened, qtbot, pictures, model_request):
    opened.workflow.open_paths(pictures(1, "more"))
    settle(qtbot, opened)
    before = [document.record for document in opened.documents.all]
    opened.window.model_asked.emit(replace(model_request, image_size=(96, 128)))
    settle(qtbot, opened)
    assert statuses(opened) == ["done", "done"]
    assert all(document.record not in before for document in opened.documents.all)
    assert {document.record.grid for document in opened.documents.all} == {(6, 8)}
    query = opened.selection.value.query
    assert query is not None and query[0] < 6 and query[1] < 8


def test_results_of_a_model_that_was_replaced_are_dropped(opened, qtbot, pictures, model_request):
    opened.workflow.open_paths(pictures(3, "more"))
    qtbot.waitUntil(lambda: "running" in statuses(opened), timeout=30_000)
    opened.workflow.open_model(replace(model_request, image_size=64))
    opened.workflow.open_model(replace(model_request, image_size=96))
    settle(qtbot, opened)
    assert statuses(opened) == ["done"] * 4
    assert {document.record.input_size for document in opened.documents.all} == {(96, 96)}
    assert [request.image_size for request in opened.window.remembered.recent_models] == [96, None]


def test_a_picture_closed_while_the_model_looks_at_it_stays_closed(opened, qtbot, pictures):
    opened.workflow.open_paths(pictures(1, "more"))
    qtbot.waitUntil(lambda: "running" in statuses(opened), timeout=30_000)
    [running] = [document for document in opened.documents.all if document.status == "running"]
    opened.workflow.close(running.key)
    settle(qtbot, opened)
    assert opened.documents.get(running.key) is None
    assert statuses(opened) == ["done"]
    assert opened.window.film_strip.count() == 1


def test_cancelled_pictures_say_so_and_run_again_on_a_double_click(opened, qtbot, pictures):
    opened.workflow.open_paths(pictures(1, "more"))
    qtbot.waitUntil(lambda: "running" in statuses(opened), timeout=30_000)
    opened.jobs.cancel()
    settle(qtbot, opened)
    document = opened.documents.all[1]
    assert (document.status, document.record) == ("failed", None)
    assert document.problem.startswith("Cancelled.")
    assert opened.window.messages.texts == ()
    strip = opened.window.film_strip
    frame = strip.itemWidget(strip.item(1))
    # Qt sends both for the two clicks.
    qtbot.mouseClick(frame, Qt.MouseButton.LeftButton)
    qtbot.mouseDClick(frame, Qt.MouseButton.LeftButton)
    settle(qtbot, opened)
    assert opened.documents.all[1].status == "done"


def test_an_unknown_model_name_is_answered_with_near_ones(opened, qtbot, model_request):
    opened.workflow.open_model(replace(model_request, model="vit_smal_patch16_224", weights=None))
    settle(qtbot, opened)
    [sentence] = opened.window.messages.texts
    assert "vit_small_patch16_224" in sentence
    assert statuses(opened) == ["done"]


def test_without_a_model_the_sample_is_fetched_and_its_failure_is_told_once(
    sessions, qtbot, pictures, tmp_path, monkeypatch, model_request
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    session = sessions()
    drop(session, urls(*pictures(2)))
    settle(qtbot, session)
    assert statuses(session) == ["waiting", "waiting"]
    problem, said = session.window.messages.texts
    assert said.startswith("No model was open, so the sample model")
    assert "sample" in problem
    session.window.model_asked.emit(model_request)
    settle(qtbot, session)
    assert statuses(session) == ["done", "done"]


def test_a_synchronous_session_is_done_when_the_call_returns(qtbot, pictures, model_request):
    session = Session(QApplication.instance(), Start(), synchronous=True)
    session.workflow.open_model(model_request)
    session.workflow.open_paths(pictures(2))
    assert statuses(session) == ["done", "done"]
    assert session.scene.value.overlay.grid == GRID
    assert session.tear_down(1.0)


@pytest.mark.parametrize("bad", ["record", "measures"])
def test_a_bug_while_a_picture_is_worked_on_marks_only_that_picture(
    opened, qtbot, pictures, monkeypatch, bad, capsys
):
    import viewer.attention.sweep

    where = type(opened.documents.model) if bad == "record" else viewer.attention.sweep
    name = "attend" if bad == "record" else "measure_record"
    right = getattr(where, name)
    calls = []

    def wrong_once(*arguments):
        calls.append(name)
        return [][1] if len(calls) == 1 else right(*arguments)

    monkeypatch.setattr(where, name, wrong_once)
    opened.workflow.open_paths(pictures(2, "more"))
    settle(qtbot, opened)
    assert sorted(statuses(opened)) == ["done", "done", "failed"]
    [sentence] = opened.window.messages.texts
    assert "because of an error in Patchreach" in sentence
    assert "IndexError" in capsys.readouterr().err


def test_pictures_beyond_the_memory_for_records_rest_and_are_looked_at_when_shown(opened, qtbot, pictures):
    documents = opened.documents
    size = documents.current.record.nbytes
    documents._record_bytes = 2 * size
    looked_at = []
    documents.changed.connect(
        lambda key: looked_at.append(key) if documents.get(key).status == "running" else None
    )
    opened.workflow.open_paths(pictures(5, "more"))
    settle(qtbot, opened)
    # The first of the drop is shown; for the others there is no room, and no work is done in vain.
    assert statuses(opened) == ["done", "done", "resting", "resting", "resting", "resting"]
    assert len(looked_at) == 1
    last = documents.all[-1]
    opened.window.film_strip.setCurrentRow(5)
    assert documents.current.key == last.key
    settle(qtbot, opened)
    assert documents.current.status == "done"
    assert opened.scene.value.overlay is not None
    assert statuses(opened) == ["resting", "done", "resting", "resting", "resting", "done"]
    held = sum(document.record.nbytes for document in documents.all if document.record)
    assert held <= 2 * size


def test_pictures_beyond_the_memory_for_pixels_are_refused_in_a_sentence(
    opened, qtbot, pictures, monkeypatch
):
    taken = opened.documents.pixel_bytes
    monkeypatch.setattr("viewer.ui.workflow._MOST_PIXEL_BYTES", taken + 200 * 180 * 3)
    opened.workflow.open_paths(pictures(2, "more"))
    settle(qtbot, opened)
    assert [document.image.name for document in opened.documents.all] == ["picture 0.png", "picture 0.png"]
    assert opened.window.messages.texts[0].startswith("picture 1.png was not opened: the open pictures fill")


def test_a_figure_whose_making_is_cancelled_or_fails_is_told_of_at_most_once(opened, qtbot, monkeypatch):
    def cancelled(scene, request):
        opened.jobs.cancel()
        return b""

    monkeypatch.setattr("viewer.export.figure.draw", cancelled)
    opened.copy("overlay")
    settle(qtbot, opened)
    assert opened.window.messages.texts == ()
    monkeypatch.setattr("viewer.export.figure.draw", lambda scene, request: 1 / 0)
    opened.copy("overlay")
    settle(qtbot, opened)
    [text] = opened.window.messages.texts
    assert text.startswith("Copying the figure failed because of an error in Patchreach; nothing")


def test_a_picture_that_is_open_is_shown_and_not_opened_again(opened, qtbot, pictures, monkeypatch):
    [first] = opened.documents.all
    paths = pictures(2, "more")
    drop(opened, urls(*paths))
    settle(qtbot, opened)
    keys = [document.key for document in opened.documents.all]
    monkeypatch.chdir(first.image.path.parent)
    opened.workflow.open_paths([Path(first.image.path.name)])
    settle(qtbot, opened)
    assert opened.documents.current.key == first.key
    assert opened.documents.current.record is first.record, "nothing is run again"
    # Of a drop the first is shown, whichever of them are open.
    drop(opened, urls(paths[1], first.image.path, *pictures(1, "new")))
    settle(qtbot, opened)
    assert opened.documents.current.key == keys[2]
    assert [document.key for document in opened.documents.all][:3] == keys
    assert len(opened.documents.all) == 4 and set(statuses(opened)) == {"done"}


def test_a_picture_that_has_changed_since_is_another(opened, qtbot):
    path = opened.documents.current.image.path
    with Image.open(path) as image:
        image.rotate(180).save(path)
    drop(opened, urls(path))
    settle(qtbot, opened)
    old, new = opened.documents.all
    assert old.image.path == new.image.path and old.image.sha256 != new.image.sha256
    assert opened.documents.current.key == new.key


def test_a_picture_that_failed_is_tried_again_when_it_is_opened_again(opened, qtbot, pictures):
    [path] = pictures(1, "more")
    opened.workflow.open_paths([path])
    qtbot.waitUntil(lambda: "running" in statuses(opened), timeout=30_000)
    opened.jobs.cancel()
    settle(qtbot, opened)
    assert statuses(opened) == ["done", "failed"]
    drop(opened, urls(path))
    settle(qtbot, opened)
    assert statuses(opened) == ["done", "done"]


def test_the_sample_photograph_given_beside_the_sample_is_one_picture(sessions, qtbot, model_request):
    cat = SAMPLES[0].path
    session = sessions(sample=True, model=model_request, files=(str(cat),))
    settle(qtbot, session)
    assert [document.image.path for document in session.documents.all] == [cat]
    at_the_eye = session.selection.value
    session.selection.set(replace(at_the_eye, pins=((0, 0),), hovered=None))
    session.workflow.open_paths([cat])
    settle(qtbot, session)
    assert session.selection.value.pins == ((0, 0),)
    assert len(session.documents.all) == 1
