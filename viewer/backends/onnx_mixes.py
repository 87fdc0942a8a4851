"""Noticing attentions whose outputs are put together, so that neither map is what the model uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from viewer.backends.onnx_forms import MOVING
from viewer.backends.onnx_found import Found
from viewer.backends.onnx_graph import Graph

# What leaves an attention's output its own, but for a factor or some of its heads.
_PARTS = MOVING | {"Slice", "Split", "Gather", "Identity", "Cast", "Dropout", "Mul", "Div", "Neg"}
_SUMS = {"Add": "added", "Sub": "subtracted", "Sum": "added", "Max": "compared", "Min": "compared"}
ALONE = "so neither map is what the model uses alone"


def mark_mixed(graph: Graph, found: Sequence[Found]) -> list[Found]:
    """Mark attentions whose outputs are added to, or subtracted from, one another's."""
    owners: dict[str, int] = {}
    for index, match in enumerate(found):
        waiting = [match.context.tensor]
        while waiting:
            name = waiting.pop()
            owners[name] = index
            for user in graph.users(name):
                if user.op_type in _PARTS:
                    waiting.extend(output for output in user.output if output and output not in owners)
    marked = list(found)
    for node in graph.nodes:
        mixed = [owners[name] for name in dict.fromkeys(node.input) if name in owners]
        if node.op_type in _SUMS and len(mixed) > 1:
            for index in mixed:
                reason = f"the outputs of two attentions are {_SUMS[node.op_type]}, {ALONE}"
                marked[index] = replace(marked[index], unclear=reason)
    return marked
