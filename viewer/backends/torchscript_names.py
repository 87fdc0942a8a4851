"""Which module of a TorchScript program each of its attentions belongs to.

The modules of a program can't be watched while they run, but their code can be read: methods call those of
other modules in a fixed order, so that the attentions of a program without branches come in the order in
which a walk through the calls meets them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import nn

# As programs spell them; at run time one of several kernels stands for each.
_ATTENTIONS = frozenset(
    [
        *("aten::softmax", "aten::_softmax", "aten::_safe_softmax", "aten::scaled_dot_product_attention"),
        *("aten::_transformer_encoder_layer_fwd", "aten::_native_multi_head_attention"),
    ]
)


def attention_modules(program: nn.Module) -> tuple[str, ...]:
    """Return the names of the modules that attend, one for each softmax or fused attention, in forward order.

    Nothing where the order is not known beforehand: attention in branches, loops or plain functions.

    Parameters
    ----------
    program
        A `torch.jit.ScriptModule`.
    """
    modules = dict(program.named_modules())
    found = list(_walk(modules, "", "forward"))
    whole = program.forward.inlined_graph  # its nodes live only as long as it does
    if None in found or len(found) != _total(whole.nodes()):
        return ()
    # As in `torch_names`: the name wanted is that of the attention, not of a softmax inside it.
    return tuple(name if any(modules[name].children()) else name.rpartition(".")[0] for name in found)


def _walk(modules: Mapping[str, Any], path: str, method: str) -> Iterator[str | None]:
    """Yield the path of a module for each attention in a method and in those it calls; None in a branch."""
    yield from _walk_nodes(modules, path, modules[path]._c._get_method(method).graph.nodes())


def _walk_nodes(modules: Mapping[str, Any], path: str, nodes: Iterable[Any]) -> Iterator[str | None]:
    for node in nodes:
        if node.kind() in _ATTENTIONS:
            yield path
        elif node.kind() == "prim::CallMethod":
            called = ".".join(filter(None, (path, _receiver(next(node.inputs())))))
            if called in modules:
                yield from _walk(modules, called, node.s("name"))
            else:  # an object that is no module
                yield None
        branches = [list(_walk_nodes(modules, path, block.nodes())) for block in node.blocks()]
        # Whichever way is taken, the same modules attend; or else it is not known beforehand which.
        if node.kind() == "prim::If" and branches[0] == branches[1]:
            yield from branches[0]
        elif any(branches):
            yield None


def _receiver(value: Any) -> str:  # noqa: ANN401
    """Return the dotted name of the submodule that a value is, seen from its method's own module."""
    parts: list[str] = []
    while value.node().kind() == "prim::GetAttr":
        parts.insert(0, value.node().s("name"))
        value = next(value.node().inputs())
    return ".".join(parts)


def _total(nodes: Iterable[Any]) -> int:
    """Count the attentions in a graph where all calls, those of functions too, are written out."""
    total = 0
    for node in nodes:
        total += node.kind() in _ATTENTIONS
        total += max((_total(block.nodes()) for block in node.blocks()), default=0)
    return total
