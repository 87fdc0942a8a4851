"""Changing whole blocks of a model while it runs: Context Broadcasting after the MLP, and skipping."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor, nn

from viewer.errors import InputError

if TYPE_CHECKING:
    from viewer.backends.what_if import Change

# What models call the MLP of a block: mlp, mlp_in, ffn, feed_forward, ff, ...
_MLP = re.compile(r"(^|_)(mlp|ffn|ff|feed_?forward)(_|\d|$)")


@dataclass(frozen=True)
class Block:
    """A block of attention and MLP.

    Attributes
    ----------
    name, module
        As in the model: ``"blocks.3"``.
    mlp_name, mlp
        The module whose output is that of the block's MLP, before it is added to the stream.
    """

    name: str
    module: nn.Module
    mlp_name: str
    mlp: nn.Module


@dataclass(frozen=True)
class Broadcasting:
    """A forward hook that mixes the mean of all tokens into a module's output (arXiv 2210.08457).

    Attributes
    ----------
    strength
        Share of the mean; 0.5 is the paper's.
    """

    strength: float

    def __call__(self, module: nn.Module, args: object, output: Tensor) -> Tensor:
        """Return ``(1 - s) x + s mean(x)``; the mean is over everything but the channels.

        One picture is run at a time, so what else has a dimension of its own are windows or parts of it.
        """
        channels = _channels(module, output)
        over = [dim for dim in range(output.ndim) if dim != channels]
        return (1 - self.strength) * output + self.strength * output.mean(dim=over, keepdim=True)


def _channels(module: nn.Module, output: Tensor) -> int:
    """Return which dimension of an MLP's output holds its channels: last after a linear layer, or second."""
    layers = [part for part in module.modules() if isinstance(part, nn.Linear | nn.Conv2d)]
    return 1 if layers and isinstance(layers[-1], nn.Conv2d) and output.ndim == 4 else output.ndim - 1


def block_of(model: nn.Module, attention: str) -> Block | None:
    """Return the block that an attention belongs to, the innermost module that also holds an MLP.

    None where there is none, as in programs, which have no such modules.

    Parameters
    ----------
    attention
        Name of the attention's module.
    """
    modules = dict(model.named_modules())
    name = attention
    while name in modules and name:
        parent = name.rpartition(".")[0]
        if parent not in modules or _is_list(modules[parent]):
            return None
        found = _mlp_of(modules[parent], name[len(parent) :].lstrip("."))
        if found is not None and parent:
            return Block(parent, modules[parent], f"{parent}.{found[0]}", found[1])
        name = parent
    return None


def _is_list(module: nn.Module) -> bool:
    """Return whether a module only holds blocks one after another."""
    names = [name for name, _ in module.named_children()]
    return bool(names) and all(name.isdecimal() for name in names)


def _mlp_of(block: nn.Module, attention: str) -> tuple[str, nn.Module] | None:
    """Return the MLP that follows a block's attention, and its name inside the block."""
    children = dict(block.named_children())
    mlps = [name for name in children if _MLP.search(name) and name != attention]
    order = list(children)
    after = [name for name in mlps if attention in order and order.index(name) > order.index(attention)]
    if mlps:
        name = (after or mlps)[0]
        return name, children[name]
    # PyTorch's own transformer layer has its MLP's two halves as children.
    if {"linear1", "linear2"} <= set(children):
        return "linear2", children["linear2"]
    # Transformers adds to the stream inside the second half.
    if {"intermediate", "output"} <= set(children) and hasattr(children["output"], "dense"):
        return "output.dense", children["output"].dense
    return None


