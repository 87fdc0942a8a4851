"""Measuring on more than one machine: the same code as tasks of Ray, each actor with a model of its own."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from viewer.errors import InputError
from viewer.study.actor import Actor
from viewer.study.engines import default_batch

if TYPE_CHECKING:
    from viewer.attention.distance import Protocol
    from viewer.backends.model import Job
    from viewer.study.entries import Entry
    from viewer.study.measuring import Batch, Opening

_AHEAD = 2  # batches for each actor: one that it works on, one that waits
_POLL_SECONDS = 0.2
_ANSWER_SECONDS = 20


class RayEngine:
    """Actors of Ray, on one machine or a cluster; see `viewer.study.engines.Engine`.

    Every machine needs Patchreach, and finds models and pictures under the same paths.

    Parameters
    ----------
    opening
        The model.
    protocol
        Of the distances.
    actors
        How many; None: one for each GPU, or, where there is none, for every two processors.
    part
        Pictures in a task.
    address
        Of a running cluster; None: the variable RAY_ADDRESS, or else Ray is started on this machine.
    together
        Pictures that a model runs on at once, where it takes several; None: by what the actors run on.
    """

    def __init__(
        self,
        opening: Opening,
        protocol: Protocol,
        actors: int | None,
        part: int,
        address: str | None,
        together: int | None = None,
    ) -> None:
        self._opening, self._protocol, self._count = opening.absolute(), protocol, actors
        self._part, self._address, self._together = part, address, together
        self._ray = _import_ray()
        self._actors: list[Any] = []

    def __enter__(self) -> RayEngine:
        """Connect to the cluster, or start Ray on this machine.

        Raises
        ------
        InputError
            If there is no cluster at that address.
        """
        # What Ray warns of here is its own next version.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        address = self._address or os.environ.get("RAY_ADDRESS") or "local"
        _require_answer(address)
        try:
            self._ray.init(
                address=address,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="error",
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise InputError(f"Ray could not be reached: {error}") from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._ray.shutdown()

    def probe(self, job: Job) -> dict[str, Any]:
        """See `viewer.study.engines.Engine.probe`."""
        resources = self._ray.cluster_resources()
        processors, gpus = int(resources.get("CPU", 1)), int(resources.get("GPU", 0))
        wants_gpu = gpus > 0 and self._opening.device != "cpu"
        count = self._count or (gpus if wants_gpu else max(1, processors // 2))
        share = max(1, processors // count)
        each = {"num_cpus": share, "num_gpus": gpus / count if wants_gpu else 0}
        if count > processors:
            each["num_cpus"] = processors / count
        remote = self._ray.remote(**each)(Actor)
        together = self._together or default_batch("auto" if wants_gpu else "cpu")
        given = (self._opening, self._protocol, share, together)
        self._actors = [remote.remote(*given) for _ in range(count)]
        return self._get(
            self._actors[0].probe.remote(), job, f"Starting {count} actor{'s' if count > 1 else ''} of Ray"
        )

    def results(self, entries: Iterable[Entry], heads: tuple[int, ...], job: Job) -> Iterator[Batch]:
        """See `viewer.study.engines.Engine.results`; batches go round the actors, and come back in order."""
        source, turn = iter(entries), cycle(self._actors)
        waiting: deque[Any] = deque()
        while True:
            while len(waiting) < _AHEAD * len(self._actors):
                batch = list(islice(source, self._part))
                if not batch:
                    break
                waiting.append(next(turn).results.remote(batch, heads))
            if not waiting:
                return
            yield self._get(waiting.popleft(), job)

    def _get(self, reference: Any, job: Job, doing: str = "") -> Any:  # noqa: ANN401 - Ray's own are not typed
        """Wait for what an actor returns; a sentence is an error."""
        while not self._ray.wait([reference], timeout=_POLL_SECONDS)[0]:
            job.step(doing) if doing else job.check()
        try:
            found = self._ray.get(reference)
        except self._ray.exceptions.RayActorError as error:
            raise InputError(f"An actor of Ray ended: {_last_line(error)}") from error
        if isinstance(found, str):
            raise InputError(found)
        return found


def _require_answer(address: str) -> None:
    """See whether anything listens at HOST:PORT; Ray itself would try for minutes, and end the process."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        return  # "auto", "local", or what Ray itself is to read
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS).close()
    except OSError as error:
        raise InputError(f"Ray could not be reached: nothing answers at {address} ({error}).") from error


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else "it gave no reason"


def _import_ray() -> ModuleType:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise InputError(
            "The engine ray needs the package ray, which is not installed: "
            'pip install "patchreach[ray]" (in a checkout: pip install ".[ray]").'
        ) from error
    return ray
