"""Which of timm's architectures fit given weights, told from shapes alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import timm
import torch
from timm.models import model_entrypoint
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from viewer.backends.catalogue import model_names
from viewer.backends.checkpoints import best_fit, classifiers_of

if TYPE_CHECKING:
    from viewer.backends.model import Job

Shapes = frozenset[tuple[int, ...]]

# In-place operations that only fill weights with numbers; without numbers there is nothing to fill.
_FILLING = frozenset(
    ["add_", "clamp_", "copy_", "div_", "erfinv_", "fill_", "mul_", "normal_", "sub_", "uniform_", "zero_"]
)
# timm reads checkpoints of these in their authors' own layouts, where the first convolution has other names.
_CONVERTED = frozenset(
    ["beit", "deit", "eva", "vision_transformer", "vision_transformer_hybrid", "vision_transformer_relpos"]
)


class _Unfilled(TorchFunctionMode):
    """Makes models without initial values, which takes most of the time even where there are no numbers."""

    def __torch_function__(
        self, func: object, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        if getattr(func, "__name__", "") in _FILLING:
            return args[0] if args else (kwargs or {})["tensor"]
        # Numbers that a model is made after, such as each layer's share of dropped paths, are needed.
        device = {"device": "cpu"} if func is torch.linspace else {}
        return func(*args, **{**device, **(kwargs or {})})  # type: ignore[operator]


@contextmanager
def shapes_only() -> Iterator[None]:
    """Let models be made without memory for their weights, and without filling them."""
    with torch.device("meta"), _Unfilled():
        yield


def fitting(state: dict[str, Tensor], job: Job) -> tuple[str, ...]:
    """Return the architectures that weights fit, the best first; none where none does.

    Those made for the very input size stand alone if there are any; only otherwise those whose position
    embeddings would have to be resampled. Among equals come those with the classifier that the weights have,
    then the shorter names (the variants have longer ones).

    Parameters
    ----------
    state
        Of a checkpoint, in timm's or its authors' own layout.
    job
        Told of progress; cancels.
    """
    shapes = frozenset(tuple(weight.shape) for weight in state.values())
    counts = {weight.numel() for weight in state.values()}
    names = [name for name in model_names() if "." not in name and timm.is_model(name)]
    found: list[tuple[tuple[bool, bool, int, str], str]] = []
    for done, name in enumerate(names):
        job.step("Looking for the architecture that the weights fit", done / len(names))
        outline = _outline(name) if _begins_as(name, state) else None
        if outline is None or not outline <= shapes:
            continue
        rank = _rank(made_for_shapes(name), state, counts)
        if rank is not None:
            found.append(((*rank, len(name), name), name))
    found.sort()
    # False comes first: nothing is resampled.
    return tuple(name for key, name in found if key[0] == found[0][0][0])


def _rank(model: nn.Module, state: dict[str, Tensor], counts: Collection[int]) -> tuple[bool, bool] | None:
    """Return whether weights would be resampled and whether their classifier is another; None for no fit."""
    fit = best_fit(model, state)
    heads = classifiers_of(model)
    missing, reshaped, unexpected = (
        [key for key in keys if key.rpartition(".")[0] not in heads]
        for keys in (fit.missing, fit.reshaped, fit.unexpected)
    )
    if missing or reshaped or unexpected:
        return None
    own = [weight.numel() for key, weight in model.state_dict().items() if key.endswith("pos_embed")]
    resampled = any(count not in counts for count in own)
    return resampled, bool(fit.missing or fit.reshaped or fit.unexpected)


def _begins_as(name: str, state: Collection[str]) -> bool:
    """Return whether weights have an architecture's first convolution by its name, or may have another name.

    Looking at names takes no time, and making an architecture does.
    """
    if model_entrypoint(name).__module__.rpartition(".")[2] in _CONVERTED:
        return True
    config = timm.get_pretrained_cfg(name)
    first = config.first_conv if config else None
    names = (first,) if isinstance(first, str) else tuple(first or ())
    return not names or any(key.endswith(tuple(f"{conv}.weight" for conv in names)) for key in state)


@cache
def _outline(name: str) -> Shapes | None:
    """Return shapes that an architecture's weights have for sure: those of its patch embedding and a block.

    None for one that timm lists but can't make, as there are some in older releases. A single block is made
    where an architecture lets one choose, for this is done for each there is.
    """
    try:
        with shapes_only():
            model = timm.create_model(name, pretrained=False, depth=1)
    # Not every architecture takes a depth, or only one that fits others of its arguments.
    except (TypeError, AssertionError, ValueError, IndexError, RuntimeError):
        try:
            model = made_for_shapes(name)
        except (TypeError, AssertionError, ValueError, AttributeError, RuntimeError):
            return None
    return frozenset(
        tuple(weight.shape)
        for key, weight in model.named_parameters()
        # Convolutions and the MLP's matrices have the same shape in every layout; others get split or joined.
        if weight.ndim == 4 or (weight.ndim == 2 and ".mlp.fc" in key)
    )


def made_for_shapes(name: str, **options: object) -> nn.Module:
    """Make an architecture for its shapes."""
    try:
        with shapes_only():
            return timm.create_model(name, pretrained=False, **options)
    except (TypeError, RuntimeError, NotImplementedError):  # it computes with real numbers while it is made
        with _Unfilled():
            return timm.create_model(name, pretrained=False, **options)
