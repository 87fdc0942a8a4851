"""``patchreach study``: every measure of every head over many pictures."""

from __future__ import annotations

from argparse import Namespace
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from viewer import streams
from viewer.commands.console import Notes, long_job, say
from viewer.errors import Cancelled, InputError
from viewer.export.study_results import write_results
from viewer.study.engines import LocalEngine, default_batch, default_models, default_workers
from viewer.study.measuring import Opening
from viewer.study.models_engine import ModelsEngine
from viewer.study.names import REPORT
from viewer.study.plot import pictures
from viewer.study.running import Plan, begin
from viewer.study.running import run as run_study
from viewer.study.sources import Source

if TYPE_CHECKING:
    from viewer.backends.model import Job
    from viewer.study.decoding import Failed
    from viewer.study.engines import Engine
    from viewer.study.store import Store


def run(options: Namespace) -> int:
    """Study the pictures; those that fail are named on stderr.

    Returns
    -------
    int
        0 if all were studied, 1 if some, 2 if none.

    Raises
    ------
    PatchreachError
        If nothing can be done at all: no such model, no pictures, a folder that is taken.
    Cancelled
        If it was stopped; what was measured is kept.
    """
    plan = _plan(options)
    with _engine(options, plan) as engine, long_job() as job:
        store = begin(plan, engine, job)
        Notes().say(store.settings.facts["notes"])
        with store:
            return _run(store, plan, engine, job)


def _plan(options: Namespace) -> Plan:
    opening = Opening(options.model, options.weights, options.image_size, options.device).absolute()
    source = Source(options.source).absolute()
    return Plan(source, opening, options.protocol, options.output, options.resume, options.part)


def _engine(options: Namespace, plan: Plan) -> AbstractContextManager[Engine]:
    if options.engine == "local":
        if options.ray_address:
            raise InputError("--ray-address names a cluster of Ray: give --engine ray with it.")
        models = options.models or default_models(plan.opening.device)
        workers = options.workers or default_workers()
        batch = options.batch or default_batch(plan.opening.device)
        if models > 1:
            return ModelsEngine(plan.opening, plan.protocol, models, workers, plan.part, batch)
        return nullcontext(LocalEngine(plan.opening, plan.protocol, workers, batch))
    from viewer.study.ray_engine import RayEngine

    more = (options.workers, plan.part, options.ray_address, options.batch)
    return RayEngine(plan.opening, plan.protocol, *more)


def _run(store: Store, plan: Plan, engine: Engine, job: Job) -> int:
    for failed in store.failed():
        say(f"left out before: {_failure(failed)}")
    try:
        advance = run_study(store, plan, engine, job, _say_failed)
    except (Cancelled, KeyboardInterrupt):
        done, failed = store.counts()
        say(f"stopped after {pictures(done + failed)}; the same command with --resume goes on from there")
        raise
    if not advance.done:
        store.discard()
        say(f"not one of {pictures(advance.failed)} could be studied, so {plan.output} is not kept")
        return 2
    job.step("Computing the statistics")
    write_results(store, Path(plan.source.path).name)
    streams.write(f"{plan.output / REPORT}\n")
    return 1 if advance.failed else 0


def _say_failed(failed: Failed) -> None:
    say(_failure(failed))


def _failure(failed: Failed) -> str:
    name, reason = failed.name, failed.reason
    return reason if name in reason else f"{name}: {reason}"
