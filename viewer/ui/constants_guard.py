"""Keeps None, True and False alive where PySide6 drops references to them.

PySide6 6.12 is built as if these three were immortal, as they are from Python 3.12 on. In Python 3.10 and
3.11 they are counted like any other object, and each `Signal.emit`, paint event or timer takes one count too
many: after some ten thousand of them the interpreter aborts with "deallocating True or False" or
"deallocating None". A test tells when this file is not needed any more.
"""

from __future__ import annotations

import ctypes
import sys

# More than a million signals a second use up in a year, and far below the counter's end.
_PLENTY = 1 << 48


def protect_constants() -> None:
    """Give None, True and False so many references that they are never used up, where that is needed."""
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 12) or sys.maxsize < 1 << 32:
        return
    for constant in (None, True, False):
        if sys.getrefcount(constant) < _PLENTY:
            # The reference count is the first field of every object.
            ctypes.c_ssize_t.from_address(id(constant)).value += _PLENTY
