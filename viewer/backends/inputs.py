"""What a model may be given, and what is said about how it was prepared; the same for every backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from viewer.errors import InputError
from viewer.images.decode import DecodedImage, open_image

if TYPE_CHECKING:
    from viewer.backends.model import ModelInput
    from viewer.images.preprocess import Preprocessing

_WANTED = "a decoded picture, a uint8 (height, width, 3) array or a float32 (1, 3, height, width) tensor"


def as_picture(image: object) -> DecodedImage:
    """Return a decoded picture as it is, and an array as a picture.

    Raises
    ------
    InputError
        If it is neither.
    """
    if isinstance(image, DecodedImage):
        return image
    if not isinstance(image, np.ndarray):
        raise InputError(f"A model takes {_WANTED}, not {type(image).__name__}.")
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        raise InputError(f"A model takes {_WANTED}, not a {image.dtype} array of shape {image.shape}.")
    return open_image(image)


def whole_refusal(name: str, fixed: str, patch: tuple[int, int] | None) -> str:
    """Return why no size can be chosen for each picture, as a sentence; empty where one can.

    Parameters
    ----------
    name
        What to call the model.
    fixed
        The one size it takes, as words; empty where it takes others.
    patch
        Height and width of a patch in pixels, None where it is not known.
    """
    if fixed:
        return f"{name} takes only pictures of {fixed} pixels, so it can't take them whole."
    return "" if patch else f"{name} does not tell its patch size, so no size can be chosen for a picture."


def checked_tensor(name: str, tensor: Tensor) -> Tensor:
    """Return a preprocessed tensor as float32.

    Raises
    ------
    InputError
        If it is not one picture of three channels, or holds NaN or infinite values.
    """
    if tensor.is_nested or tensor.ndim != 4 or tensor.shape[:2] != (1, 3) or not tensor.is_floating_point():
        raise InputError(
            f"{name} takes one preprocessed picture as a float32 tensor of shape (1, 3, height, width), "
            f"not {str(tensor.dtype).removeprefix('torch.')} of shape {_shape(tensor)}."
        )
    if tensor.layout is not torch.strided or tensor.is_meta:
        raise InputError(
            f"{name} takes a dense tensor that holds its numbers, not a sparse or empty (meta) one."
        )
    if not bool(tensor.isfinite().all()):
        raise InputError("The tensor holds NaN or infinite values.")
    return tensor.detach().to(torch.float32)


def _shape(tensor: Tensor) -> object:
    return "varying lengths" if tensor.is_nested else tuple(tensor.shape)


def picture_facts(image: ModelInput) -> dict[str, str]:
    """Return what a record's provenance says of a picture; nothing for an array."""
    if not isinstance(image, DecodedImage):
        return {}
    return {"image": str(image.path or image.name), "image_sha256": image.sha256}


def describe(how: Preprocessing) -> str:
    """Say in one line how a picture was prepared."""
    height, width = how.size
    numbers = "; ".join(
        f"{what} {', '.join(f'{value:g}' for value in values)}"
        for what, values in (("mean", how.mean), ("std", how.std))
    )
    crop = "" if how.crop_mode == "whole" else f" keeping {how.crop_pct:g} of the side"
    return f"{height}x{width}, {how.crop_mode}{crop}; {how.interpolation}; {numbers}"
