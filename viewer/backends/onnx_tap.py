"""An ONNX model that hands out what its attention is made of, and what was verified of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from viewer.attention.layer import AttentionLayer, Verdict
from viewer.attention.layout import TokenLayout
from viewer.attention.query import one_thread
from viewer.attention.scores import QueryKeyScores, WeightScores
from viewer.backends.model import Job
from viewer.backends.onnx_found import Found, OnnxProgram
from viewer.backends.onnx_layout import depend_on_picture
from viewer.backends.onnx_places import UnknownPlace
from viewer.backends.onnx_probe import find_layouts
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


@dataclass(frozen=True, eq=False)
class OnnxRun:
    """What one run left.

    Attributes
    ----------
    layers
        Attention of the first picture.
    outputs
        The model's own outputs by name.
    unchanged
        Whether the tap leaves them as they are.
    """

    layers: tuple[AttentionLayer, ...]
    outputs: dict[str, Array]
    unchanged: bool


class Tap:
    """A session with taps, and what it needs to make layers of a run.

    Parameters
    ----------
    program
        The model and its attention.
    providers
        Where ONNX Runtime shall run.
    """

    def __init__(self, program: OnnxProgram, providers: Sequence[object]) -> None:
        graph, found = program.graph, program.found
        self._program = program
        self._providers = list(providers)
        tapped = [
            name for match in found for name in (*tapped_tensors(graph, match), *checked_tensors(match))
        ]
        self._tensors = [name for name in dict.fromkeys(tapped) if not graph.is_constant(name)]
        self._depends = depend_on_picture(graph, found, program.image)
        self._session = open_session(program.file, providers, self._tensors)
        self._sizes: dict[tuple[str | int, ...], Size] = {}
        self._fixed: dict[str, Array] = {}

    @property
    def provider(self) -> str:
        """The execution provider ONNX Runtime really uses first."""
        return self._session.get_providers()[0]

    def move_to(self, providers: Sequence[object]) -> None:
        """Run somewhere else from now on."""
        self._session = open_session(self._program.file, providers, self._tensors)
        self._providers = list(providers)

    def run(self, feed: Array, layout: str, job: Job) -> OnnxRun:
        """Run the model on a batch of copies of one picture.

        Parameters
        ----------
        feed
            What the picture's input takes.
        layout
            "NCHW" or "NHWC".
        job
            Told of progress; cancels.

        Raises
        ------
        Cancelled
            If the job was cancelled.
        LayoutError
            If the place of the tokens can't be found.
        """
        program = self._program
        for match in program.found:
            if match.unclear:
                raise LayoutError(program.name, f"{match.name} can't be followed: {match.unclear}")
        wanted = list(dict.fromkeys([*program.graph.outputs, *self._tensors]))
        tensors = run_session(self._session, {program.image: feed}, wanted, job, "Running the model")
        outputs = {name: tensors[name] for name in program.graph.outputs}
        attended = self._attended(tensors, len(feed))
        known = self._known(feed, layout, outputs, job)
        layers = tuple(
            AttentionLayer(index, match.name, _kind(queries), scores, queries, keys, verdict)
            for index, (match, (scores, verdict), (queries, keys)) in enumerate(
                zip(program.found, attended, known.layouts, strict=True)
            )
        )
        return OnnxRun(layers, outputs, known.output_unchanged)

    def _attended(
        self, tensors: Mapping[str, Array], batch: int
    ) -> list[tuple[QueryKeyScores | WeightScores, Verdict]]:
        """Make the scores of every operation and check each at once, while it is in the processor's cache."""
        look = lookup(self._program.graph, tensors, self._fixed)
        attended = []
        try:
            with one_thread():  # products this small wait longer for helper threads than they take
                for match in self._program.found:
                    scores = make_scores(match, look, batch)
                    attended.append((scores, _verdict(match, scores, look, batch)))
        except UnknownPlace as error:
            raise LayoutError(self._program.name, str(error)) from error
        return attended

    def _known(self, feed: Array, layout: str, outputs: Mapping[str, Array], job: Job) -> Size:
        """Return what holds for a picture; most of it was found out with the first one of its size."""
        size = (layout, *feed.shape)
        known = self._sizes.get(size)
        if known is None:
            unchanged = _same_as_untapped(self._program, self._providers, feed, outputs, job)
            known = Size(find_layouts(self._program, feed, layout, job), unchanged)
            # Numbers that are not finite compare equal whatever was done: the next picture is compared again.
            if all(_finite(value) for value in outputs.values()):
                self._sizes[size] = known
        elif self._depends:
            known = replace(known, layouts=find_layouts(self._program, feed, layout, job))
        return known


def _same_as_untapped(
    program: OnnxProgram, providers: Sequence[object], feed: Array, outputs: Mapping[str, Array], job: Job
) -> bool:
    plain = open_session(program.file, providers)
    doing = "Comparing with the untapped model"
    untapped = run_session(plain, {program.image: feed}, program.graph.outputs, job, doing)
    return all(_same(untapped[name], outputs[name]) for name in program.graph.outputs)


def _kind(queries: TokenLayout) -> str:
    return "pool" if queries.grid == (0, 0) else "self"


def _verdict(found: Found, scores: QueryKeyScores | WeightScores, look: object, batch: int) -> Verdict:
    """Compare rebuilt weights times values with the operation's real output."""
    if found.quantized:
        return Verdict(False, None, None, "weights and values are multiplied in integers")
    values, context = (split_heads(found, operand, look, batch) for operand in (found.values, found.context))
    try:
        return check(scores, torch.from_numpy(values), torch.from_numpy(context)).verdict()
    except RuntimeError as error:
        return Verdict(False, None, None, f"weights and values do not fit together ({error})")


def _same(one: Array, other: Array) -> bool:
    """Whether two outputs are equal but for the order of sums."""
    if one.size == 0 or one.shape != other.shape or not np.issubdtype(one.dtype, np.floating):
        return bool(np.array_equal(one, other))
    tolerance = _UNCHANGED.get(one.dtype.name, _UNCHANGED_HALF)
    exact = [torch.as_tensor(array, dtype=torch.float64) for array in (one, other)]
    return same_output(*exact, tolerance)


def _finite(array: Array) -> bool:
    return not np.issubdtype(array.dtype, np.floating) or bool(np.isfinite(array).all())
