"""Works out what the chosen map over the picture needs, as slow work, once for each picture and option."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from viewer.errors import Cancelled, MapError, OfflineError, PatchreachError
from viewer.state import network_map
from viewer.state.averaged import MOST, Averaged, is_stale
from viewer.state.maps import kept, wanted, work_of, work_out
from viewer.ui.jobs import Bug, Jobs, Request

if TYPE_CHECKING:
    from viewer.backends.model import Job
    from viewer.state.display import Display
    from viewer.state.documents import Documents, ImageDocument
    from viewer.state.maps import MapKey
    from viewer.state.what_if import WhatIf

_OFFLINE = (
    "Where networks are chosen to compare with (View menu), a checkpoint on this computer can be taken, or "
    "random weights."
)


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

    Signals
    -------
    network_failed
        The fields of a network that is compared with can't be had; carries the key and why, as a sentence.
    """

    network_failed = Signal(object, str)

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
        document = replace(document, strip=self._strip(document))
        key = wanted(document, self._display.value)
        if key is None:
            return
        found = self._elsewhere(document, key)
        if found is None:
            self._start(document, key)
        else:
            self._keep(document, key, found)

    def _strip(self, document: ImageDocument) -> tuple[ImageDocument, ...]:
        """Return the pictures to average over: the first of the film strip, this one among them."""
        first = self._documents.all[:MOST]
        here = any(one.key == document.key for one in first)
        return first if here else (*first[: MOST - 1], document)

    def _elsewhere(self, document: ImageDocument, key: MapKey) -> Averaged | None:
        """Return an average over the same pictures that was worked out while another one was shown."""
        if self._documents.model.preprocessing.crop_mode == "whole":
            return None  # pictures have input sizes of their own
        results = (one.maps.get(key) for one in self._documents.all)
        averages = (result for result in results if isinstance(result, Averaged))
        return next((result for result in averages if not is_stale(result, document)), None)

    def _keep(self, document: ImageDocument, key: MapKey, result: object) -> None:
        if document.record.what_if:
            self._what_if.keep_map(document.record, key, result)
            return
        now = self._documents.get(document.key)
        if now is not None and now.record is document.record:
            self._documents.update(document.key, maps=kept(now.maps, key, result))

    def _start(self, document: ImageDocument, key: MapKey) -> None:
        model = self._documents.model

        def work(job: Job) -> object:
            return work_out(document, model, key, job)

        def done(result: object) -> None:
            self._keep(document, key, result)

        def failed(error: PatchreachError) -> None:
            if not isinstance(error, Cancelled):
                why = _why(error)
                done(why)
                # Of a bug the window tells with its details.
                if key[0] == network_map.KIND and not isinstance(error, Bug):
                    self.network_failed.emit(key, why)
            # Else it would begin again at once.
            elif key[0] == network_map.KIND:
                self._display.set(replace(self._display.value, compare_weights=""))
            else:
                self._display.set(replace(self._display.value, map="attention"))

        title = f"{work_of(key).doing}, {document.image.name}"
        self._jobs.submit(Request(title, work, done, failed, ("model", ("document", document.key))))


def _why(error: PatchreachError) -> str:
    """Return why a map can't be had, with what to press here, and not with options of the command line."""
    if isinstance(error, OfflineError):
        return f"{error.problem} {_OFFLINE}"
    return error.reason if isinstance(error, MapError) else str(error)
