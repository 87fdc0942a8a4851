"""Who measures: this machine, one process with the model; `viewer.study.ray_engine` has the other."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from viewer.backends.model import Job
from viewer.study.decoding import Preparing, in_processes
from viewer.study.measuring import Batch, Measurer, Opening, probe

if TYPE_CHECKING:
    from viewer.attention.distance import Protocol as DistanceProtocol
    from viewer.study.entries import Entry

_MOST_WORKERS = 8


class Engine(Protocol):
    """Measures pictures somewhere."""

    def probe(self, job: Job) -> dict[str, Any]:
        """Open the model and tell of it; see `viewer.study.measuring.probe`."""

    def results(self, entries: Iterable[Entry], heads: tuple[int, ...], job: Job) -> Iterator[Batch]:
        """Yield the results of all entries, in their order.

        Raises
        ------
        Cancelled
            If the job was cancelled.
        """


class LocalEngine:
    """The model in this process, decoding in others.

    Parameters
    ----------
    opening
        The model.
    protocol
        Of the distances.
    workers
        Processes that decode.
    together
        Pictures that the model runs on at once, where it takes several.
    """

    def __init__(self, opening: Opening, protocol: DistanceProtocol, workers: int, together: int = 1) -> None:
        self._opening, self._protocol, self._workers = opening, protocol, workers
        self._together = together

    def probe(self, job: Job) -> dict[str, Any]:
        """See `Engine.probe`."""
        self._model = self._opening.open(job)
        return probe(self._model, self._protocol, job, self._together)

    def results(self, entries: Iterable[Entry], heads: tuple[int, ...], job: Job) -> Iterator[Batch]:
        """See `Engine.results`."""
        measurer = Measurer(self._model, self._protocol, heads, self._together)
        # The model's own steps say nothing of how far a study is: its job only cancels.
        quiet = Job(lambda doing, share: job.check())
        with closing(in_processes(entries, Preparing.of(self._model), self._workers)) as pictures:
            while some := list(islice(pictures, self._together)):
                yield measurer.batch(some, quiet)


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers() -> int:
    """Return how many processes decode unless told otherwise: half the processors, at most eight."""
    return max(1, min(_MOST_WORKERS, processors() // 2))


def default_models(device: str) -> int:
    """Return how many copies of a model run unless told otherwise.

    Two on several processors, which pictures side by side keep busier than one picture does; one on an
    accelerator, whose memory is dear.
    """
    return 1 if _accelerated(device) or processors() < 2 else 2


def default_batch(device: str) -> int:
    """Return how many pictures a model runs on at once unless told otherwise.

    Four on the CPU, which share the cost of each operation: more gain little and hold as much more memory.
    Sixteen on an accelerator, which one leaves idle.
    """
    return 16 if _accelerated(device) else 4


def _accelerated(device: str) -> bool:
    import torch

    if device == "auto":
        return torch.cuda.is_available() or torch.backends.mps.is_available()
    return device != "cpu"
