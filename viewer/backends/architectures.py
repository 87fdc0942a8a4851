"""Which of timm's architectures fit given weights, told from shapes alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import timm
import torch
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


class _Unfilled(TorchFunctionMode):
    """Makes models without initial values, which takes most of the time even where there are no numbers."""

    def __torch_function__(
        self, func: object, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        if getattr(func, "__name__", "") in _FILLING:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))  # type: ignore[operator]


@contextmanager
def _shapes_only() -> Iterator[None]:
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
        if not _outline(name) <= shapes:
            continue
        with _shapes_only():
            model = timm.create_model(name, pretrained=False)
        rank = _rank(model, state, counts)
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


@cache
def _outline(name: str) -> Shapes:
    """Return shapes that an architecture's weights have for sure: those of its patch embedding and a block.

    A single block is made where an architecture lets one choose, for this is done for each there is.
    """
    with _shapes_only():
        try:
            model = timm.create_model(name, pretrained=False, depth=1)
        # Not every architecture takes a depth, or only one that fits others of its arguments.
        except (TypeError, AssertionError, ValueError, IndexError):
            model = timm.create_model(name, pretrained=False)
    return frozenset(
        tuple(weight.shape)
        for key, weight in model.named_parameters()
        # Convolutions and the MLP's matrices have the same shape in every layout; others get split or joined.
        if weight.ndim == 4 or (weight.ndim == 2 and ".mlp.fc" in key)
    )
