"""What convolutions, poolings and resampling do to places: whatever slides over a grid."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import Any

import torch
from torch.nn import functional

from viewer.backends.position_call import Call, Companions
from viewer.backends.position_math import (
    compact,
    mean_of,
    mean_place,
    over_channels,
    resample,
    run_on,
    shrink,
    slide,
)


def convolution(call: Call) -> Companions:
    """Average the receptive field of a convolution; a transposed one lays its outputs out between inputs."""
    given = call.given()
    source, output = given["input"], call.outputs[0]
    companion = over_channels(call.full(source), given["groups"], output.shape[1])
    kernel = given["weight"].shape[2:]
    for axis in range(source.ndim - 2):
        stride, padding, dilation = (
            _of_axis(given[name], axis) for name in ("stride", "padding", "dilation")
        )
        if given["transposed"]:
            middle = padding - (kernel[axis] - 1) * dilation / 2
            sources = [(place + middle) / stride for place in range(output.shape[axis + 2])]
            companion = resample(companion, axis + 2, sources)
        else:
            companion = slide(companion, axis + 2, kernel[axis], stride, padding, dilation)
    return [companion.expand(output.shape)]


def pool(call: Call) -> Companions:
    """Average a pooling window, whatever it takes of the values."""
    given = call.given()
    companion, output = call.full(given["self"]), call.outputs[0]
    spatial = len(given["kernel_size"])
    for axis in range(spatial):
        dim = companion.ndim - spatial + axis
        kernel = _of_axis(given["kernel_size"], axis)
        stride = _of_axis(given["stride"] or given["kernel_size"], axis)
        padding = _of_axis(given["padding"], axis)
        dilation = _of_axis(given.get("dilation") or [1], axis)
        reach = (output.shape[dim] - 1) * stride + (kernel - 1) * dilation + 1
        extra = max(0, reach - companion.shape[dim] - 2 * padding)
        companion = slide(companion, dim, kernel, stride, padding, dilation, extra)
        companion = companion.narrow(dim, 0, output.shape[dim])
    return [companion.expand(output.shape)] + [None] * (len(call.outputs) - 1)


def adaptive_pool(call: Call) -> Companions:
    """Average the windows, of unequal sizes perhaps, that make up a grid of a given size."""
    given = call.given()
    companion, spatial = call.full(given["self"]), len(given["output_size"])
    if "avg" in call.name and set(given["output_size"]) == {1}:
        dims = range(companion.ndim - spatial, companion.ndim)
        return [mean_of(companion, dims, True, call.size).expand(call.outputs[0].shape)]
    for axis in range(spatial):
        dim = companion.ndim - spatial + axis
        size, wanted = companion.shape[dim], call.outputs[0].shape[dim]
        bounds = [(place * size // wanted, -(-(place + 1) * size // wanted)) for place in range(wanted)]
        windows = [companion.narrow(dim, start, stop - start) for start, stop in bounds]
        companion = torch.cat([mean_place(window, (dim,), keepdim=True) for window in windows], dim)
    companion = compact(companion)
    return [companion] + [None] * (len(call.outputs) - 1)


def upsample(call: Call) -> Companions:
    """Lay new elements out evenly over the old ones; where some of many are picked, leave them in place."""
    given = call.given()
    source, output = given.get("input", given.get("self")), call.outputs[0]
    companion = call.full(source)
    for axis in range(source.ndim - 2):
        before, after = source.shape[axis + 2], output.shape[axis + 2]
        step = 1 / _scale(given, axis) if _scale(given, axis) else before / after
        if "nearest" in call.name and after <= before:
            shift = 0.5 if "exact" in call.name else 0.0
            sources: list[float] = [min(floor((place + shift) * step), before - 1) for place in range(after)]
        elif given.get("align_corners"):
            sources = [place * (before - 1) / max(after - 1, 1) for place in range(after)]
        else:
            sources = [(place + 0.5) * step - 0.5 for place in range(after)]
        companion = resample(companion, axis + 2, sources)
    return [companion.expand(output.shape)]


def _scale(given: dict[str, Any], axis: int) -> float | None:
    """Return the factor that an upsampling was told for an axis, None where it goes by sizes."""
    several = given.get("scale_factors")
    if several is not None:
        return several[axis]
    names = [name for name in ("scales", "scales_d", "scales_h", "scales_w") if name in given]
    return given[names[axis]] if names else None


def pixel_shuffle(call: Call) -> Companions:
    """Lay out over each element's cell what its channels become."""
    given = call.given()
    companion, factor = shrink(call.full(given["self"])), given["upscale_factor"]
    if companion.shape[-3] > 1:
        companion = torch.pixel_shuffle(call.full(given["self"]), factor)
        return [compact(companion)]
    companion = companion.expand(*companion.shape[:-2], *given["self"].shape[-2:])
    for dim in (-2, -1):
        size = companion.shape[dim]
        sources = [(place + 0.5) / factor - 0.5 for place in range(size * factor)]
        companion = resample(companion, companion.ndim + dim, sources)
    return [companion.expand(call.outputs[0].shape)]


