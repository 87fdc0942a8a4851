"""Token layouts of an ONNX model's attention operations, and names for its prefix tokens."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import numpy.typing as npt
import onnx
import torch
from torch import Tensor

from viewer.backends.layer_plans import Planned, plan_layers
from viewer.backends.onnx_arrangement import Arrangement, Stage, arrange, stacked_places
from viewer.backends.onnx_found import Found, OnnxProgram, Operand
from viewer.backends.onnx_graph import Graph
from viewer.backends.onnx_moves import CONTROLS, DECIDING, moved_inputs
from viewer.backends.onnx_places import NO_LABEL, first_picture, picture
from viewer.backends.onnx_rules import unplaced
from viewer.backends.onnx_streams import StreamTensor
from viewer.backends.onnx_walk import follow
from viewer.backends.position_call import Lost
from viewer.backends.position_math import mean_place, shrink
from viewer.backends.positions import CHANNELS, STAND_INS
from viewer.backends.torch_streams import Stream

_DETECTION = re.compile(r"det(ection)?_?tok|quer", re.I)

_KNOWN_TOKENS = (
    ("dist", re.compile(r"dist\w*(tok|emb)|dist_token", re.I)),
    ("reg", re.compile(r"reg(ister)?s?_?(tok|emb)|register|storage_tok", re.I)),
    ("cls", re.compile(r"cls|class_?(tok|emb)", re.I)),
)


def traced_nodes(graph: Graph, found: Sequence[Found]) -> list[onnx.NodeProto]:
    """Return the nodes whose elements become queries and keys, in graph order, constants left out.

    What only tells a shape or an index is computed by nodes of its own, often most of an export's; these are
    left out, since shapes and indices are known.
    """
    wanted = {side.tensor for match in found for side in (match.queries, match.keys, match.context)}
    return [node for node in graph.ancestors(wanted, moved_inputs) if node.op_type != "Constant"]


def unknown_controls(graph: Graph, nodes: Sequence[onnx.NodeProto]) -> list[str]:
    """Name the integer inputs whose values only a run can tell."""
    names = [
        node.input[at]
        for node in nodes
        for at in CONTROLS.get(node.op_type, ())
        if at < len(node.input) and node.input[at] and not graph.is_constant(node.input[at])
    ]
    return list(dict.fromkeys(names))


# Shapes of what goes in say nothing of the picture's own values.
_SHAPES = ("Shape", "Size")


def depend_on_picture(graph: Graph, found: Sequence[Found], image: str) -> bool:
    """Whether the picture's own values decide where its tokens go."""
    waiting = [
        node.input[at]
        for node in traced_nodes(graph, found)
        for at in DECIDING.get(node.op_type, ())
        if at < len(node.input) and node.input[at]
    ]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name == image:
            return True
        maker = graph.maker(name)
        if name in seen or maker is None or maker.op_type in _SHAPES:
            continue
        seen.add(name)
        waiting.extend(source for source in maker.input if source)
    return False


def plan_attention(
    program: OnnxProgram,
    picture_layout: str,
    shapes: Mapping[str, tuple[int, ...]],
    controls: Mapping[str, npt.NDArray[np.int64]],
) -> tuple[Planned, tuple[Arrangement | None, ...]]:
    """Find where queries and keys of every attention operation sit.

    Parameters
    ----------
    program
        The model.
    picture_layout
        Of its input, "NCHW" or "NHWC".
    shapes, controls
        Of all tensors on the way, as `onnx_probe.probe` finds them.

    Returns
    -------
    tuple
        Layers and what is left out; and the order of tensors for each operation, None where it is left out.

    Raises
    ------
    LayoutError
        If no operation's tokens could be placed.
    """
    graph, found = program.graph, program.found
    labels = _labels(graph)

    def control(name: str) -> npt.NDArray[np.int64] | None:
        return controls[name] if name in controls else graph.constant(name)

    known = _known_places(program, picture_layout, shapes, labels)
    hand_on = {match.context.tensor: match.queries.tensor for match in found}
    size = _size(shapes[program.image], picture_layout)
    places = follow(traced_nodes(graph, found), known, shapes, control, hand_on, size)
    arrangements = [Lost(match.unclear) if match.unclear else arrange(match, shapes) for match in found]
    sides: dict[Hashable, Tensor | Lost] = {}
    located = [
        replace(_located(match, arranged, places, sides), stream=_stream(stream, places, shapes))
        for match, arranged, stream in zip(found, arrangements, program.streams, strict=True)
    ]
    trace = _Trace(size, _names(graph, labels, located))
    planned = plan_layers(program.name, located, trace)
    return planned, tuple(
        replace(one.arrangement, mine=one.mine) if plan is not None and one.arrangement else None
        for plan, one in zip(planned.layers, located, strict=True)
    )


