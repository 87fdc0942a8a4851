"""Colour profiles: from whatever space a picture is in to sRGB."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageCms

# Which picture modes a profile's colour space is for.
_MODES_OF_SPACE = {"RGB ": ("RGB", "RGBA"), "GRAY": ("L",), "CMYK": ("CMYK",), "Lab ": ("LAB",)}
# Browsers and image editors map this way: white stays white, black stays black.
_INTENT = ImageCms.Intent.RELATIVE_COLORIMETRIC
_FLAGS = ImageCms.Flags.BLACKPOINTCOMPENSATION


def to_srgb(picture: Image.Image, profile: bytes | None) -> tuple[Image.Image, tuple[str, ...]]:
    """Convert a picture to sRGB by its colour profile.

    Parameters
    ----------
    picture
        Of mode L, RGB, RGBA, CMYK or LAB.
    profile
        The ICC profile that came with it; None or empty where there was none.

    Returns
    -------
    picture : Image
        RGB or RGBA where a profile was used; otherwise as it was.
    notes : tuple of str
        What was done or left undone; nothing where the profile is sRGB anyway.
    """
    if not profile:
        return picture, ()
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        space = source.profile.xcolor_space
        name = (source.profile.profile_description or "unnamed").strip()
    except (OSError, ImageCms.PyCMSError):
        return picture, ("the colour profile is damaged and was ignored",)
    if picture.mode not in _MODES_OF_SPACE.get(space, ()):
        return picture, (
            f"the colour profile ({name}) is for {space.strip()} pictures, not this one, and was ignored",
        )
    wanted = "RGBA" if picture.mode == "RGBA" else "RGB"
    try:
        transform = _transform(source, picture.mode, wanted)
        if _changes_nothing(transform, picture.mode):
            return picture, ()
        converted = _of_grey(transform, picture) if picture.mode == "L" else transform.apply(picture)
    except (OSError, ValueError, ImageCms.PyCMSError):
        return picture, (f"the colour profile ({name}) can't be used and was ignored",)
    return converted, (f"colours converted from {name} to sRGB",)


def lab_to_srgb(picture: Image.Image) -> Image.Image:
    """Convert a CIELAB picture (D50) without a profile of its own to sRGB."""
    return _transform(ImageCms.createProfile("LAB"), "LAB", "RGB").apply(picture)


def _transform(source: object, mode: str, wanted: str) -> ImageCms.ImageCmsTransform:
    """Build the conversion from a profile to sRGB."""
    target = ImageCms.createProfile("sRGB")
    # The table that would speed up grey has too few steps for the dark end of a linear scale.
    flags = _FLAGS | ImageCms.Flags.NOOPTIMIZE if mode == "L" else _FLAGS
    return ImageCms.buildTransform(source, target, mode, wanted, renderingIntent=_INTENT, flags=flags)


def _of_grey(transform: ImageCms.ImageCmsTransform, picture: Image.Image) -> Image.Image:
    """Convert the 256 greys once and look them up, since exact conversion of every pixel is slow."""
    levels = transform.apply(Image.fromarray(np.arange(256, dtype=np.uint8)[None]))
    return Image.merge("RGB", [picture.point(list(level.tobytes())) for level in levels.split()])


def _changes_nothing(transform: ImageCms.ImageCmsTransform, mode: str) -> bool:
    """Tell whether a conversion moves no colour by more than rounding: the profile is sRGB already."""
    if mode not in ("RGB", "RGBA", "L"):
        return False
    steps = np.arange(0, 256, 15, dtype=np.uint8)
    if mode == "L":
        grey = np.repeat(steps[:, None], 3, axis=1)
        probe = Image.fromarray(steps[None])
        return bool(np.abs(np.asarray(transform.apply(probe))[0].astype(int) - grey).max() <= 1)
    cube = np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(1, -1, 3)
    probe = Image.fromarray(cube).convert(mode)
    after = np.asarray(transform.apply(probe))[..., :3]
    return bool(np.abs(after.astype(int) - cube).max() <= 1)
