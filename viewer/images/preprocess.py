"""From a decoded picture to the tensor a model takes, as the model's own configuration says.

The steps are those of timm's evaluation transform (`timm.data.create_transform(is_training=False)`), and
the result is the same bit for bit: resize with Pillow, which smooths when it shrinks, cut or pad around
the centre, scale to 0..1, subtract the mean, divide by the standard deviation, all in float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from PIL import Image

from viewer.errors import InputError

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.images.decode import DecodedImage

CropMode = Literal["center", "squash", "border", "whole"]
"""timm's three crop modes, and `whole`: keep the aspect ratio, crop nothing, choose the size to fit."""

INTERPOLATIONS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
    "lanczos": Image.Resampling.LANCZOS,
}
"""The names timm uses, and Pillow's filters of the same name."""

MAX_INPUT_PIXELS = 4096 * 4096
"""Larger inputs are refused: a model would run for hours, and take all memory long before its end."""

# Above this the resized picture is not made whole just to cut a small square from it (a 1 x 65,535 strip
# would take 10 GB); only the part that is kept is computed, which can differ by two of 255 steps.
_MOST_RESIZED_PIXELS = 300_000_000
# Pillow's widest filter (lanczos) reaches three output pixels; two more for rounding.
_FILTER_REACH = 5


@dataclass(frozen=True)
class Preprocessing:
    """How a model wants its pictures.

    Attributes
    ----------
    size
        Height and width of the input in pixels.
    mean, std
        Per channel, in the units of `value_range`.
    interpolation
        "bicubic", "bilinear", "nearest", "lanczos", "box", "hamming".
    crop_pct
        Share of the resized picture's side that the centre crop keeps (timm).
    crop_mode
        See `CropMode`. For "whole", `size` is what `whole_size` chose for the picture.
    value_range
        What 0 and 255 become before mean and std: (0, 1) mostly, (0, 255) for some ONNX files.
    layout
        "NCHW" or "NHWC".
    assumed
        What of this was not told by the model but assumed, as a sentence; empty if nothing was.

    Raises
    ------
    InputError
        If `size` has more than `MAX_INPUT_PIXELS`.
    """

    size: tuple[int, int]
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    interpolation: str = "bicubic"
    crop_pct: float = 1.0
    crop_mode: CropMode = "center"
    value_range: tuple[float, float] = (0.0, 1.0)
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    assumed: str = ""

    def __post_init__(self) -> None:
        if self.size[0] * self.size[1] > MAX_INPUT_PIXELS:
            raise InputError(
                f"An input of {self.size[0]} x {self.size[1]} pixels is too large; "
                f"the limit is {MAX_INPUT_PIXELS / 1e6:.1f} megapixels, such as 4096 x 4096."
            )


@dataclass(frozen=True, eq=False)
class PreparedImage:
    """A picture as the model sees it.

    Attributes
    ----------
    tensor
        float32 (1, 3, H, W), or (1, H, W, 3) for NHWC, normalized.
    seen
        uint8 (H, W, 3), the same picture before normalization.
    box
        (left, top, right, bottom) of `seen` in pixels of the original; may reach outside it (padding).
    """

    tensor: npt.NDArray[np.float32]
    seen: npt.NDArray[np.uint8]
    box: tuple[float, float, float, float]


def prepare(image: DecodedImage, how: Preprocessing) -> PreparedImage:
    """Resize, crop and normalize a picture.

    Parameters
    ----------
    image
        Any decoded picture, of any size from 1 x 1 up.
    how
        What the model asks for.

    Returns
    -------
    PreparedImage
        For the modes "center", "squash" and "border" equal to timm's evaluation transform to the bit.

    Raises
    ------
    ValueError
        If `how` names no known interpolation or crop mode.
    """
    if how.interpolation not in INTERPOLATIONS:
        raise ValueError(f"interpolation {how.interpolation!r} is none of {', '.join(INTERPOLATIONS)}")
    picture = Image.fromarray(image.pixels)
    resized = _resized_size((picture.height, picture.width), how)
    window = _window(resized, how.size)
    seen = _resize_and_cut(picture, resized, window, how)
    across, down = picture.width / resized[1], picture.height / resized[0]
    box = (window[0] * across, window[1] * down, window[2] * across, window[3] * down)
    return PreparedImage(_normalize(seen, how), seen, box)