@dataclass(frozen=True)
class _Counts:
    """How many products there are, and of how many tokens; what `plan_layers` asks of scores."""

    heads: int
    queries: int
    keys: int


@dataclass(frozen=True, eq=False)
class _Located:
    """An attention as `plan_layers` takes it: where its tokens sit, in the order of the product."""

    module: str
    note: str
    scores: _Counts
    places: tuple[Tensor | Lost, Tensor | Lost, Tensor | Lost]
    arrangement: Arrangement | None = None
    mine: list[int] | None = None
    stream: Stream | None = None


@dataclass(frozen=True)
class _Trace:
    """What `plan_layers` asks of a trace."""

    size: tuple[int, int]
    names: Mapping[int, str]

    def parameter_name(self, label: int) -> str:
        return STAND_INS.get(label) or self.names.get(label, "")


def _size(shape: tuple[int, ...], picture_layout: str) -> tuple[int, int]:
    return (shape[2], shape[3]) if picture_layout == "NCHW" else (shape[1], shape[2])


def _located(
    found: Found,
    arranged: Arrangement | Lost,
    places: Mapping[str, Tensor | Lost],
    known: dict[Hashable, Tensor | Lost],
) -> _Located:
    """Say where the tokens of an attention sit; `known` has sides that were seen before."""
    if isinstance(arranged, Lost):
        return _Located(found.name, found.note, _Counts(1, 0, 0), (arranged,) * 3)
    sides = [
        _known_tokens(operand, places.get(operand.tensor, _UNKNOWN), stage, known)
        for operand, stage in (
            (found.queries, arranged.product),
            (found.keys, arranged.product),
            (found.context, arranged.end),
        )
    ]
    mine = first_picture(*(side for side in sides[:2] if isinstance(side, Tensor))) if all(
        isinstance(side, Tensor) for side in sides[:2]
    ) else torch.arange(arranged.stacked)  # fmt: skip
    all_mine = len(mine) == arranged.stacked
    if not all_mine:
        sides = [side[mine] if isinstance(side, Tensor) else side for side in sides]
    counts = _Counts(len(mine), *arranged.shape)
    return _Located(
        found.name, found.note, counts, tuple(sides), arranged, None if all_mine else mine.tolist()
    )


def _stream(
    stream: StreamTensor | None, places: Mapping[str, Tensor | Lost], shapes: Mapping[str, tuple[int, ...]]
) -> Stream | None:
    """Say where the tokens of a residual stream sit, of all leading axes one after the other."""
    if stream is None:
        return None
    found = places.get(stream.tensor, _UNKNOWN)
    if isinstance(found, Tensor):
        columns = shrink(found, (found.ndim - 1,))
        mean = mean_place(columns, (-1,), keepdim=True)
        apart = bool(((columns - mean).abs() > _AGREEMENT).any())
        lead = shapes[stream.tensor][:-1]
        found = CHANNELS if apart else mean[..., 0].expand(lead).reshape(-1)
    return Stream(0, torch.empty(0), found)


_UNKNOWN = Lost("the tensor is not followed")
# Channels of a token, of all heads, must sit at the same place to within this many pixels.
_AGREEMENT = 0.5


def _known_tokens(
    operand: Operand, places: Tensor | Lost, at: Stage, known: dict[Hashable, Tensor | Lost]
) -> Tensor | Lost:
    """Return what `_tokens` does, the same object for the same places."""
    key = (id(places), operand.axes, at.lead, at.order.tobytes())
    if key not in known:
        known[key] = _tokens(operand, places, at)
    return known[key]


