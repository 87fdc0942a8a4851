"""Hashing the files that a model was made of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from viewer.backends.model import Job

_CHUNK = 1 << 22


def sha256_of(files: Iterable[Path], job: Job) -> str:
    """Return the SHA-256 of a file, or of several one after another, as 64 hexadecimal digits.

    Parameters
    ----------
    files
        They are read piece by piece.
    job
        Told of progress; cancels.
    """
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                job.step(f"Reading {file.name}", None)
    return digest.hexdigest()
