"""What was found in an ONNX model: its attention operations, each with its tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy.typing as npt
import onnx

from viewer.backends.onnx_file import OnnxFile
from viewer.backends.onnx_graph import Graph

Role = Literal["factor", "divisor", "bias", "mask", "none"]
"""What the other operand does to the logits."""


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
    """What one operator does to the logits on their way to the softmax.

    Attributes
    ----------
    role
        See `Role`.
    tensor
        The other operand.
    condition
        For a mask: the condition, true where the logits stay.
    negated
        For a mask: whether the logits stay where the condition is false.
    """

    role: Role
    tensor: str
    condition: str = ""
    negated: bool = False


@dataclass(frozen=True)
class Found:
    """An attention operation of the graph.

    Attributes
    ----------
    name
        Module it belongs to.
    queries, keys
        What the logits are the product of; in the fallback only good for finding where tokens sit.
    values
        What the weights are multiplied with.
    context
        The product.
    steps
        From the product to the softmax.
    scale
        Factor on the product before these.
    weights
        The softmax's result where the logits are not understood; empty otherwise.
    node
        The standard operator, where there is one (then `steps` is empty).
    quantized
        Whether weights times values are computed in integers, which can't be checked against floats.
    unclear
        Why it can't be shown though it is attention, as a clause; mostly empty.
    """

    name: str
    queries: Operand
    keys: Operand
    values: Operand
    context: Operand
    steps: tuple[Step, ...] = ()
    scale: float = 1.0
    weights: str = ""
    node: onnx.NodeProto | None = None
    quantized: bool = False
    unclear: str = ""


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
    """

    name: str
    file: OnnxFile
    graph: Graph
    found: tuple[Found, ...]
    image: str


def weights_output(node: onnx.NodeProto) -> str:
    """Name the fourth output of an Attention operator, which can hold the softmax's result."""
    return f"{node.output[0]}/attention_weights"
