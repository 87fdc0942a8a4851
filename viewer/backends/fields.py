"""Theoretical receptive fields: which part of the picture a unit of a layer can depend on.

A unit at (row, column) of a layer sees the rectangle from ``low + place * jump`` to ``high + place * jump``,
edges in pixels of the model's input, where pixel 0 lies from 0 to 1; it may reach beyond the border. A window
of `k` units `dilation` apart, moved by `stride`, makes ``field + (k - 1) * dilation * jump`` of the field and
``jump * stride`` of the jump (Araujo et al. 2019, "Computing Receptive Fields of Convolutional Neural
Networks"; the recursion of MEASURES). Branches that meet see together what each of them sees.

What is pooled over the whole picture and then spread over it again (a squeeze-and-excitation gate, the
statistics of a group norm, a pyramid's global branch) makes every unit depend a little on every pixel. It is
not counted in the field, which would be the whole picture from the first gate on; layers are marked `gated`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from viewer.backends.position_call import Lost

Pair = tuple[float, float]
Axes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Seen:
    """What the units of a tensor see.

    Attributes
    ----------
    low, high
        Edges of what the first unit sees, (y, x) in pixels of the input.
    jump
        Pixels from one unit to the next, (y, x): the layer's stride.
    axes
        For each dimension of the tensor which of the picture's axes run along it: none, rows (0), columns
        (1), or both where they were made one.
    size
        Rows and columns where they were made one, to part them again.
    gated
        Whether it depends on the whole picture too, through something that is the same at every place.
    blocks
        Whether units were put into blocks, of which each counts as one unit until a window moves over them.
    """

    low: Pair
    high: Pair
    jump: Pair
    axes: Axes
    size: tuple[int, int] | None = None
    gated: bool = False
    blocks: bool = False

    @property
    def field(self) -> Pair:
        """Height and width of what a unit sees, in pixels of the input."""
        return self.high[0] - self.low[0], self.high[1] - self.low[1]


@dataclass(frozen=True)
class Whole:
    """Every unit depends on the whole picture.

    Attributes
    ----------
    uniform
        Whether it is the same at every place, as after global pooling; not after attention.
    by
        The operation that made it so.
    """

    uniform: bool
    by: str


Companion = Seen | Whole | Lost


@dataclass(frozen=True)
class Window:
    """How a window moves along one dimension; lengths in units, `before` is the padding at the start."""

    kernel: int
    stride: float = 1
    before: float = 0
    dilation: int = 1


def picture(axes: Axes) -> Seen:
    """Return what the pixels of the input see: themselves."""
    return Seen((0.0, 0.0), (1.0, 1.0), (1.0, 1.0), axes)


def stopped(name: str) -> Lost:
    """Return that an operation is one whose effect on fields is not known."""
    return Lost(f"the trace of fields stopped at the operation {name!r}")


def slid(seen: Seen, windows: Sequence[Window | None], name: str) -> Companion:
    """Return what windows see that move over a tensor, one for each dimension or None."""
    for dim, window in enumerate(windows):
        along = seen.axes[dim]
        if window is None or not along or window == Window(1):
            continue
        if len(along) > 1:
            return stopped(name)
        seen = replace(_slid_along(seen, along[0], window), blocks=False)
    return seen


def _slid_along(seen: Seen, axis: int, window: Window) -> Seen:
    jump = seen.jump[axis]
    low = seen.low[axis] - window.before * jump
    high = seen.high[axis] + ((window.kernel - 1) * window.dilation - window.before) * jump
    return _along(seen, axis, low, high, jump * window.stride)


def spread(seen: Seen, dim: int, factor: float, offset: float, reach: float) -> Companion:
    """Return what units see that are laid out more closely (or loosely) than those they are made from.

    Parameters
    ----------
    seen
        Of those they are made from.
    dim
        Along which dimension.
    factor
        New units for each old one.
    offset
        Place of the first new unit among the old ones.
    reach
        Steps between the first and the last old unit that one new unit is made from, at most.
    """
    along = seen.axes[dim]
    if len(along) != 1:
        return seen if not along else stopped("resampling")
    axis = along[0]
    jump = seen.jump[axis]
    low = seen.low[axis] + (offset - reach / 2) * jump
    high = seen.high[axis] + (offset + reach / 2) * jump
    return _along(seen, axis, low, high, jump / factor)


def transposed(seen: Seen, windows: Sequence[Window | None], name: str) -> Companion:
    """Return what the units of a transposed convolution see; where their number changes, the most of them."""
    found: Companion = seen
    for dim, window in enumerate(windows):
        if window is not None and isinstance(found, Seen):
            extent = (window.kernel - 1) * window.dilation
            middle = (window.before - extent / 2) / window.stride
            found = spread(found, dim, window.stride, middle, math.floor(extent / window.stride))
    return found


def _along(seen: Seen, axis: int, low: float, high: float, jump: float) -> Seen:
    def put(pair: Pair, value: float) -> Pair:
        return (value, pair[1]) if axis == 0 else (pair[0], value)

    return replace(seen, low=put(seen.low, low), high=put(seen.high, high), jump=put(seen.jump, jump))


def rearranged(seen: Seen, dims: Sequence[int | None]) -> Seen:
    """Return the same after dimensions changed places; None stands for one that is new."""
    return replace(seen, axes=tuple(() if dim is None else seen.axes[dim] for dim in dims))


def reduced(seen: Seen, dims: Sequence[int], keepdim: bool, name: str) -> Companion:
    """Return what becomes of dimensions that are taken together; rows or columns make it global."""
    if any(seen.axes[dim] for dim in dims):
        return Whole(True, name)
    kept = [dim for dim in range(len(seen.axes)) if keepdim or dim not in dims]
    return rearranged(seen, kept)


def sliced(seen: Seen, dim: int, start: int, step: int, name: str) -> Companion:
    """Return what every `step`-th unit from `start` on sees."""
    return slid(seen, [None] * dim + [Window(1, step, -start)] + [None] * (len(seen.axes) - dim - 1), name)


def together(parts: Sequence[tuple[Companion, int]], ndim: int) -> Companion | None:
    """Return what tensors see that meet element by element (with broadcasting), each with its dimensions."""
    lost = next((part for part, _ in parts if isinstance(part, Lost)), None)
    mixed = next((part for part, _ in parts if isinstance(part, Whole) and not part.uniform), None)
    if lost is not None or mixed is not None or not parts:
        return lost or mixed
    seen = [
        replace(part, axes=((),) * (ndim - count) + part.axes)
        for part, count in parts
        if isinstance(part, Seen)
    ]
    if not seen:
        return parts[0][0]
    gated = len(seen) < len(parts) or any(part.gated for part in seen)
    axes = tuple(next((own for own in dims if own), ()) for dims in zip(*(p.axes for p in seen), strict=True))
    return replace(
        seen[0],
        low=_each(min, [part.low for part in seen]),
        high=_each(max, [part.high for part in seen]),
        axes=axes,
        size=next((part.size for part in seen if part.size), None),
        gated=gated,
    )


def with_gate(seen: Seen, gated: bool) -> Seen:
    """Return the same, marked where an operation also takes something of the whole picture to every place."""
    return replace(seen, gated=seen.gated or gated)


def _each(choose: object, pairs: list[Pair]) -> Pair:
    return choose(pair[0] for pair in pairs), choose(pair[1] for pair in pairs)  # type: ignore[operator]


def reshaped(seen: Seen, before: Sequence[int], after: Sequence[int], name: str) -> Companion:
    """Return what units see after their tensor took another shape, its elements in the same order.

    Rows and columns may become one dimension and part again; a dimension of several units that becomes two
    holds blocks, each of which sees what its units see together.
    """
    starts = [math.prod(after[:place]) for place in range(len(after))]
    axes: list[tuple[int, ...]] = [()] * len(after)
    done = 0
    for dim, along in enumerate(seen.axes):
        if dim < done or not along or before[dim] == 1:
            continue
        done = dim + 1
        lead = math.prod(before[:dim])
        # Of dimensions that begin at the same element those of size 1 come first.
        place = max((at for at, start in enumerate(starts) if start == lead), default=None)
        rest = after[place:] if place is not None else ()
        both = seen.axes[dim + 1] if dim + 1 < len(before) else ()
        if rest and rest[0] == before[dim]:
            axes[place] = along
        elif rest and len(along) == len(both) == 1 and rest[0] == before[dim] * before[dim + 1]:
            axes[place], done = along + both, dim + 2
            seen = replace(seen, size=(before[dim], before[dim + 1]))
        elif len(along) == 2 and tuple(rest[:2]) == seen.size:
            axes[place], axes[place + 1] = along[:1], along[1:]
        elif len(along) == 1 and len(rest) > 1 and rest[0] * rest[1] == before[dim]:
            axes[place] = along
            seen = replace(_slid_along(seen, along[0], Window(rest[1], rest[1])), blocks=True)
        elif sum(size > 1 for size in after) == 1:
            return Whole(True, name)  # all of the map in one row of numbers
        else:
            return stopped(name)
    return replace(seen, axes=tuple(axes))


def product(left: Companion | None, right: Companion | None, name: str) -> Companion | None:
    """Return what a matrix product's elements see; a side that is no more than parameters is None."""
    sides = [side for side in (left, right) if side is not None]
    lost = next((side for side in sides if isinstance(side, Lost)), None)
    seen = [side for side in sides if isinstance(side, Seen)]
    if lost is not None:
        return lost
    if not seen or any(isinstance(side, Whole) and not side.uniform for side in sides):
        return together([(side, 0) for side in sides], 0)
    inner = [side.axes[-1] if side is left or len(side.axes) == 1 else side.axes[-2] for side in seen]
    rows = left.axes[-2] if isinstance(left, Seen) and len(left.axes) > 1 else ()
    columns = right.axes[-1] if isinstance(right, Seen) and len(right.axes) > 1 else ()
    if any(inner) or (rows and columns):
        # Weights learned for each place mix places into places; a product of two maps over all places leaves
        # one result for all, a product of places with places one for each pair.
        return Whole(len(sides) == 2 and not rows and not columns, name)
    ndim = max(len(side.axes) for side in seen)
    parts: list[tuple[Companion, int]] = [(side, 0) for side in sides if isinstance(side, Whole)]
    if isinstance(left, Seen):
        parts.append((replace(left, axes=(*left.axes[:-1], ())), ndim))
    if isinstance(right, Seen):
        parts.append((replace(right, axes=(*right.axes[:-2], (), columns)), ndim))
    return together(parts, ndim)
