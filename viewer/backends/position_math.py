"""Arithmetic of companions: places as complex numbers, NaN where there is none (see `positions`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import floor

import torch
from torch import Tensor

PADDING_LABEL = -1
"""Stands in for a parameter's number where elements were filled in."""
MEAN_LABEL = -2
"""Stands in for a parameter's number where elements are a mean over the whole picture."""
BELOW = 1e5
"""The pictures of a batch lie this many pixels below one another, so that no two share a place."""
# Corners of cells are further apart than their sides, and the outermost cells are counted half.
_NEIGHBOURS = 1.5
# Steps that differ by no more than this many pixels are float noise.
_EVEN = 1e-3


def unplaced(shape: Sequence[int], label: int = 0) -> Tensor:
    """Return a companion without a place anywhere, of elements that stem from parameter number `label`."""
    return _unplaced(tuple(shape), float(label))


@lru_cache(maxsize=1024)
def _unplaced(shape: tuple[int, ...], label: float) -> Tensor:
    return torch.complex(torch.tensor(torch.nan), torch.tensor(label)).expand(shape)


def shrink(companion: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """Return a companion with the dimensions along which it repeats cut to 1.

    Parameters
    ----------
    companion
        Any.
    dims
        Where to look; everywhere by default.
    """
    for dim in range(companion.ndim) if dims is None else dims:
        if companion.stride(dim) == 0 and companion.shape[dim] > 1:
            companion = companion.narrow(dim, 0, 1)
    return companion


def compact(companion: Tensor) -> Tensor:
    """Return the same companion with stride 0 wherever it repeats."""
    shape = companion.shape
    companion = shrink(companion)
    for dim in reversed(range(companion.ndim)):
        if companion.shape[dim] > 1:
            first = companion.narrow(dim, 0, 1)
            # Most that vary already do from the first to the last.
            if _same(companion.narrow(dim, -1, 1), first) and _same(companion, first):
                # A slice would keep the whole in memory.
                companion = first.clone()
    return companion.expand(shape)


def _same(left: Tensor, right: Tensor) -> bool:
    bits = [torch.view_as_real(companion).view(torch.int32) for companion in (left, right)]
    return bool((bits[0] == bits[1]).all())


def merge(companions: Sequence[Tensor], shape: Sequence[int]) -> Tensor:
    """Return where elements sit that were made from one element of each companion.

    Where one of two repeats along dimensions that the other varies along (a gate or a context made from the
    whole picture), the other's places hold. Places no further apart than neighbouring elements are the
    first's (a branch that strides and is scaled up again does not lie exactly on its stream), others are
    averaged. An element without a place has no say unless none has one, then the first counts.
    """
    small = [shrink(companion) for companion in companions]
    result = small[0]
    for other in small[1:]:
        if other is result or (other.data_ptr() == result.data_ptr() and other.shape == result.shape):
            continue
        here, there = ~result.real.isnan(), ~other.real.isnan()
        if _varies_along(result) > _varies_along(other):
            both = result
        elif _varies_along(other) > _varies_along(result):
            both = other
        else:
            apart = torch.nan_to_num((result - other).abs())
            both = torch.where(apart.amax() > _spacing(result), (result + other) / 2, result)
        result = torch.where(there, torch.where(here, both, other), result)
    return result.expand(tuple(shape))


def _spacing(companion: Tensor) -> Tensor:
    """Return how far apart neighbouring elements are at most, if spread evenly over what they cover."""
    places = companion[~companion.real.isnan()]
    if len(places) < 2:
        return torch.tensor(0.0)
    area = (places.real.amax() - places.real.amin()) * (places.imag.amax() - places.imag.amin())
    return (area / len(places)).sqrt() * _NEIGHBOURS


def _varies_along(companion: Tensor) -> set[int]:
    """Return the dimensions along which a companion cut by `shrink` varies, counted from the last as -1."""
    return {dim - companion.ndim for dim, size in enumerate(companion.shape) if size > 1}


def filled(companion: Tensor, other: Tensor) -> Tensor:
    """Return a companion with places of another of the same shape where it has none."""
    missing = shrink(companion).real.isnan()
    if not bool(missing.any()):
        return companion
    return torch.where(missing, shrink(other), shrink(companion)).expand(companion.shape)


def mean_place(companion: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
    """Return the mean place along some dimensions; what has no place has no say unless nothing has."""
    dims = sorted(dim % companion.ndim for dim in dims)
    small = shrink(companion)
    if any(small.shape[dim] > 1 for dim in dims):
        placed = ~small.real.isnan()
        count = placed.sum(dim=dims, keepdim=True)
        total = torch.where(placed, small, 0).sum(dim=dims, keepdim=True)
        first = small
        for dim in dims:
            first = first.narrow(dim, 0, 1)
        small = torch.where(count > 0, total / count.clamp_min(1), first)
    small = small.expand([1 if dim in dims else size for dim, size in enumerate(companion.shape)])
    if keepdim:
        return small
    for dim in reversed(dims):
        small = small.squeeze(dim)
    return small


def mean_of(companion: Tensor, dims: Sequence[int], keepdim: bool, size: tuple[int, int]) -> Tensor:
    """Return the mean place of what is averaged; a mean over a whole picture has none.

    Parameters
    ----------
    companion, dims, keepdim
        As for `mean_place`.
    size
        Height and width of the picture.
    """
    found = mean_place(companion, dims, keepdim)
    if _one_place(shrink(found)) and _spans(shrink(companion), dims, size):
        return unplaced(found.shape, MEAN_LABEL)
    return found


def _one_place(companion: Tensor) -> bool:
    """Return whether all elements sit at one place of their picture."""
    y, x = companion.real % BELOW, companion.imag
    return bool(((y - y.amin()).abs() < 0.5).all() and ((x - x.amin()).abs() < 0.5).all())


def _spans(companion: Tensor, dims: Sequence[int], size: tuple[int, int]) -> bool:
    """Return whether what lies along some dimensions is spread over both sides of a picture.

    The outermost of two patches are half a side apart, of more patches further.
    """
    dims = [dim % companion.ndim for dim in dims if companion.shape[dim] > 1]
    if not dims:
        return False
    here = ~companion.real.isnan()
    for axis, side in zip((companion.real, companion.imag), size, strict=True):
        last = torch.where(here, axis, -torch.inf).amax(dims)
        first = torch.where(here, axis, torch.inf).amin(dims)
        if not bool((last - first > side * 0.499).all()):
            return False
    return True


def joined(parts: Sequence[Tensor], dim: int, shape: Sequence[int]) -> Tensor:
    """Put companions side by side along a dimension, cut to 1 wherever all of them repeat.

    Parameters
    ----------
    parts
        One or more.
    dim
        Counted from the front.
    shape
        Of the result.
    """
    repeats = [
        other
        for other in range(len(shape))
        if other != dim and all(part.stride(other) == 0 or part.shape[other] == 1 for part in parts)
    ]
    return torch.cat([shrink(part, repeats) for part in parts], dim).expand(tuple(shape))


def over_channels(companion: Tensor, groups: int, outputs: int) -> Tensor:
    """Average the channels (dimension 1) that each of so many output channels of a convolution is made of."""
    if groups == 1 or companion.stride(1) == 0 or companion.shape[1] == 1:
        return mean_place(companion, (1,), keepdim=True)
    mean = mean_place(companion.unflatten(1, (groups, -1)), (2,), keepdim=True)
    return mean.expand(-1, -1, outputs // groups, *[-1] * (companion.ndim - 2)).flatten(1, 2)


def slide(
    companion: Tensor, dim: int, kernel: int, stride: int, padding: int, dilation: int, extra: int = 0
) -> Tensor:
    """Average places over a window that slides along one dimension.

    Beyond the border coordinates run on as they do inside, so that a window half on padding keeps its
    spacing. Places missing at the ends (padding that was put on before) are filled the same way; where a
    window is one element, that element keeps what it has.

    Parameters
    ----------
    companion
        Any.
    dim, kernel, stride, padding, dilation
        As of a convolution.
    extra
        Further padding at the end, for windows that are rounded up.
    """
    if kernel == 1 and not padding and not extra:
        if stride == 1:
            return companion
        return companion.index_select(dim, torch.arange(0, companion.shape[dim], stride))
    reach = (kernel - 1) * dilation + 1
    step = _even_step(companion, dim)
    if step is not None:
        count = (companion.shape[dim] + 2 * padding + extra - reach) // stride + 1
        middles = torch.arange(count) * stride + ((reach - 1) / 2 - padding)
        return companion.narrow(dim, 0, 1) + _along(middles, companion, dim) * step
    companion = run_on(companion, dim, padding, padding + extra)
    windows = companion.unfold(dim, reach, stride)[..., ::dilation]
    return mean_place(windows, (-1,), keepdim=False)


def _even_step(companion: Tensor, dim: int) -> Tensor | None:
    """Return how places go on along a dimension, None where unevenly or where one is missing."""
    count = companion.shape[dim]
    if count < 2:
        return None
    steps = companion.narrow(dim, 1, count - 1) - companion.narrow(dim, 0, count - 1)
    step = steps.narrow(dim, 0, 1)
    # What is missing compares as false.
    return step if bool(((steps - step).abs() < _EVEN).all()) else None


def _along(values: Tensor, companion: Tensor, dim: int) -> Tensor:
    """Return values as they lie along a dimension of a companion."""
    return values.view(-1, *[1] * (companion.ndim - 1 - dim % companion.ndim))


def run_on(companion: Tensor, dim: int, before: int, after: int) -> Tensor:
    """Continue coordinates along a dimension by some elements ahead of the first and behind the last."""
    lines = companion.movedim(dim, 0)
    placed = (~lines.real.isnan()).flatten(1).any(1) if lines.ndim > 1 else ~lines.real.isnan()
    inside = torch.nonzero(placed).flatten().tolist()
    if not inside:
        return companion.narrow(dim, 0, 1).expand(
            *companion.shape[:dim], companion.shape[dim] + before + after, *companion.shape[dim + 1 :]
        )
    first, last = inside[0], inside[-1]
    before, after = before + first, after + len(lines) - 1 - last
    lines = lines[first : last + 1]
    parts = [lines]
    if before:
        slope = _slope(lines[0], lines[min(1, len(lines) - 1)])
        parts.insert(0, torch.stack([lines[0] - slope * step for step in range(before, 0, -1)]))
    if after:
        slope = _slope(lines[max(0, len(lines) - 2)], lines[-1])
        parts.append(torch.stack([lines[-1] + slope * step for step in range(1, after + 1)]))
    return (torch.cat(parts) if len(parts) > 1 else lines).movedim(0, dim)


def _slope(low: Tensor, high: Tensor) -> Tensor:
    """Return how places go on from one element to the next; not at all where one has none."""
    slope = high - low
    return torch.where(slope.real.isnan(), 0, slope)


def resample(companion: Tensor, dim: int, sources: Sequence[float]) -> Tensor:
    """Return where elements sit that lie between those of a companion; beyond its ends coordinates run on.

    Parameters
    ----------
    companion
        Any.
    dim
        Along which to look.
    sources
        Where each new element lies, counted in old ones: 0.5 is the middle of the first two.
    """
    below = [floor(source) for source in sources]
    ahead = max(0, -min(below))
    behind = max(0, max(below) + 2 - companion.shape[dim])
    lines = run_on(companion, dim, ahead, behind)
    low, high = (lines.index_select(dim, torch.tensor(below) + ahead + further) for further in (0, 1))
    share = _along(torch.tensor(sources) - torch.tensor(below), companion, dim)
    return compact(torch.where(share > 0, low + _slope(low, high) * share, low))
