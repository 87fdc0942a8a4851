"""All slow work: plain functions on one working thread, results handed to the window's thread."""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal

from viewer.backends.model import Job
from viewer.errors import Cancelled, PatchreachError
from viewer.ui.garbage import Garbage

# Progress from tight loops is passed on at most this often, so that it never floods the event queue.
_PROGRESS_SECONDS = 0.03


class Bug(PatchreachError):
    """What `failed` gets for an error nobody foresaw; `Jobs.crashed` carries the traceback."""

    def __init__(self, title: str) -> None:
        super().__init__(f"{title} failed because of an error in Patchreach.")


def _ignore(_: object) -> None:
    """Do nothing with a result."""


@dataclass(frozen=True)
class Request:
    """A piece of slow work.

    Attributes
    ----------
    title
        What is being done, as a person reads it: "Opening vit_s.onnx".
    work
        Runs on the working thread; gets a `Job` for progress and cancellation. It must touch neither widgets
        nor state.
    done
        Gets the result, on the window's thread.
    failed
        Gets the error where it is one meant for a person (`Cancelled` included). For any other error it gets
        a `Bug`, and `Jobs.crashed` tells the traceback.
    scopes
        What the result belongs to, such as ``("model",)``. Once one of them is invalidated, the result is
        stale: it is dropped, and `done` and `failed` are not called.
    """

    title: str
    work: Callable[[Job], Any]
    done: Callable[[Any], None] = _ignore
    failed: Callable[[PatchreachError], None] = _ignore
    scopes: tuple[Hashable, ...] = ()


@dataclass(eq=False)
class _Entry:
    """A request on its way: the generation of each scope when it was handed in, and its job."""

    request: Request
    generations: tuple[int, ...]
    job: Job
    cancelled: bool = False


@dataclass(frozen=True)
class _Outcome:
    """What came of an entry."""

    entry: _Entry
    result: Any = None
    error: BaseException | None = None


@dataclass(frozen=True)
class _Progress:
    """What an entry is doing."""

    entry: _Entry
    doing: str
    share: float | None


@dataclass
class _Throttle:
    """Lets through one report in a while."""

    last: float = field(default=0.0)

    def ready(self) -> bool:
        """Return whether enough time has passed since the last time this was true."""
        now = time.monotonic()
        if now - self.last < _PROGRESS_SECONDS:
            return False
        self.last = now
        return True


