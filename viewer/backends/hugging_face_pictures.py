"""How a model of transformers wants its pictures, as the settings of its image processor say."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from viewer.images.preprocess import Preprocessing

FILES = ("preprocessor_config.json", "processor_config.json")
"""Where the settings lie, the better first; the second has those of texts beside them."""

_LARGEST = 1 << 20  # bytes
# Pillow's numbers for its filters.
_FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
_DEFAULT_SIDE = 224


def preprocessing_in(
    folder: Path, name: str, own: tuple[int, int] | None, patch: tuple[int, int] | None
) -> Preprocessing:
    """Return how a model wants its pictures; what its settings don't say is assumed, and that is said.

    Parameters
    ----------
    folder
        Where the settings may lie.
    name
        What to call the model.
    own
        Height and width in pixels that the model was made for.
    patch
        Height and width of its patches in pixels.
    """
    fallback = Preprocessing(own or (_DEFAULT_SIDE, _DEFAULT_SIDE))
    for file in FILES:
        try:
            path = folder / file
            if not path.is_file() or path.stat().st_size > _LARGEST:
                continue
            told = json.loads(path.read_text(encoding="utf-8"))
            return _told(told.get("image_processor", told), fallback, patch)
        except (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
            continue  # somebody else's file of that name; defaults are assumed, and that is said
    return replace(
        fallback,
        assumed=f"{name} has no settings of an image processor; assumed: ImageNet mean and deviation, values "
        f"0 to 1, {fallback.interpolation} resizing, size {fallback.size[0]}x{fallback.size[1]}.",
    )


def _told(told: dict[str, Any], how: Preprocessing, patch: tuple[int, int] | None) -> Preprocessing:
    """Return what settings say.

    Raises
    ------
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError
        If they make no sense.
    """
    scale = float(told.get("rescale_factor", 1 / 255)) if told.get("do_rescale", True) else 1.0
    how = replace(
        how, value_range=(0.0, round(255 * scale, 6)), interpolation=_FILTERS[int(told.get("resample", 2))]
    )
    if told.get("do_normalize", True):
        how = replace(how, mean=_three(told["image_mean"]), std=_three(told["image_std"], positive=True))
    else:
        how = replace(how, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    return _sized(told, how, patch)


def _sized(told: dict[str, Any], how: Preprocessing, patch: tuple[int, int] | None) -> Preprocessing:
    if "max_num_patches" in told and patch is not None:  # any aspect ratio, so many patches at most
        side = math.isqrt(int(told["max_num_patches"]))
        return replace(how, size=(side * patch[0], side * patch[1]), crop_mode="whole")
    size = told.get("size")
    size = {"shortest_edge": size} if isinstance(size, int) and told.get("do_center_crop") else size
    size = {"height": size, "width": size} if isinstance(size, int) else size
    if not told.get("do_resize", True) or not size:
        return how
    if "shortest_edge" not in size:
        # Both sides are resized, whatever the picture's aspect ratio.
        resized = (_side(size["height"]), _side(size["width"]))
        if not told.get("do_center_crop"):
            return replace(how, size=resized, crop_mode="squash", assumed=_ratio(told, resized))
        crop = _pair(told["crop_size"])
        return replace(how, size=crop, crop_mode="squash", crop_pct=min(1.0, crop[0] / resized[0]))
    edge = _side(size["shortest_edge"])
    if told.get("do_center_crop") and told.get("crop_size"):
        crop = _pair(told["crop_size"])
    elif "crop_pct" in told:  # the edge is the crop's, and what it is cut from is larger
        crop, edge = (edge, edge), int(edge / float(told["crop_pct"]))
    else:
        crop = (edge, edge)
    return replace(how, size=crop, crop_mode="center", crop_pct=_share(min(crop), max(edge, min(crop))))


def _share(side: int, resized: int) -> float:
    """Return the share that gives just that resized side when a side is divided by it and rounded down."""
    share = side / resized
    return share if math.floor(side / share) == resized else side / (resized + 0.5)


def _ratio(told: dict[str, Any], size: tuple[int, int]) -> str:
    if not told.get("keep_aspect_ratio"):
        return ""
    return f"Its image processor keeps the aspect ratio; here pictures are squeezed to {size[0]}x{size[1]}."


def _pair(size: int | dict[str, Any]) -> tuple[int, int]:
    if isinstance(size, dict):
        return _side(size["height"]), _side(size["width"])
    return _side(size), _side(size)


def _side(number: object) -> int:
    if type(number) is not int or number < 1:
        raise ValueError(f"{number!r} is no number of pixels")
    return number


def _three(values: object, positive: bool = False) -> tuple[float, float, float]:
    numbers = [float(value) for value in values] if isinstance(values, list) else []
    if len(numbers) != 3 or not all(map(math.isfinite, numbers)) or (positive and min(numbers) <= 0):
        raise ValueError(f"{values!r} are no three numbers")
    return numbers[0], numbers[1], numbers[2]
