"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from viewer.errors import FileError


def check_target(path: Path, sources: Iterable[str | Path | None] = ()) -> None:
    """Find out early whether there is a place for a file.

    Parameters
    ----------
    path
        Where the file is to be written.
    sources
        What it is made from; files among these are never overwritten, whatever name leads to them.

    Raises
    ------
    FileError
        If its folder is missing, if it is a folder or one of the sources, or if no file can have its name.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass  # a new file, or no such folder, which is said below
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise _unwritable(path, error) from error
    if not path.parent.is_dir():
        raise FileError(path, f"can't be written, since there is no folder {path.parent}")
    if path.is_dir():
        raise FileError(path, "can't be written, since it is a folder")
    for source in sources:
        if source and _same(path, source):
            raise FileError(path, "can't be written, since it is made from that very file", "Name another.")


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
        # A name of its own: the target's may be as long as names can be.
        draft = target.with_name(f".{secrets.token_hex(8)}.part")
        try:
            draft.write_bytes(content)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error


def _same(path: Path, source: str | Path) -> bool:
    try:
        return os.path.samefile(path, source)  # noqa: PTH121 - a source may be a name that is no path at all
    except (OSError, ValueError):
        return False


def _unwritable(path: Path, error: Exception) -> FileError:
    return FileError(path, f"can't be written ({getattr(error, 'strerror', None) or error})")