class Jobs(QObject):
    """A first-in, first-out queue of slow work in front of one working thread.

    Parameters
    ----------
    synchronous
        Run every request at once on the calling thread, for tests.

    Signals
    -------
    started
        A request began; carries its title.
    progressed
        What is being done and the share done, 0 to 1, or -1 where it is not known.
    free
        Nothing runs and nothing waits: whoever holds work back may hand it in now.
    idle
        Nothing was handed in on `free`; all work is done.
    crashed
        A bug: title of the request and the traceback as text.
    """

    started = Signal(str)
    progressed = Signal(str, float)
    free = Signal()
    idle = Signal()
    crashed = Signal(str, str)
    _wake = Signal()

    def __init__(self, synchronous: bool = False, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._synchronous = synchronous
        self._waiting: deque[_Entry] = deque()
        self._running: _Entry | None = None
        self._generations: dict[Hashable, int] = {}
        self._inbox: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[_Outcome | _Progress] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._garbage: Garbage | None = None
        self._closed = False
        self._starting = False
        self._wake.connect(self._receive, Qt.ConnectionType.QueuedConnection)

    @property
    def busy(self) -> bool:
        """Whether anything runs or waits."""
        return self._running is not None or bool(self._waiting)

    def submit(self, request: Request) -> None:
        """Hand in work; it runs after everything handed in before."""
        if self._closed:
            return
        generations = tuple(self._generations.get(scope, 0) for scope in request.scopes)
        entry = _Entry(request, generations, Job())
        entry.job = Job(self._progress_of(entry))
        self._waiting.append(entry)
        self._start_next()

    def invalidate(self, scope: Hashable) -> None:
        """Make what was handed in under `scope` stale: drop what waits, stop what runs, ignore its result."""
        self._generations[scope] = self._generations.get(scope, 0) + 1
        self._waiting = deque(entry for entry in self._waiting if self._fresh(entry))
        if self._running is not None and not self._fresh(self._running):
            self._running.job.cancel()

    def cancel(self) -> None:
        """Ask what runs to stop; it fails with `Cancelled`, also if it finishes before it notices."""
        if self._running is not None:
            self._running.cancelled = True
            self._running.job.cancel()

    def close(self, seconds: float = 2.0) -> bool:
        """Drop everything and end the working thread.

        Returns
        -------
        bool
            False if the thread is deep in foreign code and did not end in time; it is a daemon and touches no
            Qt object any more.
        """
        self._closed = True
        self._waiting.clear()
        if self._running is not None:
            self._running.job.cancel()
        if self._thread is None:
            return True
        self._inbox.put(None)
        self._thread.join(seconds)
        ended = not self._thread.is_alive()
        if ended and self._garbage is not None:
            self._garbage.stop()
        return ended

    def _fresh(self, entry: _Entry) -> bool:
        now = tuple(self._generations.get(scope, 0) for scope in entry.request.scopes)
        return now == entry.generations

    def _progress_of(self, entry: _Entry) -> Callable[[str, float | None], None]:
        throttle = _Throttle()

        def report(doing: str, share: float | None) -> None:
            if not self._closed and throttle.ready():
                self._outbox.put(_Progress(entry, doing, share))
                self._wake.emit()

        return report

    def _start_next(self) -> None:
        """Begin what waits; not entered again by what the signals and results it sends hand in."""
        if self._starting:
            return
        self._starting = True
        try:
            while self._running is None and self._next_waiting():
                self._running = self._waiting.popleft()
                self.started.emit(self._running.request.title)
                if self._synchronous:
                    self._finish(_run(self._running))
                else:
                    self._start_thread()
                    self._inbox.put(self._running)
        finally:
            self._starting = False

    def _next_waiting(self) -> bool:
        """Return whether anything waits, after asking for more and telling everybody if nothing came."""
        if not self._waiting:
            self.free.emit()
        if not self._waiting:
            self.idle.emit()
        return bool(self._waiting)

    def _start_thread(self) -> None:
        if self._thread is None:
            self._garbage = Garbage(self)
            # A daemon: a native call that cannot be stopped must not keep the process alive after closing.
            self._thread = threading.Thread(target=self._serve, name="patchreach-jobs", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        """Run entries until told to stop; the only method on the working thread."""
        while (entry := self._inbox.get()) is not None:
            outcome = _run(entry)
            if self._closed:
                return
            self._outbox.put(outcome)
            self._wake.emit()

    def _receive(self) -> None:
        """Take what the working thread has put out; on the window's thread."""
        while not self._closed:
            try:
                item = self._outbox.get_nowait()
            except queue.Empty:
                return
            if isinstance(item, _Outcome):
                self._finish(item)
            elif item.entry is self._running and self._fresh(item.entry):
                self.progressed.emit(item.doing, -1.0 if item.share is None else item.share)

    def _finish(self, outcome: _Outcome) -> None:
        self._running = None
        try:
            if self._fresh(outcome.entry):
                self._hand_over(outcome)
        finally:
            self._start_next()

    def _hand_over(self, outcome: _Outcome) -> None:
        request, error = outcome.entry.request, outcome.error
        if outcome.entry.cancelled:
            error = Cancelled()
        if error is None:
            request.done(outcome.result)
        elif isinstance(error, PatchreachError):
            request.failed(error)
        else:
            details = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            request.failed(Bug(request.title))
            self.crashed.emit(request.title, details)


def _run(entry: _Entry) -> _Outcome:
    """Run one entry, and catch what it raises."""
    try:
        entry.job.step(entry.request.title)
        return _Outcome(entry, entry.request.work(entry.job))
    except Exception as error:
        return _Outcome(entry, error=error)
