"""Compares the heads with a convolutional network: asks which, and has its layers read as slow work."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from viewer.errors import Cancelled
from viewer.state import network_map
from viewer.state.averaged import Averaged
from viewer.state.comparison import keep, known
from viewer.ui.jobs import Bug, Request
from viewer.ui.network_picker import NetworkPicker

if TYPE_CHECKING:
    from collections.abc import Hashable

    from viewer.backends.model import Job
    from viewer.backends.network_fields import NetworkFields
    from viewer.errors import PatchreachError
    from viewer.state.display import Display
    from viewer.state.documents import Documents
    from viewer.ui.jobs import Jobs
    from viewer.ui.map_work import MapWork
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
    maps
        Tells where a network's effective fields can't be had.
    """

    def __init__(
        self, window: Window, documents: Documents, display: Display, jobs: Jobs, maps: MapWork
    ) -> None:
        super().__init__(window)
        self._window, self._documents, self._display, self._jobs = window, documents, display, jobs
        self._reading = ""
        maps.network_failed.connect(self._tell_failure)
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
        # What failed is tried again where it is asked for again.
        asked = (network_map.KIND, name, weights)
        for document in self._documents.all:
            if isinstance(document.maps.get(asked), str):
                left = {key: result for key, result in document.maps.items() if key != asked}
                self._documents.update(document.key, maps=left)
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

    def _tell_failure(self, key: tuple[Hashable, ...], why: str) -> None:
        """Say why there are no effective fields, and go back to those that were drawn before."""
        _, name, weights = key
        self._window.say(f"No effective fields of {network_map.short_name(name)}: {why}")
        now, document = self._display.value, self._documents.current
        if document is None or (now.compare, now.compare_weights) != (name, weights):
            return
        before = [
            older[2]
            for older, result in document.maps.items()
            if older[:2] == (network_map.KIND, name) and isinstance(result, Averaged)
        ]
        if before:
            self._display.set(replace(now, compare_weights=before[-1]))

    def _failed(self, name: str, error: PatchreachError) -> None:
        self._reading = ""
        # Who cancelled knows, and of a bug the window tells with its details.
        if not isinstance(error, Cancelled | Bug):
            self._window.say(str(error))
        # One that was read before may have been chosen meanwhile.
        if self._display.value.compare == name:
            self._choose("", "")