def whole_size(
    picture_hw: tuple[int, int], size: tuple[int, int], multiple: int | tuple[int, int]
) -> tuple[int, int]:
    """Choose the input size that shows a whole picture in nearly its own aspect ratio.

    Both sides are multiples of the patch. The area is at most that of `size`, so the number of tokens, and
    with it time and memory, does not grow; of the sizes that remain, the one is taken whose aspect ratio and
    area together come nearest (sum of the absolute logarithms of both ratios, the aspect counting twice). A
    strip thinner than one patch allows is squeezed to the nearest size there is.

    Parameters
    ----------
    picture_hw
        Height and width of the picture in pixels.
    size
        Height and width of the model's own input in pixels: the budget.
    multiple
        The patch's side in pixels, or its height and width.

    Returns
    -------
    tuple of int
        Height and width in pixels.
    """
    tall, wide = (multiple, multiple) if isinstance(multiple, int) else multiple
    budget = max(1, (size[0] * size[1]) // (tall * wide))
    aspect = picture_hw[0] / picture_hw[1] * wide / tall  # rows to columns
    best, least = (1, 1), math.inf
    for rows in range(1, budget + 1):
        most = budget // rows
        for columns in {min(max(1, math.floor(rows / aspect)), most), min(math.ceil(rows / aspect), most)}:
            cost = 2 * abs(math.log(rows / columns / aspect)) + math.log(budget / (rows * columns))
            if cost < least:
                best, least = (rows, columns), cost
    return best[0] * tall, best[1] * wide


def _resized_size(picture: tuple[int, int], how: Preprocessing) -> tuple[int, int]:
    """Return height and width after resizing and before cutting, rounded as timm and torchvision do."""
    height, width = picture
    target = tuple(math.floor(side / how.crop_pct) for side in how.size)
    if how.crop_mode == "whole":
        return how.size
    if how.crop_mode == "squash":
        return target
    if how.crop_mode not in ("center", "border"):
        raise ValueError(f"crop mode {how.crop_mode!r} is none of center, squash, border, whole")
    if how.crop_mode == "center" and target[0] == target[1]:
        # The shorter side becomes the target; torchvision rounds the longer one down.
        short, long = min(picture), max(picture)
        longer = int(target[0] * long / short)
        return (target[0], longer) if height <= width else (longer, target[0])
    ratios = height / target[0], width / target[1]
    ratio = max(ratios) if how.crop_mode == "border" else min(ratios)
    # A strip may round to nothing, where timm stops; one row or column of it is the nearest there is.
    return max(1, round(height / ratio)), max(1, round(width / ratio))


def _window(resized: tuple[int, int], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return what is kept of the resized picture, (left, top, right, bottom); outside of it is padding."""
    top, left = (
        -((kept - side) // 2) if kept > side else round((side - kept) / 2.0)
        for side, kept in zip(resized, size, strict=True)
    )
    return left, top, left + size[1], top + size[0]


def _resize_and_cut(
    picture: Image.Image, resized: tuple[int, int], window: tuple[int, int, int, int], how: Preprocessing
) -> npt.NDArray[np.uint8]:
    """Return the kept part of the resized picture, uint8 (H, W, 3)."""
    method = INTERPOLATIONS[how.interpolation]
    if resized[0] * resized[1] > _MOST_RESIZED_PIXELS and how.crop_mode == "center":
        return _resize_part(picture, resized, window, method)
    small = picture
    if resized != (picture.height, picture.width):
        small = picture.resize((resized[1], resized[0]), method)
    left, top, right, bottom = window
    if left >= 0 and top >= 0 and right <= small.width and bottom <= small.height:
        return np.array(small.crop(window))
    padded = Image.new("RGB", (right - left, bottom - top), _fill(how))
    padded.paste(small, (-left, -top))
    return np.array(padded)


def _resize_part(
    picture: Image.Image,
    resized: tuple[int, int],
    window: tuple[int, int, int, int],
    method: Image.Resampling,
) -> npt.NDArray[np.uint8]:
    """Compute only the kept part of a picture that would be huge when resized whole."""
    left, top, right, bottom = window
    across, down = picture.width / resized[1], picture.height / resized[0]
    reach_x, reach_y = _FILTER_REACH * max(1.0, across), _FILTER_REACH * max(1.0, down)
    # Pillow holds the box in single precision: cutting first keeps the coordinates small and so exact.
    x0 = max(0, math.floor(left * across - reach_x))
    y0 = max(0, math.floor(top * down - reach_y))
    x1 = min(picture.width, math.ceil(right * across + reach_x))
    y1 = min(picture.height, math.ceil(bottom * down + reach_y))
    box = (left * across - x0, top * down - y0, right * across - x0, bottom * down - y0)
    near = picture.crop((x0, y0, x1, y1))
    return np.array(near.resize((right - left, bottom - top), method, box=box))


def _fill(how: Preprocessing) -> tuple[int, int, int]:
    """Return the colour of padding, as timm has it: the mean for "border", otherwise black."""
    if how.crop_mode != "border":
        return 0, 0, 0
    low, high = how.value_range
    red, green, blue = (round(255 * ((mean - low) / (high - low))) for mean in how.mean)
    return red, green, blue


def _normalize(seen: npt.NDArray[np.uint8], how: Preprocessing) -> npt.NDArray[np.float32]:
    """Scale to `value_range`, subtract the mean, divide by the deviation, and put in the model's layout."""
    low, high = how.value_range
    values = seen.astype(np.float32)
    if (low, high) != (0.0, 255.0):
        values /= np.float32(255)
        if (low, high) != (0.0, 1.0):
            values = values * np.float32(high - low) + np.float32(low)
    values -= np.asarray(how.mean, np.float32)
    values /= np.asarray(how.std, np.float32)
    if how.layout == "NHWC":
        return np.ascontiguousarray(values[None])
    return np.ascontiguousarray(values.transpose(2, 0, 1)[None])
