"""Lets the changed model look at the picture on the screen, as slow work, as soon as anything is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from viewer.errors import Cancelled
from viewer.state.what_if import compare
from viewer.ui.jobs import Jobs, Request

if TYPE_CHECKING:
    from viewer.backends.model import Job
    from viewer.errors import PatchreachError
    from viewer.state.documents import Documents
    from viewer.state.what_if import WhatIf, WhatIfResult

_SCOPE = "what if"


class WhatIfWork(QObject):
    """Hands in what is wanted as soon as nothing else runs; an edit makes what runs stale.

    Parameters
    ----------
    documents, what_if
        What is shown and changed; results go into `what_if`.
    jobs
        What runs slow work.
    """

    def __init__(
        self, documents: Documents, what_if: WhatIf, jobs: Jobs, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._documents, self._what_if, self._jobs = documents, what_if, jobs
        jobs.free.connect(self._next)
        documents.current_changed.connect(self._next)
        what_if.edited.connect(self._start_anew)

    def _start_anew(self) -> None:
        self._jobs.invalidate(_SCOPE)
        self._next()

    def _next(self, _: object = None) -> None:
        document, model = self._what_if.wanted, self._documents.model
        if self._jobs.busy or document is None or model is None:
            return
        changes = self._what_if.value.changes

        def work(job: Job) -> WhatIfResult:
            return compare(model, document.image, changes, document.record, document.measures, job)

        def failed(error: PatchreachError) -> None:
            cancelled = isinstance(error, Cancelled)
            self._what_if.fail(
                "Cancelled; any edit of the changes runs them again." if cancelled else str(error)
            )

        title = f"Running the changed model, {document.image.name}"
        scopes = ("model", ("document", document.key), _SCOPE)
        self._jobs.submit(Request(title, work, self._what_if.take, failed, scopes))
