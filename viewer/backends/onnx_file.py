"""Reading an ONNX file: its graph into memory, its external weights left where they are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx
from google.protobuf.message import DecodeError
from onnx.inliner import inline_local_functions

from viewer.backends.file_kind import foreign_kind, require_regular
from viewer.backends.onnx_graph import taken
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
        Other files that hold weights, by name, with their size and time of change when this was opened.
    sha256
        SHA-256 of the .onnx file's bytes as they were read.
    """

    path: Path
    proto: onnx.ModelProto
    external: Mapping[str, tuple[int, int]]
    sha256: str

    @property
    def folder(self) -> Path:
        """Where external weights lie."""
        return self.path.parent

    def check_unchanged(self) -> None:
        """See whether the files with weights are still those that were there when the model was opened.

        Raises
        ------
        ModelFileError
            If one was replaced; what runs would be another model than the one that is named.
        """
        for location, before in self.external.items():
            if _stamp(self.folder / location) != before:
                raise ModelFileError(
                    self.path,
                    f"keeps its weights in {location}, which changed since the model was opened",
                    "Open it again.",
                )


def read_onnx(path: str | Path) -> OnnxFile:
    """Read an ONNX file.

    Raises
    ------
    ModelFileError
        If it is missing, empty, cut off, no ONNX model, or lacks external weights; the text says what it is.
    """
    path = Path(path).expanduser()
    require_regular(path, "a file")
    proto, digest = _parse(path)
    external: dict[str, tuple[int, int]] = {}
    for tensor in _stored_tensors(proto):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            location = _check_external(path, tensor)
            external.setdefault(location, _stamp(path.resolve().parent / location))
    if proto.functions:
        proto = inline_local_functions(proto)
    _sort(path, proto)
    return OnnxFile(path.resolve(), proto, external, digest)


def _stamp(path: Path) -> tuple[int, int]:
    """Return size and time of change of a file; both -1 where it is gone."""
    try:
        found = path.stat()
    except OSError:
        return -1, -1
    return found.st_size, found.st_mtime_ns


def _check_text(path: Path, proto: onnx.ModelProto) -> None:
    """Refuse names that are no text (protobuf hands those out as bytes): nothing could be found by them."""
    graph = proto.graph
    names = [value.name for value in (*graph.input, *graph.output, *graph.initializer)]
    for node in graph.node:
        names += [node.name, node.op_type, node.domain, *node.input, *node.output]
        names += [entry.name for entry in node.attribute]
    for entry in proto.metadata_props:
        names += [entry.key, entry.value]
    if not all(isinstance(name, str) for name in names):
        raise ModelFileError(path, "is a damaged ONNX model: some of its names are no text")


def _sort(path: Path, proto: onnx.ModelProto) -> None:
    """Put nodes after those that feed them: ONNX Runtime takes any order, following tokens does not."""
    nodes = list(proto.graph.node)
    makers = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    needs = {at: {makers[name] for name in taken(node) if name in makers} for at, node in enumerate(nodes)}
    if all(need < at for at, needed in needs.items() for need in needed):
        return
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        raise ModelFileError(
            path, "is a damaged ONNX model: its nodes feed one another in a circle"
        ) from error
    copies = [onnx.NodeProto.FromString(nodes[at].SerializeToString()) for at in order]
    del proto.graph.node[:]
    proto.graph.node.extend(copies)


def _parse(path: Path) -> tuple[onnx.ModelProto, str]:
    """Parse the protobuf and hash its bytes, and tell what the file is if it is not an ONNX model."""
    size = path.stat().st_size
    clause, advice = foreign_kind(path)
    if clause:
        raise ModelFileError(path, f"{clause}, not an ONNX model" if size else clause, advice)
    try:
        data = path.read_bytes()
        proto = onnx.ModelProto.FromString(data)
    except OSError as error:
        raise ModelFileError(path, f"can't be read ({error.strerror or error})") from error
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
    _check_text(path, proto)
    if not proto.graph.output:
        raise ModelFileError(path, "is an ONNX model that hands nothing out")
    return proto, hashlib.sha256(data).hexdigest()


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


def _check_external(path: Path, tensor: onnx.TensorProto) -> str:
    """Return where external weights lie; refuse those missing, too short, or outside the model's folder."""
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
    span = [told.get(name, "0") for name in ("offset", "length")]
    if not all(isinstance(number, str) and number.isdecimal() and len(number) < 20 for number in span):
        raise ModelFileError(
            path, f"is a damaged ONNX model: it tells no numbers for where weights lie in {location}"
        )
    end = sum(map(int, span))
    size = data.stat().st_size
    if size < end:
        raise ModelFileError(
            path, f"keeps its weights in {location}, which is cut off: {size:,} of at least {end:,} bytes",
            "Copy or download it again.",
        )  # fmt: skip
    return location
