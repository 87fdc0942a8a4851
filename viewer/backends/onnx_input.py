"""The picture's input of an ONNX model: its name, type, size and layout, and the preprocessing it wants."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx

from viewer.backends.inputs import whole_refusal
from viewer.backends.onnx_file import OnnxFile
from viewer.backends.onnx_fillers import dims_of, neutral_values
from viewer.backends.onnx_graph import Graph, attribute
from viewer.errors import InputError, ModelFileError
from viewer.images.preprocess import INTERPOLATIONS, Preprocessing

_TYPES = {
    onnx.TensorProto.FLOAT: np.float32,
    onnx.TensorProto.FLOAT16: np.float16,
    onnx.TensorProto.DOUBLE: np.float64,
    onnx.TensorProto.UINT8: np.uint8,
}
_DEFAULT_SIDE = 224
_LARGEST_CONFIG = 1 << 20  # bytes
# Pillow's numbers for its filters, as Hugging Face configurations give them.
_PILLOW_FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
_BYTES = Preprocessing((0, 0), mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0), value_range=(0.0, 255.0))


@dataclass(frozen=True)
class PictureInput:
    """The input a picture goes into.

    Attributes
    ----------
    name
        In the graph.
    dtype
        NumPy type it wants.
    layout
        "NCHW" or "NHWC".
    layout_told
        Whether its shape tells the layout; "NCHW" is assumed otherwise.
    batch
        Number of pictures it wants at once; 1 where it takes any number.
    size
        Height and width in pixels, each None where it takes any.
    patch
        Height and width of the patches its first convolution cuts, None where there is none.
    fillers
        Neutral values for the model's other inputs.
    """

    name: str
    dtype: type[np.generic]
    layout: Literal["NCHW", "NHWC"]
    layout_told: bool
    batch: int
    size: tuple[int | None, int | None]
    patch: tuple[int, int] | None
    fillers: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)

    def check(self, model: str, size: tuple[int, int]) -> None:
        """See whether the model can take a picture of a size.

        Raises
        ------
        InputError
            If it can't; the text says what it takes.
        """
        if any(own not in (None, asked) for own, asked in zip(self.size, size, strict=True)):
            own = "x".join("any" if side is None else str(side) for side in self.size)
            raise InputError(f"{model} takes pictures of {own} pixels, not {size[0]}x{size[1]}.")
        if None not in self.size:
            return
        if min(size) < 1 or (
            self.patch and any(side % step for side, step in zip(size, self.patch, strict=True))
        ):
            patch = "x".join(map(str, self.patch or (1, 1)))
            raise InputError(
                f"{model} takes pictures whose height and width are multiples of its {patch} pixel patch, "
                f"not {size[0]}x{size[1]}."
            )

    def feed(self, tensor: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
        """Turn one preprocessed picture, in the input's layout, into what the session takes."""
        if self.dtype is np.uint8:
            tensor = np.rint(tensor).clip(0, 255)
        return np.ascontiguousarray(np.repeat(tensor.astype(self.dtype), self.batch, axis=0))


def picture_input(file: OnnxFile, graph: Graph) -> PictureInput:
    """Find the input that a picture goes into.

    Raises
    ------
    ModelFileError
        If there is none, or the model needs other inputs besides.
    """
    described = {value.name: dims_of(value) for value in graph.inputs}
    pictures = [
        value
        for value in graph.inputs
        if value.type.tensor_type.elem_type in _TYPES and len(described[value.name]) == 4
    ]
    if not pictures and any(
        value.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16 and len(described[value.name]) == 4
        for value in graph.inputs
    ):
        raise ModelFileError(
            file.path,
            "takes its picture as bfloat16, which NumPy has no numbers for",
            "Export it in float16.",
        )
    listing = ", ".join(f"{name} {_shape_text(dims)}" for name, dims in described.items()) or "none"
    if len(pictures) != 1:
        raise ModelFileError(file.path, f"has no single input for a picture; its inputs are {listing}")
    dims = described[pictures[0].name]
    layout: Literal["NCHW", "NHWC"] = "NHWC" if dims[3] == 3 and dims[1] != 3 else "NCHW"
    others = [value for value in graph.inputs if value.name != pictures[0].name]
    channels, size = (dims[3], dims[1:3]) if layout == "NHWC" else (dims[1], dims[2:])
    if channels not in (3, None):
        raise ModelFileError(
            file.path, f"takes {channels} channels, not the 3 of a colour picture; inputs: {listing}"
        )
    return PictureInput(
        name=pictures[0].name,
        dtype=_TYPES[pictures[0].type.tensor_type.elem_type],
        layout=layout,
        layout_told=channels == 3,
        batch=dims[0] or 1,
        size=(size[0], size[1]),
        patch=_patch(graph),
        fillers=neutral_values(
            file, others, dims[0] or 1, (size[0] or _DEFAULT_SIDE, size[1] or _DEFAULT_SIDE)
        ),
    )


