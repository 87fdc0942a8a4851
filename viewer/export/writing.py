"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from viewer.errors import FileError


def check_target(path: Path) -> None:
    """Find out early whether there is a place for a file.

    Raises
    ------
    FileError
        If its folder is missing or it is a folder itself.
    """
    if not path.parent.is_dir():
        raise FileError(path, f"can't be written, since there is no folder {path.parent}")
    if path.is_dir():
        raise FileError(path, "can't be written, since it is a folder")


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file beside its place and move it there, so that a reader never meets half of it.

    Raises
    ------
    FileError
        If it can't be written; the text says why.
    """
    check_target(path)
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(content)  # a pipe or a device can't be replaced
            return
        # A link keeps pointing where it points: its target is replaced.
        target = path.resolve()
        draft = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            draft.write_bytes(content)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise FileError(path, f"can't be written ({error.strerror or error})") from error
