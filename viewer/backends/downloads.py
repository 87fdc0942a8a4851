"""Fetching pretrained weights, with progress, and giving up soon where there is no network."""

from __future__ import annotations

import inspect
import io
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.request import Request, urlopen

from viewer.errors import Cancelled, OfflineError

if TYPE_CHECKING:
    from viewer.backends.model import Job

_FILES = ("model.safetensors", "pytorch_model.bin")
# How long a hub may take to say that it is there, in seconds, and how often cancelling is looked at.
_PATIENCE = 6.0
_POLL = 0.1

Result = TypeVar("Result")


def fetch(name: str, repository: str, filename: str | None, job: Job) -> Path:
    """Return the weight file of a model on the Hugging Face hub, downloaded if it is not in the cache.

    Parameters
    ----------
    name
        The model, for texts.
    repository
        Such as "timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k", perhaps with "@revision".
    filename
        The file; None looks for the usual ones.
    job
        Told of progress; cancels.

    Raises
    ------
    OfflineError
        If it is not in the cache and can't be downloaded.
    Cancelled
        If the job was.
    """
    from huggingface_hub import try_to_load_from_cache

    repository, _, revision = repository.partition("@")
    files = (filename,) if filename else _FILES
    for file in files:
        cached = try_to_load_from_cache(repository, file, revision=revision or None)
        if isinstance(cached, str):
            return Path(cached)
    for file in files:
        found = _download(name, repository, file, revision or None, job)
        if found is not None:
            return found
    raise OfflineError(f"The hub has no weights of {name} under {repository}.", ways_out(name))


def fetch_files(
    name: str, repository: str, files: Sequence[str], job: Job, required: bool = True
) -> tuple[Path, ...]:
    """Return files of a repository on the Hugging Face hub, downloaded if they are not in the cache.

    Parameters
    ----------
    name, repository, job
        As for `fetch`.
    files
        Their names in the repository.
    required
        Whether each has to be there; those that are not are left out otherwise.

    Raises
    ------
    OfflineError, Cancelled
        As `fetch`.
    """
    from huggingface_hub import try_to_load_from_cache

    repository, _, revision = repository.partition("@")
    found = []
    for file in files:
        cached = try_to_load_from_cache(repository, file, revision=revision or None)
        try:
            path = (
                Path(cached)
                if isinstance(cached, str)
                else _download(name, repository, file, revision or None, job)
            )
        except OfflineError:
            if required:
                raise
            continue  # what is in the cache may do without it
        if path is not None:
            found.append(path)
        elif required:
            raise OfflineError(f"The hub has no {file} of {name} under {repository}.")
    return tuple(found)


def fetch_url(name: str, url: str, job: Job) -> Path:
    """Return a weight file that a library publishes under an address, downloaded if it is not here yet.

    It lies where `torch.hub` keeps such files. Its name carries the start of its SHA-256 (``-c867db91.pth``),
    which is checked.

    Raises
    ------
    OfflineError
        If it is not here and can't be downloaded.
    Cancelled
        If the job was.
    """
    from torch import hub

    folder, file = Path(hub.get_dir()) / "checkpoints", url.rpartition("/")[2]
    path, doing = folder / file, f"Downloading {name}"
    if path.is_file():
        return path
    found = hub.HASH_REGEX.search(file)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = Request(url, method="HEAD")
        _aside(lambda: urlopen(probe, timeout=_PATIENCE).close(), lambda: job.step(doing, None), _PATIENCE)
        _aside(
            lambda: hub.download_url_to_file(url, str(path), found and found[1], progress=False),
            lambda: job.step(doing, None),
            None,
        )
    except Cancelled:
        raise
    except Exception as error:  # as above; and a file whose hash is another
        raise OfflineError(f"{name} could not be downloaded: {_reason(error)}.", ways_out(name)) from error
    return path


def ways_out(name: str) -> str:
    """Say what can be opened without a network, in place of a model that attends."""
    if name.startswith("hf:"):
        return (
            "Two ways out: give a folder on this computer that holds its config.json and model.safetensors "
            "(--model FOLDER), or open the sample model (--model sample)."
        )
    return (
        f"Two ways out: join it with a checkpoint on this computer (--model {name} --weights FILE), "
        "or open the sample model (--model sample)."
    )


def _download(name: str, repository: str, file: str, revision: str | None, job: Job) -> Path | None:
    """Download one file; None if the repository has no such file."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.errors import EntryNotFoundError

    url = hf_hub_url(repository, file, revision=revision)
    doing = f"Downloading {name}"
    job.step(doing, 0.0)
    try:
        _aside(lambda: get_hf_file_metadata(url, timeout=_PATIENCE), lambda: job.step(doing, 0.0), _PATIENCE)
        bar = _progress_bar()
        # Releases of the client before 1.0 take no bar: then the share done stays unknown.
        watched = "tqdm_class" in inspect.signature(hf_hub_download).parameters
        options = {"tqdm_class": bar} if watched else {}
        path = _aside(
            lambda: hf_hub_download(repository, file, revision=revision, **options),
            lambda: job.step(doing, bar.share),
            None,
            bar.stop.set,
        )
    except EntryNotFoundError:
        return None
    except Cancelled:
        raise
    except Exception as error:  # the HTTP library's errors share no base that is ours to import
        raise OfflineError(f"{name} could not be downloaded: {_reason(error)}.", ways_out(name)) from error
    return Path(path)


# Classes of the HTTP library, of its predecessor and of the hub's client, by name: see above.
_NO_NETWORK = (
    *("Connect", "Timeout", "LocalEntryNotFound", "OfflineMode", "NetworkError", "ProxyError", "URLError"),
)


def _reason(error: Exception) -> str:
    kinds = " ".join(kind.__name__ for kind in type(error).__mro__)
    if any(name in kinds for name in _NO_NETWORK):
        return "there is no network connection to the model hub"
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")


def _aside(
    work: Callable[[], Result],
    step: Callable[[], None],
    patience: float | None,
    abandon: Callable[[], object] = lambda: None,
) -> Result:
    """Do work in another thread, so that cancelling need not wait for the network.

    Parameters
    ----------
    work
        May take long.
    step
        Called again and again while it does; may raise.
    patience
        Seconds after which `TimeoutError` is raised; None waits on.
    abandon
        Called when nobody waits any more.
    """
    outcome: list[Result] = []
    failure: list[Exception] = []

    def run() -> None:
        try:
            outcome.append(work())
        except Exception as error:
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True, name="download")
    thread.start()
    waited = 0.0
    while thread.is_alive():
        thread.join(_POLL)
        waited += _POLL
        try:
            step()
            if patience is not None and waited > patience and thread.is_alive():
                raise TimeoutError(f"no answer within {patience:g} seconds")
        except BaseException:
            abandon()
            raise
    if failure:
        raise failure[0]
    return outcome[0]


def _progress_bar() -> type:
    """Return a bar class for one download that notes its share, paints nothing, and can stop it."""
    from tqdm import tqdm

    class Bar(tqdm):
        share: float | None = 0.0
        stop = threading.Event()

        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **{**kwargs, "file": io.StringIO()})

        def update(self, n: float | None = 1) -> bool | None:
            """Count bytes."""
            if type(self).stop.is_set():
                raise Cancelled
            shown = super().update(n)
            type(self).share = self.n / self.total if self.total else None
            return shown

    return Bar
