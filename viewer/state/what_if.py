"""What is changed in the model while it runs, what came of it, and whether the views show it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from psygnal import Signal

from viewer.backends.what_if import Change, sentence, why_not
from viewer.state.maps import kept

if TYPE_CHECKING:
    from viewer.attention.record import AttentionRecord
    from viewer.attention.sweep import RecordMeasures
    from viewer.backends.model import Job, Model, ModelInput
    from viewer.state.documents import Documents, ImageDocument
    from viewer.state.maps import MapKey

Side = Literal["before", "after"]

_MOST_STEPS = 200  # that can be undone


@dataclass(frozen=True, eq=False)
class WhatIfResult:
    """What changes made of one picture.

    Attributes
    ----------
    changes
        What was done.
    before, after
        Records of the model as it is, and of the changed one.
    measures_before, measures_after
        Of these.
    maps
        As in `ImageDocument`, of the record after.
    """

    changes: tuple[Change, ...]
    before: AttentionRecord
    after: AttentionRecord
    measures_before: RecordMeasures
    measures_after: RecordMeasures
    maps: Mapping[tuple[Hashable, ...], object] = field(default_factory=dict)


@dataclass(frozen=True)
class WhatIfValue:
    """The what-if at one moment.

    Attributes
    ----------
    changes
        What is to be done to the model, in the order in which it was added.
    shown
        Which side the views show once there is a result.
    result
        Of the current picture and these changes; None while there is none.
    problem
        Why there is none, in a sentence; empty where that is not known (yet).
    """

    changes: tuple[Change, ...] = ()
    shown: Side = "after"
    result: WhatIfResult | None = None
    problem: str = ""

    @property
    def sentence(self) -> str:
        """What is changed: "what if: uniform attention in layer 3"; empty for nothing."""
        return sentence(self.changes)


def compare(
    model: Model,
    image: ModelInput,
    changes: Iterable[Change],
    before: AttentionRecord,
    measures: RecordMeasures,
    job: Job,
) -> WhatIfResult:
    """Let the changed model look at a picture, and measure; slow work.

    Parameters
    ----------
    model
        As it was opened.
    image
        The picture.
    changes
        What is to be done to the model.
    before, measures
        What the model as it is made of that picture.
    job
        Told of progress; cancels.

    Raises
    ------
    InputError
        If the model can't be changed so; the text says why.
    Cancelled
        If `job` was cancelled.
    """
    # Both need torch, which a window without a model does not load.
    from viewer.attention.sweep import measure_record
    from viewer.backends.what_if_model import with_changes

    changes = tuple(changes)
    after = with_changes(model, changes).attend(image, job)
    return WhatIfResult(changes, before, after, measures, measure_record(after, job.step))


class WhatIf:
    """The observable what-if, with a history of its changes.

    Another model starts anew, unless changes are expected with it (see `expect`); other preprocessing of the
    same model does not.

    Signals
    -------
    changed
        Anything differs; carries the `WhatIfValue`.
    edited
        The changes differ, so the model is to be run again.
    """

    changed = Signal(WhatIfValue)
    edited = Signal()

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._value = WhatIfValue()
        self._undone: list[tuple[Change, ...]] = []
        self._done: list[tuple[Change, ...]] = []
        self._model = ""
        self._expected: tuple[Change, ...] = ()
        documents.model_changed.connect(self._take_model)
        documents.current_changed.connect(self._take_document)

    @property
    def value(self) -> WhatIfValue:
        """The what-if now."""
        return self._value

    @property
    def can_undo(self) -> bool:
        """Whether there is a step to take back."""
        return bool(self._done)

    @property
    def can_redo(self) -> bool:
        """Whether a step that was taken back can be made again."""
        return bool(self._undone)

    # Editing

    def add(self, change: Change) -> None:
        """Add a change; one of the same kind, layers and heads gives way to it, keeping its place."""
        key = (change.kind, change.layers, change.heads)
        changes = list(self._value.changes)
        places = [i for i, one in enumerate(changes) if (one.kind, one.layers, one.heads) == key]
        if places:
            changes[places[0]] = change
        else:
            changes.append(change)
        self.set_changes(changes)

    def remove(self, index: int) -> None:
        """Take away one change."""
        self.set_changes(one for i, one in enumerate(self._value.changes) if i != index)

    def clear(self) -> None:
        """Take away all changes."""
        self.set_changes(())

    def set_changes(self, changes: Iterable[Change]) -> None:
        """Take these changes in place of those there are; a step that can be undone."""
        changes = tuple(changes)
        if changes != self._value.changes:
            self._done = [*self._done, self._value.changes][-_MOST_STEPS:]
            self._undone.clear()
            self._edit(changes)

    def undo(self) -> None:
        """Take back the last step."""
        if self._done:
            self._undone.append(self._value.changes)
            self._edit(self._done.pop())

    def redo(self) -> None:
        """Make the step again that was taken back last."""
        if self._undone:
            self._done.append(self._value.changes)
            self._edit(self._undone.pop())

    def expect(self, changes: Iterable[Change]) -> None:
        """Take changes as soon as another model is there; a figure that is opened again asks for both."""
        self._expected = tuple(changes)

    def _edit(self, changes: tuple[Change, ...]) -> None:
        problem = self.refusal if changes else ""
        self._set(replace(self._value, changes=changes, result=None, problem=problem))
        self.edited.emit()

    # What comes of it

    @property
    def refusal(self) -> str:
        """Why the open model can't be changed, in a sentence; empty if it can, or none is open."""
        model = self._documents.model
        return "" if model is None else why_not(model.name, model.backend)

    @property
    def wanted(self) -> ImageDocument | None:
        """The picture that the changed model is still to look at; None where there is nothing to do."""
        document = self._documents.current
        if document is None or document.status != "done" or not self._value.changes or self.refusal:
            return None
        return document if self._value.result is None and not self._value.problem else None

    def take(self, result: WhatIfResult) -> None:
        """Take a result, if it still is one of the current picture and changes."""
        document = self._documents.current
        if result.changes == self._value.changes and document and document.record is result.before:
            self._set(replace(self._value, result=result, problem=""))

    def keep_map(self, after: AttentionRecord, key: MapKey, found: object) -> None:
        """Keep what was worked out of a changed record for a map, if that record is still shown."""
        result = self._value.result
        if result is not None and result.after is after:
            self._set(replace(self._value, result=replace(result, maps=kept(result.maps, key, found))))

    def fail(self, problem: str) -> None:
        """Say why there is no result."""
        self._set(replace(self._value, result=None, problem=problem))

    def show(self, side: Side) -> None:
        """Let all views show the model as it is, or the changed one."""
        self._set(replace(self._value, shown=side))

    def document(self, document: ImageDocument | None) -> ImageDocument | None:
        """Return what the views are to show of a document: itself, or what the changed model made of it."""
        result = self._value.result
        if document is None or result is None or self._value.shown == "before":
            return document
        if document.record is not result.before:
            return document
        before = (result.before, result.measures_before)
        changed = {"record": result.after, "measures": result.measures_after, "maps": result.maps}
        return replace(document, **changed, before=before)

    # What else changes

    def _take_model(self, model: Model | None) -> None:
        name = "" if model is None else model.name
        if name == self._model and not self._expected:
            self._set(replace(self._value, result=None, problem=""))
            return
        self._model, changes, self._expected = name, self._expected, ()
        self._done.clear()
        self._undone.clear()
        self._set(WhatIfValue(shown=self._value.shown))
        if changes:
            self._edit(changes)

    def _take_document(self, document: ImageDocument | None) -> None:
        """Let go of what was of another picture, or of another record of it."""
        result = self._value.result
        stale = result is not None and (document is None or document.record is not result.before)
        failed = bool(self._value.problem) and not self.refusal
        if stale or failed:
            self._set(replace(self._value, result=None, problem=""))

    def _set(self, value: WhatIfValue) -> None:
        if value != self._value:
            self._value = value
            self.changed.emit(value)
