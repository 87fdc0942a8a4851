"""Studies in the window: started, watched, stopped, gone on with, opened and dropped."""

from __future__ import annotations

import json

import pytest
from PySide6.QtWidgets import QApplication

from viewer.study.names import REPORT, SETTINGS, SUMMARY
from viewer.study.store import Store
from viewer.ui.jobs import Request
from viewer.ui.study_dialog import StudyDialog
from viewer.ui.study_window import StudyWindow

# Of every window but the first, where there is no screen.
pytestmark = pytest.mark.qt_log_ignore("does not support (propagateSizeHints|raise)", extend=True)


def views():
    return [widget for widget in QApplication.topLevelWidgets() if isinstance(widget, StudyWindow)]


def ended(view):
    return not view.stop.isVisibleTo(view)


@pytest.fixture
def session(sessions, model_request):
    """A window with the small model open."""
    return sessions(model=model_request)


def test_a_study_is_asked_for_started_and_seen(session, qtbot, pictures, tmp_path):
    qtbot.waitUntil(lambda: session.documents.model is not None, timeout=60_000)
    folder = pictures(10)[0].parent
    session.window.study_asked.emit()
    dialog = session.window.findChild(StudyDialog)
    assert not dialog.start.isEnabled()
    dialog.source.setText(str(folder))
    output = tmp_path / "pictures-study"
    assert dialog.output.text() == str(output)
    seen = []
    session.studies._went_on.connect(lambda shown, summary: seen.append(summary.images))
    dialog.start.click()
    (view,) = views()
    qtbot.waitUntil(lambda: ended(view), timeout=120_000)
    # The scatter grew while the study ran, part by part.
    assert seen == [0, 8, 10]
    assert (output / REPORT).exists()
    assert "A head counts as near" in view.said.text()
    assert view.facts.text().startswith("test_vit with test_vit.safetensors  ·  10 pictures  ·  distances: ")
    assert view.plot._scatter.spread.shape == (12, 2)
    assert not view.resume.isVisibleTo(view)
    view.y.setCurrentIndex(view.y.findData("entropy_nats"))
    view.x.setCurrentIndex(view.x.findData("mean_distance_px"))
    view.y.activated.emit(0)
    assert (view.plot._scatter.y_axis.name, view.plot._scatter.x_axis.name) == (
        "entropy_nats",
        "mean_distance_px",
    )


def test_a_stopped_study_is_gone_on_with(session, qtbot, pictures, tmp_path):
    qtbot.waitUntil(lambda: session.documents.model is not None, timeout=60_000)
    output = tmp_path / "study"
    session.studies.start(str(pictures(20)[0].parent), output, session.studies._opening())
    (view,) = views()
    qtbot.waitUntil(lambda: bool(list(output.glob("values/*.parquet"))), timeout=120_000)
    view.stop.click()
    qtbot.waitUntil(lambda: not session.studies.jobs.busy, timeout=60_000)
    assert "Stopped" in view.said.text()
    done, _ = Store.at(output).counts()
    assert 8 <= done < 20
    view.resume.click()
    qtbot.waitUntil(lambda: ended(view), timeout=120_000)
    assert Store.at(output).counts() == (20, 0)
    assert "A head counts as near" in view.said.text()
    view.close()

    # The folder of the study shows it again, the pictures inside are not opened.
    session.window.paths_dropped.emit([output])
    qtbot.waitUntil(lambda: bool(views()) and views()[0].plot._scatter is not None, timeout=30_000)
    assert "A head counts as near" in views()[0].said.text()
    assert not session.documents.all
    # An unfinished one offers to go on.
    views()[0].close()
    (output / REPORT).unlink()
    session.window.paths_dropped.emit([output / SETTINGS])
    qtbot.waitUntil(lambda: bool(views()) and "not finished" in views()[0].said.text(), timeout=30_000)
    assert views()[0].resume.isVisibleTo(views()[0])


def test_without_a_model_a_sentence_tells_what_to_do(sessions, qtbot):
    session = sessions()
    session.window.study_asked.emit()
    assert "A study needs a model" in session.window.messages.texts[-1]


def test_a_study_that_can_not_begin_says_why(session, qtbot, tmp_path):
    qtbot.waitUntil(lambda: session.documents.model is not None, timeout=60_000)
    (tmp_path / "empty").mkdir()
    session.studies.start(str(tmp_path / "empty"), tmp_path / "study", session.studies._opening())
    (view,) = views()
    qtbot.waitUntil(lambda: ended(view), timeout=60_000)
    assert "holds no pictures" in view.said.text()
    assert not view.resume.isVisibleTo(view)
    assert not (tmp_path / "study").exists()


def test_a_folder_that_lost_its_summary_is_gone_on_with(session, qtbot, pictures, tmp_path):
    qtbot.waitUntil(lambda: session.documents.model is not None, timeout=60_000)
    output = tmp_path / "study"
    session.studies.start(str(pictures(2)[0].parent), output, session.studies._opening())
    qtbot.waitUntil(lambda: ended(views()[0]), timeout=120_000)
    views()[0].close()
    session.studies.start(str(pictures(2)[0].parent), output, session.studies._opening())
    assert not session.studies.jobs.busy
    assert any(f"{output} holds a study already" in text for text in session.window.messages.texts)

    (output / SUMMARY).unlink()
    session.window.paths_dropped.emit([output])
    qtbot.waitUntil(lambda: bool(views()) and "not finished" in views()[0].said.text(), timeout=30_000)
    settings = output / SETTINGS
    whole = settings.read_text()
    for damaged in ({"model": "test_vit"}, {**json.loads(whole)["opening"], "preprocessing": "none"}, None):
        settings.write_text(json.dumps({**json.loads(whole), "opening": damaged}))
        views()[0].resume.click()
        assert not session.studies.jobs.busy
    assert any("does not tell how its model was opened" in text for text in session.window.messages.texts)
    settings.write_text(whole)
    views()[0].resume.click()
    qtbot.waitUntil(lambda: ended(views()[0]), timeout=120_000)
    assert "A head counts as near" in views()[0].said.text()
    assert (output / SUMMARY).exists()


def test_what_nobody_foresaw_is_told_with_its_details(session, qtbot):
    def fail(job):
        raise ZeroDivisionError("the details")

    session.studies.jobs.submit(Request("Opening a study", fail))
    qtbot.waitUntil(lambda: not session.studies.jobs.busy, timeout=30_000)
    assert any("Opening a study failed because of an error" in text for text in session.window.messages.texts)
