"""One process at a time works on a study; the system lets go by itself when that process ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from viewer.errors import FileError
from viewer.study.names import LOCK


def hold(folder: Path) -> int | None:
    """Take hold of a study's folder; closing the descriptor that is returned lets go.

    Returns
    -------
    int or None
        None where the file system knows no locks, as some of networks.

    Raises
    ------
    FileError
        If another process holds it.
    """
    held = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(held, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        os.close(held)
        raise FileError(folder, "is being worked on by another process") from error
    except OSError:
        os.close(held)
        return None
    return held
