"""Finding again what a figure was made from: figures name files without saying where they lay."""

from __future__ import annotations

import hashlib
import os.path
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from viewer.images.sources import MODEL_SUFFIXES

if TYPE_CHECKING:
    from viewer.export.restore import Restored
    from viewer.state.requests import ModelRequest

_CHUNK = 1 << 22


@dataclass(frozen=True)
class Found:
    """What of a figure's sources is still there.

    Attributes
    ----------
    shown
        What the figure asks for.
    model
        Ready to be opened; None if its file is gone.
    image
        None if it is gone.
    missing
        A sentence for each that is gone: where it was looked for, and what to do.
    """

    shown: Restored
    model: ModelRequest | None
    image: Path | None
    missing: tuple[str, ...]


def look_for(shown: Restored, images: Iterable[Path], models: Iterable[Path]) -> Found:
    """Look for picture and model in the figure's folder, then among the files that are known.

    A file counts only if its name and its SHA-256 (where the figure has it) are those of the figure.

    Parameters
    ----------
    shown
        What the figure asks for.
    images, models
        Files to look at: open now or opened lately.
    """
    missing = []
    image = _find(shown.image, shown.image_sha256, shown.folder, images)
    if image is None:
        missing.append(_sentence(shown.image, "picture", "pictures", shown.folder))
    request: ModelRequest | None = shown.model
    file = request.weights or request.model
    path = _find(file, shown.model_sha256, shown.folder, models)
    # A folder of transformers is called like any model that is opened by name.
    if path is not None or request.weights or Path(file).suffix.lower() in MODEL_SUFFIXES:
        if path is None:
            what = ("checkpoint", "checkpoints") if request.weights else ("model", "models")
            missing.append(_sentence(file, *what, shown.folder))
            request = None
        else:
            request = replace(request, **{"weights" if request.weights else "model": str(path)})
    return Found(shown, request, image, tuple(missing))


def _find(name: str, sha256: str, folder: Path, known: Iterable[Path]) -> Path | None:
    bare = Path(name).name
    if not bare:
        return None
    candidates = dict.fromkeys([folder / bare, *(path for path in known if path.name == bare)])
    # Not pathlib's `is_file`, which raises for a name that is too long: what a figure names may be anything.
    return next((path for path in candidates if _is(path, sha256)), None)


def _is(path: Path, sha256: str) -> bool:
    """Return whether a file, or a folder's weights, exist and are the very ones."""
    if os.path.isfile(path):  # noqa: PTH113
        files = [path]
    else:
        files = sorted(path.glob("model*.safetensors")) if os.path.isdir(path) else []  # noqa: PTH112
    if not files or not sha256:
        return bool(files)
    found = hashlib.sha256()
    try:
        for part in files:
            with part.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    found.update(chunk)
    except OSError:
        return False
    return found.hexdigest() == sha256


def _sentence(name: str, kind: str, kinds: str, folder: Path) -> str:
    if not name:
        return f"The figure shows a {kind} that had no file, so it can't be opened again."
    return (
        f"The figure's {kind} {Path(name).name} was not found, neither in the figure's folder {folder} "
        f"nor among the {kinds} open now or opened lately. Put it into that folder (the very same file) and "
        "open the figure again."
    )