def blocks_for(model: nn.Module, name: str, change: Change, attentions: Sequence[str]) -> list[Block]:
    """Return the blocks that a change is made to, each once.

    Parameters
    ----------
    model, name
        The model, and what to call it in errors.
    change
        Of blocks.
    attentions
        The module of each layer.

    Raises
    ------
    InputError
        If a layer that was named has none; of all layers those are meant that have one.
    """
    found: dict[str, Block] = {}
    for index, attention in enumerate(attentions):
        if not change.touches(index):
            continue
        # An attention that runs more than once is told apart by a number.
        block = block_of(model, attention.partition(":")[0])
        if block is not None:
            found[block.mlp_name if change.kind == "cb" else block.name] = block
        elif change.layers:
            raise InputError(_no_block(name, index, attention))
    if not found:
        raise InputError(_no_block(name, 0, attentions[0]))
    return list(found.values())


def _no_block(name: str, index: int, attention: str) -> str:
    return (
        f"What if: layer {index} of {name} ({attention}) lies in no module that holds both attention and "
        "MLP, so there is no block to skip and no MLP for Context Broadcasting to follow. Attention itself "
        "can be changed: uniform, local, head-removed, temperature."
    )


@contextmanager
def blocks_changed(
    model: nn.Module, name: str, changes: Sequence[Change], attentions: Sequence[str]
) -> Iterator[None]:
    """Make the changes of blocks within; parameters as for `blocks_for`.

    Raises
    ------
    InputError
        As `blocks_for`; and while the model runs, if a block that is to be skipped changes the shape of what
        goes through it.
    """
    with ExitStack() as hooks:
        for change in changes:
            if change.idle or change.kind not in ("cb", "skip"):
                continue
            for block in blocks_for(model, name, change, attentions):
                if change.kind == "cb":
                    handle = block.mlp.register_forward_hook(Broadcasting(change.amount))
                else:
                    skip = partial(_skip, block.name)
                    handle = block.module.register_forward_hook(skip, with_kwargs=True)
                hooks.callback(handle.remove)
        yield


def _skip(name: str, module: nn.Module, args: tuple, kwargs: dict, output: object) -> object:
    """Give a block's input for its output; as the block has run, its attention can be looked at.

    A block may take and give several streams of tokens, as arguments (TNT) or as a list of them (CrossViT).
    """
    given = [*args, *kwargs.values()]
    streams = [value for value in given if isinstance(value, Tensor)]
    if isinstance(output, Tensor):
        found = streams[:1]
    elif given and isinstance(given[0], (list, tuple)):
        found = list(given[0])
    else:
        found = streams
    outputs = [output] if isinstance(output, Tensor) else list(output) if _several(output) else []
    # What comes beside the tokens (weights that were asked for, say) has no input that it could be.
    pairs = list(zip(found, outputs, strict=False))
    if not pairs or any(old.shape != new.shape for old, new in pairs[:1]):
        raise InputError(
            f"What if: the block {name} can't be skipped: what comes out of it has another shape than what "
            "goes in. Name layers of other blocks."
        )
    kept = [old if old.shape == new.shape else new for old, new in pairs] + outputs[len(pairs) :]
    return kept[0] if isinstance(output, Tensor) else type(output)(kept)


def _several(output: object) -> bool:
    return type(output) in (list, tuple) and all(isinstance(part, Tensor) for part in output)


def broadcast_always(model: nn.Module, strength: float) -> int:
    """Make Context Broadcasting part of a model, after the MLP of every block.

    Returns
    -------
    int
        After how many MLPs.
    """
    mlps = [
        module
        for name, module in model.named_modules()
        if _MLP.search(name.rpartition(".")[2])
        and not isinstance(module, nn.Identity)
        and _in_block(model, name)
    ]
    for mlp in mlps:
        mlp.register_forward_hook(Broadcasting(strength))
    return len(mlps)


def _in_block(model: nn.Module, mlp: str) -> bool:
    """Return whether an MLP stands beside an attention."""
    parent = mlp.rpartition(".")[0]
    if not parent:
        return False
    beside = [name for name, _ in model.get_submodule(parent).named_children()]
    return any(re.search(r"attn|attention|token_mixer", name) for name in beside)
