"""Opening again what an exported figure shows: its model, its picture, its selection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from PySide6.QtCore import QObject

from viewer.errors import Cancelled
from viewer.ui.jobs import Bug, Jobs, Request

if TYPE_CHECKING:
    from viewer.backends.model import Job
    from viewer.backends.what_if import Change
    from viewer.errors import PatchreachError
    from viewer.state.display import Display, DisplayValue
    from viewer.state.documents import Documents
    from viewer.state.looking import Looking
    from viewer.state.model_choices import ModelChoices
    from viewer.state.requests import ModelRequest
    from viewer.state.selection import SelectionValue
    from viewer.ui.what_if_actions import WhatIfActions
    from viewer.ui.window import Window
    from viewer.ui.workflow import Workflow


class Shown(Protocol):
    """What a figure asks for; see `viewer.export.restore.Restored`."""

    selection: SelectionValue
    display: DisplayValue
    what_if: tuple[Change, ...]


class Found(Protocol):
    """What is still there of a figure's sources; see `viewer.export.whereabouts.Found`."""

    shown: Shown
    model: ModelRequest | None
    image: Path | None
    missing: tuple[str, ...]


LookFor = Callable[[Shown, list[Path], list[Path]], Found]
"""Looks for a figure's sources; given what it asks for, and the pictures and models that are known."""


class FiguresAgain(QObject):
    """Opens what a figure shows as soon as `Workflow` comes upon one.

    Parameters
    ----------
    window, workflow, jobs
        What tells and remembers, what opens files, and what runs slow work.
    documents, display, looking, choices, what_ifs
        What is open, and what takes the figure's settings, selection and changes of the model.
    look_for
        See `LookFor`.
    """

    def __init__(
        self,
        window: Window,
        workflow: Workflow,
        jobs: Jobs,
        documents: Documents,
        display: Display,
        looking: Looking,
        choices: ModelChoices,
        what_ifs: WhatIfActions,
        look_for: LookFor,
    ) -> None:
        super().__init__(window)
        self._window, self._workflow, self._jobs = window, workflow, jobs
        self._documents, self._display, self._looking = documents, display, looking
        self._choices, self._what_ifs, self._look_for = choices, what_ifs, look_for
        self._asked: tuple[ModelRequest, tuple[Change, ...]] | None = None
        workflow.figure_given.connect(self._open_again)
        workflow.model_coming.connect(self._expect)

    def _open_again(self, shown: Shown) -> None:
        """Take the figure's settings at once, and look for its model and its picture."""
        self._display.set(replace(shown.display, theme=self._display.value.theme))
        images, models = self._known_images(), self._known_models()

        def work(job: Job) -> Found:
            job.step("Looking for what the figure shows")
            return self._look_for(shown, images, models)

        self._jobs.submit(Request("Looking for what the figure shows", work, self._open_found, self._say))

    def _open_found(self, found: Found) -> None:
        """Open what is still there of a figure's model and picture, and say what is not."""
        for sentence in found.missing:
            self._window.say(sentence)
        opens = found.model is not None and not self._is_open(found.model)
        if opens:
            self._asked = found.model, tuple(found.shown.what_if)
            self._workflow.open_model(found.model)
        elif found.model is not None:
            self._what_ifs.restore(found.shown.what_if)
        if found.image is not None:
            self._looking.wish(str(found.image), found.shown.selection)
            self._workflow.open_paths([found.image])

    def _expect(self, request: ModelRequest) -> None:
        """Give a figure's model what goes with it; of another, opened in its place, nothing is asked."""
        if self._asked is not None and request is self._asked[0]:
            self._choices.expect()
            self._what_ifs.expect(self._asked[1])
            self._asked = None

    def _say(self, error: PatchreachError) -> None:
        # Who cancelled knows, and of a bug the window tells with its details.
        if not isinstance(error, Cancelled | Bug):
            self._window.say(str(error))

    def _known_images(self) -> list[Path]:
        from viewer.images.samples import SAMPLES

        opened = [document.image.path for document in self._documents.all if document.image.path]
        shipped = [sample.path for sample in SAMPLES]
        return [Path(path) for path in (*opened, *self._window.remembered.recent_images, *shipped)]

    def _known_models(self) -> list[Path]:
        recent = self._window.remembered.recent_models
        return [Path(request.weights or request.model) for request in recent]

    def _is_open(self, request: ModelRequest) -> bool:
        model, recent = self._documents.model, self._window.remembered.recent_models
        if model is None or model.name != request.model or (recent and recent[0].weights != request.weights):
            return False
        how = model.preprocessing
        whole = how.crop_mode == "whole"
        return whole if request.image_size == "whole" else request.image_size in (None, how.size)
