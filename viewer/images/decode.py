"""Picture files and bytes to 8-bit RGB, upright, in sRGB."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class DecodedImage:
    """A picture ready for preprocessing.

    Attributes
    ----------
    pixels
        uint8 (H, W, 3), sRGB, upright.
    name
        What a person calls it: the file's name, "pasted image", ...
    path
        The file it came from; None for bytes and arrays.
    sha256
        Of the file's bytes; of the pixels where there was no file.
    notes
        Sentences about what was changed on the way: "first of 12 frames", "transparency put over white".
    """

    pixels: npt.NDArray[np.uint8]
    name: str
    path: Path | None
    sha256: str
    notes: tuple[str, ...] = ()


def open_image(source: str | Path | bytes | npt.NDArray[np.uint8], name: str = "") -> DecodedImage:
    """Decode a picture.

    Parameters
    ----------
    source
        A path, the bytes of a picture file, or a uint8 (H, W, 3) array.
    name
        What to call it; by default the file's name.

    Raises
    ------
    ImageError
        If it is missing, empty, cut off, too large, or no picture; the text says what it really is.
    """
    raise NotImplementedError
