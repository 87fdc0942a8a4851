"""From a decoded picture to the tensor a model takes, as the model's own configuration says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from viewer.images.decode import DecodedImage

CropMode = Literal["center", "squash", "border", "whole"]
"""timm's three crop modes, and `whole`: keep the aspect ratio, crop nothing, choose the size to fit."""


@dataclass(frozen=True)
class Preprocessing:
    """How a model wants its pictures.

    Attributes
    ----------
    size
        Height and width of the input in pixels.
    mean, std
        Per channel, for values scaled to 0..1.
    interpolation
        "bicubic", "bilinear", "nearest", "lanczos".
    crop_pct
        Share of the resized picture's side that the centre crop keeps (timm).
    crop_mode
        See `CropMode`.
    value_range
        What 0 and 255 become before mean and std: (0, 1) mostly, (0, 255) for some ONNX files.
    layout
        "NCHW" or "NHWC".
    assumed
        What of this was not told by the model but assumed, as a sentence; empty if nothing was.
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
    """Resize, crop and normalize a picture."""
    raise NotImplementedError
