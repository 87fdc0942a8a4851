"""Neutral values for inputs of an ONNX model that are no picture: texts, masks, sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from viewer.backends.onnx_file import OnnxFile
from viewer.errors import ModelFileError

_MASKS = ("mask",)
_SIZES = ("size", "shape")


def neutral_values(
    file: OnnxFile, others: Sequence[onnx.ValueInfoProto], batch: int, size: tuple[int, int]
) -> dict[str, npt.NDArray[Any]]:
    """Return what to feed to inputs besides the picture.

    Masks are all ones, sizes those of the picture, everything else zeros: token 0 of a text, say.

    Parameters
    ----------
    file
        The model, for messages.
    others
        The inputs.
    batch
        Number of pictures; what takes any number gets as many.
    size
        Height and width of the picture.

    Raises
    ------
    ModelFileError
        If one wants something that is no number.
    """
    return {value.name: _neutral(file, value, batch, size) for value in others}


def _neutral(
    file: OnnxFile, value: onnx.ValueInfoProto, batch: int, size: tuple[int, int]
) -> npt.NDArray[Any]:
    kind = value.type.tensor_type.elem_type
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    except (KeyError, TypeError):
        dtype = np.dtype(object)
    if dtype.kind not in "biuf" or not value.type.HasField("tensor_type"):
        raise ModelFileError(
            file.path, f"needs more than a picture: {value.name}", "Export the vision tower alone."
        )
    dims = dims_of(value)
    shape = tuple((batch if at == 0 else 1) if dim is None else dim for at, dim in enumerate(dims))
    name = value.name.lower()
    if any(word in name for word in _MASKS):
        return np.ones(shape, dtype)
    if any(word in name for word in _SIZES) and shape[-1:] == (2,):
        return np.broadcast_to(np.array(size, dtype), shape).copy()
    return np.zeros(shape, dtype)


def dims_of(value: onnx.ValueInfoProto) -> tuple[int | None, ...]:
    """Return an input's shape, None where an axis may have any size."""
    return tuple(dim.dim_value if dim.dim_value > 0 else None for dim in value.type.tensor_type.shape.dim)


def filled_note(name: str, fillers: Mapping[str, npt.NDArray[Any]]) -> str:
    """Say in a sentence what a model was fed besides the picture."""
    told = ", ".join(f"{key} ({_values(array)})" for key, array in fillers.items())
    return f"{name} takes more than a picture; the rest was fed neutral values: {told}."


def _values(array: npt.NDArray[Any]) -> str:
    values = np.unique(array)
    return "zeros" if not array.any() else "ones" if (array == 1).all() else ", ".join(map(str, values))
