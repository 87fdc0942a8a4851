"""The pictures that come with the program; `resources/images/LICENSES.md` credits them in full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from viewer.shipped import resource

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Sample:
    """A shipped picture.

    Attributes
    ----------
    name
        Short name, also the file's name without its ending.
    shows
        What is on it.
    credit
        Who made it and on what terms it is given.
    """

    name: str
    shows: str
    credit: str

    @property
    def path(self) -> Path:
        """Where the file lies."""
        return resource("images", f"{self.name}.jpg")


SAMPLES = (
    Sample("cat", "Chelsea the cat", "Stefan van der Walt, CC0"),
    Sample("astronaut", "Eileen Collins, NASA astronaut", "NASA, public domain"),
    Sample("coffee", "a cup of coffee on a wooden table", "Rachel Michetti, CC0"),
    Sample("rocket", "launch of a Falcon 9 rocket", "SpaceX, public domain"),
)
"""The first is what `--sample` shows."""
