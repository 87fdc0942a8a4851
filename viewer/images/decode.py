"""Picture files and bytes to 8-bit RGB, upright, in sRGB."""

from __future__ import annotations

import hashlib
import io
import stat
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageOps

from viewer.errors import ImageError
from viewer.images import signatures
from viewer.images.pixels import to_rgb
from viewer.images.warned import heard

if TYPE_CHECKING:
    import numpy.typing as npt

MAX_PIXELS = 178_000_000
"""Larger pictures are refused before they are decoded: at this size decoding takes about 1.3 GB."""

# Called directly, because `Image.open` warns at half of that, which only a program-wide setting could move.
_OPENERS = {
    signatures.JPEG: ("PIL.JpegImagePlugin", "jpeg_factory"),
    signatures.PNG: ("PIL.PngImagePlugin", "PngImageFile"),
    signatures.WEBP: ("PIL.WebPImagePlugin", "WebPImageFile"),
    signatures.AVIF: ("PIL.AvifImagePlugin", "AvifImageFile"),
    signatures.HEIC: ("pillow_heif", "HeifImageFile"),
    signatures.TIFF: ("PIL.TiffImagePlugin", "TiffImageFile"),
    signatures.GIF: ("PIL.GifImagePlugin", "GifImageFile"),
    signatures.BMP: ("PIL.BmpImagePlugin", "BmpImageFile"),
}
_READABLE = "JPEG, PNG, WebP, AVIF, HEIC, TIFF, GIF or BMP"
# How the decoders say that a file ends too early.
_CUT_OFF = ("truncated", "Truncated", "end of file", "outside of file bounds")
_MOST_WARNINGS = 3
_FETCH_AGAIN = "Copy or download it again."


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

    def __repr__(self) -> str:
        height, width = self.pixels.shape[:2]
        return f"<DecodedImage: {self.name}, {height} x {width} px>"


def open_image(source: str | Path | bytes | npt.NDArray[np.uint8], name: str = "") -> DecodedImage:
    """Decode a picture; safe to call from any thread.

    Parameters
    ----------
    source
        A path, the bytes of a picture file, or a uint8 array: (H, W, 3), grey (H, W), or with opacity
        (H, W, 4).
    name
        What to call it; by default the file's name.

    Returns
    -------
    DecodedImage
        At full size, every pixel decoded; `notes` say what was converted or left out.

    Raises
    ------
    ImageError
        If it is missing, empty, cut off, too large, or no picture; the text says what it really is.
    """
    if isinstance(source, np.ndarray):
        return _from_array(source, name or "array")
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _decode(bytes(source), name or "image data", name or "image data", None)
    path = Path(source)
    return _decode(_read(path), str(path), name or path.name, path)


def _from_array(array: npt.NDArray[np.uint8], name: str) -> DecodedImage:
    """Take pixels as they are."""
    shape = "x".join(map(str, array.shape)) or "single"
    fits = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4))
    if array.dtype != np.uint8 or not fits:
        raise ImageError(
            name,
            f"is a {shape} array of {array.dtype}",
            "A picture is a uint8 array of height x width x 3, values 0 to 255.",
        )
    if array.size == 0:
        raise ImageError(name, f"is an empty array ({shape})")
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    pixels, notes = to_rgb(Image.fromarray(np.ascontiguousarray(array)), None)
    return DecodedImage(pixels, name, None, hashlib.sha256(pixels.tobytes()).hexdigest(), notes)


def _read(path: Path) -> bytes:
    """Return the bytes of a picture file; a file that is none is refused after its first few."""
    try:
        facts = path.stat()
        if stat.S_ISDIR(facts.st_mode):
            next(path.iterdir(), None)  # a closed folder is another matter
            raise ImageError(
                path,
                "is a folder, not a picture",
                "A folder dropped on the window opens the pictures inside it, if there are any.",
            )
        if not stat.S_ISREG(facts.st_mode):
            raise ImageError(path, "is a device or pipe, not a file")
        if facts.st_size == 0:
            raise ImageError(path, "is empty (0 bytes)", _FETCH_AGAIN)
        with path.open("rb") as file:
            head = file.read(signatures.HEAD_BYTES)
            _format(head, str(path))
            return head + file.read()
    except PermissionError as error:
        raise ImageError(
            path,
            "can't be read: permission denied",
            "Ask for permission to read it.",
        ) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        if str(path).startswith(("http:", "https:")):
            advice = "Patchreach fetches nothing from the web: download the picture and open the file."
            raise ImageError(path, "is a web address, not a file", advice) from error
        raise ImageError(path, "does not exist", "Check the name and the folder.") from error
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise ImageError(path, f"can't be read: {reason}") from error


def _format(head: bytes, called: str) -> signatures.Format:
    """Return the picture format of some bytes, or say what they are instead."""
    kind = signatures.format_of(head)
    if kind is not None:
        return kind
    what = signatures.describe(head)
    raise ImageError(
        called, f"is not a picture that can be opened: it holds {what}", f"Save the picture as {_READABLE}."
    )


