"""What was found in an ONNX model: its attention operations, each with its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy.typing as npt
import onnx

from viewer.backends.onnx_file import OnnxFile
from viewer.backends.onnx_graph import Graph
from viewer.backends.onnx_streams import StreamTensor, find_streams

Role = Literal["factor", "divisor", "bias", "less", "mask", "causal", "view", "other"]
"""What a step does to the logits.

They are multiplied with the other operand, divided by it, it is added or subtracted; some are replaced by it;
keys behind the query are forbidden; they are given another shape, of which the last two axes stay; or
something else, so that only the softmax's result can be shown.
"""


class Operand(NamedTuple):
    """A tensor of the graph and the order in which its axes are (heads..., tokens, channels).

    Attributes
    ----------
    tensor
        Name in the graph.
    axes
        Order of axes, None for the tensor's own; (-1, -2) stands for "the last two exchanged".
    """

    tensor: str
    axes: tuple[int, ...] | None = None

    def arrange(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a view of the tensor's value (or places) with its axes in order."""
        if self.axes is None:
            return array
        return array.swapaxes(-1, -2) if self.axes == (-1, -2) else array.transpose(self.axes)


class Step(NamedTuple):
    """What one operator does to the logits on their way to the softmax, or to the weights behind it.

    Attributes
    ----------
    role
        See `Role`.
    tensor
        The other operand; for a view its result.
    condition
        For a mask: the condition, true where the logits stay.
    negated
        For a mask: whether the logits stay where the condition is false.
    axes
        For a view that exchanges axes: their order.
    """

    role: Role
    tensor: str = ""
    condition: str = ""
    negated: bool = False
    axes: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Found:
    """An attention operation of the graph.

    Attributes
    ----------
    name
        Module it belongs to.
    queries, keys
        What the logits are the product of; where they are not understood only good for finding where tokens
        sit.
    values
        What the weights are multiplied with.
    context
        The product.
    steps
        From the product to the softmax.
    scale
        Factor on the product before these.
    softmax
        The softmax's result; empty where an operator does it all and keeps it to itself.
    axis
        Along which the softmax normalizes.
    weights
        What to show where the logits are not understood: the softmax's result, mostly; else empty.
    loose
        Whether `steps` are not all of them, so that the softmax's shape has to tell that heads stayed.
    after
        Views from the softmax to the product with the values.
    used
        What is multiplied with the values where weights were rounded or mixed before; else empty.
    mixed
        Operator that first changed the weights behind the softmax; else empty.
    offsets
        Zero points of `used`, of the values and of their product where these are integers.
    unclear
        Why it can't be shown though it is attention, as a clause; mostly empty.
    """

    name: str
    queries: Operand
    keys: Operand
    values: Operand
    context: Operand
    steps: tuple[Step, ...] = ()
    scale: float | None = 1.0
    softmax: str = ""
    axis: int = -1
    weights: str = ""
    loose: bool = False
    after: tuple[Step, ...] = ()
    used: str = ""
    mixed: str = ""
    offsets: tuple[str, str, str] | None = None
    unclear: str = ""

    @property
    def note(self) -> str:
        """What a person should know of the weights, as a clause; mostly empty."""
        if self.mixed:
            return "weights of the softmax, before the model mixes or scales them"
        return "weights of the softmax, which the model rounds before use" if self.used else ""


@dataclass(frozen=True, eq=False)
class OnnxProgram:
    """A model and what was found in it.

    Attributes
    ----------
    name
        Of the model, for messages.
    file, graph
        The model.
    found
        Its attention operations, in forward order.
    image
        Name of the picture's input.
    fillers
        Neutral values for the other inputs, by name.
    unmatched
        Sentences about what looks like attention and could not be matched, with the nodes around it.
    """

    name: str
    file: OnnxFile
    graph: Graph
    found: tuple[Found, ...]
    image: str
    fillers: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    unmatched: tuple[str, ...] = ()

    @cached_property
    def streams(self) -> tuple[StreamTensor | None, ...]:
        """The residual stream that enters each operation of `found`; None where it is not found."""
        return find_streams(self.graph, [match.queries.tensor for match in self.found])


def weights_output(node: onnx.NodeProto) -> str:
    """Name the fourth output of an Attention operator, which can hold the softmax's result."""
    return f"{node.output[0]}/attention_weights"
