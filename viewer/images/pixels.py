"""From any kind of pixel that a file can hold to 8-bit RGB, and what was done to get there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image

from viewer.images.colour import lab_to_srgb, to_srgb

# Depths that sensors and file formats have: the smallest that holds the brightest value sets the scale.
_DEPTHS = (8, 10, 12, 14, 16)
_STRIP_PIXELS = 1_000_000


def to_rgb(picture: Image.Image, profile: bytes | None) -> tuple[npt.NDArray[np.uint8], tuple[str, ...]]:
    """Return a loaded picture as uint8 (H, W, 3) sRGB over white, and notes on what was changed.

    Parameters
    ----------
    picture
        Of any mode Pillow knows, loaded, upright.
    profile
        Its ICC profile, or None.
    """
    notes: tuple[str, ...] = ()
    if picture.mode.startswith(("I", "F")):
        picture, notes = _scaled_grey(picture)
        if profile:
            notes += ("the colour profile is not used with values that had to be scaled",)
        profile = None
    picture, alpha = _apart(picture)
    picture, colour_notes = to_srgb(picture, profile)
    notes += colour_notes
    if picture.mode == "CMYK":
        notes += ("CMYK inks turned to RGB by the plain rule, without a colour profile",)
        picture = picture.convert("RGB")
    elif picture.mode == "LAB":
        notes += ("colours converted from CIELAB to sRGB",)
        picture = lab_to_srgb(picture)
    if picture.mode != "RGB":
        picture = picture.convert("RGB")
    if alpha is not None and alpha.getextrema() != (255, 255):
        white = Image.new("RGB", picture.size, "white")
        white.paste(picture, mask=alpha)
        picture = white
        notes += ("transparency put over white",)
    return _array(picture), notes


def _array(picture: Image.Image) -> npt.NDArray[np.uint8]:
    """Copy an RGB picture into an array by strips; Pillow's own way holds two more copies meanwhile."""
    pixels = np.empty((picture.height, picture.width, 3), np.uint8)
    rows = max(1, _STRIP_PIXELS // picture.width)
    for top in range(0, picture.height, rows):
        bottom = min(top + rows, picture.height)
        pixels[top:bottom] = np.asarray(picture.crop((0, top, picture.width, bottom)))
    return pixels


def _apart(picture: Image.Image) -> tuple[Image.Image, Image.Image | None]:
    """Return the colours in mode L, RGB, CMYK or LAB, and the opacity in mode L or None if there is none."""
    if picture.mode in ("RGBa", "La"):  # colours multiplied by their opacity
        picture = picture.convert(picture.mode[:-1] + "A")
    if picture.mode in ("1", "L") and "transparency" in picture.info:
        picture = picture.convert("LA")
    elif picture.mode in ("PA", "RGB", "P") and ("transparency" in picture.info or picture.mode == "PA"):
        picture = picture.convert("RGBA")
    if picture.mode in ("RGBA", "LA"):
        return picture.convert(picture.mode[:-1]), picture.getchannel("A")
    if picture.mode == "1":
        return picture.convert("L"), None
    return (picture if picture.mode in ("L", "RGB", "CMYK", "LAB") else picture.convert("RGB")), None


def _scaled_grey(picture: Image.Image) -> tuple[Image.Image, tuple[str, ...]]:
    """Bring 16-bit, 32-bit and floating-point grey to mode L.

    Unsigned values keep 0 as black, and the largest number of the smallest usual depth (8, 10, 12, 14 or 16
    bits) that holds the brightest becomes white; floating-point values from 0 to 1 keep those ends; anything
    else is stretched from its smallest value to its largest.
    """
    values = np.array(picture)  # numpy reads big-endian modes as they are
    finite = np.isfinite(values)
    notes: tuple[str, ...] = ()
    if not finite.all():
        least = values[finite].min() if finite.any() else 0
        values = np.where(finite, values, least)
        notes = ("values that are no finite number shown as the darkest",)
    low, high = float(values.min()), float(values.max())
    if values.dtype.kind == "f" and low >= 0 and high <= 1:
        black, white = 0.0, 1.0
    elif values.dtype.kind != "f" and low >= 0 and high < 2 ** _DEPTHS[-1]:
        black, white = 0.0, next(2.0**bits - 1 for bits in _DEPTHS if high < 2**bits)
    else:
        black, white = low, high
    scale = 255 / (white - black) if white > black else 0.0
    if not np.isfinite(scale):
        scale = 0.0
    # In single precision at most: the picture may be large.
    grey = (values.astype(np.float32) - np.float32(black)) * np.float32(scale)
    notes += (f"grey values scaled so that {black:g} is black and {white:g} is white",)
    return Image.fromarray(np.rint(np.clip(grey, 0, 255)).astype(np.uint8)), notes
