"""Several copies of the model on this machine, each in a process of its own with its share of the processors.

A picture at a time keeps many processors worse busy than a batch does; pictures side by side make up for it.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from viewer.errors import InputError
from viewer.study.actor import Actor
from viewer.study.decoding import begin_process, in_processes
from viewer.study.engines import processors

if TYPE_CHECKING:
    from viewer.attention.distance import Protocol
    from viewer.backends.model import Job
    from viewer.study.entries import Entry
    from viewer.study.measuring import Batch, Opening

_AHEAD = 2  # batches for each process: one that it works on, one that waits
_MOST = 4  # pictures sent to a process together: what has to end before a study stops
_POLL_SECONDS = 0.2


class ModelsEngine:
    """Copies of the model in processes; see `viewer.study.engines.Engine`.

    Parameters
    ----------
    opening
        The model.
    protocol
        Of the distances.
    models
        How many copies.
    workers
        Processes that decode, apart from those: a damaged file may take its decoder down.
    part
        Most pictures sent to a process together, but for a batch.
    together
        Pictures that a model runs on at once, where it takes several.
    """

    def __init__(
        self,
        opening: Opening,
        protocol: Protocol,
        models: int,
        workers: int,
        part: int,
        together: int = 1,
    ) -> None:
        threads = max(1, processors() // models)
        self._models, self._workers, self._batch = models, workers, max(min(part, _MOST), together)
        self._pool = ProcessPoolExecutor(
            models, multiprocessing.get_context("spawn"), _begin, (opening, protocol, threads, together)
        )

    def __enter__(self) -> ModelsEngine:
        """Start nothing yet: processes start with their first work."""
        self._others = set(multiprocessing.active_children())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if error is not None:
            # What they work on is not wanted any more, and may take long.
            for process in set(multiprocessing.active_children()) - self._others:
                process.terminate()
        self._pool.shutdown(cancel_futures=True)

    def probe(self, job: Job) -> dict[str, Any]:
        """See `viewer.study.engines.Engine.probe`."""
        return self._wait(self._pool.submit(_call, Actor.probe), lambda: job.step("Opening the model"))

    def results(self, entries: Iterable[Entry], heads: tuple[int, ...], job: Job) -> Iterator[Batch]:
        """See `viewer.study.engines.Engine.results`; batches come back in order."""
        preparing = self._wait(self._pool.submit(_call, Actor.preparing), job.check)
        waiting: deque[Future[Batch | str]] = deque()
        with closing(in_processes(entries, preparing, self._workers)) as pictures:
            while True:
                while len(waiting) < _AHEAD * self._models and (batch := list(islice(pictures, self._batch))):
                    waiting.append(self._pool.submit(_call, Actor.measured, batch, heads))
                if not waiting:
                    return
                yield self._wait(waiting.popleft(), job.check)

    def _wait(self, future: Future[Any], poll: Callable[[], None]) -> Any:  # noqa: ANN401 - of either call
        """Wait for what an actor returns; a sentence is an error."""
        while True:
            poll()
            try:
                found = future.result(_POLL_SECONDS)
            except NotYet:
                continue
            except BrokenProcessPool as error:
                raise InputError(
                    "A process with a copy of the model ended by itself, perhaps for want of memory. What "
                    "was measured is kept; go on with --resume, --models 1 and --batch 1."
                ) from error
            if isinstance(found, str):
                raise InputError(found)
            return found


class _Own:
    """The actor of this process."""

    actor: ClassVar[Actor]


def _begin(opening: Opening, protocol: Protocol, threads: int, together: int) -> None:
    begin_process()
    _Own.actor = Actor(opening, protocol, threads, together)


def _call(method: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - of either call
    return method(_Own.actor, *arguments)
