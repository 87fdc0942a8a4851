"""Compares the heads with a convolutional network: asks which, and has its layers read as slow work."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from viewer.errors import Cancelled
from viewer.state.comparison import keep, known
from viewer.ui.jobs import Bug, Request
from viewer.ui.network_picker import NetworkPicker

if TYPE_CHECKING:
    from viewer.backends.model import Job
    from viewer.backends.network_fields import NetworkFields
    from viewer.errors import PatchreachError
    from viewer.state.display import Display
    from viewer.state.documents import Documents
    from viewer.ui.jobs import Jobs
    from viewer.ui.window import Window

_SCOPE = "comparison"


class CompareActions(QObject):
    """Connects the comparison with the window.

    Parameters
    ----------
    window
        Asks for it, and is told what went wrong.
    documents, display
        What is shown; `DisplayValue.compare` names the network.
    jobs
        What runs slow work.
    """

    def __init__(self, window: Window, documents: Documents, display: Display, jobs: Jobs) -> None:
        super().__init__(window)
        self._window, self._documents, self._display, self._jobs = window, documents, display, jobs
        self._reading = ""
        window.network_asked.connect(self.ask)
        display.changed.connect(self._read)

    def ask(self) -> None:
        """Let a person choose a network, or none."""
        now = self._display.value
        picker = NetworkPicker(now.compare, now.compare_weights, self._window)
        picker.chosen.connect(self._choose)
        picker.open()

    def _choose(self, name: str, weights: str) -> None:
        now = self._display.value
        # Another network has other stages.
        stage = now.stage if name == now.compare else ""
        self._display.set(replace(now, compare=name, compare_weights=weights, stage=stage))

    def _read(self) -> None:
        """Have the layers of the chosen network read, unless they are."""
        name = self._display.value.compare
        if not name or name == self._reading or known(name) is not None:
            return
        self._jobs.invalidate(_SCOPE)
        self._reading = name

        def work(job: Job) -> NetworkFields:
            from viewer.backends.networks import network_fields

            return network_fields(name, None, job)

        def failed(error: PatchreachError) -> None:
            self._failed(name, error)

        self._jobs.submit(Request(f"Reading the layers of {name}", work, self._done, failed, (_SCOPE,)))

    def _done(self, fields: NetworkFields) -> None:
        self._reading = ""
        keep(fields)
        if self._documents.current is not None:
            self._documents.update(self._documents.current.key)

    def _failed(self, name: str, error: PatchreachError) -> None:
        self._reading = ""
        # Who cancelled knows, and of a bug the window tells with its details.
        if not isinstance(error, Cancelled | Bug):
            self._window.say(str(error))
        # One that was read before may have been chosen meanwhile.
        if self._display.value.compare == name:
            self._choose("", "")