def unfold(call: Call) -> Companions:
    """Cut windows out (im2col); beyond the border coordinates run on as in a convolution."""
    given = call.given()
    source, output = given["self"], call.outputs[0]
    companion = shrink(call.full(source), (source.ndim - 3,))
    for axis, dim in enumerate((source.ndim - 2, source.ndim - 1)):
        kernel, stride, padding, dilation = (
            _of_axis(given[name], axis) for name in ("kernel_size", "stride", "padding", "dilation")
        )
        # One axis after the other: (..., rows, columns, kernel rows, kernel columns) in the end.
        companion = run_on(companion, dim, padding, padding).unfold(dim, (kernel - 1) * dilation + 1, stride)
        companion = companion[..., ::dilation]
    lead = companion.ndim - 5
    channels = source.shape[-3]
    companion = companion.permute(*range(lead), lead, lead + 3, lead + 4, lead + 1, lead + 2)
    companion = companion.flatten(-2).flatten(-3, -2)  # (..., 1 or channels, kernel, windows)
    companion = companion.expand(*companion.shape[:-3], channels, *companion.shape[-2:])
    return [compact(companion.reshape(output.shape))]


def fold(call: Call) -> Companions:
    """Put windows back (col2im), averaging where they overlap."""
    given = call.given()
    source, output = given["self"], call.outputs[0]
    kernel, stride, padding, dilation = (
        [_of_axis(given[name], axis) for axis in (0, 1)]
        for name in ("kernel_size", "stride", "padding", "dilation")
    )
    counts = [
        (size + 2 * pad - spread * (wide - 1) - 1) // step + 1
        for size, wide, step, pad, spread in zip(
            output.shape[-2:], kernel, stride, padding, dilation, strict=True
        )
    ]
    companion = call.full(source)
    windows = shrink(compact(companion.reshape(*source.shape[:-2], -1, *kernel, *counts)), (source.ndim - 2,))
    lead = windows.shape[:-4]
    canvas = [size + 2 * pad for size, pad in zip(output.shape[-2:], padding, strict=True)]
    total = torch.zeros(*lead, *canvas, dtype=torch.complex64)
    count = torch.zeros(*lead, *canvas)
    for row in range(kernel[0]):
        for column in range(kernel[1]):
            part = windows[..., row, column, :, :]
            place = tuple(
                slice(at * spread, at * spread + (many - 1) * step + 1, step)
                for at, spread, many, step in zip((row, column), dilation, counts, stride, strict=True)
            )
            there = ~part.real.isnan()
            total[(..., *place)] += torch.where(there, part, 0)
            count[(..., *place)] += there
    found = torch.where(count > 0, total / count.clamp_min(1), complex(torch.nan, 0))
    found = functional.pad(found, [-side for side in (padding[1], padding[1], padding[0], padding[0])])
    return [found.expand(output.shape)]


def _of_axis(values: int | Sequence[int], axis: int) -> int:
    if isinstance(values, int):
        return values
    return values[axis if len(values) > 1 else 0]
