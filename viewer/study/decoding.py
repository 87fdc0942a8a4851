"""Decoding ahead of the model: in processes of its own, or in threads where a task is one process already."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from viewer.errors import PatchreachError
from viewer.images.preprocess import Preprocessing, prepare, whole_size

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from viewer.backends.model import Model
    from viewer.study.entries import Entry

# Pictures ready or on their way, for each worker: enough that an awkward one does not stop the model.
_AHEAD = 4
_CRASHED = "makes its decoder crash, or needs more memory than there is"


@dataclass(frozen=True)
class Preparing:
    """How pictures are made ready, in whatever process.

    Attributes
    ----------
    how
        The model's own; always as NCHW, which every model takes.
    patch
        What sizes of whole pictures are multiples of; None where it is not known.
    """

    how: Preprocessing
    patch: tuple[int, int] | None

    @classmethod
    def of(cls, model: Model) -> Preparing:
        """Return how a model wants its pictures."""
        return cls(replace(model.preprocessing, layout="NCHW"), model.patch)

    def at(self, picture_hw: tuple[int, int]) -> Preprocessing:
        """Return it for a picture of this height and width."""
        if self.how.crop_mode != "whole" or self.patch is None:
            return self.how
        return replace(self.how, size=whole_size(picture_hw, self.how.size, self.patch))


class Prepared(NamedTuple):
    """A picture ready for the model: float32 (1, 3, H, W), and the SHA-256 of its file."""

    name: str
    place: int
    tensor: npt.NDArray[np.float32]
    sha256: str


class Failed(NamedTuple):
    """A picture that can't be studied, and why, as a sentence."""

    name: str
    place: int
    reason: str


Decoded = Prepared | Failed


def decode(preparing: Preparing, entry: Entry) -> Decoded:
    """Read, decode and prepare one picture."""
    try:
        image = entry.open()
        found = prepare(image, preparing.at(image.pixels.shape[:2]))
    except PatchreachError as error:
        return Failed(entry.name, entry.place, str(error))
    except MemoryError:
        return Failed(entry.name, entry.place, f"{entry.name} needs more memory than there is.")
    return Prepared(entry.name, entry.place, found.tensor, image.sha256)


def in_threads(entries: Iterable[Entry], preparing: Preparing, workers: int) -> Iterator[Decoded]:
    """Yield the pictures in their order, decoded ahead by threads of this process."""
    with ThreadPoolExecutor(workers, "patchreach-decoding") as pool:
        for _, future in _ahead(pool, partial(decode, preparing), iter(entries), deque(), _AHEAD * workers):
            yield future.result()


def in_processes(entries: Iterable[Entry], preparing: Preparing, workers: int) -> Iterator[Decoded]:
    """Yield the pictures in their order, decoded ahead by `workers` processes.

    A decoder that takes its process down (damaged files can) costs that picture alone: those on their way
    are done again, one at a time, and whichever ends its process again is given as failed.
    """
    source = iter(entries)
    waiting: deque[tuple[Entry, Future[Decoded]]] = deque()
    work = partial(decode, preparing)
    while True:
        with _processes(workers) as pool:
            try:
                for _, future in _ahead(pool, work, source, waiting, _AHEAD * workers):
                    yield future.result()
                return
            except BrokenProcessPool:
                suspects = [entry for entry, _ in waiting]
                waiting.clear()
        yield from (_alone(work, entry) for entry in suspects)


def _ahead(
    pool: Executor,
    work: Callable[[Entry], Decoded],
    source: Iterator[Entry],
    waiting: deque[tuple[Entry, Future[Decoded]]],
    most: int,
) -> Iterator[tuple[Entry, Future[Decoded]]]:
    """Hand out work, at most so much at once; an entry stays in `waiting` until its result was taken."""
    try:
        while True:
            while len(waiting) < most and (entry := next(source, None)) is not None:
                waiting.append((entry, Future()))
                waiting[-1] = (entry, pool.submit(work, entry))
            if not waiting:
                return
            waiting[0][1].exception()  # wait for it while it is still in the list
            yield waiting[0]
            waiting.popleft()
    finally:
        for _, future in waiting:
            future.cancel()


def _alone(work: Callable[[Entry], Decoded], entry: Entry) -> Decoded:
    with _processes(1) as pool:
        try:
            return pool.submit(work, entry).result()
        except BrokenProcessPool:
            return Failed(entry.name, entry.place, f"{entry.name} {_CRASHED}.")


def _processes(workers: int) -> ProcessPoolExecutor:
    # Not forked: the model's threads and the window's would be copied in the middle of what they do.
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), begin_process)


def begin_process() -> None:
    """Prepare a working process: Ctrl+C is its parent's to answer, and it does not outlive that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)
