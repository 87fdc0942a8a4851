"""How the lesson is begun, led and ended in the window: its dock, its keys, and what it has loaded."""

from __future__ import annotations

import os.path
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QDockWidget, QFileDialog, QWidget

from viewer.errors import Cancelled
from viewer.state.lesson import Lesson
from viewer.state.lesson_steps import TITLE, slide_name
from viewer.state.requests import SlideRequest
from viewer.ui.jobs import Bug, Request
from viewer.ui.lesson_panel import LessonPanel

if TYPE_CHECKING:
    from viewer.backends.model import Job
    from viewer.backends.what_if import Change
    from viewer.errors import PatchreachError
    from viewer.state.display import Display
    from viewer.state.documents import Documents
    from viewer.state.lesson import LessonValue
    from viewer.state.lesson_stage import Stage
    from viewer.state.scene import Scene, SceneValue
    from viewer.state.selection import Selection
    from viewer.state.what_if import WhatIf
    from viewer.ui.jobs import Jobs
    from viewer.ui.tabs import Panel
    from viewer.ui.window import Window
    from viewer.ui.workflow import Workflow

_SCOPE = "lesson"
_KINDS = {"PNG picture (*.png)": ".png", "SVG drawing (*.svg)": ".svg", "PDF drawing (*.pdf)": ".pdf"}


