"""Studies in the window: started, watched, stopped, gone on with, opened and dropped."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QApplication, QLabel

from viewer.backends.what_if import parse
from viewer.study.names import FAILED, REPORT, SETTINGS, SUMMARY
from viewer.study.running import Plan
from viewer.study.sources import Source
from viewer.study.store import Store
from viewer.ui.jobs import Request
from viewer.ui.study_dialog import StudyDialog
from viewer.ui.study_window import StudyWindow

# Of every window but the first, where there is no screen.
pytestmark = pytest.mark.qt_log_ignore("does not support (propagateSizeHints|raise)", extend=True)


def views():
    """Windows of studies; one that was closed stays in Qt's list for a while."""
    windows = QApplication.topLevelWidgets()
    return [widget for widget in windows if isinstance(widget, StudyWindow) and widget.isVisible()]


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
    for theme in ("light", "talk"):
        session.display.set(replace(session.display.value, theme=theme))
        view.resize(1, 1)
        qtbot.waitUntil(lambda: all_words_have_room(view))


def all_words_have_room(view):
    parts = [view.facts, view.y, view.plot, view.legend, view.said, view.folder]
    assert view.plot.height() >= view.plot.least_height()
    assert all(
        label.height() >= label.heightForWidth(label.width()) for label in parts if label.hasHeightForWidth()
    )
    return all(above.geometry().bottom() < below.geometry().top() for above, below in pairwise(parts))


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


def test_where_a_what_if_is_on_the_dialog_says_that_studies_leave_it_out(session, qtbot):
    qtbot.waitUntil(lambda: session.documents.model is not None, timeout=60_000)
    session.what_if.add(parse("uniform:layers=2"))
    session.window.study_asked.emit()
    dialog = session.window.findChild(StudyDialog)
    said = dialog.findChild(QLabel, "without what-if")
    assert said.isVisible()
    assert said.text() == (
        "Studies measure the model as it is: the what-if that is on in the window (uniform attention in "
        "layer 2) is left out."
    )
    dialog.reject()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    session.what_if.clear()
    session.window.study_asked.emit()
    assert session.window.findChild(StudyDialog).findChild(QLabel, "without what-if") is None


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


def test_a_study_of_nothing_but_bad_pictures_says_why_and_leaves_nothing(session, qtbot, tmp_path):
    qtbot.waitUntil(lambda: session.documents.model is not None, timeout=60_000)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "3.png").write_bytes(b"")
    session.studies.start(str(tmp_path / "bad"), tmp_path / "study", session.studies._opening())
    (view,) = views()
    qtbot.waitUntil(lambda: ended(view), timeout=60_000)
    assert view.said.text().startswith("Not one of 1 picture could be studied. ")
    assert "3.png is empty (0 bytes)." in view.said.text()
    assert not view.resume.isVisibleTo(view)
    assert not (tmp_path / "study").exists()
    assert not (tmp_path / "study").exists()


def test_pictures_that_are_left_out_are_counted_and_listed(session, qtbot, pictures, tmp_path):
    qtbot.waitUntil(lambda: session.documents.model is not None, timeout=60_000)
    output, folder = tmp_path / "study", pictures(2)[0].parent
    (folder / "broken.png").write_bytes(b"")
    session.studies.start(str(folder), output, session.studies._opening())
    (view,) = views()
    qtbot.waitUntil(lambda: ended(view), timeout=120_000)
    counted = "2 pictures, 1 left out (failed.csv tells why)"
    assert counted in view.facts.text()
    assert "broken.png" in (output / FAILED).read_text()
    view.close()
    session.window.paths_dropped.emit([output])
    qtbot.waitUntil(lambda: bool(views()) and counted in views()[0].facts.text(), timeout=30_000)
    views()[0].close()
    # What is not finished has no such list yet.
    (output / REPORT).unlink()
    session.window.paths_dropped.emit([output])
    qtbot.waitUntil(lambda: bool(views()) and "1 left out  ·" in views()[0].facts.text(), timeout=30_000)


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


