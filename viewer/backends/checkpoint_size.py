"""Architectures that take one input size, made at the size that a checkpoint's positions are of.

Where a module of timm has `set_input_size`, positions are resampled and any size will do. Others have their
positions as they are built, for pictures of one size, and a checkpoint fits only what is built for its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from viewer.backends.architectures import made_for_shapes
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
    """Make an architecture at the size that is asked for, where it can't be brought to that size later.

    Parameters
    ----------
    name
        Of timm's architecture, which has no `set_input_size`.
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


def size_that_fits(name: str, model: nn.Module, state: dict[str, Tensor], own: Size) -> Size | None:
    """Return the size at which an architecture takes weights that it does not take at its own.

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
    tuple or None
        Height and width, equal; None where the weights do not fit for another reason.
    """
    found = best_fit(model, state)
    missing, unexpected, reshaped = _besides_classifier(model, found)
    if missing or unexpected or not reshaped:
        return None
    wanted = model.state_dict()[reshaped[0]]
    ratio = found.state[reshaped[0]].numel() / max(wanted.numel(), 1)
    step = (patch_size(model) or (16, 16))[0]
    sizes = ((side, side) for side in _sides_near(own[0], ratio, step))
    return next((size for size in sizes if _fits(name, state, size)), None)


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