class LessonActions(QObject):
    """Connects the lesson with the window.

    It has to be made before others are connected with the window: whatever a person opens ends the lesson
    first, so that it is opened beside what was there before.

    Parameters
    ----------
    window, workflow, jobs
        Where it is shown, what opens files, and what runs slow work.
    documents, selection, display, scene, what_if
        The state that it sets and follows.
    """

    def __init__(
        self,
        window: Window,
        workflow: Workflow,
        jobs: Jobs,
        documents: Documents,
        selection: Selection,
        display: Display,
        scene: Scene,
        what_if: WhatIf,
    ) -> None:
        super().__init__(window)
        self._window, self._workflow, self._jobs = window, workflow, jobs
        self._display, self._scene, self._what_if = display, scene, what_if
        self._changes: tuple[Change, ...] = ()
        self._front: Panel | None = None
        self._shown: int | None = None
        self.lesson = Lesson(documents, selection, display)
        self.panel: LessonPanel | None = None
        self._dock: QDockWidget | None = None
        self._asked = self._waits = self._fetching = self._had_strip = False
        window.lesson_asked.connect(self.begin)
        for opening in (window.paths_dropped, window.pictures_dropped, window.model_asked):
            opening.connect(self.end)
        window.sample_asked.connect(self.end)
        window.closed.connect(self.end)
        self.lesson.changed.connect(self._tell)
        jobs.free.connect(self._ask_again)

    # Begin and end

    def begin(self) -> None:
        """Begin the lesson; what is being opened is opened first."""
        if self._asked or self.lesson.value is not None:
            return
        self._asked = True
        self._prepare()

    def end(self, *_: object) -> None:
        """End the lesson, and show what was open before."""
        self._asked = self._waits = False
        if self.lesson.value is not None:
            self.lesson.end()

    def _prepare(self) -> None:
        def work(job: Job) -> Stage:
            from viewer.attention.worked_example import DIAGONAL
            from viewer.state.lesson_stage import nine_patches

            job.step("Preparing the lesson")
            return nine_patches(DIAGONAL)

        self._jobs.submit(Request("Preparing the lesson", work, self._prepared, self._say))

    def _prepared(self, nine: Stage) -> None:
        """Begin, unless something waits to be opened or done: jobs come one by one, so nothing else runs."""
        if not self._asked:
            return
        if self._workflow.pending or self._jobs.busy:
            self._waits = True
            return
        self._asked = False
        self._dress_window()
        self._changes = self._what_if.value.changes
        self.lesson.begin(nine)
        self._fetch_if_here()

    def _ask_again(self) -> None:
        """Queue behind what the workflow, which hears of free jobs first, has just handed in."""
        if self._waits:
            self._waits = False
            self._prepare()

    def _dress_window(self) -> None:
        if self._dock is None:
            self._build()
        self._had_strip = not self._window.film_strip.isHidden()
        self._window.film_strip.hide()
        self._dock.show()

    def _build(self) -> None:
        panel = self.panel = LessonPanel(self._display)
        panel.back_asked.connect(lambda: self.go(-1))
        panel.next_asked.connect(lambda: self.go(1))
        panel.close_asked.connect(self.end)
        panel.again_asked.connect(lambda: self.go(0))
        panel.export_asked.connect(self.choose_export)
        panel.brightened.connect(self.lesson.brighten)
        panel.convolutions_asked.connect(
            lambda count: self._display.set(replace(self._display.value, ring=count))
        )
        self._scene.changed.connect(self._follow)
        dock = self._dock = QDockWidget(TITLE, self._window)
        dock.setObjectName("lesson")
        dock.setFeatures(QDockWidget.DockWidgetFeature.NoDockWidgetFeatures)
        dock.setTitleBarWidget(QWidget())
        dock.setWidget(panel)
        self._window.addDockWidget(Qt.DockWidgetArea.LeftDockWidgetArea, dock)
        for key, by in (("PgDown", 1), ("PgUp", -1)):
            shortcut = QShortcut(QKeySequence(key), panel)
            shortcut.setContext(Qt.ShortcutContext.WindowShortcut)
            shortcut.activated.connect(lambda by=by: self.go(by))

    # Steps

    def go(self, by: int) -> None:
        """Go some steps on, or back; 0 shows the step again."""
        value = self.lesson.value
        if value is not None:
            self.lesson.go(value.index + by)

    def _tell(self, value: LessonValue | None) -> None:
        if value is None:
            self._jobs.invalidate(_SCOPE)
            self._fetching = False
            self._dock.hide()
            self._window.film_strip.setVisible(self._had_strip)
            # They went with their model, which is back.
            self._what_if.set_changes(self._changes)
            if self._front is not None:
                self._window.views.tabs.setCurrentWidget(self._front)
            self._front = self._shown = None
            self._workflow.proceed()
            return
        if not self.lesson.has(value.step.stage) and not value.problem:
            self._fetch()
        self._bring_scatter(value)
        self.panel.tell(value, self._scene.value)

    def _bring_scatter(self, value: LessonValue) -> None:
        """Show, at the beginning of each step, the scatter that it may speak of."""
        views = self._window.views
        if views is not None and value.index != self._shown:
            self._shown = value.index
            self._front = self._front or views.tabs.currentWidget()
            views.bring(views.scatter)

    def _follow(self, scene: SceneValue) -> None:
        value = self.lesson.value
        document = scene.document
        # The lesson ends where its picture is closed, but hears of it later than the scene; and with other
        # preprocessing its picture is worked on again.
        if value is not None and value.ready and document is not None and document.measures is not None:
            self.panel.paint(scene)

    # The sample model

    def _fetch_if_here(self) -> None:
        """Have the sample model ready ahead of its step, where that needs no connection."""
        from viewer.state.lesson_stage import sample_is_here

        if sample_is_here():
            self._fetch()

    def _fetch(self) -> None:
        if self._fetching or self.lesson.has("sample"):
            return
        self._fetching = True

        def work(job: Job) -> Stage:
            from viewer.state.lesson_stage import sample

            return sample(job)

        self._jobs.submit(Request("Opening the sample", work, self._fetched, self._not_fetched, (_SCOPE,)))

    def _fetched(self, stage: Stage) -> None:
        self._fetching = False
        self.lesson.provide("sample", stage)

    def _not_fetched(self, error: PatchreachError) -> None:
        self._fetching = False
        self.lesson.lack("It was cancelled." if isinstance(error, Cancelled) else str(error))

    def _say(self, error: PatchreachError) -> None:
        self._asked = False
        if not isinstance(error, Cancelled | Bug):
            self._window.say(str(error))

    # Export

    def choose_export(self) -> None:
        """Ask where the step goes as a figure."""
        value = self.lesson.value
        if value is None or not value.ready:
            return
        choices = self._window.remembered.export
        name = slide_name(value.index, ".png")
        proposed = str(Path(choices.folder) / name) if os.path.isdir(choices.folder) else name  # noqa: PTH112
        path, kind = QFileDialog.getSaveFileName(
            self._window, "Export this step", proposed, ";;".join(_KINDS)
        )
        if not path:
            return
        target = Path(path)
        if target.suffix.lower() not in _KINDS.values():
            target = Path(f"{path}{_KINDS.get(kind, '.png')}")
        ground = "dark" if self._display.value.theme == "dark" else "light"
        self._window.export_asked.emit(SlideRequest(value.index, target, choices.factor, ground))
