"""The pictures and the model that are open."""

from __future__ import annotations

import os.path
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from psygnal import Signal

if TYPE_CHECKING:
    from pathlib import Path

    from viewer.attention.record import AttentionRecord
    from viewer.attention.sweep import RecordMeasures
    from viewer.backends.model import Model
    from viewer.images.decode import DecodedImage

Status = Literal["waiting", "running", "measuring", "done", "resting", "failed"]

RECORD_BYTES = 2 << 30
"""What the records of all open pictures may take together, in bytes."""


@dataclass(frozen=True, eq=False)
class ImageDocument:
    """One open picture and what the current model made of it.

    Attributes
    ----------
    key
        Number that stays the same while the document is open.
    image
        The decoded picture.
    status
        How far the work on it is; `record` is there from "measuring" on, `measures` when "done". "resting"
        pictures have no record for want of memory: the model looks at them (again) when they are shown.
    problem
        Why it failed, in a sentence.
    maps
        What was worked out of the record for maps over the picture, see `viewer.state.maps`; or why it could
        not be, as a clause.
    before
        Record and measures of the model as it is, where `record` is of a changed one.
    strip
        The open pictures that effective fields are averaged over, where one is worked on; empty for it alone.
    """

    key: int
    image: DecodedImage
    status: Status = "waiting"
    record: AttentionRecord | None = None
    measures: RecordMeasures | None = None
    problem: str = ""
    maps: Mapping[tuple[Hashable, ...], object] = field(default_factory=dict)
    before: tuple[AttentionRecord, RecordMeasures] | None = None
    strip: tuple[ImageDocument, ...] = ()


@dataclass(frozen=True)
class Room:
    """Everything that `Documents` hold at one time: what is set aside while something else is shown.

    Attributes
    ----------
    model
        The opened model.
    documents
        In film strip order.
    current
        Key of the one that is shown.
    held
        Bytes of each record, the one last used at the end.
    """

    model: Model | None = None
    documents: tuple[ImageDocument, ...] = ()
    current: int | None = None
    held: tuple[tuple[int, int], ...] = ()


class Documents:
    """Open pictures in the order of the film strip, the current one, and the model.

    Records are kept within a budget: those of the pictures that were shown or made last, and always the one
    of the current picture.

    Parameters
    ----------
    record_bytes
        The budget.

    Signals
    -------
    changed
        A document was added, removed or updated; carries its key.
    current_changed
        Another document is current, or the current one was updated; carries it, or None.
    model_changed
        Carries the opened model, or None.
    """

    changed = Signal(int)
    current_changed = Signal(object)
    model_changed = Signal(object)

    def __init__(self, record_bytes: int = RECORD_BYTES) -> None:
        self._record_bytes = record_bytes
        self._held: dict[int, int] = {}  # bytes of each record, the one last used at the end
        self._documents: dict[int, ImageDocument] = {}
        self._current: int | None = None
        self._model: Model | None = None
        self._next_key = 0

    @property
    def model(self) -> Model | None:
        """The opened model."""
        return self._model

    @property
    def all(self) -> tuple[ImageDocument, ...]:
        """Every open document in film strip order."""
        return tuple(self._documents.values())

    @property
    def current(self) -> ImageDocument | None:
        """The document the views show."""
        return None if self._current is None else self._documents.get(self._current)

    @property
    def has_room(self) -> bool:
        """Whether one more record, as large as the largest so far, is within the budget."""
        return sum(self._held.values()) + max(self._held.values(), default=0) <= self._record_bytes

    @property
    def pixel_bytes(self) -> int:
        """Memory that the decoded pictures take, in bytes."""
        return sum(document.image.pixels.nbytes for document in self._documents.values())

    def get(self, key: int) -> ImageDocument | None:
        """Return a document, or None if it was closed."""
        return self._documents.get(key)

    def find(self, image: DecodedImage) -> ImageDocument | None:
        """Return the document of that very file: of the same place, and of the same bytes.

        None for what came without a file, and where the file has changed since it was opened.
        """
        if image.path is None:
            return None
        same = (one for one in self._documents.values() if one.image.sha256 == image.sha256)
        return next((one for one in same if one.image.path and is_same(one.image.path, image.path)), None)

    def set_model(self, model: Model | None) -> None:
        """Take another model; every document waits for it."""
        self._model = model
        self._held.clear()
        for key, document in self._documents.items():
            self._documents[key] = ImageDocument(key, document.image)
            self.changed.emit(key)
        self.model_changed.emit(model)
        self.current_changed.emit(self.current)

    def furnish(
        self, model: Model, image: DecodedImage, record: AttentionRecord, measures: RecordMeasures
    ) -> Room:
        """Make a room with one finished picture, for `exchange`."""
        document = ImageDocument(self._next_key, image, "done", record, measures)
        self._next_key += 1
        return Room(model, (document,), document.key, ((document.key, record.nbytes),))

    def exchange(self, room: Room) -> Room:
        """Take all of another room, with its records, and return what was here for later.

        Work on what leaves is nobody's any more: whoever runs it stops it. Keys are never used twice, so a
        room can be taken back beside documents that were opened since.
        """
        left = Room(self._model, self.all, self._current, tuple(self._held.items()))
        self._model, self._current = room.model, room.current
        self._documents = {document.key: document for document in room.documents}
        self._held = dict(room.held)
        for document in (*left.documents, *room.documents):
            self.changed.emit(document.key)
        self.model_changed.emit(self._model)
        self.current_changed.emit(self.current)
        return left

    def add(self, image: DecodedImage) -> ImageDocument:
        """Open a picture at the end of the film strip; the first becomes current."""
        document = ImageDocument(self._next_key, image)
        self._next_key += 1
        self._documents[document.key] = document
        self.changed.emit(document.key)
        if self._current is None:
            self.show(document.key)
        return document

    def update(self, key: int, **changes: object) -> None:
        """Replace fields of a document that is still open; a closed one is left alone."""
        if key not in self._documents:
            return
        self._documents[key] = replace(self._documents[key], **changes)
        record = changes.get("record")
        if record is not None:
            self._hold(key, record.nbytes)
        self.changed.emit(key)
        if key == self._current:
            self.current_changed.emit(self.current)

    def _hold(self, key: int, size: int) -> None:
        """Reckon with a new record, and let those go that were not used for longest."""
        self._held.pop(key, None)
        self._held[key] = size
        for other in list(self._held):
            if other not in (key, self._current) and sum(self._held.values()) > self._record_bytes:
                del self._held[other]
                self._documents[other] = ImageDocument(other, self._documents[other].image, "resting")
                self.changed.emit(other)

    def show(self, key: int) -> None:
        """Make a document the current one."""
        if key in self._documents and key != self._current:
            self._current = key
            if key in self._held:
                self._held[key] = self._held.pop(key)
            self.current_changed.emit(self.current)

    def close(self, key: int) -> None:
        """Close a document; its neighbour becomes current."""
        keys = list(self._documents)
        if key not in self._documents:
            return
        place = keys.index(key)
        del self._documents[key]
        self._held.pop(key, None)
        self.changed.emit(key)
        if key == self._current:
            rest = list(self._documents)
            self._current = rest[min(place, len(rest) - 1)] if rest else None
            self.current_changed.emit(self.current)


def is_same(one: str | Path, other: str | Path) -> bool:
    """Return whether two paths lead to the same place, however they are written; links are followed."""
    first, second = (os.path.normcase(os.path.realpath(path)) for path in (one, other))
    return first == second
