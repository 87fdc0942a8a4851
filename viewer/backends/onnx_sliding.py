"""What ONNX convolutions, poolings and resampling do to places: whatever slides over a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import floor

from torch import Tensor

from viewer.backends.onnx_graph import attribute
from viewer.backends.onnx_rules import Setting
from viewer.backends.position_math import mean_place, over_channels, resample, run_on, slide


def window(at: Setting) -> Tensor:
    """Average what a convolution takes together; its weights tell how far it looks."""
    return _slid(at, at.places[1].shape[2:], over=True)


def integer_window(at: Setting) -> Tensor:
    """Average what a convolution of integers takes together; its channels may come last."""
    if not attribute(at.node, "channels_last", 0):
        return _slid(at, at.places[3].shape[2:], over=True)
    batch, *spatial, channels = at.shapes[0]
    first = replace(
        at, places=[at.places[0].movedim(-1, 1), *at.places[1:]], shapes=[(batch, channels, *spatial)]
    )
    return _slid(first, at.places[3].shape[2:], over=True).movedim(1, -1)


def pool(at: Setting) -> tuple[Tensor, ...]:
    """Average a pooling window, whatever it takes of the values."""
    return (_slid(at, attribute(at.node, "kernel_shape"), over=False),)


def _slid(at: Setting, kernel: Sequence[int], over: bool) -> Tensor:
    places, shape = at.places[0], at.shapes[0]
    spatial = places.ndim - 2
    strides = attribute(at.node, "strides") or [1] * spatial
    dilations = attribute(at.node, "dilations") or [1] * spatial
    pads = attribute(at.node, "pads") or _automatic_pads(at, kernel, strides, dilations)
    if over:
        places = over_channels(places, int(attribute(at.node, "group", 1)), shape[1])
    for n in range(spatial):
        axis = n + 2
        reach = (shape[axis] - 1) * strides[n] + (kernel[n] - 1) * dilations[n] + 1
        behind = max(0, reach - places.shape[axis] - pads[n])
        places = slide(run_on(places, axis, pads[n], behind), axis, kernel[n], strides[n], 0, dilations[n])
        places = places.narrow(axis, 0, shape[axis])
    return places.expand(shape)


def _automatic_pads(
    at: Setting, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """Return the leading pads that `auto_pad` asks for."""
    mode = attribute(at.node, "auto_pad", "NOTSET")
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        return [0] * len(kernel)
    pads = []
    for n, size in enumerate(at.places[0].shape[2:]):
        reach = (kernel[n] - 1) * dilations[n] + 1
        total = max(0, (at.shapes[0][n + 2] - 1) * strides[n] + reach - size)
        pads.append(total // 2 if mode == "SAME_UPPER" else total - total // 2)
    return pads


def resize(at: Setting) -> Tensor:
    """Lay new elements out evenly over the old ones; where some of many are picked, leave them in place."""
    places, shape = at.places[0], at.shapes[0]
    mode = attribute(at.node, "mode", "nearest")
    corners = attribute(at.node, "coordinate_transformation_mode", "half_pixel") == "align_corners"
    for axis, (before, after) in enumerate(zip(places.shape, shape, strict=True)):
        if before == after:
            continue
        if mode == "nearest" and after < before:
            sources: list[float] = [floor(place * before / after) for place in range(after)]
        elif corners:
            sources = [place * (before - 1) / max(after - 1, 1) for place in range(after)]
        else:
            sources = [(place + 0.5) * before / after - 0.5 for place in range(after)]
        places = resample(places, axis, sources)
    return places.expand(shape)


def from_depth(at: Setting) -> Tensor:
    """Lay out over each element's cell what its channels become."""
    factor = int(attribute(at.node, "blocksize"))
    places = mean_place(at.places[0], (1,), keepdim=True)
    for axis in (2, 3):
        size = places.shape[axis]
        places = resample(places, axis, [(place + 0.5) / factor - 0.5 for place in range(size * factor)])
    return places.expand(at.shapes[0])


def reordered(at: Setting) -> Tensor:
    """Take a tensor out of blocks of channels, of which all share their places."""
    places = mean_place(at.places[0], (1,), keepdim=True)
    places = places.permute(0, 2, 3, 1) if attribute(at.node, "channels_last", 0) else places
    return places.expand(at.shapes[0])