def wanted_preprocessing(
    name: str, file: OnnxFile, found: PictureInput, image_size: int | tuple[int, int] | str | None
) -> Preprocessing:
    """Return how a model wants its pictures: as the file's metadata tells, or by default, and then said.

    Raises
    ------
    InputError
        If the model can't take `image_size`.
    """
    told = _told(file)
    base = _BYTES if found.dtype is np.uint8 else Preprocessing((0, 0))
    how = replace(base, layout=found.layout, **told)
    assumed = []
    fixed = tuple(side or _DEFAULT_SIDE for side in found.size)
    if isinstance(image_size, str):
        if image_size != "whole":
            raise InputError(f"{image_size!r} is no input size; give height and width, or 'whole'.")
        how = replace(how, crop_mode="whole")
    size = fixed if image_size is None or isinstance(image_size, str) else image_size
    size = (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
    if not found.layout_told:
        assumed.append(f"layout {how.layout}")
    if None in found.size and image_size is None:
        assumed.append(f"size {size[0]}x{size[1]}")
    how = replace(how, size=size)
    check_preprocessing(name, found, how)
    if "mean" not in told:
        low, high = how.value_range
        numbers = "no normalization" if how.std == (1.0, 1.0, 1.0) else "ImageNet mean and deviation"
        assumed.append(f"{numbers}, values {low:g} to {high:g}, {how.interpolation} resizing")
    if assumed:
        how = replace(
            how, assumed=f"{name} does not say how it wants pictures; assumed: {'; '.join(assumed)}."
        )
    return how


def check_preprocessing(name: str, found: PictureInput, how: Preprocessing) -> None:
    """See whether a model can take pictures prepared in some way.

    Raises
    ------
    InputError
        If it can't.
    """
    if found.layout_told and how.layout != found.layout:
        raise InputError(f"{name} takes its input as {found.layout}, not {how.layout}.")
    if how.crop_mode == "whole" and why_not_whole(name, found):
        raise InputError(why_not_whole(name, found))
    found.check(name, how.size)


def why_not_whole(name: str, found: PictureInput) -> str:
    """Return why a model can't have a size chosen for each picture, as a sentence; empty where it can."""
    fixed = "" if found.size == (None, None) else "x".join(str(side or "any") for side in found.size)
    return whole_refusal(name, fixed, found.patch)


def _told(file: OnnxFile) -> dict[str, Any]:
    """Read preprocessing from a file's metadata, or from the configuration that lies beside an export."""
    metadata = {entry.key.lower(): entry.value for entry in file.proto.metadata_props}
    return _told_inside(metadata) or _told_beside(file)


def _told_inside(metadata: Mapping[str, str]) -> dict[str, Any]:
    """Read preprocessing as several exporters write it into a file."""
    told: dict[str, Any] = {}
    for ours, theirs in (("mean", ("mean", "image_mean")), ("std", ("std", "image_std"))):
        for key in theirs:
            numbers = _numbers(metadata.get(key, ""))
            # A deviation of 0 would divide by it.
            if numbers is not None and (ours == "mean" or min(numbers) > 0):
                told[ours] = numbers
    if "mean" in told and max(told["mean"]) > 1.5:
        told["value_range"] = (0.0, 255.0)
    if metadata.get("interpolation") in INTERPOLATIONS:
        told["interpolation"] = metadata["interpolation"]
    if metadata.get("crop_mode") in ("center", "squash", "border"):
        told["crop_mode"] = metadata["crop_mode"]
    share = _numbers(metadata.get("crop_pct", ""))
    if share is not None and 0 < share[0] <= 1:
        told["crop_pct"] = share[0]
    return told


def _told_beside(file: OnnxFile) -> dict[str, Any]:
    """Read the `preprocessor_config.json` of Hugging Face exports, beside the model or one folder up."""
    for folder in (file.folder, file.folder.parent):
        try:
            file = folder / "preprocessor_config.json"
            if not file.is_file() or file.stat().st_size > _LARGEST_CONFIG:
                continue
            return _told_by(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
            continue  # somebody else's file of that name; defaults are assumed, and that is said
    return {}


def _told_by(config: dict[str, Any]) -> dict[str, Any]:
    told = _told_inside({key: str(config[key]) for key in ("image_mean", "image_std")})
    if config.get("resample") in _PILLOW_FILTERS:
        told["interpolation"] = _PILLOW_FILTERS[config["resample"]]
    size, crop = config.get("size"), config.get("crop_size")
    if isinstance(size, dict) and "shortest_edge" not in size:
        told["crop_mode"] = "squash"  # both sides are resized, whatever the picture's aspect ratio
    elif config.get("do_center_crop") and isinstance(size, dict) and isinstance(crop, dict):
        share = min(1.0, crop.get("height", 1) / size["shortest_edge"])
        if not share > 0:
            raise ValueError("a crop of nothing")
        told["crop_pct"] = share
    return told


def _numbers(text: str) -> tuple[float, float, float] | None:
    """Read three numbers from "[0.5, 0.5, 0.5]", "(0.5, 0.5, 0.5)" or "0.5 0.5 0.5"; one stands for three."""
    try:
        values = json.loads(f"[{','.join(text.strip('()[] ').replace(',', ' ').split())}]")
        numbers = [float(value) for value in values]
    except (ValueError, TypeError):
        return None
    if len(numbers) == 1:
        numbers *= 3
    if not all(map(math.isfinite, numbers)):
        return None
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None


def _shape_text(dims: tuple[int | None, ...]) -> str:
    return f"({', '.join('any' if size is None else str(size) for size in dims)})"


def _patch(graph: Graph) -> tuple[int, int] | None:
    """Return the stride of the first convolution where it cuts the picture into patches."""
    for node in graph.nodes:
        if node.op_type in ("Resize", "Upsample"):
            return None  # preprocessing inside the graph, which takes any size
        if node.op_type == "Conv":
            strides, kernel = attribute(node, "strides"), attribute(node, "kernel_shape")
            if strides and len(strides) == 2 and list(kernel or strides) == list(strides):
                return strides[0], strides[1]
            return None
    return None
