"""An ONNX model that hands out what its attention is made of, and what was verified of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from viewer.attention.layer import AttentionLayer, Verdict
from viewer.attention.query import one_thread
from viewer.attention.scores import QueryKeyScores, WeightScores
from viewer.backends.layer_plans import Planned
from viewer.backends.model import Job
from viewer.backends.onnx_arrangement import Arrangement
from viewer.backends.onnx_found import OnnxProgram
from viewer.backends.onnx_layout import depend_on_picture
from viewer.backends.onnx_probe import find_plan
from viewer.backends.onnx_scores import lookup, make_scores, tapped_tensors
from viewer.backends.onnx_session import open_session, run_session
from viewer.backends.onnx_streams import StreamTensor, norm_nodes
from viewer.backends.onnx_verdict import verdict
from viewer.backends.quiet_runtime import onnxruntime as ort
from viewer.backends.torch_streams import Stream
from viewer.backends.verdicts import same_output

Array = npt.NDArray[Any]

# Rewriting a graph less, because of the taps, changes the order of sums: relative to the largest output.
_UNCHANGED = {"float32": 1e-4, "float64": 1e-9}
_UNCHANGED_HALF = 2e-2


@dataclass(frozen=True, eq=False)
class Size:
    """What was found out about a model at one input size.

    Attributes
    ----------
    planned
        Where queries and keys sit, for each operation that is not left out.
    arrangements
        The order of each operation's tensors; None where it is left out.
    output_unchanged
        Whether the tap leaves the model's outputs as they are; compared on the first picture of this size
        whose outputs are finite. Whether each layer is verified is found out for every picture.
    """

    planned: Planned
    arrangements: tuple[Arrangement | None, ...]
    output_unchanged: bool


@dataclass(frozen=True, eq=False)
class _Tapped:
    """What one picture left of an operation, as `Planned.joined` takes it."""

    scores: QueryKeyScores | WeightScores
    check: _Found
    stream: Stream | None = None


@dataclass(frozen=True)
class _Found:
    """A check whose verdict is known."""

    known: Verdict

    def verdict(self) -> Verdict:
        return self.known


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
    notes
        Sentences: what is left out, and why.
    """

    layers: tuple[AttentionLayer, ...]
    outputs: dict[str, Array]
    unchanged: bool
    notes: tuple[str, ...] = ()


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
        tapped = dict.fromkeys(name for match in found if not match.unclear for name in tapped_tensors(match))
        self._tensors = [name for name in tapped if not graph.is_constant(name)]
        self._depends = depend_on_picture(graph, found, program.image)
        # Tokens that are shared by several layers enter them all.
        known = dict.fromkeys(stream for stream in program.streams if stream is not None)
        self._norms = [stream.norms for stream in known]
        self._norm_nodes = norm_nodes(graph, list(known))
        self._session = self._opened()
        self._sizes: dict[tuple[str | int, ...], Size] = {}
        self._fixed: dict[str, Array] = {}

    @property
    def provider(self) -> str:
        """The execution provider ONNX Runtime really uses first."""
        return self._session.get_providers()[0]

    def move_to(self, providers: Sequence[object]) -> None:
        """Run somewhere else from now on."""
        self._providers = list(providers)
        self._session = self._opened()

    def _opened(self) -> ort.InferenceSession:
        """Open a session that hands out, beside its own outputs, what layers are made of."""
        handed_out = [*self._tensors, *self._norms]
        return open_session(self._program.file, self._providers, handed_out, self._norm_nodes)

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
        feeds = {program.image: feed, **program.fillers}
        wanted = list(dict.fromkeys([*program.graph.outputs, *self._tensors, *self._norms]))
        tensors = run_session(self._session, feeds, wanted, job, "Running the model")
        known = self._known(feeds, layout, tensors, job)
        layers = known.planned.joined(self._tapped(tensors, known.arrangements))
        outputs = {name: tensors[name] for name in program.graph.outputs}
        notes = known.planned.notes + program.unmatched
        return OnnxRun(layers, outputs, known.output_unchanged, notes)

    def _tapped(
        self, tensors: Mapping[str, Array], arrangements: Sequence[Arrangement | None]
    ) -> list[_Tapped | None]:
        """Make the scores of every operation and check each."""
        look = lookup(self._program.graph, tensors, self._fixed)
        pairs = list(zip(self._program.found, arrangements, strict=True))
        # Queries and keys are copied here, which several threads do faster.
        made = [None if at is None else make_scores(match, at, look) for match, at in pairs]
        streams = [_stream(stream, tensors) for stream in self._program.streams]
        tapped: list[_Tapped | None] = []
        with one_thread():  # products this small wait longer for helper threads than they take
            for (match, at), scores, stream in zip(pairs, made, streams, strict=True):
                if at is None or scores is None:
                    tapped.append(None)
                else:
                    tapped.append(_Tapped(scores, _Found(verdict(match, scores, at, look)), stream))
        return tapped

    def _known(self, feeds: Mapping[str, Array], layout: str, tensors: Mapping[str, Array], job: Job) -> Size:
        """Return what holds for a picture; most of it was found out with the first one of its size."""
        program = self._program
        size = (layout, *feeds[program.image].shape)
        known = self._sizes.get(size)
        if known is None:
            unchanged = _same_as_untapped(program, self._providers, feeds, tensors, job)
            known = Size(*find_plan(program, feeds, layout, job, tensors), unchanged)
            # Numbers that are not finite compare equal whatever was done: the next picture is compared again.
            if all(_finite(tensors[name]) for name in program.graph.outputs):
                self._sizes[size] = known
        elif self._depends:
            known = Size(*find_plan(program, feeds, layout, job, tensors), known.output_unchanged)
        return known


def _stream(stream: StreamTensor | None, tensors: Mapping[str, Array]) -> Stream | None:
    if stream is None:
        return None
    return Stream(0, torch.from_numpy(np.array(tensors[stream.norms], np.float32).ravel()))


def _same_as_untapped(
    program: OnnxProgram,
    providers: Sequence[object],
    feeds: Mapping[str, Array],
    outputs: Mapping[str, Array],
    job: Job,
) -> bool:
    plain = open_session(program.file, providers)
    doing = "Comparing with the untapped model"
    untapped = run_session(plain, feeds, program.graph.outputs, job, doing)
    return all(_same(untapped[name], outputs[name]) for name in program.graph.outputs)


def _same(one: Array, other: Array) -> bool:
    """Whether two outputs are equal but for the order of sums."""
    if one.size == 0 or one.shape != other.shape or not np.issubdtype(one.dtype, np.floating):
        return bool(np.array_equal(one, other))
    tolerance = _UNCHANGED.get(one.dtype.name, _UNCHANGED_HALF)
    exact = [torch.as_tensor(array, dtype=torch.float64) for array in (one, other)]
    return same_output(*exact, tolerance)


def _finite(array: Array) -> bool:
    return not np.issubdtype(array.dtype, np.floating) or bool(np.isfinite(array).all())
