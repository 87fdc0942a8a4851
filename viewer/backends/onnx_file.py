"""Reading an ONNX file: its graph into memory, its external weights left where they are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx
from google.protobuf.message import DecodeError

from viewer.backends.file_kind import foreign_kind, require_regular
from viewer.errors import ModelFileError


@dataclass(frozen=True, eq=False)
class OnnxFile:
    """An ONNX model as it lies on disk.

    Attributes
    ----------
    path
        The .onnx file.
    proto
        Its graph, local functions inlined; external tensors hold only their place on disk.
    external
        Whether weights lie in other files.
    """

    path: Path
    proto: onnx.ModelProto
    external: bool

    @property
    def folder(self) -> Path:
        """Where external weights lie."""
        return self.path.parent

    def sha256(self) -> str:
        """Return the SHA-256 of the .onnx file."""
        digest = hashlib.sha256()
        with self.path.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
        return digest.hexdigest()


def read_onnx(path: str | Path) -> OnnxFile:
    """Read an ONNX file.

    Raises
    ------
    ModelFileError
        If it is missing, empty, cut off, no ONNX model, or lacks external weights; the text says what it is.
    """
    path = Path(path).expanduser()
    require_regular(path, "a file")
    proto = _parse(path)
    external = False
    for tensor in _stored_tensors(proto):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            _check_external(path, tensor)
            external = True
    if proto.functions:
        proto = onnx.inliner.inline_local_functions(proto)
    return OnnxFile(path.resolve(), proto, external)


def _parse(path: Path) -> onnx.ModelProto:
    """Parse the protobuf, and tell what the file is if it is not an ONNX model."""
    size = path.stat().st_size
    clause, advice = foreign_kind(path)
    if clause:
        raise ModelFileError(path, f"{clause}, not an ONNX model" if size else clause, advice)
    try:
        proto = onnx.load(path, load_external_data=False)
    except DecodeError as error:
        raise ModelFileError(
            path,
            f"can't be read as an ONNX model: its {size:,} bytes are cut off, damaged or something else",
            "Copy or download it again.",
        ) from error
    if not proto.ir_version or not proto.opset_import or not proto.graph.node:
        found = (
            "a protobuf file, but not an ONNX model"
            if not proto.ir_version
            else "an ONNX model without a graph"
        )
        raise ModelFileError(path, f"is {found} ({size:,} bytes)")
    return proto


def _stored_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Walk all tensors a model stores: initializers, constants, and those of subgraphs and functions."""
    stack: list[onnx.GraphProto | onnx.FunctionProto] = [proto.graph, *proto.functions]
    while stack:
        graph = stack.pop()
        if isinstance(graph, onnx.GraphProto):
            yield from graph.initializer
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
                if attribute.HasField("g"):
                    stack.append(attribute.g)
                stack.extend(attribute.graphs)


def _check_external(path: Path, tensor: onnx.TensorProto) -> None:
    """Refuse external weights that are missing, too short, or outside the model's folder."""
    told = {entry.key: entry.value for entry in tensor.external_data}
    location = told.get("location", "")
    parts = PurePosixPath(location.replace("\\", "/"))
    if not location or parts.is_absolute() or PureWindowsPath(location).drive or ".." in parts.parts:
        raise ModelFileError(
            path, f"asks for weights outside its own folder ({location!r})", "It was not opened."
        )
    data = path.parent / location
    if not data.resolve().is_relative_to(path.parent.resolve()):
        raise ModelFileError(
            path, f"asks for weights outside its own folder ({location!r})", "It was not opened."
        )
    if not data.is_file():
        raise ModelFileError(
            path, f"keeps its weights in {location}, which is missing", "Put that file next to the model."
        )
    end = int(told.get("offset", 0)) + int(told.get("length", 0))
    size = data.stat().st_size
    if size < end:
        raise ModelFileError(
            path, f"keeps its weights in {location}, which is cut off: {size:,} of at least {end:,} bytes",
            "Copy or download it again.",
        )  # fmt: skip
