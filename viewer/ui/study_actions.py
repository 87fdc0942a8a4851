"""Starts, shows, stops and opens studies: windows of their own, and slow work that leaves the other alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFileDialog

from viewer.errors import InputError, PatchreachError, StudyError
from viewer.state.words import model_words
from viewer.study.names import REPORT, SETTINGS, SUMMARY
from viewer.study.settings import is_study, read
from viewer.ui.jobs import Bug, Jobs, Request

if TYPE_CHECKING:
    from viewer.backends.model import Job
    from viewer.state.display import Display, DisplayValue
    from viewer.state.documents import Documents
    from viewer.state.what_if import WhatIf
    from viewer.study.measuring import Opening
    from viewer.study.running import Plan
    from viewer.study.store import Store
    from viewer.study.summary import Summary
    from viewer.ui.study_window import StudyWindow
    from viewer.ui.window import Window

Write = Callable[["Store", str], None]
"""Writes tables, figures and report of a finished study; given what its pictures are called."""

_PART = 8  # pictures committed together: what is seen of a running study follows them
_NOT_WORKED = (
    "The worked example attends over nine patches by their brightness alone: it is there for the lesson, not "
    "for a study of pictures. Open a model first (Ctrl+M), or the sample; the lesson ends then."
)
_STOPPED = "Stopped. What was measured is kept; “Go on” takes it up from there."


@dataclass(frozen=True)
class _Shown:
    """A study in a window."""

    folder: Path
    view: StudyWindow


class StudyActions(QObject):
    """Connects studies with the window.

    Parameters
    ----------
    window, documents, display
        What asks for studies, the model that measures, and the protocol and theme.
    what_if
        What the window changes in the model, and a study does not.
    jobs
        What opens studies.
    open_others
        Opens paths that are no studies.
    write
        See `Write`.
    synchronous
        Run slow work at once on the calling thread, for tests.
    """

    _went_on = Signal(object, object)

    def __init__(
        self,
        window: Window,
        documents: Documents,
        display: Display,
        what_if: WhatIf,
        jobs: Jobs,
        open_others: Callable[[list[Path]], None],
        write: Write,
        synchronous: bool = False,
    ) -> None:
        super().__init__(window)
        self._window, self._documents, self._display = window, documents, display
        self._what_if = what_if
        self._opening_jobs, self._open_others, self._write = jobs, open_others, write
        # A queue of its own: a study takes hours, and pictures are looked at meanwhile.
        self.jobs = Jobs(synchronous, self)
        self._current: _Shown | None = None
        self._shown: dict[Path, _Shown] = {}
        self._went_on.connect(self._show_summary)
        self.jobs.progressed.connect(self._tell)
        self.jobs.crashed.connect(window.report_bug)
        window.study_asked.connect(self.choose)
        window.open_study_asked.connect(self.choose_study)
        window.closed.connect(self._close_all)
        display.changed.connect(self._dress)

    # What a person asks for

    def open_paths(self, paths: Iterable[Path]) -> None:
        """Open studies among some paths, and have the others opened."""
        others = []
        for path in paths:
            folder = path.parent if path.name == SETTINGS else path
            if is_study(folder):
                self.open_study(folder)
            else:
                others.append(path)
        if others:
            self._open_others(others)

    def choose(self) -> None:
        """Ask what to study."""
        from viewer.backends.opening import WORKED_EXAMPLE
        from viewer.ui.study_dialog import StudyDialog

        model = self._documents.model
        if model is None:
            self._window.say("A study needs a model to measure with: open one first (Ctrl+M), or the sample.")
            return
        if model.name == WORKED_EXAMPLE:
            self._window.say(_NOT_WORKED)
            return
        opening = self._opening()
        recent = self._window.remembered.recent_images
        folder = Path(recent[0]).parent if recent else Path.home()
        model_name = model_words(opening.model, opening.weights)
        what_if = "; ".join(change.words for change in self._what_if.value.changes)
        dialog = StudyDialog(model_name, folder, what_if, self._window)
        dialog.chosen.connect(lambda source, output: self.start(source, output, opening))
        dialog.open()

    def choose_study(self) -> None:
        """Ask for the folder of a study."""
        path = QFileDialog.getExistingDirectory(self._window, "Open the folder of a study")
        if path and is_study(Path(path)):
            self.open_study(Path(path))
        elif path:
            self._window.say(f"{path} holds no study (no {SETTINGS}).")

    def start(self, source: str, output: Path, opening: Opening) -> None:
        """Study pictures with the model that is open."""
        from viewer.study.running import Plan
        from viewer.study.sources import Source
        from viewer.study.store import taken

        if is_study(output):
            self._window.say(taken(output).in_window)
            return
        protocol = self._display.value.protocol
        self._run(Plan(Source(source).absolute(), opening.absolute(), protocol, output, part=_PART))

    def open_study(self, folder: Path) -> None:
        """Show a study, finished or not."""
        folder = folder.resolve()
        if folder in self._shown:
            self._shown[folder].view.raise_()
            return

        def work(job: Job) -> tuple[Summary, bool]:
            job.step("Reading the study")
            return _read(folder)

        def done(found: tuple[Summary, bool]) -> None:
            summary, finished = found
            shown = self._view(folder, Path(summary.settings.facts["source"]).name)
            if finished:
                shown.view.finish(summary)
            else:
                shown.view.show_summary(summary)
                shown.view.end("This study is not finished.", unfinished=True)

        def failed(error: PatchreachError) -> None:
            # Of a bug the window tells with its details.
            if not isinstance(error, Bug):
                self._window.say(_told(error))

        # Not behind a study that runs, which may take hours.
        self._opening_jobs.submit(Request("Opening a study", work, done, failed, (folder,)))

    # Running

    def _opening(self) -> Opening:
        """Return how the model that is open was opened."""
        from viewer.study.measuring import Opening

        model = self._documents.model
        asked = next((one for one in self._window.remembered.recent_models if one.model == model.name), None)
        weights = None if asked is None else asked.weights
        size = None if asked is None else asked.image_size
        device = "auto" if asked is None else asked.device
        return Opening(model.name, weights, size, device, model.preprocessing)

    def _resume(self, folder: Path) -> None:
        from viewer.study.measuring import Opening
        from viewer.study.running import Plan
        from viewer.study.sources import Source

        try:
            settings = read(folder)
            opening = Opening.from_facts(settings.facts["opening"])
        except PatchreachError as error:
            self._window.say(_told(error))
            return
        except (KeyError, TypeError, ValueError, AttributeError):
            self._window.say(
                f"{folder} can't be gone on with: {SETTINGS} does not tell how its model was opened."
            )
            return
        source = Source(settings.facts["source"])
        self._run(Plan(source, opening, settings.protocol, folder, resume=True, part=_PART))

    def _run(self, plan: Plan) -> None:
        name, folder = Path(plan.source.path).name, plan.output.resolve()
        shown = self._view(folder, name)
        shown.view.begin("Waiting for another study" if self.jobs.busy else "Starting")

        def work(job: Job) -> Summary:
            self._current = shown
            return _study(plan, name, job, lambda summary: self._went_on.emit(shown, summary), self._write)

        def failed(error: PatchreachError) -> None:
            shown.view.end(_told(error), unfinished=is_study(folder))

        self.jobs.submit(Request(f"Studying {name}", work, shown.view.finish, failed, (folder,)))

    def _stop(self, shown: _Shown) -> None:
        self.jobs.invalidate(shown.folder)
        shown.view.end(_STOPPED, unfinished=is_study(shown.folder))

    # Windows

    @property
    def latest(self) -> StudyWindow | None:
        """The window of the study that was opened last; None where there is none."""
        return next((shown.view for shown in reversed(self._shown.values())), None)

    def _view(self, folder: Path, name: str) -> _Shown:
        if folder in self._shown:
            return self._shown[folder]
        # Late: it needs pyqtgraph, which takes longer to load than the rest of the window.
        from viewer.ui.study_window import StudyWindow

        view = StudyWindow(name, self._display.value.theme)
        shown = self._shown[folder] = _Shown(folder, view)
        view.stop_asked.connect(lambda: self._stop(shown))
        view.resume_asked.connect(lambda: self._resume(folder))
        view.folder_asked.connect(lambda: QDesktopServices.openUrl(QUrl.fromLocalFile(str(folder))))
        view.closed.connect(lambda: self._forget(shown))
        view.show()
        return shown

    def _forget(self, shown: _Shown) -> None:
        """Stop a study whose window closes; it can be gone on with."""
        if self._shown.pop(shown.folder, None) is not None:
            self.jobs.invalidate(shown.folder)

    def _show_summary(self, shown: _Shown, summary: Summary) -> None:
        if self._shown.get(shown.folder) is shown:
            shown.view.show_summary(summary)

    def _tell(self, doing: str, share: float) -> None:
        shown = self._current
        if shown is not None and self._shown.get(shown.folder) is shown:
            shown.view.tell(doing, share)

    def _dress(self, value: DisplayValue) -> None:
        for shown in self._shown.values():
            shown.view.set_theme(value.theme)

    def _close_all(self) -> None:
        for shown in list(self._shown.values()):
            shown.view.close()

    def tear_down(self, seconds: float) -> bool:
        """End the working thread; False if it did not end in time."""
        self._close_all()
        return self.jobs.close(seconds)


def _told(error: PatchreachError) -> str:
    """Return what is wrong with what to press here, and not with options of the command line."""
    return error.in_window if isinstance(error, StudyError) else str(error)


def _study(plan: Plan, name: str, job: Job, watching: Callable[[Summary], None], write: Write) -> Summary:
    """Run a study to its end; on the working thread."""
    from viewer.study import summary as summaries
    from viewer.study.engines import LocalEngine, default_batch, default_workers
    from viewer.study.plot import pictures
    from viewer.study.running import begin, run

    opening = plan.opening
    engine = LocalEngine(opening, plan.protocol, default_workers(), default_batch(opening.device))
    with begin(plan, engine, job) as store:
        advance = run(store, plan, engine, job, watching=watching)
        if not advance.done:
            first = next(store.failed())
            store.discard()
            raise InputError(f"Not one of {pictures(advance.failed)} could be studied. {first.reason}")
        job.step("Computing the statistics")
        write(store, name)
        return summaries.read(store)


def _read(folder: Path) -> tuple[Summary, bool]:
    """Read a study: its summary if it is finished, else what there is so far."""
    from viewer.study import summary as summaries
    from viewer.study.statistics import moments
    from viewer.study.store import Store

    store = Store.at(folder)
    if all((folder / name).exists() for name in (REPORT, SUMMARY)):
        return summaries.read(store), True
    found = moments(store.blocks(), len(store.settings.layer_of), len(store.settings.measures))
    _, failed = store.counts()
    return summaries.Summary.of(store.settings, found, None, failed), False
