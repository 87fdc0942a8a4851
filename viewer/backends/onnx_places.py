"""Places of tensor elements on the picture, as one complex number each.

A tensor's *places* are a complex array of the tensor's own shape: ``y + ix`` in input pixels for an element
that comes from one spot of the picture, ``nan + i * label`` for one that comes from a parameter, the label
telling which. One complex array moves by one NumPy call where two real ones would need two. Channels share a
place, so axes are mostly broadcast ones (stride 0) and arrays stay as small as the number of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.complex128]

# Two coordinates nearer than this many pixels are the same one.
_SAME = 0.01


class UnknownPlace(Exception):
    """An operator moves tokens in a way no rule tells."""


def unplaced(shape: Sequence[int], label: float = np.nan) -> Places:
    """Return the places of a parameter: nowhere."""
    return np.broadcast_to(np.complex128(complex(np.nan, label)), tuple(shape))


def picture(shape: Sequence[int], layout: str) -> Places:
    """Return the places of the input picture: each pixel's centre, measured from the top left corner."""
    height, width = (shape[2], shape[3]) if layout == "NCHW" else (shape[1], shape[2])
    pixels = (np.arange(height) + 0.5)[:, None] + 1j * (np.arange(width) + 0.5)
    return np.broadcast_to(pixels if layout == "NCHW" else pixels[..., None], tuple(shape))


def has_place(places: Places) -> bool:
    """Whether any element comes from the picture."""
    return not bool(np.isnan(thin(places).real).all())


def thin(places: Places) -> Places:
    """Cut broadcast axes to one element."""
    cut = tuple(
        slice(0, 1) if stride == 0 and size else slice(None)
        for stride, size in zip(places.strides, places.shape, strict=True)
    )
    return places[cut]


def shrink(places: Places, axis: int) -> Places:
    """Make an axis along which nothing changes a broadcast one."""
    if places.shape[axis] < 2 or places.strides[axis] == 0:
        return places
    spots = thin(places)
    first = spots.take([0], axis=axis)
    alike = (spots.real == first.real) | np.isnan(spots.real) & np.isnan(first.real)
    alike &= (spots.imag == first.imag) | np.isnan(spots.imag) & np.isnan(first.imag)
    return np.broadcast_to(first, places.shape) if alike.all() else places


def merge(one: Places, other: Places) -> Places:
    """Combine two operands element by element: a place wins over none, the lower label over the higher."""
    one_in, other_in = ~np.isnan(one.real), ~np.isnan(other.real)
    if (np.abs(one - other) > _SAME).any():
        raise UnknownPlace("combines tokens from different places")
    labels = np.fmin(one.imag, other.imag)
    nowhere = np.empty(labels.shape, np.complex128)
    nowhere.real, nowhere.imag = np.nan, labels
    return np.where(one_in, one, np.where(other_in, other, nowhere))


def one_place(places: Places, axis: int) -> Places:
    """Return the place shared along an axis, keeping the axis; nowhere if it isn't shared."""
    spots = thin(places)
    if spots.shape[axis] == 1:
        return spots
    first = spots.take([0], axis=axis)
    with np.errstate(invalid="ignore"):
        same = (np.abs(spots - first) <= _SAME).all(axis=axis, keepdims=True)
    return np.where(same, first, complex(np.nan, np.nan))


def average(places: Places, axis: int) -> Places:
    """Return the mean place along an axis, keeping the axis; elements without a place do not count."""
    spots = thin(places)
    if spots.shape[axis] == 1:
        return spots
    inside = ~np.isnan(spots.real)
    count = inside.sum(axis=axis, keepdims=True)
    total = np.where(inside, spots, 0).sum(axis=axis, keepdims=True)
    first = spots.take([0], axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), first)


def at_fraction(places: Places, axis: int, where: npt.NDArray[np.float64]) -> Places:
    """Read places at fractional indices of an axis, continued in a straight line past its ends."""
    size = places.shape[axis]
    low = np.clip(np.floor(where).astype(np.int64), 0, max(0, size - 2))
    share = (where - low).reshape([-1 if n == axis else 1 for n in range(places.ndim)])
    below, above = places.take(low, axis=axis), places.take(np.minimum(low + 1, size - 1), axis=axis)
    return below + (above - below) * share
