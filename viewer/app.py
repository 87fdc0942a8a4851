"""The composition root of the window: builds state, jobs and window, connects them, takes them apart."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QCoreApplication, QEvent, QMimeData, QObject, Qt
from PySide6.QtGui import QGuiApplication, QImage
from PySide6.QtWidgets import QApplication

from viewer.errors import Cancelled, PatchreachError
from viewer.state import preferences as settings
from viewer.state.display import Display
from viewer.state.documents import Documents
from viewer.state.lesson_looks import EYE, EYE_HEAD
from viewer.state.looking import Looking
from viewer.state.model_choices import ModelChoices
from viewer.state.palette import palette
from viewer.state.preferences import Preferences
from viewer.state.requests import FigureRequest, ModelRequest, SlideRequest, TableRequest
from viewer.state.scene import Scene
from viewer.state.selection import Selection
from viewer.state.what_if import WhatIf
from viewer.ui.compare_actions import CompareActions
from viewer.ui.figures_again import FiguresAgain
from viewer.ui.jobs import Bug, Jobs, Request
from viewer.ui.lesson_actions import LessonActions
from viewer.ui.likeness_work import LikenessWork
from viewer.ui.map_work import MapWork
from viewer.ui.screenshot import Screenshot
from viewer.ui.study_actions import StudyActions
from viewer.ui.theme import apply_theme
from viewer.ui.uncaught import Uncaught
from viewer.ui.what_if_actions import WhatIfActions
from viewer.ui.window import Window
from viewer.ui.workflow import SAMPLE, Workflow

if TYPE_CHECKING:
    from viewer.backends.model import Job
    from viewer.export.restore import Restored
    from viewer.export.whereabouts import Found
    from viewer.state.scene import SceneValue
    from viewer.study.store import Store
    from viewer.ui.views import Views

# How long closing waits for work that cannot be stopped at once, such as a library being loaded.
_PATIENCE_SECONDS = 3.0


@dataclass(frozen=True)
class Start:
    """What the program is started with; the parameters of `launch`."""

    files: tuple[str, ...] = ()
    sample: bool = False
    model: ModelRequest | None = None
    theme: str | None = None
    fresh: bool = False
    screenshot: str | None = None
    lesson: bool = False


def launch(
    files: Sequence[str] = (),
    *,
    sample: bool = False,
    model: str | None = None,
    weights: str | None = None,
    image_size: int | tuple[int, int] | str | None = None,
    device: str = "auto",
    theme: str | None = None,
    fresh: bool = False,
    screenshot: str | None = None,
    lesson: bool = False,
) -> int:
    """Open the window and stay until it is closed.

    There must be a display; `viewer.ui.screen.why_no_window` tells without asking Qt, which would abort.

    Parameters
    ----------
    files
        Pictures, folders, model files and exported figures to open.
    sample
        Open the sample model and a shipped photograph.
    model, weights, image_size, device
        As in `viewer.backends.opening.open_model`; no model is opened where `model` is None.
    theme
        "light", "dark" or "talk"; by default what was chosen last.
    fresh
        Neither read nor write the remembered settings.
    screenshot
        Write a picture of the window there as soon as everything is loaded, and quit.
    lesson
        Begin the lesson, once what else is asked for is open.

    Returns
    -------
    int
        Exit code: 0; 1 where a wanted screenshot could not be made.
    """
    request = None if model is None else ModelRequest(model, weights, image_size, device)
    with Uncaught() as uncaught:
        application = QApplication.instance() or QApplication(["patchreach"])
        application.setApplicationName("patchreach")
        application.setApplicationDisplayName("Patchreach")
        start = Start(tuple(files), sample, request, theme, fresh, screenshot, lesson)
        session = Session(application, start)
        uncaught.watch(session.window)
        session.window.show()
        application.exec()
        code = session.code
        if not session.tear_down(_PATIENCE_SECONDS):
            # A native call goes on in the daemon thread.
            # All is saved, and ending the interpreter around it could crash.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return code


class Session(QObject):
    """One run of the window: all of its objects, and how they hang together.

    Parameters
    ----------
    application
        Qt's application, which outlives the session.
    start
        What to begin with.
    synchronous
        Run slow work at once on the calling thread, for tests.
    """

    def __init__(self, application: QApplication, start: Start, synchronous: bool = False) -> None:
        super().__init__()
        self.code = 0
        self._copied: QMimeData | None = None
        self._application, self._start = application, start
        self._path = settings.settings_path()
        self.preferences = Preferences() if start.fresh else settings.load(self._path)
        self.documents, self.selection = Documents(), Selection()
        self.display = Display(self.preferences.display)
        if start.theme:
            self.display.set(replace(self.display.value, theme=start.theme))
        self.selection.set(
            replace(
                self.selection.value, fusion=self.preferences.fusion, direction=self.preferences.direction
            )
        )
        self._theme = ""
        self._dress()
        self.model_choices = ModelChoices(self.documents, self.display)
        self.what_if = WhatIf(self.documents)
        self.scene = Scene(self.documents, self.selection, self.display, self.what_if)
        self.jobs = Jobs(synchronous)
        self.map_work = MapWork(self.documents, self.display, self.what_if, self.jobs, self)
        self.what_ifs = WhatIfActions(
            self.what_if, self.documents, self.selection, self.display, self.jobs, self
        )
        self.workflow = Workflow(self.documents, self.jobs, _restore)
        self.window = Window(
            self.documents, self.selection, self.display, self.scene, self.jobs, self.preferences
        )
        state = (self.documents, self.selection, self.display, self.scene, self.what_if)
        self.lesson = LessonActions(self.window, self.workflow, self.jobs, *state)
        self.comparing = CompareActions(self.window, self.documents, self.display, self.jobs, self.map_work)
        opening = (self.jobs, self.workflow.open_paths, _write_study, synchronous)
        self.studies = StudyActions(self.window, self.documents, self.display, self.what_if, *opening)
        self.likeness_work = LikenessWork(self.documents, self.scene, self.jobs, self)
        # Last: it changes the selection in answer to a change, which the others are to hear of first.
        self.looking = Looking(self.documents, self.selection)
        whole = (self.window, self.workflow, self.jobs, self.documents, self.display, self.looking)
        self.figures_again = FiguresAgain(*whole, self.model_choices, self.what_ifs, _look_for)
        self._connect()

    def _connect(self) -> None:
        window, workflow = self.window, self.workflow
        self.display.changed.connect(self._dress)
        # After the first paint, through the event loop: nothing below may delay the window.
        window.painted.connect(self._begin, Qt.ConnectionType.QueuedConnection)
        window.closed.connect(self._save)
        window.paths_dropped.connect(self.studies.open_paths)
        window.pictures_dropped.connect(workflow.open_pictures)
        window.model_asked.connect(workflow.open_model)
        window.preprocessing_asked.connect(workflow.set_preprocessing)
        window.sample_asked.connect(self.open_sample)
        window.copy_asked.connect(self.copy)
        window.export_asked.connect(self.export)
        window.film_strip.close_asked.connect(workflow.close)
        window.film_strip.retry_asked.connect(workflow.retry)
        workflow.said.connect(window.say)
        workflow.checkpoint_given.connect(self._ask_architecture)
        workflow.model_opened.connect(self._remember_model)
        workflow.image_opened.connect(self._remember_image)
        self.jobs.crashed.connect(_print_bug)
        self.studies.jobs.crashed.connect(_print_bug)
        if self._start.screenshot:
            opened = (window, self.documents, self.jobs, self.studies)
            Screenshot(self._start.screenshot, *opened).failed.connect(self._fail)

    def _begin(self) -> None:
        """Have the panels' libraries loaded, and open what the program was started with."""
        self.jobs.submit(Request("Preparing the views", _load_views, self._build_views))
        start = self._start
        if start.model is not None:
            self.workflow.open_model(start.model)
        if start.sample and start.model is not None:
            self._open_sample_picture()
        elif start.sample:
            self.open_sample()
        if start.files:
            self.studies.open_paths([Path(file) for file in start.files])
        if start.lesson:
            self.lesson.begin()

    def _build_views(self, views: type[Views]) -> None:
        built = views(self.selection, self.display)
        self.what_ifs.attach(built)
        self.window.set_views(built)
        self.likeness_work.watch(self.window.views)

    # What a person asks for

    def open_sample(self) -> None:
        """Open the sample model, unless it is open, and the photograph that comes with it."""
        model = self.documents.model
        if model is None or model.name != SAMPLE.model:
            self.workflow.open_model(SAMPLE)
        self._open_sample_picture()

    def _open_sample_picture(self) -> None:
        from viewer.images.samples import SAMPLES

        look = replace(self.selection.value, hovered=EYE, pins=(), head=EYE_HEAD)
        self.looking.wish(str(SAMPLES[0].path), look)
        self.workflow.open_paths([SAMPLES[0].path])

    def copy(self, view: str) -> None:
        """Put a view on the clipboard, drawn as an export is."""
        choices, scene = self.window.remembered.export, self.scene.value
        request = FigureRequest(view, None, choices.factor, choices.title, choices.ground)

        def work(job: Job) -> bytes:
            from viewer.export.requested import drawn

            job.step("Drawing the figure")
            return drawn(scene, request)

        self.jobs.submit(Request("Copying the figure", work, self._put_on_clipboard, self._say))

    def export(self, request: FigureRequest | SlideRequest | TableRequest) -> None:
        """Write a figure, a slide or a table; a wrong path or a full disk gives a sentence."""
        scene = self.scene.value

        def work(job: Job) -> Path:
            from viewer.export.requested import write
            from viewer.export.writing import check_target

            check_target(request.path, _sources(scene))
            job.step(f"Writing {request.path.name}")
            return write(scene, request)

        self.jobs.submit(Request(f"Exporting {request.path.name}", work, self._exported, self._say))

    def _put_on_clipboard(self, png: bytes) -> None:
        data = QMimeData()
        data.setImageData(QImage.fromData(png))
        # The file itself too: it carries the figure's provenance.
        data.setData("image/png", png)
        QGuiApplication.clipboard().setMimeData(data)
        self._copied = data
        self.window.say("The figure is on the clipboard.", passing=True)

    def _exported(self, path: Path) -> None:
        self.window.say(f"Saved {path}.", passing=True)

    def _say(self, error: PatchreachError) -> None:
        # Who cancelled knows, and of a bug the window tells with its details.
        if not isinstance(error, Cancelled | Bug):
            self.window.say(str(error))

    def _ask_architecture(self, weights: Path) -> None:
        """Ask what model some weights are of; where nobody sits before the window, open them alone."""
        if self._start.screenshot:
            self.workflow.open_model(ModelRequest(str(weights)))
            self.workflow.answered()
        else:
            self.window.choose_model(weights).finished.connect(self.workflow.answered)

    # What follows by itself

    def _dress(self) -> None:
        if self.display.value.theme != self._theme:
            self._theme = self.display.value.theme
            apply_theme(self._application, palette(self._theme))

    def _remember_model(self, request: ModelRequest) -> None:
        self.window.remember(self.window.remembered.with_model(request))

    def _remember_image(self, path: Path) -> None:
        self.window.remember(self.window.remembered.with_image(path))

    def _save(self) -> None:
        """Remember what was chosen; a folder that can't be written to must not keep the window open."""
        if self._start.fresh:
            return
        value = self.selection.value
        self.preferences = replace(
            self.window.remembered, display=self.display.value, fusion=value.fusion, direction=value.direction
        )
        try:
            settings.save(self.preferences, self._path)
        except OSError as error:
            print(f"patchreach: settings could not be saved: {error}", file=sys.stderr)

    # End

    def _fail(self) -> None:
        self.code = 1

    def tear_down(self, seconds: float) -> bool:
        """Take everything apart in an order that Qt survives: work, then the window, the application last.

        Returns
        -------
        bool
            False if slow work did not end in time.
        """
        ended = self.studies.tear_down(seconds) & self.jobs.close(seconds)
        self._leave_clipboard()
        self.window.close()
        self.window.deleteLater()
        self.jobs.deleteLater()
        self.workflow.deleteLater()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        gc.collect()
        return ended

    def _leave_clipboard(self) -> None:
        """Leave a copied figure to other programs as an object of Qt's own.

        Qt may keep the clipboard until after the interpreter is gone, and crashes on an object of Python's.
        """
        clipboard = QGuiApplication.clipboard()
        if self._copied is not None and clipboard.mimeData() is self._copied:
            clipboard.setImage(clipboard.image())
        self._copied = None


def _load_views(job: Job) -> type[Views]:
    """Import the panels off the window's thread: pyqtgraph alone takes longer than the rest of the window."""
    from viewer.ui.views import Views

    job.step("Preparing the views")
    return Views


def _restore(path: Path) -> Restored | None:
    from viewer.export.restore import restore

    return restore(path)


def _look_for(shown: Restored, images: list[Path], models: list[Path]) -> Found:
    from viewer.export.whereabouts import look_for

    return look_for(shown, images, models)


def _write_study(store: Store, source: str) -> None:
    from viewer.export.study_results import write_results

    write_results(store, source)


def _sources(scene: SceneValue) -> list[str | Path | None]:
    """Return the files that a scene is made from."""
    if scene.document is None or scene.document.record is None:
        return []
    facts = scene.document.record.provenance
    return [scene.document.image.path, facts.image, facts.model, facts.weights]


def _print_bug(title: str, details: str) -> None:
    print(f"patchreach: {title} failed:\n{details}", file=sys.stderr)
