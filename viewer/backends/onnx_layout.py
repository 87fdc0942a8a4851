"""Token layouts of an ONNX model's attention operations, and names for its prefix tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt
import onnx

from viewer.attention.layout import TokenLayout
from viewer.backends.onnx_found import Found, Operand
from viewer.backends.onnx_graph import Graph
from viewer.backends.onnx_moves import follow
from viewer.backends.onnx_places import Places, UnknownPlace, picture, shrink, thin, unplaced

# Which inputs of an operator say how it moves elements, rather than being moved.
_REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare")
CONTROLS = {"Slice": (1, 2, 3, 4), "Gather": (1,), "Pad": (1, 3), "Tile": (1,)} | dict.fromkeys(
    _REDUCTIONS, (1,)
)

_KNOWN_TOKENS = (
    ("dist", re.compile(r"dist\w*(tok|emb)|dist_token", re.I)),
    ("reg", re.compile(r"reg(ister)?s?_?(tok|emb)|register|storage_tok", re.I)),
    ("cls", re.compile(r"cls|class_?(tok|emb)", re.I)),
)


def traced_nodes(graph: Graph, found: Sequence[Found]) -> list[onnx.NodeProto]:
    """Return the nodes that queries and keys depend on, in graph order, constants left out."""
    wanted = {operand.tensor for match in found for operand in (match.queries, match.keys)}
    return [node for node in graph.ancestors(wanted) if node.op_type != "Constant"]


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
_RESHAPES = {"Reshape": (1,), "Expand": (1,), "Unsqueeze": (1,), "Squeeze": (1,)}


def depend_on_picture(graph: Graph, found: Sequence[Found], image: str) -> bool:
    """Whether the picture's own values decide where its tokens go."""
    waiting = [
        node.input[at]
        for node in traced_nodes(graph, found)
        for at in (CONTROLS | _RESHAPES).get(node.op_type, ())
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


def layouts_of(
    graph: Graph,
    found: Sequence[Found],
    image: tuple[str, str],
    shapes: Mapping[str, tuple[int, ...]],
    controls: Mapping[str, npt.NDArray[np.int64]],
) -> list[tuple[TokenLayout, TokenLayout]]:
    """Find where queries and keys of every attention operation sit.

    Parameters
    ----------
    graph, found
        The model.
    image
        Name of the picture's input, and "NCHW" or "NHWC".
    shapes, controls
        Of all tensors on the way, from a real run.

    Returns
    -------
    list of tuple
        Query layout and key layout of each operation.

    Raises
    ------
    UnknownPlace
        If an operator can't be followed, or the tokens do not fill a grid.
    """
    labels = _labels(graph)

    def control(name: str) -> npt.NDArray[np.int64] | None:
        return controls[name] if name in controls else graph.constant(name)

    known = _known_places(graph, image, shapes, labels)
    places = follow(traced_nodes(graph, found), known, shapes, control)
    sources = {label: name for name, label in labels.items()}
    distilled = any("head_dist" in name for name in graph.initializers)
    return [
        tuple(_layout(match, operand, places, sources, distilled) for operand in (match.queries, match.keys))
        for match in found
    ]


def _known_places(
    graph: Graph,
    image: tuple[str, str],
    shapes: Mapping[str, tuple[int, ...]],
    labels: Mapping[str, float],
) -> dict[str, Places]:
    """Return the places of the picture's pixels and of everything that the file fixes."""
    known = {}
    for name, shape in shapes.items():
        maker = graph.maker(name)
        if maker is None or maker.op_type == "Constant":
            known[name] = unplaced(shape, labels.get(name, np.nan))
    known[image[0]] = picture(shapes[image[0]], image[1])
    return known


def _labels(graph: Graph) -> dict[str, float]:
    """Give numbers to parameters that can stand in for tokens: known token names first, small before large.

    Where a class token and position embeddings are added, the lower number is kept: the token's own. Vectors
    are biases and gains of all tokens alike and get no number.
    """
    ranked = []
    for name, tensor in graph.initializers.items():
        known = _token_kind(name) is not None
        if known or len(tensor.dims) > 1:
            ranked.append((not known, int(np.prod(tensor.dims)), name))
    return {name: float(rank) for rank, (_, _, name) in enumerate(sorted(ranked))}


def _token_kind(name: str) -> str | None:
    return next((kind for kind, pattern in _KNOWN_TOKENS if pattern.search(name)), None)


def _layout(
    match: Found,
    operand: Operand,
    places: Mapping[str, Places],
    sources: Mapping[float, str],
    distilled: bool,
) -> TokenLayout:
    """Return the layout of one operand's tokens."""
    arranged = operand.arrange(places[operand.tensor])
    for axis in range(arranged.ndim - 2):
        arranged = shrink(arranged, axis)
    if max(thin(arranged).shape[:-2], default=1) > 1:
        raise UnknownPlace(f"the heads of {match.name} look at different tokens, as in windowed attention")
    while arranged.ndim > 2:
        arranged = arranged[0]
    tokens = arranged[:, 0]
    positions = np.stack([tokens.real, np.where(np.isnan(tokens.real), np.nan, tokens.imag)], axis=-1)
    labels = tokens.imag[np.isnan(tokens.real)]
    names = prefix_names([sources.get(label, "") for label in labels.tolist()], distilled)
    try:
        return TokenLayout.from_positions(positions.astype(np.float32), names)
    except ValueError as error:
        raise UnknownPlace(f"in {match.name}, {error}") from error


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
        elif kind is None and length > 1 and parameter and names:
            kind = "reg"  # several tokens of one parameter behind the class token
        has_class = has_class or kind == "cls"
        for _ in range(length):
            registers = sum(name.startswith("reg") for name in names)
            unnumbered = kind if kind and kind not in names else f"prefix{len(names)}"
            names.append(f"reg{registers + 1}" if kind == "reg" else unnumbered)
    return names
