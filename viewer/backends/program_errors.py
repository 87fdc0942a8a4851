"""What can go wrong with programs that came as files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from viewer.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


class Refused(Exception):
    """A program is not run; the text is a clause about its file."""


def stopped(name: object, picture: Tensor, error: Exception) -> InputError:
    """Return what to tell a person of a program that stopped at a picture.

    Raises
    ------
    RuntimeError
        The error itself, if memory ran out: there may be a way out of that.
    """
    reason = (str(error).strip().splitlines() or [type(error).__name__])[-1].rstrip(".")
    if "memory" in reason.lower() and isinstance(error, RuntimeError):
        raise error
    height, width = picture.shape[-2:]
    return InputError(f"{name} could not run on a picture of {height}x{width} pixels: {reason}.")