def _decode(data: bytes, called: str, name: str, path: Path | None) -> DecodedImage:
    """Decode the bytes of a file; `called` is what errors call it."""
    if not data:
        raise ImageError(called, "is empty (0 bytes)", _FETCH_AGAIN)
    kind = _format(data[: signatures.HEAD_BYTES], called)
    try:
        with heard() as warnings:
            pixels, notes = _pixels(data, kind, called)
    except ImageError:
        raise
    except MemoryError as error:
        raise ImageError(
            called, "needs more memory than there is", "Close other programs, or shrink it."
        ) from error
    except Image.DecompressionBombError as error:  # Pillow's own limit, for what headers do not tell
        limit = f"{kind.picture} larger than {2 * Image.MAX_IMAGE_PIXELS / 1e6:.0f} megapixels"
        raise ImageError(called, f"holds {limit}", "Shrink it first.") from error
    except Exception as error:  # damaged files make the decoders raise nearly every built-in exception
        raise _damage(data, kind, called, error) from error
    notes += tuple(f"the decoder warns: {text}" for text in dict.fromkeys(warnings[:_MOST_WARNINGS]))
    suffix = Path(called).suffix.lower()
    if suffix not in kind.suffixes and any(suffix in other.suffixes for other in signatures.FORMATS):
        notes = (f"named {suffix} but holds {kind.picture}", *notes)
    return DecodedImage(pixels, name, path, hashlib.sha256(data).hexdigest(), notes)


def _pixels(
    data: bytes, kind: signatures.Format, called: str
) -> tuple[npt.NDArray[np.uint8], tuple[str, ...]]:
    """Decode, turn upright and convert to RGB; a limit is checked as soon as the size is known."""
    module, opener = _OPENERS[kind]
    picture: Image.Image = getattr(import_module(module), opener)(io.BytesIO(data), "")
    width, height = picture.size
    if width * height > MAX_PIXELS:
        raise ImageError(
            called,
            f"is a picture of {width} x {height} pixels ({width * height / 1e6:.0f} megapixels)",
            f"The limit is {MAX_PIXELS / 1e6:.0f} megapixels: shrink it first.",
        )
    notes = _frames(picture, kind)
    picture.load()
    notes += _depth(picture, data, kind) + _turn_upright(picture)
    pixels, colour_notes = to_rgb(picture, picture.info.get("icc_profile"))
    return pixels, notes + colour_notes


def _frames(picture: Image.Image, kind: signatures.Format) -> tuple[str, ...]:
    """Say which picture is taken where a file holds several."""
    notes: tuple[str, ...] = ()
    count = getattr(picture, "n_frames", 1)
    if count > 1:
        which = "the main one" if kind is signatures.HEIC else "the first"
        notes = (f"{which} of {count} {kind.plural}",)
    # Tag 254, bit 0: many camera raw files put a thumbnail first.
    if kind is signatures.TIFF and picture.tag_v2.get(254, 0) & 1:
        notes += ("a small preview of a larger picture that can't be opened",)
    return notes


def _depth(picture: Image.Image, data: bytes, kind: signatures.Format) -> tuple[str, ...]:
    """Say so where colour channels of more than 8 bits came as 8."""
    if picture.mode.startswith(("I", "F")):
        return ()  # grey, scaled and said by `to_rgb`
    bits = 8
    if kind is signatures.PNG:
        bits = data[24]
    elif kind is signatures.TIFF:
        bits = max(picture.tag_v2.get(258, (8,)))
    elif kind is signatures.HEIC:
        bits = picture.info.get("bit_depth", 8)
    return (f"{bits} bits a channel reduced to 8",) if bits > 8 else ()


def _turn_upright(picture: Image.Image) -> tuple[str, ...]:
    """Turn and mirror the picture in place as its EXIF data say."""
    try:
        ImageOps.exif_transpose(picture, in_place=True)
    except Exception:  # the pixels are right: damaged EXIF data are no reason to refuse them
        return ("the EXIF data are damaged, so the picture is not turned",)
    return ()


def _damage(data: bytes, kind: signatures.Format, called: str, error: Exception) -> ImageError:
    """Say what is wrong with a picture that failed to decode."""
    whole = signatures.whole_length(data, kind)
    if whole is not None and whole > len(data):
        problem = f"holds {kind.picture} cut off after {_size(len(data))} of {_size(whole)}"
    elif signatures.lacks_end(data, kind) or any(sign in str(error) for sign in _CUT_OFF):
        problem = f"holds {kind.picture} cut off after {_size(len(data))}"
    else:
        why = f" ({error})" if str(error) else ""
        problem = f"holds {kind.picture} that is cut off, damaged or of a rare kind{why}"
        return ImageError(called, problem, f"{_FETCH_AGAIN} Or save it again as PNG or JPEG.")
    return ImageError(called, problem, _FETCH_AGAIN)


def _size(count: int) -> str:
    """Write a number of bytes the way a person reads it."""
    if count < 1000:
        return f"{count} bytes"
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"
