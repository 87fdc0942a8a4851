"""The lesson as it goes: which step is on, what it is played on, and what was open before it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from psygnal import Signal

from viewer.state.display import DisplayValue
from viewer.state.documents import Room
from viewer.state.lesson_stage import Stage, nine_patches
from viewer.state.lesson_steps import STEPS, Step

if TYPE_CHECKING:
    from viewer.state.display import Display
    from viewer.state.documents import Documents, ImageDocument
    from viewer.state.lesson_stage import StageName
    from viewer.state.selection import Selection, SelectionValue

_BEFORE = "before"  # the room with what was open before the lesson


@dataclass(frozen=True)
class LessonValue:
    """Where the lesson is.

    Attributes
    ----------
    index
        Of the step, from 0.
    ready
        Whether the step's picture and model are on the screen; if not, they are being loaded, or `problem`.
    problem
        Why they can't be had, in a sentence; empty while they can.
    """

    index: int
    ready: bool
    problem: str = ""

    @property
    def step(self) -> Step:
        """The step."""
        return STEPS[self.index]


class Lesson:
    """Steps through the lesson by setting documents, selection and display, which every view follows.

    What was open before is set aside with its records, and put back at the end. What has to be loaded is
    handed in from outside: see `begin` and `provide`.

    Signals
    -------
    changed
        Carries the `LessonValue`, or None at the end.
    """

    changed = Signal(object)

    def __init__(self, documents: Documents, selection: Selection, display: Display) -> None:
        self._documents, self._selection, self._display = documents, selection, display
        self._value: LessonValue | None = None
        self._rooms: dict[str, Room] = {}
        self._here = _BEFORE
        self._seen: tuple[SelectionValue, DisplayValue] | None = None
        self._moving = False
        documents.current_changed.connect(self._watch)

    @property
    def value(self) -> LessonValue | None:
        """Where the lesson is; None while there is none."""
        return self._value

    def begin(self, nine: Stage) -> None:
        """Set aside what is open, and go to the first step; at the same step it goes on if it has begun.

        Parameters
        ----------
        nine
            The nine patches.
        """
        if self._value is not None:
            return
        self._seen = self._selection.value, self._display.value
        self._rooms["nine patches"] = self._furnished(nine)
        self.go(0)

    def go(self, index: int) -> None:
        """Go to a step, by its number from 0; beyond either end nothing happens."""
        if 0 <= index < len(STEPS) and self._seen is not None:
            self._value = LessonValue(index, False)
            self._play()

    def provide(self, name: StageName, stage: Stage) -> None:
        """Take what a step waits for; it is shown at once if that step is on."""
        if self._seen is None or self.has(name):
            return
        self._rooms[name] = self._furnished(stage)
        if self._value is not None and not self._value.ready:
            self._play()

    def lack(self, problem: str) -> None:
        """Take that what the step waits for can't be had, with the reason as a sentence."""
        if self._value is not None and not self._value.ready:
            self._value = replace(self._value, problem=problem)
            self.changed.emit(self._value)

    def has(self, name: StageName) -> bool:
        """Return whether a stage was provided."""
        return self._here == name or name in self._rooms

    def brighten(self, patch: int, brightness: float) -> None:
        """Change the brightness of one of the nine patches, 0 to 1; all is computed anew.

        While they are being worked on, with other preprocessing, nothing happens.
        """
        if not _is_done(self._documents.current):
            return
        now = list(self.brightness)
        now[patch] = min(max(brightness, 0.0), 1.0)
        self._show_nine(tuple(now))

    @property
    def brightness(self) -> tuple[float, ...]:
        """Brightness of the nine patches on the screen, as their record has it."""
        from viewer.attention.worked_example import explain

        layer = self._documents.current.record.layers[0]
        return tuple(key.brightness for key in explain(layer, (0, 0)).keys)

    def end(self) -> None:
        """Put back what was open before, with its selection; theme and colours stay as they are now."""
        if self._seen is None:
            return
        (selection, display), self._seen = self._seen, None
        self._value = None
        self._enter(_BEFORE)
        self._rooms.clear()
        self._display.set(_dressed(display, self._display.value))
        self._selection.set(selection)
        self.changed.emit(None)

    # How a step is shown

    def _play(self) -> None:
        step = self._value.step
        if not self.has(step.stage):
            self.changed.emit(self._value)
            return
        self._enter(step.stage)
        if not _is_done(self._documents.current):
            self.changed.emit(self._value)
            return
        if step.stage == "nine patches":
            self._show_diagonal()
        document = self._documents.current
        self._display.set(_dressed(replace(DisplayValue(), **step.display), self._display.value))
        self._selection.set(step.look(document))
        self._value = replace(self._value, ready=True)
        self.changed.emit(self._value)

    def _enter(self, name: str) -> None:
        """Exchange what is on the screen."""
        if name == self._here:
            return
        self._moving = True
        try:
            left = self._documents.exchange(self._rooms.pop(name, Room()))
        finally:
            self._moving = False
        self._rooms[self._here], self._here = left, name

    def _show_diagonal(self) -> None:
        from viewer.attention.worked_example import DIAGONAL

        if self.brightness != DIAGONAL:
            self._show_nine(DIAGONAL)

    def _show_nine(self, brightness: tuple[float, ...]) -> None:
        found = nine_patches(brightness, self._documents.model)
        self._documents.update(
            self._documents.current.key,
            image=found.image,
            record=found.record,
            measures=found.measures,
        )

    def _furnished(self, stage: Stage) -> Room:
        return self._documents.furnish(stage.model, stage.image, stage.record, stage.measures)

    def _watch(self, document: ImageDocument | None) -> None:
        """End with the lesson's picture, and go on once it was worked on with other preprocessing."""
        if self._value is None or self._moving or self._here == _BEFORE:
            return
        if document is None:
            self.end()  # who closes it wants what was there before
        elif not self._value.ready and self._here == self._value.step.stage and _is_done(document):
            self._play()


def _is_done(document: ImageDocument) -> bool:
    return document.record is not None and document.measures is not None


def _dressed(value: DisplayValue, like: DisplayValue) -> DisplayValue:
    """Return settings in the theme and colours of others, which are a person's taste."""
    return replace(value, theme=like.theme, colormap=like.colormap)
