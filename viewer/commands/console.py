"""Talking to a person at a terminal: progress, notes and problems on stderr, results on stdout."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from viewer import interrupts, streams
from viewer.backends.model import Job

_PAUSE = 0.1  # seconds between two reports


_LOG_PAUSE = 30.0  # seconds between two lines of a log


class _Log:
    """A line of a log now and then, nothing in the first while."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, doing: str, share: float | None) -> None:
        if time.monotonic() - self._last >= _LOG_PAUSE:
            self._last = time.monotonic()
            say(doing)

    def clear(self) -> None:
        """Do nothing: a log keeps its lines."""


class _Line:
    """One line of a terminal that is written over and over."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, doing: str, share: float | None) -> None:
        now = time.monotonic()
        if now - self._last < _PAUSE:
            return
        self._last = now
        percent = "" if share is None else f" {share:.0%}"
        sys.stderr.write(f"\r\x1b[K{doing}{percent}")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._last:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._last = 0.0


@contextmanager
def job() -> Iterator[Job]:
    """Give a job that Ctrl+C cancels; its progress is seen while stderr is a terminal, then wiped."""
    line = _Line() if sys.stderr.isatty() else None
    work = Job(line)
    try:
        with interrupts.told(work.cancel):
            yield work
    finally:
        if line is not None:
            line.clear()


@contextmanager
def long_job() -> Iterator[Job]:
    """Give a job that the first Ctrl+C asks to end in good order; the second breaks in.

    Where stderr is no terminal but a log, it gets a line of progress now and then.
    """
    line = _Line() if sys.stderr.isatty() else _Log()
    work = Job(line)
    try:
        with interrupts.asked(work.cancel):
            yield work
    finally:
        line.clear()


def say(problem: object) -> None:
    """Write a sentence to stderr; a terminal gets it in lines that never part an option or a name."""
    text = f"patchreach: {problem}"
    if sys.stderr and sys.stderr.isatty():
        width = max(shutil.get_terminal_size().columns - 1, 40)
        text = textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
        text = f"\r\x1b[K{text}"  # over a line of progress
    try:
        print(text, file=sys.stderr)
    except OSError:  # nobody can be told
        streams.abandon(sys.stderr)


class Notes:
    """What was assumed or fell back, each sentence said once however many pictures it holds for."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, notes: Iterable[str]) -> None:
        """Write those that are new to stderr."""
        for note in notes:
            if note not in self._said:
                self._said.add(note)
                say(f"note: {note}")
