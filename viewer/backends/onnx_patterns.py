"""Finding attention in an ONNX graph, by the forms of `onnx_forms` and `onnx_fused`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import onnx

from viewer.backends.onnx_forms import AFTER, BETWEEN, CHANGING, MIXING, MOVING, VIEWS, Row
from viewer.backends.onnx_found import Found, Operand, Step
from viewer.backends.onnx_fused import AS_FLOATS
from viewer.backends.onnx_graph import STANDARD, Graph, attribute, module_name, walk_back
from viewer.backends.onnx_learned import among_learned
from viewer.backends.onnx_mixes import ALONE, mark_mixed
from viewer.backends.onnx_names import parameters_module
from viewer.backends.onnx_products import (
    FLOAT_PRODUCTS,
    PRODUCTS,
    ZERO_POINTS,
    query_key,
    sides,
    value_operands,
)

_BETWEEN = {row.op: row for row in BETWEEN}
_AFTER = {row.op: row for row in AFTER}
_SOFTMAX = "Softmax"
# Between a product and its softmax these take something learned; else they join streams of tokens.
_JOINING = frozenset({"Gemm", "Conv", "Add", "Sub", "Concat"})


class Matches(NamedTuple):
    """What was found in a graph.

    Attributes
    ----------
    found
        Attention operations in forward order, each with a name of its own.
    unmatched
        Sentences about what looks like attention and could not be matched, with the nodes around it.
    """

    found: tuple[Found, ...]
    unmatched: tuple[str, ...] = ()


class _Logits(NamedTuple):
    """The product behind a softmax."""

    product: onnx.NodeProto
    pair: tuple[Operand, Operand]
    steps: tuple[Step, ...]
    loose: bool = False


class _End(NamedTuple):
    """The product of weights with values."""

    product: onnx.NodeProto
    weights: str
    weights_first: bool
    turned: bool
    after: tuple[Step, ...]
    rounded: bool
    changed: str = ""


def find_attention(graph: Graph, fused: Mapping[str, Found | str]) -> Matches:
    """Find all attention operations of a graph.

    Parameters
    ----------
    graph
        The model's.
    fused
        Those that are one operator, see `onnx_fused.put_beside`.
    """
    found: list[Found] = []
    unmatched: list[str] = []
    for node in graph.nodes:
        if node.op_type == _SOFTMAX and node.domain in STANDARD:
            match = _decomposed(graph, node) or among_learned(graph, node)
        else:
            match = fused.get(node.output[0]) if node.output else None
        if isinstance(match, Found):
            found.append(match)
        elif match is not None:
            unmatched.append(match)
    return Matches(_named(graph, mark_mixed(graph, found)), tuple(unmatched))


def _named(graph: Graph, found: list[Found]) -> tuple[Found, ...]:
    """Give names to operations without one, and number those that share a name."""
    names = [match.name or parameters_module(graph, match) or "attention" for match in found]
    unique: list[Found] = []
    for index, (match, name) in enumerate(zip(found, names, strict=True)):
        ordinal = names[:index].count(name)
        shared = names.count(name) > 1
        unique.append(replace(match, name=f"{name}.{ordinal}" if shared else name))
    return tuple(unique)


def _decomposed(graph: Graph, softmax: onnx.NodeProto) -> Found | str | None:
    """Describe the attention around a softmax; None where there is none, a sentence where it is unclear."""
    logits = _logits_of(graph, softmax)
    if logits is None:
        return None
    integers = softmax.output[0].endswith(AS_FLOATS)
    weights = softmax.output[0].removesuffix(AS_FLOATS)
    end = _end_of(graph, weights, integers) or _changed_end(graph, weights)
    if end is None:
        return _unmatched(graph, softmax)
    values = sides(end.product)[1 if end.weights_first else 0]
    if graph.is_learned(values):
        return None
    operands = value_operands(end.product, values, end.weights_first, end.turned)
    if operands is None:
        return _unmatched(graph, softmax)
    understood = not logits.loose and all(step.role != "other" for step in logits.steps)
    (queries, query_scale), (keys, key_scale) = (_unscaled(graph, operand) for operand in logits.pair)
    match = Found(
        # The softmax may be a module of its own.
        name=module_name(end.product) or module_name(softmax).removesuffix(".softmax"),
        queries=queries,
        keys=keys,
        values=operands[0],
        context=operands[1],
        steps=logits.steps,
        scale=float(attribute(logits.product, "alpha", 1.0)) * query_scale * key_scale,
        softmax=softmax.output[0],
        axis=int(attribute(softmax, "axis", -1 if graph.opset >= 13 else 1)),
        weights="" if understood else softmax.output[0],
        loose=logits.loose,
        after=end.after,
        used=end.weights if end.rounded or end.changed else "",
        mixed=end.changed,
        offsets=_offsets(end),
    )
    if _is_weights(graph, values):
        return replace(match, unclear=f"the weights of two attentions are multiplied, {ALONE}")
    return replace(match, unclear=f"two maps of weights are put together, {ALONE}") if _two(end) else match


def _unscaled(graph: Graph, operand: Operand) -> tuple[Operand, float]:
    """Return queries or keys as they were before they were multiplied by a number, and that number.

    ONNX Runtime takes such numbers into the product that follows, unless the scaled tensor is handed out.
    """
    scale = 1.0
    while (maker := graph.maker(operand.tensor)) is not None and maker.op_type in ("Mul", "Div"):
        sides = ((0, 1),) if maker.op_type == "Div" else ((0, 1), (1, 0))
        at, number = next(
            (
                (at, graph.constant(maker.input[other]))
                for at, other in sides
                if graph.is_constant(maker.input[other])
            ),
            (0, None),
        )
        if number is None or number.size != 1 or number.ndim > 1 or not number.all():
            break
        factor = float(number.reshape(()))
        scale = scale / factor if maker.op_type == "Div" else scale * factor
        operand = operand._replace(tensor=maker.input[at])
    return operand, scale


def _two(end: _End) -> bool:
    return end.changed.startswith("+")


def _offsets(end: _End) -> tuple[str, str, str] | None:
    """Name the zero points of weights, values and their product where these are integers."""
    if end.product.op_type not in ZERO_POINTS:
        return None
    given = end.product.input
    first, second, result = (
        given[at] if 0 <= at < len(given) else "" for at in ZERO_POINTS[end.product.op_type]
    )
    return (first, second, result) if end.weights_first else (second, first, result)


def _unmatched(graph: Graph, softmax: onnx.NodeProto) -> str:
    """Say of a softmax over queries times keys what stands around it."""
    before = graph.maker(softmax.input[0])
    after = graph.users(softmax.output[0])
    names = [_called(node) for node in ([before] if before else []) + after[:1]]
    around = f", between {' and '.join(names)}," if names else ""
    return f"The softmax {_called(softmax)}{around} could not be matched to values."


def _called(node: onnx.NodeProto) -> str:
    return repr(node.name or node.output[0])


def _is_weights(graph: Graph, values: str) -> bool:
    """Whether what weights are multiplied with are weights themselves, made from queries and keys."""
    makers = walk_back(graph, values, frozenset({*_AFTER, *MOVING}))
    softmax = next((maker for maker in makers if maker.op_type == _SOFTMAX), None)
    return softmax is not None and _logits_of(graph, softmax) is not None


def _logits_of(graph: Graph, softmax: onnx.NodeProto) -> _Logits | None:
    """Find the product of queries and keys behind a softmax, step by step or, failing that, somehow."""
    clean = _walk(graph, softmax.input[0], (), set())
    if clean is not None:
        return clean
    for source in walk_back(graph, softmax.input[0], MIXING, lambda node: _learned_side(graph, node)):
        pair = _pair(graph, source)
        if pair is not None:
            return _Logits(source, pair, (), loose=True)
    return None


def _learned_side(graph: Graph, node: onnx.NodeProto) -> bool:
    """Whether a search may go on behind a node: of products and sums, only behind those that mix heads."""
    if node.op_type in PRODUCTS:
        return any(map(graph.is_learned, sides(node)))
    return node.op_type not in _JOINING or any(map(graph.is_learned, node.input[:2]))


def _pair(graph: Graph, product: onnx.NodeProto) -> tuple[Operand, Operand] | None:
    """Return queries and keys of a product; None where it is none, or a projection."""
    pair = query_key(product) if product.op_type in PRODUCTS else None
    return pair if pair is not None and not graph.is_learned(pair[1].tensor) else None


def _walk(graph: Graph, name: str, steps: tuple[Step, ...], seen: set[str]) -> _Logits | None:
    """Walk from the softmax's input back to the product; steps come in forward order."""
    maker = graph.maker(name)
    if maker is None or name in seen:
        return None
    seen.add(name)
    pair = _pair(graph, maker)
    if pair is not None:
        integers = () if maker.op_type in FLOAT_PRODUCTS else (Step("other"),)
        return _Logits(maker, pair, (*integers, *steps))
    row = _BETWEEN.get(maker.op_type)
    for at in row.chain if row is not None else ():
        if at < len(maker.input):
            found = _walk(graph, maker.input[at], (*_step(maker, row, at), *steps), seen)
            if found is not None:
                return found
    return None


