"""An ONNX model that hands out what its attention is made of, and what was verified of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import torch

from viewer.attention.layer import AttentionLayer, Verdict
from viewer.attention.layout import TokenLayout
from viewer.attention.query import one_thread
from viewer.attention.scores import QueryKeyScores, WeightScores
from viewer.backends.model import Job
from viewer.backends.one_grid import require_one_grid
from viewer.backends.onnx_file import OnnxFile
from viewer.backends.onnx_graph import Graph
from viewer.backends.onnx_layout import depend_on_picture, find_layouts, traced_nodes, unknown_controls
from viewer.backends.onnx_patterns import Found
from viewer.backends.onnx_places import UnknownPlace
from viewer.backends.onnx_scores import checked_tensors, lookup, make_scores, split_heads, tapped_tensors
from viewer.backends.onnx_session import open_session, run_session
from viewer.backends.torch_verdict import check, same_output
from viewer.errors import LayoutError

Array = npt.NDArray[Any]

# Rewriting a graph less, because of the taps, changes the order of sums: relative to the largest output.
_UNCHANGED = {"float32": 1e-4, "float64": 1e-9}
_UNCHANGED_HALF = 2e-2


@dataclass(frozen=True)
class Size:
    """What was found out about a model at one input size.

    Attributes
    ----------
    layouts
        Of queries and keys, for each operation.
    output_unchanged
        Whether the tap leaves the model's outputs as they are; compared on the first picture of this size
        whose outputs are finite. Whether each layer is verified is found out for every picture.
    """

    layouts: tuple[tuple[TokenLayout, TokenLayout], ...]
    output_unchanged: bool


class Tap:
    """A session with taps, and what it needs to make layers of a run.

    Parameters
    ----------
    name
        Of the model, for messages.
    file, graph, found
        The model and its attention.
    image
        Name of the picture's input.
    providers
        Where ONNX Runtime shall run.
    """

    def __init__(
        self,
        name: str,
        file: OnnxFile,
        graph: Graph,
        found: Sequence[Found],
        image: str,
        providers: Sequence[object],
    ) -> None:
        self._name, self._file, self._graph, self._found, self._image = name, file, graph, tuple(found), image
        self._providers = list(providers)
        tapped = [
            name for match in found for name in (*tapped_tensors(graph, match), *checked_tensors(match))
        ]
        self._tensors = [name for name in dict.fromkeys(tapped) if not graph.is_constant(name)]
        self._depends = depend_on_picture(graph, found, image)
        self._session = open_session(file, providers, self._tensors)
        self._sizes: dict[tuple[str | int, ...], Size] = {}
        self._fixed: dict[str, Array] = {}

    @property
    def provider(self) -> str:
        """The execution provider ONNX Runtime really uses first."""
        return self._session.get_providers()[0]

    def move_to(self, providers: Sequence[object]) -> None:
        """Run somewhere else from now on."""
        self._session = open_session(self._file, providers, self._tensors)
        self._providers = list(providers)

    def run(
        self, feed: Array, layout: str, job: Job
    ) -> tuple[tuple[AttentionLayer, ...], dict[str, Array], bool]:
        """Run the model on a batch of copies of one picture.

        Parameters
        ----------
        feed
            What the picture's input takes.
        layout
            "NCHW" or "NHWC".
        job
            Told of progress; cancels.

        Returns
        -------
        tuple
            Layers of the first picture, the model's own outputs by name, and whether the tap leaves those
            unchanged.

        Raises
        ------
        Cancelled
            If the job was cancelled.
        LayoutError
            If the place of the tokens can't be found.
        """
        for match in self._found:
            if match.unclear:
                raise LayoutError(self._name, f"{match.name} can't be followed: {match.unclear}")
        wanted = list(dict.fromkeys([*self._graph.outputs, *self._tensors]))
        tensors = run_session(self._session, {self._image: feed}, wanted, job, "Running the model")
        outputs = {name: tensors[name] for name in self._graph.outputs}
        look = lookup(self._graph, tensors, self._fixed)
        try:
            scores = [make_scores(match, look, len(feed)) for match in self._found]
            verdicts = [
                _verdict(match, score, look, len(feed))
                for match, score in zip(self._found, scores, strict=True)
            ]
        except UnknownPlace as error:
            raise LayoutError(self._name, str(error)) from error
        known = self._known(feed, layout, outputs, job)
        layers = tuple(
            AttentionLayer(index, match.name, _kind(queries), score, queries, keys, verdict)
            for index, (match, score, (queries, keys), verdict) in enumerate(
                zip(self._found, scores, known.layouts, verdicts, strict=True)
            )
        )
        return layers, outputs, known.output_unchanged

    def _known(self, feed: Array, layout: str, outputs: Mapping[str, Array], job: Job) -> Size:
        """Return what holds for a picture; most of it was found out with the first one of its size."""
        size = (layout, *feed.shape)
        known = self._sizes.get(size)
        if known is None:
            unchanged = self._same_as_untapped(feed, outputs, job)
            known = Size(self._layouts(feed, layout, job), unchanged)
            # Numbers that are not finite compare equal whatever was done: the next picture is compared again.
            if all(_finite(value) for value in outputs.values()):
                self._sizes[size] = known
        elif self._depends:
            known = replace(known, layouts=self._layouts(feed, layout, job))
        return known

    def _same_as_untapped(self, feed: Array, outputs: Mapping[str, Array], job: Job) -> bool:
        plain = open_session(self._file, self._providers)
        untapped = run_session(
            plain, {self._image: feed}, self._graph.outputs, job, "Comparing with the untapped model"
        )
        return all(_same(untapped[name], outputs[name]) for name in self._graph.outputs)

    def _layouts(self, feed: Array, layout: str, job: Job) -> tuple[tuple[TokenLayout, TokenLayout], ...]:
        """Run once unrewritten, for shapes and indices, and follow the tokens."""
        probe = self._probe(feed, job)
        shapes = {
            name.removesuffix(_SHAPE): tuple(value.tolist())
            for name, value in probe.items()
            if name.endswith(_SHAPE)
        }
        try:
            layouts = find_layouts(self._graph, self._found, (self._image, layout), shapes, probe)
        except UnknownPlace as error:
            raise LayoutError(self._name, str(error)) from error
        names = [match.name for match in self._found]
        require_one_grid(self._name, ((name, *sides) for name, sides in zip(names, layouts, strict=True)))
        return tuple(layouts)

    def _probe(self, feed: Array, job: Job) -> dict[str, Array]:
        """Run the model as it is written, on the CPU, and bring out shapes and indices."""
        nodes = traced_nodes(self._graph, self._found)
        operands = [operand.tensor for match in self._found for operand in (match.queries, match.keys)]
        names = dict.fromkeys(
            [*operands, *(name for node in nodes for name in (*node.input, *node.output) if name)]
        )
        shape_nodes = [onnx.helper.make_node("Shape", [name], [name + _SHAPE]) for name in names]
        wanted = [*unknown_controls(self._graph, nodes), *(name + _SHAPE for name in names)]
        session = open_session(self._file, outputs=wanted, nodes=shape_nodes, optimized=False)
        return run_session(session, {self._image: feed}, wanted, job, "Finding where tokens sit")


_SHAPE = "/patchreach_shape"


def _kind(queries: TokenLayout) -> str:
    return "pool" if queries.grid == (0, 0) else "self"


def _verdict(found: Found, scores: QueryKeyScores | WeightScores, look: object, batch: int) -> Verdict:
    """Compare rebuilt weights times values with the operation's real output."""
    if found.quantized:
        return Verdict(False, None, None, "weights and values are multiplied in integers")
    values, context = (split_heads(found, operand, look, batch) for operand in (found.values, found.context))
    try:
        with one_thread():  # products this small wait longer for helper threads than they take
            return check(scores, _torch(values), _torch(context)).verdict()
    except RuntimeError as error:
        return Verdict(False, None, None, f"weights and values do not fit together ({error})")


def _torch(array: Array) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def _same(one: Array, other: Array) -> bool:
    """Whether two outputs are equal but for the order of sums."""
    if one.size == 0 or one.shape != other.shape or not np.issubdtype(one.dtype, np.floating):
        return bool(np.array_equal(one, other))
    tolerance = _UNCHANGED.get(one.dtype.name, _UNCHANGED_HALF)
    return same_output(_torch(one.astype(np.float64)), _torch(other.astype(np.float64)), tolerance)


def _finite(array: Array) -> bool:
    return not np.issubdtype(array.dtype, np.floating) or bool(np.isfinite(array).all())
