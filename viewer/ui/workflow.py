"""From what a person opens to finished documents: which slow work is done next, and what becomes of it."""

from __future__ import annotations

import os.path
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from viewer.errors import Cancelled, PatchreachError
from viewer.state.requests import ModelRequest
from viewer.ui.garbage import pass_over_libraries
from viewer.ui.jobs import Bug, Jobs, Request

if TYPE_CHECKING:
    from viewer.attention.record import AttentionRecord
    from viewer.attention.sweep import RecordMeasures
    from viewer.backends.model import Job, Model
    from viewer.images.decode import DecodedImage
    from viewer.images.preprocess import Preprocessing
    from viewer.state.documents import Documents, ImageDocument

Restore = Callable[[Path], object | None]

SAMPLE = ModelRequest("sample")
_MOST_OF_A_FOLDER = 64
_MOST_PIXEL_BYTES = 4 << 30
_AGAIN = "Double-click it in the film strip to try again."


@dataclass(frozen=True)
class Source:
    """A picture to open: a file, bytes or a ``data:`` address; the `first` of a drop is shown."""

    what: Path | bytes | str
    name: str
    first: bool = False


@dataclass(frozen=True)
class Figure:
    """An exported figure that was opened: what it shows."""

    shown: object


class Workflow(QObject):
    """Opens models and pictures, and takes every picture through the model, the current one first.

    One thing is handed to `Jobs` at a time and the next is chosen only then: so the model comes before the
    pictures, the picture on the screen before the others, and a second drop waits its turn.

    Parameters
    ----------
    documents, jobs
        What is open, and what runs slow work.
    restore
        Tells what an exported figure shows, or None for any other file.

    Signals
    -------
    said
        A sentence for the person.
    checkpoint_given
        A file of weights that need an architecture; carries its path. No sample model is opened until
        `answered` is called.
    figure_given
        An exported figure is to be opened again; carries what `restore` found in it.
    model_coming
        A model is about to take its place; carries the request, the very object that asked for it.
    model_opened, image_opened
        Worth remembering: the request, the path.
    """

    said = Signal(str)
    checkpoint_given = Signal(object)
    figure_given = Signal(object)
    model_coming = Signal(object)
    model_opened = Signal(object)
    image_opened = Signal(object)

    def __init__(
        self, documents: Documents, jobs: Jobs, restore: Restore, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._documents, self._jobs, self._restore = documents, jobs, restore
        self._sources: deque[Source] = deque()
        self._folders: deque[Path] = deque()
        self._wanted: ModelRequest | None = None
        self._sample_failed = False
        self._questions = 0
        jobs.free.connect(self._next)
        documents.current_changed.connect(self._wake)

    # What a person asks for

    def open_paths(self, paths: Iterable[Path]) -> None:
        """Open files and folders, whatever they hold; what can't be opened gets its own sentence."""
        self._sample_failed = False
        self._sort_in([path for path in paths if not self._put_off(path)])
        self._next()

    def open_pictures(self, pictures: Iterable[bytes | str], name: str) -> None:
        """Open pictures that came as data."""
        self._sample_failed = False
        for index, data in enumerate(pictures):
            self._sources.append(Source(data, name, index == 0))
        self._next()

    def open_model(self, request: ModelRequest) -> None:
        """Open a model in place of the one that is open; the latest request wins."""
        self._jobs.invalidate("model")
        for document in self._documents.all:
            if document.status == "running":
                self._documents.update(document.key, status="waiting")
        self._wanted = request
        self._next()

    def set_preprocessing(self, how: Preprocessing) -> None:
        """Prepare pictures in another way and run them all again."""
        model = self._documents.model
        if model is None or how == model.preprocessing:
            return
        self._jobs.invalidate("model")

        def work(job: Job) -> Model:
            return model.with_preprocessing(how)

        def done(changed: Model) -> None:
            # Meanwhile a lesson may have ended, whose model it was.
            if self._documents.model is model:
                self._documents.set_model(changed)

        self._jobs.submit(Request("Changing the preprocessing", work, done, self._say, ("model",)))

    def retry(self, key: int) -> None:
        """Try a failed picture again."""
        document = self._documents.get(key)
        if document is not None and document.status == "failed":
            status = "measuring" if document.record else "waiting"
            self._documents.update(key, status=status, problem="")
            self._sample_failed = False
            self._next()

    def close(self, key: int) -> None:
        """Close a picture; work on it stops."""
        self._documents.close(key)
        self._jobs.invalidate(("document", key))

    def answered(self) -> None:
        """Go on after a question for an architecture: with the model that was asked for, if one was."""
        self._questions -= 1
        self._next()

    @property
    def pending(self) -> bool:
        """Whether anything waits to be opened."""
        return self._wanted is not None or bool(self._sources or self._folders)

    def proceed(self) -> None:
        """Go on with what is open, after other documents were put in place."""
        self._next()

    # What was dropped

    def _put_off(self, path: Path) -> bool:
        """Leave a folder of pictures to the working thread; looking into it may take long."""
        from viewer.backends.whole_models import opens_alone

        # Not pathlib's, which raises for a name that is too long or a closed folder: opening tells of that.
        folder = os.path.isdir(path) and not opens_alone(path)  # noqa: PTH112
        if folder:
            self._folders.append(path)
        return folder

    def _sort_in(self, paths: list[Path]) -> None:
        from viewer.backends.whole_models import opens_alone
        from viewer.images.sources import kind_of

        models = []
        pictures = []
        for path in paths:
            if opens_alone(path):
                models.append(path)
            elif kind_of(path) == "model":
                self._questions += 1
                self.checkpoint_given.emit(path)
            else:
                pictures.append(path)
        self._sources.extend(Source(path, path.name, path is pictures[0]) for path in pictures)
        for path in models[:-1]:
            self.said.emit(f"One model is open at a time: {models[-1].name} is opened, {path.name} is not.")
        if models:
            self.open_model(ModelRequest(str(models[-1])))

    # What is done next

    def _next(self) -> None:
        if self._jobs.busy:
            return
        current = self._documents.current
        if current is None and self._sources:
            # The first picture can be looked at while the model is being opened.
            self._start_source(self._sources.popleft())
        elif self._wanted is not None:
            self._start_model(self._wanted)
        elif current is not None and self._startable(current):
            self._start(current)
        elif self._folders:
            self._start_folder(self._folders.popleft())
        elif self._sources:
            self._start_source(self._sources.popleft())
        else:
            self._start_waiting()

    def _start_waiting(self) -> None:
        """Go on with a picture that is not on the screen, or let it rest where its record has no room."""
        for document in filter(self._startable, self._documents.all):
            if document.record is not None or self._documents.has_room:
                self._start(document)
                return
            self._documents.update(document.key, status="resting")

    def _wake(self, shown: ImageDocument | None) -> None:
        if shown is not None and shown.status == "resting":
            self._documents.update(shown.key, status="waiting")
            self._next()

    def _startable(self, document: ImageDocument) -> bool:
        if document.status in ("running", "measuring"):
            return True
        without = self._sample_failed or self._questions > 0
        return document.status == "waiting" and (self._documents.model is not None or not without)

    def _start(self, document: ImageDocument) -> None:
        model = self._documents.model
        if model is None:
            self.said.emit(
                "No model was open, so the sample model (DINOv2 ViT-S/14) looks at your picture; "
                "Ctrl+M opens another."
            )
            self.open_model(SAMPLE)
        elif document.record is not None:
            self._start_measuring(document, document.record)
        else:
            self._start_attending(document, model)

    def _start_model(self, request: ModelRequest) -> None:
        def work(job: Job) -> Model:
            from viewer.backends.opening import open_model

            return open_model(request.model, request.weights, request.image_size, request.device, job)

        def done(model: Model) -> None:
            pass_over_libraries()
            self.model_coming.emit(request)
            self._documents.set_model(model)
            self.model_opened.emit(request)

        def failed(error: PatchreachError) -> None:
            self._sample_failed = self._documents.model is None
            self._say(error)

        self._wanted = None
        self._jobs.submit(Request(f"Opening {request.title}", work, done, failed, ("model",)))

    def _start_folder(self, folder: Path) -> None:
        def work(job: Job) -> list[Path]:
            from viewer.images.sources import expand_paths, kind_of

            return [path for path in expand_paths([folder]) if path == folder or kind_of(path) == "image"]

        def done(found: list[Path]) -> None:
            if len(found) > _MOST_OF_A_FOLDER:
                self.said.emit(
                    f"{folder.name} holds {len(found)} pictures; the first {_MOST_OF_A_FOLDER} are opened. "
                    "`patchreach measure` takes more."
                )
            self._sort_in(found[:_MOST_OF_A_FOLDER])

        self._jobs.submit(Request(f"Looking into {folder.name}", work, done, self._say))

    def _start_source(self, source: Source) -> None:
        def work(job: Job) -> DecodedImage | Figure:
            shown = self._restore(source.what) if isinstance(source.what, Path) else None
            return _decode(source) if shown is None else Figure(shown)

        def done(image: DecodedImage | Figure) -> None:
            if isinstance(image, Figure):
                self.figure_given.emit(image.shown)
                return
            again = self._documents.find(image)
            if again is None and self._documents.pixel_bytes + image.pixels.nbytes > _MOST_PIXEL_BYTES:
                self.said.emit(
                    f"{source.name} was not opened: the open pictures fill the "
                    f"{_MOST_PIXEL_BYTES >> 30} GB of memory there is for them. Close some first."
                )
                return
            self._show(again or self._documents.add(image), source.first)
            if image.path is not None:
                self.image_opened.emit(image.path)

        self._jobs.submit(Request(f"Opening {source.name}", work, done, self._say))

    def _show(self, document: ImageDocument, first: bool) -> None:
        """Show the first picture of a drop, which may have been open already."""
        self.retry(document.key)
        if first:
            # Where it is on the screen already, what waits for it is to hear that it was asked for.
            self._documents.update(document.key)
            self._documents.show(document.key)

    def _start_attending(self, document: ImageDocument, model: Model) -> None:
        def done(record: AttentionRecord) -> None:
            self._documents.update(document.key, status="measuring", record=record)

        self._documents.update(document.key, status="running", problem="")
        self._submit_for(
            document,
            f"{model_title(model)} looks at {document.image.name}",
            lambda job: model.attend(document.image, job),
            done,
        )

    def _start_measuring(self, document: ImageDocument, record: AttentionRecord) -> None:
        def work(job: Job) -> RecordMeasures:
            from viewer.attention.sweep import measure_record

            return measure_record(record, job.step)

        def done(measures: RecordMeasures) -> None:
            self._documents.update(document.key, status="done", measures=measures)

        self._submit_for(document, f"Measuring {document.image.name}", work, done)

    def _submit_for(self, document: ImageDocument, title: str, work: object, done: object) -> None:
        def failed(error: PatchreachError) -> None:
            problem = f"Cancelled. {_AGAIN}" if isinstance(error, Cancelled) else str(error)
            self._documents.update(document.key, status="failed", problem=problem)
            if not isinstance(error, Cancelled):
                self._say(error, document.image.name)

        self._jobs.submit(Request(title, work, done, failed, ("model", ("document", document.key))))

    def _say(self, error: PatchreachError, about: str = "") -> None:
        if isinstance(error, Cancelled | Bug):
            return
        text = str(error)
        self.said.emit(f"{about}: {text}" if about and about not in text else text)


def model_title(model: Model) -> str:
    """Return what a person calls a model: its name, or its file's."""
    return Path(model.name).name or model.name


def _decode(source: Source) -> DecodedImage:
    from viewer.images.decode import open_image
    from viewer.images.sources import image_from_data_url

    if isinstance(source.what, str):
        return image_from_data_url(source.what, source.name)
    return open_image(source.what, source.name)
