"""Places of tensor elements on the picture, as `positions` has them, for ONNX graphs.

Arithmetic on them is that of `position_math`, so that a model and its export find the same places.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from viewer.backends.position_math import BELOW, filled, merge, shrink

NO_LABEL = 1 << 20
"""Label of elements that stem from no parameter in particular; higher than that of any parameter."""


class UnknownPlace(Exception):
    """An operator moves tokens in a way no rule tells."""


def picture(shape: Sequence[int], layout: str) -> Tensor:
    """Return the places of a batch of pictures: each pixel's centre, from the first one's top left corner."""
    height, width = (shape[2], shape[3]) if layout == "NCHW" else (shape[1], shape[2])
    pixels = torch.complex(
        *torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    )
    pixels = pixels if layout == "NCHW" else pixels[..., None]
    if shape[0] == 1:
        return pixels.expand(tuple(shape))
    below = (torch.arange(shape[0]) * BELOW).view(-1, 1, 1, 1)
    return (pixels + below).expand(tuple(shape))


def first_picture(*sides: Tensor) -> Tensor:
    """Return which of stacked products belong to the first picture of a batch, int64.

    Parameters
    ----------
    sides
        Places of queries or keys, (stacked, tokens); a product belongs where any of its tokens does.
    """
    later = [(places.real.nan_to_num(0) > BELOW / 2).any(dim=1) for places in sides]
    return torch.nonzero(~torch.stack(later).any(dim=0)).flatten()


def has_place(places: Tensor) -> bool:
    """Whether any element comes from the picture."""
    return not bool(shrink(places).real.isnan().all())


def combined(operands: Sequence[tuple[Tensor, int]], shape: Sequence[int]) -> Tensor:
    """Merge operands element by element, as `position_rules.pointwise` does.

    What is broadcast moves no element of what is as large as the result; of as large ones the oldest comes
    first. Where none has a place, the lowest label counts: class tokens have lower ones than position
    embeddings, so that they keep their own.

    Parameters
    ----------
    operands
        Places, each with its age: a number that is larger the later a tensor was made.
    shape
        Of the result.
    """
    known = [places for places, _ in sorted(operands, key=lambda one: one[1]) if has_place(places)]
    if not known:
        return min((places for places, _ in operands), key=_lowest_label).expand(tuple(shape))
    whole = [places for places in known if tuple(places.shape) == tuple(shape)]
    others = [places for places in known if tuple(places.shape) != tuple(shape)]
    merged = [merge(parts, shape) for parts in (whole, others) if parts]
    return merged[0] if len(merged) == 1 else filled(*merged)


def _lowest_label(places: Tensor) -> float:
    """Return the lowest label; that of one number, which scales or shifts all tokens alike, counts last."""
    return float(shrink(places).imag.min()) if places.numel() > 1 else float(NO_LABEL + 1)