def _step(node: onnx.NodeProto, row: Row, at: int) -> tuple[Step, ...]:
    """Describe what a node does to the logits that come in at one of its operands."""
    if row.role is None:
        return ()
    if row.role == "view":
        return (_view(node),)
    if row.role == "mask":
        return (Step("mask", node.input[3 - at], condition=node.input[0], negated=at == 2),)
    return (Step(row.role, node.input[1 - at] if row.role != "other" else ""),)


def _view(node: onnx.NodeProto) -> Step:
    axes = attribute(node, "perm") if node.op_type == "Transpose" else None
    return Step("view", node.output[0], axes=None if axes is None else tuple(axes))


def _end_of(graph: Graph, weights: str, rounded: bool) -> _End | None:
    """Follow weights, which may be rounded already, forward to the product with the values."""
    waiting: list[tuple[str, tuple[Step, ...], bool, bool]] = [(weights, (), False, rounded)]
    while waiting:
        name, after, turned, rounded = waiting.pop(0)
        for user in graph.users(name):
            if user.op_type in PRODUCTS and not any(map(graph.is_learned, sides(user))):
                side = _side(user, name, turned)
                if side is not None:
                    return _End(user, name, side, turned, after, rounded)
            row = _AFTER.get(user.op_type)
            if row is None or not any(user.input[at] == name for at in row.chain if at < len(user.input)):
                continue
            steps, flips = after, _flips(user)
            if user.op_type in VIEWS and not flips:
                steps = (*after, _view(user))
            waiting.append((user.output[0], steps, turned != flips, rounded or row.rounds))
    return None


