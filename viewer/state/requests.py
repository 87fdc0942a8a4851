"""What a person asked for, frozen: which model to open, what to export."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

# Of a side of an input in pixels: more could never be run.
_DIGITS = 5

ImageSize = int | tuple[int, int] | str | None
"""Height and width in pixels, one number for a square, ``"whole"``, or None for the model's own."""

View = Literal["overlay", "heads", "scatter", "likeness", "all"]
Table = Literal["measures", "likeness"]
Ground = Literal["light", "dark", "transparent"]


@dataclass(frozen=True)
class ModelRequest:
    """A model to open; the parameters of `viewer.backends.opening.open_model`."""

    model: str
    weights: str | None = None
    image_size: ImageSize = None
    device: str = "auto"

    @property
    def title(self) -> str:
        """What a person calls it: the file's name, or the model's."""
        name = Path(self.model).name or self.model
        return f"{name} with {Path(self.weights).name}" if self.weights else name


@dataclass(frozen=True)
class FigureRequest:
    """A figure to make.

    Attributes
    ----------
    view
        Which of the views.
    path
        Where to; its suffix is the format. None puts a picture on the clipboard.
    scale
        Pixels of a PNG for each pixel at 96 dots per inch, 1 to 4.
    title
        Whether the title line is drawn.
    ground
        What is behind the figure.
    """

    view: View = "overlay"
    path: Path | None = None
    scale: int = 2
    title: bool = True
    ground: Ground = "light"


@dataclass(frozen=True)
class SlideRequest:
    """A step of the lesson to draw as a slide.

    Attributes
    ----------
    step
        Number of the step, from 0.
    path, scale, ground
        As of a `FigureRequest`; at scale 1 a slide has 1280 x 720 pixels.
    """

    step: int
    path: Path
    scale: int = 2
    ground: Ground = "light"


@dataclass(frozen=True)
class TableRequest:
    """A table to write, of measures or of the likeness of layers; the suffix of `path` is the format."""

    path: Path = field(default_factory=Path)
    what: Table = "measures"


def size_text(size: ImageSize) -> str:
    """Write an input size as a person types it: "224x320", "whole", or nothing for the model's own."""
    if size is None:
        return ""
    if isinstance(size, tuple):
        return f"{size[0]}x{size[1]}"
    return str(size)


def parse_size(text: str) -> ImageSize:
    """Read an input size: ``"518"``, ``"224x320"`` (height first), ``"whole"``, or nothing.

    Raises
    ------
    ValueError
        If it is none of these; the message says what is taken.
    """
    text = text.strip().lower()
    if not text:
        return None
    if text == "whole":
        return "whole"
    found = re.fullmatch(r"([0-9]+)(?:\s*[x×]\s*([0-9]+))?", text)
    shown = text if len(text) <= 40 else f"{text[:40]}…"
    if found is not None and any(len(side.lstrip("0")) > _DIGITS for side in found.groups() if side):
        raise ValueError(
            f"{shown!r} is too large an input; its sides can have {'9' * _DIGITS} pixels at most."
        )
    if found is None or not all(int(side) for side in found.groups() if side):
        raise ValueError(f"{shown!r} is no input size; write 518, 224x320 (height first) or whole.")
    height = int(found[1])
    return (height, int(found[2])) if found[2] else height
