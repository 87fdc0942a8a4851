"""Joining a timm architecture with a local checkpoint."""

from __future__ import annotations

import contextlib
import inspect
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from viewer.backends.checkpoint_files import read_state
from viewer.errors import CheckpointError

# What wrappers and training programs put in front of a backbone's parameter names.
_PREFIXES = (
    "module.", "_orig_mod.", "backbone.", "encoder.", "model.", "teacher.", "student.", "vit.",
    "vision_model.", "visual.", "base_model.", "net.",
)  # fmt: skip
# Parts of a pretraining that a backbone does without.
_PRETRAINING = (
    "decoder", "mask_token", "head.mlp", "head.last_layer", "dino_head", "ibot_head", "projector",
    "predictor", "text_projection", "logit_scale", "logit_bias", "relative_position_index",
)  # fmt: skip
_SHOWN = 4


@dataclass(frozen=True)
class Fit:
    """How converted weights fit a model: what is missing, what is too much, what has another shape."""

    state: dict[str, Tensor]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    reshaped: tuple[str, ...]

    @property
    def cost(self) -> tuple[int, int]:
        """How many parameters would be left without weights, and how many weights without a parameter."""
        return len(self.missing) + len(self.reshaped), len(self.unexpected)


def load_checkpoint(name: str, model: nn.Module, path: Path) -> tuple[str, ...]:
    """Load a local checkpoint into an architecture.

    Original DINO, DINOv2, DeiT, MAE and CLIP files are converted by timm's own filters; position embeddings
    of another grid are resampled the way timm does.

    Parameters
    ----------
    name
        The architecture, for texts.
    model
        A timm model; its classifier is replaced where the checkpoint has another number of classes, and
        removed where it has none.
    path
        The file.

    Returns
    -------
    tuple of str
        Sentences a person should read.

    Raises
    ------
    ModelFileError
        If the file is no checkpoint.
    CheckpointError
        If it does not fit; it carries the names of missing and unexpected parameters.
    """
    return load_state(name, model, read_state(path), path)


def load_state(name: str, model: nn.Module, state: dict[str, Tensor], path: Path) -> tuple[str, ...]:
    """Load what was read of a checkpoint, see `load_checkpoint`."""
    fit = best_fit(model, state)
    notes = _match_classifier(name, model, fit)
    load_exactly(name, model, fit.state, path)
    return notes


def load_exactly(name: str, model: nn.Module, state: dict[str, Tensor], path: Path) -> None:
    """Load weights that are named as the architecture's are; `path` is their file, for texts.

    Raises
    ------
    CheckpointError
        If they do not fit; it carries the names of missing and unexpected parameters.
    """
    fit = _compare(model, state)
    if fit.missing or fit.unexpected or fit.reshaped:
        raise CheckpointError(
            path, *_problem(name, model, fit), missing=fit.missing, unexpected=fit.unexpected
        )
    model.load_state_dict(fit.state)


def best_fit(model: nn.Module, state: dict[str, Tensor]) -> Fit:
    """Return how weights fit a timm model best, converted and with or without some prefix of their names.

    Parameters
    ----------
    model
        Only the shapes of its parameters matter, so it may be on the meta device.
    state
        As it is in the file.
    """
    fits = (_compare(model, _converted(model, candidate)) for candidate in _candidates(state))
    return min(fits, key=lambda fit: fit.cost)


def _candidates(state: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Yield the weights as they are, and with prefixes taken off, one after another."""
    yield state
    for prefix in _PREFIXES:
        if any(key.startswith(prefix) for key in state):
            inner = {key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)}
            yield from _candidates(inner)


def _converted(model: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Apply timm's conversion of original checkpoints, which lies beside the model's class."""
    module = sys.modules[type(model).__module__]
    convert = getattr(module, "checkpoint_filter_fn", None)
    if convert is None:
        return state
    # DeiT III keeps its layer scales elsewhere; no other model has anything of that name.
    adapts = "adapt_layer_scale" in inspect.signature(convert).parameters
    options = {"adapt_layer_scale": True} if adapts else {}
    try:
        # Some of timm's filters print.
        with contextlib.redirect_stdout(io.StringIO()):
            converted = convert(dict(state), model, **options)
    except (KeyError, AttributeError, RuntimeError, ValueError, AssertionError, IndexError):
        # A candidate that is another model altogether; the comparison will say so.
        return state
    return {key: value for key, value in converted.items() if not key.startswith(_PRETRAINING)}


def _compare(model: nn.Module, state: dict[str, Tensor]) -> Fit:
    wanted = model.state_dict()
    return Fit(
        state,
        tuple(key for key in wanted if key not in state),
        tuple(key for key in state if key not in wanted),
        tuple(key for key in wanted if key in state and state[key].shape != wanted[key].shape),
    )


def _match_classifier(name: str, model: nn.Module, fit: Fit) -> tuple[str, ...]:
    """Give the model the classifier that the checkpoint has: as many classes, or none."""
    classifiers = classifiers_of(model)
    weights = [fit.state[key] for key in (f"{head}.weight" for head in classifiers) if key in fit.state]
    if not weights and any(key.rpartition(".")[0] in classifiers for key in fit.missing):
        model.reset_classifier(0)
        return (
            f"The checkpoint has no classifier ({', '.join(classifiers)}), "
            f"so {name} shows attention but names no class.",
        )
    if weights and weights[0].ndim == 2 and weights[0].shape[0] != model.num_classes:
        model.reset_classifier(weights[0].shape[0])
    return ()


def classifiers_of(model: nn.Module) -> tuple[str, ...]:
    """Return the names of a timm model's classifiers."""
    found = model.pretrained_cfg.get("classifier") or "head"
    return (found,) if isinstance(found, str) else tuple(found)


def _problem(name: str, model: nn.Module, fit: Fit) -> tuple[str, str]:
    """Return what is wrong as a clause, and advice."""
    parts = []
    if fit.missing:
        parts.append(f"lacks {_counted(fit.missing)}")
    if fit.unexpected:
        parts.append(f"has {_counted(fit.unexpected)} that it has no use for")
    if fit.reshaped:
        key = fit.reshaped[0]
        have, want = tuple(fit.state[key].shape), tuple(model.state_dict()[key].shape)
        parts.append(f"has {_counted(fit.reshaped)} of another shape ({key} is {have}, not {want})")
    return f"does not fit {name}: it {', and '.join(parts)}", "Is it a checkpoint of another architecture?"


def _counted(keys: Sequence[str]) -> str:
    shown = ", ".join(keys[:_SHOWN])
    more = f", ... {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return f"{len(keys)} parameter{'s' * (len(keys) != 1)} ({shown}{more})"
