"""Works out what the chosen map over the picture needs, as slow work, once for each picture and option."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from viewer.errors import Cancelled, MapError, PatchreachError
from viewer.state.maps import kept, map_row, wanted, work_out
from viewer.ui.jobs import Jobs, Request

if TYPE_CHECKING:
    from viewer.backends.model import Job
    from viewer.state.display import Display
    from viewer.state.documents import Documents, ImageDocument
    from viewer.state.maps import MapKey
    from viewer.state.what_if import WhatIf


class MapWork(QObject):
    """Hands in what is missing for the picture on the screen, as soon as nothing else runs.

    Made before whoever else hands in work when the jobs are free: what a person looks at comes first.

    Parameters
    ----------
    documents, display
        What is shown; results go into `ImageDocument.maps`.
    what_if
        Whether the views show a changed model; what is worked out of its record goes there.
    jobs
        What runs slow work.
    """

    def __init__(
        self,
        documents: Documents,
        display: Display,
        what_if: WhatIf,
        jobs: Jobs,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._documents, self._display, self._what_if, self._jobs = documents, display, what_if, jobs
        what_if.changed.connect(self._next)
        jobs.free.connect(self._next)
        documents.current_changed.connect(self._next)
        display.changed.connect(self._next)

    def _next(self) -> None:
        document, model = self._what_if.document(self._documents.current), self._documents.model
        if self._jobs.busy or document is None or model is None:
            return
        key = wanted(document, self._display.value)
        if key is not None:
            self._start(document, key)

    def _start(self, document: ImageDocument, key: MapKey) -> None:
        model = self._documents.model

        def work(job: Job) -> object:
            return work_out(document, model, key, job)

        def done(result: object) -> None:
            if document.record.what_if:
                self._what_if.keep_map(document.record, key, result)
                return
            now = self._documents.get(document.key)
            if now is not None and now.record is document.record:
                self._documents.update(document.key, maps=kept(now.maps, key, result))

        def failed(error: PatchreachError) -> None:
            if isinstance(error, Cancelled):
                # Else it would begin again at once.
                self._display.set(replace(self._display.value, map="attention"))
            else:
                done(error.reason if isinstance(error, MapError) else str(error))

        title = f"{map_row(key[0]).work.doing}, {document.image.name}"
        self._jobs.submit(Request(title, work, done, failed, ("model", ("document", document.key))))