def _flips(node: onnx.NodeProto) -> bool:
    """Whether a node exchanges the last two axes and nothing else."""
    axes = attribute(node, "perm") if node.op_type == "Transpose" else None
    if not axes or len(axes) < 2:
        return False
    last = len(axes) - 1
    return list(axes) == [*range(last - 1), last, last - 1]


def _side(product: onnx.NodeProto, name: str, turned: bool) -> bool | None:
    """Tell whether weights are the first operand of a product with values; None where they are neither."""
    first, second = sides(product)
    if name == first and turned == bool(attribute(product, "transA", 0)):
        return True
    if name == second:
        fits = product.op_type == "Einsum" or turned != bool(attribute(product, "transB", 0))
        return False if fits else None
    return None


def _changed_end(graph: Graph, weights: str) -> _End | None:
    """Follow weights that become something else before they meet the values."""
    waiting: list[tuple[str, str]] = [(weights, "")]
    seen = {weights}
    while waiting:
        name, changed = waiting.pop(0)
        for user in graph.users(name):
            others = sides(user) if user.op_type in PRODUCTS else user.input
            learned = any(graph.is_learned(other) for other in others if other != name)
            if user.op_type in PRODUCTS and not learned and changed and _side(user, name, False):
                return _End(user, name, True, False, (), False, changed)
            if user.op_type not in CHANGING or (user.op_type in PRODUCTS and not learned):
                continue
            sums = user.op_type in ("Add", "Sub") and not learned
            for output in user.output:
                if output not in seen:
                    seen.add(output)
                    what = changed or (user.op_type if user.op_type not in VIEWS else "")
                    waiting.append((output, f"+{what}" if sums and not what.startswith("+") else what))
    return None
