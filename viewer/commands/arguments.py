"""What may stand behind an option of the command line: each function reads one kind of text.

They raise `argparse.ArgumentTypeError` with a sentence on what was typed.
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING

from viewer.errors import quoted

if TYPE_CHECKING:
    from viewer.backends.what_if import Change
    from viewer.state.requests import ImageSize
    from viewer.state.selection import Query


def name(text: str) -> str:
    """Return a name that is not empty."""
    if not text:
        raise ArgumentTypeError("it is empty, and names nothing")
    return text


def size(text: str) -> ImageSize:
    """Return an input size: (height, width), one number or "whole"."""
    from viewer.state.requests import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def colormap(text: str) -> str:
    """Return the name of a known colour map."""
    from viewer.state.colormaps import COLORMAPS

    if text not in COLORMAPS:
        raise ArgumentTypeError(f"{quoted(text)} is not one of {', '.join(COLORMAPS)}")
    return text


def count(text: str) -> int:
    """Return a whole number from 0 to 999999."""
    if not re.fullmatch("[0-9]{1,6}", text):
        raise ArgumentTypeError(f"{quoted(text)} is no number from 0 to 999999")
    return int(text)


def positive(text: str) -> int:
    """Return a whole number from 1 to 999999."""
    if re.fullmatch("0+", text):
        raise ArgumentTypeError("it must be 1 at least")
    return count(text)


def what_if(text: str) -> Change:
    """Return a change of the model."""
    from viewer.backends.what_if import parse

    try:
        return parse(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def head(text: str) -> int | str:
    """Return a number of a head, or a fusion."""
    return text if text in ("mean", "max", "min") else count(text)


def share(text: str) -> float:
    """Return a number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f"{quoted(text)} is no number from 0 to 1")
    return value


def y_measure(text: str) -> str:
    """Return the name of a measure of heads."""
    from viewer.state.axes import choices, is_known

    if not is_known(text):
        names = ", ".join(name for name, _ in choices())
        raise ArgumentTypeError(f"{quoted(text)} is no measure; there are {names}")
    return text


def x_measure(text: str) -> str:
    """Return the name of a measure of heads, or "layer"."""
    return text if text == "layer" else y_measure(text)


def query(text: str) -> Query:
    """Return a patch or the name of a prefix token."""
    found = re.fullmatch(r"\s*\(?\s*([0-9]{1,6})\s*,\s*([0-9]{1,6})\s*\)?\s*", text)
    if found:
        return int(found[1]), int(found[2])
    if re.fullmatch(r"[A-Za-z]\w*", text):
        return text
    raise ArgumentTypeError(
        f"{quoted(text)} is no query; write ROW,COLUMN, or a prefix token's name such as cls"
    )
