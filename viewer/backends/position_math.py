"""Arithmetic of companions: places as complex numbers, NaN where there is none (see `positions`)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

PADDING_LABEL = -1
"""Stands in for a parameter's number where elements were filled in."""


def unplaced(shape: Sequence[int], label: int = 0) -> Tensor:
    """Return a companion without a place anywhere, of elements that stem from parameter number `label`."""
    return torch.complex(torch.tensor(torch.nan), torch.tensor(float(label))).expand(tuple(shape))


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
            if _same(companion, first):
                # A slice would keep the whole in memory.
                companion = first.clone()
    return companion.expand(shape)


def _same(left: Tensor, right: Tensor) -> bool:
    bits = [torch.view_as_real(companion).view(torch.int32) for companion in (left, right)]
    return bool((bits[0] == bits[1]).all())


def merge(companions: Sequence[Tensor], shape: Sequence[int]) -> Tensor:
    """Return where elements sit that were made from one element of each companion.

    Where one of two repeats along dimensions that the other varies along (a gate or a context made from the
    whole picture), the other's places hold. Else places are averaged; an element without a place has no say
    unless none has one, then the first counts.
    """
    small = [shrink(companion) for companion in companions]
    result = small[0]
    for other in small[1:]:
        if other is result or (other.data_ptr() == result.data_ptr() and other.shape == result.shape):
            continue
        here, there = ~result.real.isnan(), ~other.real.isnan()
        both = (result + other) / 2
        if _varies_along(result) > _varies_along(other):
            both = result
        elif _varies_along(other) > _varies_along(result):
            both = other
        result = torch.where(there, torch.where(here, both, other), result)
    return _expand(result, shape)


def _varies_along(companion: Tensor) -> set[int]:
    """Return the dimensions along which a companion cut by `shrink` varies, counted from the last as -1."""
    return {dim - companion.ndim for dim, size in enumerate(companion.shape) if size > 1}


def _expand(companion: Tensor, shape: Sequence[int]) -> Tensor:
    return companion.expand(tuple(shape))


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


def slide(
    companion: Tensor, dim: int, kernel: int, stride: int, padding: int, dilation: int, extra: int = 0
) -> Tensor:
    """Average places over a window that slides along one dimension.

    Beyond the border coordinates run on as they do inside, so that a window half on padding keeps its
    spacing. Places missing at the ends (padding that was put on before) are filled the same way.

    Parameters
    ----------
    companion
        Any.
    dim, kernel, stride, padding, dilation
        As of a convolution.
    extra
        Further padding at the end, for windows that are rounded up.
    """
    companion = _run_on(companion, dim, padding, padding + extra)
    windows = companion.unfold(dim, (kernel - 1) * dilation + 1, stride)[..., ::dilation]
    return mean_place(windows, (-1,), keepdim=False)


def _run_on(companion: Tensor, dim: int, before: int, after: int) -> Tensor:
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
    slope = lines[1] - lines[0] if len(lines) > 1 else torch.zeros_like(lines[0])
    ahead = [lines[0] - slope * step for step in range(before, 0, -1)]
    slope = lines[-1] - lines[-2] if len(lines) > 1 else slope
    behind = [lines[-1] + slope * step for step in range(1, after + 1)]
    parts = [torch.stack(part) for part in (ahead, behind) if part]
    if ahead:
        lines = torch.cat([parts.pop(0), lines])
    if behind:
        lines = torch.cat([lines, parts.pop(0)])
    return lines.movedim(0, dim)
