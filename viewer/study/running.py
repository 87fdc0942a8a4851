"""Running a study: what is left to do, results committed part by part, and how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from viewer.backends.model import Job
from viewer.errors import FileError, StudyError
from viewer.study.decoding import Failed
from viewer.study.settings import Settings
from viewer.study.sources import Source
from viewer.study.statistics import Moments, moments
from viewer.study.store import Store, require_new
from viewer.study.summary import Summary

if TYPE_CHECKING:
    from viewer.attention.distance import Protocol
    from viewer.attention.position_share import PositionShare
    from viewer.study.engines import Engine
    from viewer.study.measuring import Batch, Measured, Opening

PART = 32
"""Pictures committed together unless told otherwise; what a killed process has to do again, at most."""

_LONGEST = 20.0  # seconds after which a part is committed, however few pictures it has


@dataclass(frozen=True)
class Plan:
    """What is to be studied.

    Attributes
    ----------
    source
        Where the pictures are.
    opening
        The model.
    protocol
        Of the distances.
    output
        Folder of the study.
    resume
        Whether the study is there already and goes on.
    part
        Most pictures in a part, but for those that a model runs on at once.
    """

    source: Source
    opening: Opening
    protocol: Protocol
    output: Path
    resume: bool = False
    part: int = PART


class Advance(NamedTuple):
    """How far a study is: pictures done and failed, of how many (None: not known), and pictures a second."""

    done: int
    failed: int
    total: int | None
    rate: float

    def __str__(self) -> str:
        """Say it in one line."""
        of = "" if self.total is None else f" of {self.total}"
        said = [f"{self.done + self.failed}{of} pictures"]
        if self.failed:
            said.append(f"{self.failed} failed")
        if self.rate:
            said.append(f"{self.rate:.3g} a second")
            if self.total is not None:
                said.append(f"{duration((self.total - self.done - self.failed) / self.rate)} left")
        return ", ".join(said)

    @property
    def share(self) -> float | None:
        """Share done, 0 to 1."""
        return None if not self.total else min(1.0, (self.done + self.failed) / self.total)


def duration(seconds: float) -> str:
    """Write a time the way a person reads it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def begin(plan: Plan, engine: Engine, job: Job) -> Store:
    """Check everything, open the model, and make or open the study's folder.

    Raises
    ------
    FileError
        If there are no pictures, the folder is taken, or the study was begun with other settings.
    PatchreachError
        If the model can't be opened or studied.
    """
    plan.source.check()
    job.step("Looking for pictures")
    before = Store.at(plan.output) if plan.resume else None
    if before is None:
        require_new(plan.output)
    if next(plan.source.entries(), None) is None:
        raise FileError(plan.source.path, "holds no pictures")
    settings = Settings.of(plan.source.absolute().path, plan.opening, plan.protocol, engine.probe(job))
    if before is None:
        return Store.create(plan.output, settings)
    different = before.settings.differences(settings)
    if different:
        raise StudyError(
            plan.output,
            f"was begun otherwise: {'; '.join(different)}",
            "Give the same settings again, or another folder with -o.",
            "Put back what has changed and press “Go on” again, or study the pictures anew in a new folder.",
        )
    return before


def run(
    store: Store,
    plan: Plan,
    engine: Engine,
    job: Job,
    failing: Callable[[Failed], None] = lambda _: None,
    watching: Callable[[Summary], None] | None = None,
) -> Advance:
    """Measure what is left to do, and commit it; whatever stops this, what was measured is committed.

    Parameters
    ----------
    store
        As `begin` gave it, entered.
    plan, engine
        As given there.
    job
        Told of progress; cancels.
    failing
        Told of each picture that fails.
    watching
        Given the means and spreads so far, at the beginning and after each part.

    Raises
    ------
    Cancelled
        If the job was cancelled.
    FileError
        If the folder can't be written.
    """
    job.step("Counting the pictures")
    total = plan.source.count()
    live = None if watching is None else _Live(store, watching)
    work = _Work(store, plan.part, job, failing, live, total, *store.counts(), store.position())
    done = store.done()
    job.step(f"Studying: {work.advance}", work.advance.share)
    left = (entry for entry in plan.source.entries() if not done.has(entry.name, entry.place))
    try:
        with closing(engine.results(left, store.settings.heads, job)) as results:
            for batch in results:
                work.take(batch)
    finally:
        work.commit()
    return work.advance


class _Live:
    """Moments of all that is committed, told after each part."""

    def __init__(self, store: Store, watching: Callable[[Summary], None]) -> None:
        self._settings, self._watching = store.settings, watching
        self._moments = moments(store.blocks(), len(store.settings.layer_of), len(store.settings.measures))
        _, failed = store.counts()
        self._tell(failed)

    def add(self, measured: list[Measured], failed: int) -> None:
        """Add a part; `failed` pictures are left out by now."""
        self._moments = self._moments.merged(Moments.of(np.stack([one.values for one in measured])))
        self._tell(failed)

    def _tell(self, failed: int) -> None:
        self._watching(Summary.of(self._settings, self._moments, None, failed))


@dataclass
class _Work:
    """Pictures that are done but not yet committed, and how far the study is."""

    store: Store
    part: int
    job: Job
    failing: Callable[[Failed], None]
    live: _Live | None
    total: int | None
    done: int
    failed: int
    position: PositionShare | None
    measured: list[Measured] = field(default_factory=list)
    broken: list[Failed] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    committed: float = field(default_factory=time.monotonic)
    now: int = 0

    @property
    def advance(self) -> Advance:
        """How far it is."""
        rate = self.now / max(time.monotonic() - self.began, 1e-9)
        return Advance(self.done, self.failed, self.total, rate)

    def take(self, batch: Batch) -> None:
        """Keep results, commit if it is time, and tell."""
        for result in batch.results:
            if isinstance(result, Failed):
                self.broken.append(result)
                self.failing(result)
            else:
                self.measured.append(result)
        self.now += len(batch.results)
        broken = sum(isinstance(result, Failed) for result in batch.results)
        self.failed, self.done = self.failed + broken, self.done + len(batch.results) - broken
        if self.position is None:
            self.position = batch.position
        elif batch.position is not None:
            self.position.merge(batch.position)
        full = len(self.measured) + len(self.broken) >= self.part
        if full or time.monotonic() - self.committed > _LONGEST:
            self.commit()
        self.job.step(f"Studying: {self.advance}", self.advance.share)

    def commit(self) -> None:
        """Commit what is done."""
        if self.measured or self.broken:
            self.store.commit(self.measured, self.broken, self.position)
        if self.measured and self.live is not None:
            self.live.add(self.measured, self.failed)
        self.measured, self.broken, self.committed = [], [], time.monotonic()