def test_another_study_is_looked_at_while_one_runs_and_its_finding_stays(session, qtbot, pictures, tmp_path):
    qtbot.waitUntil(lambda: session.documents.model is not None, timeout=60_000)
    few, many = pictures(3, "few")[0].parent, pictures(40, "many")[0].parent
    session.studies.start(str(few), tmp_path / "study", session.studies._opening())
    (view,) = views()
    qtbot.waitUntil(lambda: ended(view), timeout=120_000)
    finding = view.said.text()
    view.close()
    session.studies.start(str(many), tmp_path / "other", session.studies._opening())
    session.window.paths_dropped.emit([tmp_path / "study"])
    qtbot.waitUntil(lambda: len(views()) == 2, timeout=60_000)
    assert session.studies.jobs.busy
    (running,) = [view for view in views() if not ended(view)]
    (finished,) = [view for view in views() if ended(view)]
    assert finished.said.text() == finding
    qtbot.waitUntil(lambda: ended(running), timeout=120_000)
    assert finished.said.text() == finding


def test_what_nobody_foresaw_is_told_with_its_details(session, qtbot):
    def fail(job):
        raise ZeroDivisionError("the details")

    session.studies.jobs.submit(Request("Opening a study", fail))
    qtbot.waitUntil(lambda: not session.studies.jobs.busy, timeout=30_000)
    assert any("Opening a study failed because of an error" in text for text in session.window.messages.texts)


def test_what_is_wrong_with_a_study_is_told_with_what_to_press_and_no_options(
    session, qtbot, pictures, tmp_path, weights
):
    qtbot.waitUntil(lambda: session.documents.model is not None, timeout=60_000)
    folder, output = str(pictures(12)[0].parent), tmp_path / "study"
    copy = tmp_path / "test_vit.safetensors"
    copy.write_bytes(weights.read_bytes())
    opening = replace(session.studies._opening(), weights=str(copy))
    session.studies.start(folder, output, opening)
    # Where a second one waits for the first, which makes the folder meanwhile.
    session.studies._run(Plan(Source(folder).absolute(), opening.absolute(), "renormalized", output))
    (view,) = views()
    qtbot.waitUntil(lambda: not session.studies.jobs.busy, timeout=120_000)
    told = [view.said.text()]
    assert "press “Go on”" in told[0] and view.resume.isVisibleTo(view)
    view.close()

    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    session.studies.start(folder, tmp_path / "full", opening)
    qtbot.waitUntil(lambda: ended(views()[-1]), timeout=60_000)
    told.append(views()[-1].said.text())
    assert told[-1].endswith("is not empty. Name a new folder.")
    views()[-1].close()

    (output / REPORT).unlink()
    copy.write_bytes(copy.read_bytes()[:-4] + b"\0\0\0\1")
    session.window.paths_dropped.emit([output])
    qtbot.waitUntil(lambda: bool(views()) and views()[-1].resume.isVisibleTo(views()[-1]), timeout=60_000)
    views()[-1].resume.click()
    qtbot.waitUntil(lambda: ended(views()[-1]), timeout=60_000)
    told.append(views()[-1].said.text())
    assert "the model's SHA-256 was" in told[-1] and "press “Go on” again" in told[-1]
    views()[-1].close()

    next((output / "values").glob("*.parquet")).write_bytes(b"cut off")
    session.window.paths_dropped.emit([output])
    qtbot.waitUntil(
        lambda: any("is damaged" in text for text in session.window.messages.texts), timeout=60_000
    )
    told.append(session.window.messages.texts[0])
    assert "open the study again and press “Go on”" in told[-1]
    session.studies.start(folder, output, opening)
    told.append(session.window.messages.texts[0])
    assert "holds a study already. Open it" in told[-1]
    assert not any(" -" in text for text in told)
