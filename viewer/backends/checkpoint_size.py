"""Architectures that take one input size, made at the size that a checkpoint's positions are of.

Where a module of timm has `set_input_size`, positions are resampled and any size will do, if they are of a
square. Others have their positions as they are built, for pictures of one size, and a checkpoint fits only
what is built for its own; so does one of a grid that is no square, which only whoever made it knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from viewer.backends.architectures import made_for_shapes, shapes_only
from viewer.backends.catalogue import create_untrained
from viewer.backends.checkpoints import Fit, best_fit, classifiers_of
from viewer.backends.torch_sizes import patch_size

if TYPE_CHECKING:
    from torch import Tensor, nn

    from viewer.backends.opening import ImageSize

Size = tuple[int, int]
"""Height and width in pixels."""

_LARGEST = 4096  # pixels of a side that is looked at


def architecture_at(
    name: str, state: dict[str, Tensor], image_size: ImageSize, own: Size
) -> tuple[nn.Module, Size] | None:
    """Make an architecture at the size that is asked for, where weights are of no other it could start from.

    Parameters
    ----------
    name
        Of timm's architecture.
    state
        The weights that it is to take.
    image_size
        As for `viewer.backends.opening.open_model`.
    own
        Its size unless told otherwise.

    Returns
    -------
    tuple or None
        The module, without its weights, and the size; None where no other size is asked for, or where the
        weights do not fit there.
    """
    if image_size is None or isinstance(image_size, str):
        return None
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    if size == own or not _fits(name, state, size):
        return None
    return create_untrained(name, img_size=size), size


def advice_on_size(name: str, model: nn.Module, state: dict[str, Tensor], own: Size) -> str:
    """Return at what size to open weights that an architecture does not take at its own.

    Parameters
    ----------
    name, state
        As for `architecture_at`.
    model
        The architecture at its own size.
    own
        That size.

    Returns
    -------
    str
        A sentence; empty where the weights do not fit for another reason.
    """
    found = best_fit(model, state)
    missing, unexpected, reshaped = _besides_classifier(model, found)
    if missing or unexpected or not reshaped:
        return ""
    wanted = model.state_dict()[reshaped[0]]
    ratio = found.state[reshaped[0]].numel() / max(wanted.numel(), 1)
    patch = patch_size(model) or (16, 16)
    sizes = ((side, side) for side in _sides_near(own[0], ratio, patch[0]))
    size = next((size for size in sizes if _fits(name, state, size)), None)
    if size is not None:
        pictures = f"Its positions are of pictures of {size[0]}x{size[1]} pixels"
        if _runs(name, size) or not _runs(name, own):
            return f"{pictures}: open it at that size (--image-size {size[0]})."
        return f"{pictures}, a size at which {name} is made but does not run."
    patches = _patches_of_no_square(model, found, reshaped)
    if patches is None:
        return ""
    return (
        f"Its positions are of {patches} patches of {patch[0]}x{patch[1]} pixels, which make no square: "
        "open it at the size of its pictures (--image-size HEIGHTxWIDTH)."
    )


def _patches_of_no_square(model: nn.Module, fit: Fit, reshaped: list[str]) -> int | None:
    """Return of how many patches positions are; None where more differs, or where they make a square."""
    own = getattr(getattr(model, "patch_embed", None), "num_patches", None)
    if own is None or reshaped != ["pos_embed"]:
        return None
    have, want = fit.state["pos_embed"].shape, model.state_dict()["pos_embed"].shape
    if len(have) != 3 or (have[0], have[2]) != (want[0], want[2]):
        return None
    # Positions of class tokens and registers come on top.
    patches = have[1] - (want[1] - own)
    return patches if patches > 0 and math.isqrt(patches) ** 2 != patches else None


def _runs(name: str, size: Size) -> bool:
    """Return whether the shapes in an architecture agree at a size; some are made where they don't."""
    model = made_for_shapes(name, img_size=size).eval()
    try:
        with shapes_only(), torch.no_grad():
            model(torch.zeros(1, 3, *size))
    except Exception:  # whatever an architecture raises
        return False
    return True


def _sides_near(own: int, ratio: float, step: int) -> Iterator[int]:
    """Yield sides for positions so many times as many, likeliest first: per patch, or along each axis."""
    for estimate in (own * math.sqrt(ratio), own * ratio):
        near = {round(estimate / unit) * unit + more * unit for unit in (step, 32) for more in (-1, 0, 1)}
        for side in sorted(near, key=lambda side: (abs(side - estimate), side)):
            if 0 < side <= _LARGEST:
                yield side


def _fits(name: str, state: dict[str, Tensor], size: Size) -> bool:
    """Return whether weights fit an architecture at a size, whatever their classifier."""
    try:
        model = made_for_shapes(name, img_size=size)
    # It takes no size, or not this one.
    except (TypeError, AssertionError, ValueError, IndexError, RuntimeError, ZeroDivisionError):
        return False
    return not any(_besides_classifier(model, best_fit(model, state)))


def _besides_classifier(model: nn.Module, fit: Fit) -> tuple[list[str], list[str], list[str]]:
    """Return what is missing, too much, and of another shape, without the classifier's."""
    heads = classifiers_of(model)
    missing, unexpected, reshaped = (
        [key for key in keys if key.rpartition(".")[0] not in heads]
        for keys in (fit.missing, fit.unexpected, fit.reshaped)
    )
    return missing, unexpected, reshaped
