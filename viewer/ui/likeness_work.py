"""Compares the maps of what is on the screen, as slow work, once the likeness view is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from PySide6.QtCore import QObject

from viewer.state.likeness import keep, known
from viewer.ui.jobs import Jobs, Request

if TYPE_CHECKING:
    from viewer.attention.likeness import RecordLikeness
    from viewer.attention.sweep import RecordMeasures
    from viewer.backends.model import Job
    from viewer.errors import PatchreachError
    from viewer.state.documents import Documents, ImageDocument
    from viewer.state.scene import Scene
    from viewer.ui.views import Views


class LikenessWork(QObject):
    """Hands in what is missing as soon as nothing else runs and the view is in sight.

    Parameters
    ----------
    documents, scene
        What is shown.
    jobs
        What runs slow work.
    """

    def __init__(self, documents: Documents, scene: Scene, jobs: Jobs, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._documents, self._scene, self._jobs = documents, scene, jobs
        self._views: Views | None = None
        # What was cancelled is not begun again until a person comes back to the view.
        self._given_up: WeakSet[RecordMeasures] = WeakSet()
        jobs.free.connect(self._next)
        scene.changed.connect(self._next)

    def watch(self, views: Views) -> None:
        """Begin to follow whether the view is in sight."""
        self._views = views
        views.tabs.currentChanged.connect(self._look)

    def _look(self) -> None:
        self._given_up.clear()
        self._next()

    def _next(self, _: object = None) -> None:
        document = self._scene.value.document
        if self._views is None or self._jobs.busy or document is None or document.measures is None:
            return
        seen = self._views.tabs.currentWidget() is self._views.likeness
        if seen and known(document.measures) is None and document.measures not in self._given_up:
            self._start(document, document.measures)

    def _start(self, document: ImageDocument, measures: RecordMeasures) -> None:
        def work(job: Job) -> RecordLikeness:
            from viewer.attention.likeness import measure_likeness

            return measure_likeness(document.record, measures, job.step)

        def done(found: RecordLikeness) -> None:
            keep(measures, found)
            self._documents.update(document.key)

        def failed(_: PatchreachError) -> None:
            self._given_up.add(measures)

        title = f"Comparing layers and heads, {document.image.name}"
        self._jobs.submit(Request(title, work, done, failed, ("model", ("document", document.key))))