def _tokens(operand: Operand, places: Tensor | Lost, at: Stage) -> Tensor | Lost:
    """Return where tokens sit, (stacked, tokens); `CHANNELS` where it is the channels that have a place."""
    if isinstance(places, Lost):
        return places
    if operand.axes is not None:
        places = places.mT if operand.axes == (-1, -2) else places.permute(operand.axes)
    columns = shrink(places, (places.ndim - 1,))
    mean = mean_place(columns, (-1,), keepdim=True)
    if bool(((columns - mean).abs() > _AGREEMENT).any()):
        alike = mean_place(places, (-2,), keepdim=True)
        apart = bool(((places - alike).abs() > _AGREEMENT).any())
        return Lost("the channels of one token look at different places") if apart else CHANNELS
    return stacked_places(mean[..., 0], at)


def _names(graph: Graph, labels: Mapping[str, int], located: Sequence[_Located]) -> dict[int, str]:
    """Name what tokens without a place stem from, as `layer_plans.prefix_names` knows it."""
    sources = {label: name for name, label in labels.items()}
    distilled = any("head_dist" in name for name in graph.initializers)
    known: dict[int, str] = {}
    for one in located:
        keys = one.places[1]
        if isinstance(keys, Tensor) and len(keys) and not bool(keys.real.isnan().all()):
            tokens = keys[0][keys[0].real.isnan()]
            own = [int(label) for label in tokens.imag.tolist() if label not in STAND_INS]
            for label, name in zip(
                own, prefix_names([sources.get(n, "") for n in own], distilled), strict=True
            ):
                known.setdefault(label, _PARAMETERS.get(name.rstrip("0123456789"), ""))
    for one in located:
        queries = one.places[0]
        if isinstance(queries, Tensor) and bool(queries.real.isnan().all()):
            for label in set(queries.imag.unique().int().tolist()) - set(STAND_INS):
                known.setdefault(label, _PARAMETERS["latent"])
    return known


_PARAMETERS = {"cls": "cls_token", "dist": "dist_token", "reg": "reg_token", "latent": "latent"}


def _known_places(
    program: OnnxProgram,
    picture_layout: str,
    shapes: Mapping[str, tuple[int, ...]],
    labels: Mapping[str, int],
) -> dict[str, Tensor]:
    """Return the places of the picture's pixels and of everything that the file fixes."""
    known = {}
    for name, shape in shapes.items():
        maker = program.graph.maker(name)
        if maker is None or maker.op_type == "Constant":
            known[name] = unplaced(shape, labels.get(name, NO_LABEL))
    known[program.image] = picture(shapes[program.image], picture_layout)
    return known


def _labels(graph: Graph) -> dict[str, int]:
    """Give numbers to parameters that can stand in for tokens: known token names first, small before large.

    Where a class token and position embeddings are added, the lower number is kept: the token's own. Vectors
    are biases and gains of all tokens alike and get no number.
    """
    ranked = []
    for name, tensor in graph.initializers.items():
        known = _token_kind(name) is not None
        if known or len(tensor.dims) > 1:
            ranked.append((not known, int(np.prod(tensor.dims)), name))
    return {name: rank for rank, (_, _, name) in enumerate(sorted(ranked), start=1)}


def _token_kind(name: str) -> str | None:
    return next((kind for kind, pattern in _KNOWN_TOKENS if pattern.search(name)), None)


def prefix_names(parameters: Sequence[str], distilled: bool = False) -> list[str]:
    """Name prefix tokens after the parameters they come from.

    Parameters
    ----------
    parameters
        Name of each token's parameter, in token order; empty where it isn't known.
    distilled
        Whether the model has a distillation head, so that a second single token is the distillation token.

    Returns
    -------
    list of str
        "cls", "dist", "reg1", "reg2", ...; for tokens nothing tells about "prefix0" and so on, counted from
        the first prefix token.
    """
    names: list[str] = []
    has_class = any(_token_kind(parameter) == "cls" for parameter in parameters)
    for parameter, group in groupby(parameters):
        length = len(list(group))
        kind = _token_kind(parameter)
        if kind is None and length == 1 and not has_class:
            kind = "cls"
        elif kind is None and length == 1 and distilled:
            kind = "dist"
        elif kind is None and length > 1 and parameter and names and not _DETECTION.search(parameter):
            kind = "reg"  # several tokens of one parameter behind the class token
        has_class = has_class or kind == "cls"
        for _ in range(length):
            registers = sum(name.startswith("reg") for name in names)
            unnumbered = kind if kind and kind not in names else f"prefix{len(names)}"
            names.append(f"reg{registers + 1}" if kind == "reg" else unnumbered)
    return names
