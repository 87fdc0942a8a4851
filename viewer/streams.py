"""Standard output and standard error as programs meet them: closed, full, or read by nobody any more."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from viewer.errors import ExportError


def prepare() -> None:
    """Make both safe to write to in any encoding, and stand in for what is closed.

    Python has None for a closed stream. Its number would go to the next file that is opened, and what a
    library prints would end up in there; so it is taken. What is said to a closed stderr is lost.
    """
    if sys.stdout is None or sys.stderr is None:
        while os.open(os.devnull, os.O_RDWR) < 2:
            pass
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - open as long as the program runs
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # Names in any script get through to a terminal of any encoding.
            stream.reconfigure(errors="backslashreplace")


def write(content: str | bytes) -> None:
    """Write results to standard output.

    Raises
    ------
    ExportError
        If it is closed or full.
    BrokenPipeError
        If nobody reads it any more.
    """
    if sys.stdout is None:
        raise ExportError("The results can't be written: the standard output is closed.")
    try:
        if isinstance(content, bytes):
            sys.stdout.buffer.write(content)
        else:
            sys.stdout.write(content)
    except OSError as error:
        raise _unwritable(error) from error
    flush()


def flush() -> None:
    """Send off what has been written to standard output.

    Raises
    ------
    ExportError, BrokenPipeError
        As `write` does.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        raise _unwritable(error) from error


def settle_errors() -> None:
    """Send off what was said on standard error; where it is full, let the rest go, not the exit code."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:
        abandon(sys.stderr)


def abandon(stream: TextIO) -> None:
    """Let what is left in a stream go nowhere: Python would fail over it once more while shutting down."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _unwritable(error: OSError) -> Exception:
    abandon(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return error
    return ExportError(f"The results can't be written to the standard output ({error.strerror or error}).")
