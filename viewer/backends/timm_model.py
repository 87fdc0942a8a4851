"""Opening timm models by name, with pretrained weights or a local checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from timm.data import ImageNetInfo, infer_imagenet_subset, resolve_model_data_config

from viewer.attention.record import Provenance
from viewer.backends.catalogue import check_family, check_name, create_trained, create_untrained
from viewer.backends.checkpoint_config import apply_config
from viewer.backends.checkpoint_files import read_state
from viewer.backends.checkpoint_size import advice_on_size, architecture_at
from viewer.backends.checkpoints import load_state
from viewer.backends.devices import torch_device
from viewer.backends.file_kind import require_regular
from viewer.backends.hashing import sha256_of
from viewer.backends.torch_model import TorchModel
from viewer.backends.torch_runner import TorchRunner
from viewer.backends.torch_sizes import SizedModels
from viewer.errors import CheckpointError, InputError, ModelFileError
from viewer.images.preprocess import Preprocessing

if TYPE_CHECKING:
    from torch import nn

    from viewer.backends.model import Job
    from viewer.backends.opening import ImageSize


def open_timm(name: str, weights: Path | None, image_size: ImageSize, device: str, job: Job) -> TorchModel:
    """Open a timm model.

    Parameters
    ----------
    name, image_size, device, job
        As for `viewer.backends.opening.open_model`.
    weights
        A checkpoint; None takes the pretrained weights.

    Raises
    ------
    UnknownModelError, ModelFileError, CheckpointError, OfflineError, DeviceError, InputError,
    NoAttentionError, LayoutError
        Each with a text meant for a person.
    """
    where = torch_device(device)
    job.step(f"Opening {name}", None)
    check_name(name)
    check_family(name)
    notes: tuple[str, ...] = ()
    size = None
    if weights is None:
        model, file = create_trained(name, job)
        digest = sha256_of([file], job)
    else:
        job.step(f"Loading {weights.name}", None)
        require_regular(weights, "a checkpoint")
        before = weights.stat()
        digest = sha256_of([weights], job)
        model, size, notes = _joined(name, weights, image_size)
        notes = (*notes, *apply_config(name, model, weights))
        after = weights.stat()
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise ModelFileError(weights, "changed while it was read", "Open it again.")
    provenance = Provenance(name, digest, "" if weights is None else str(weights), "torch")
    return wrap(name, model, where, provenance, notes, size).sized(image_size)


def _joined(
    name: str, weights: Path, image_size: ImageSize
) -> tuple[nn.Module, tuple[int, int] | None, tuple[str, ...]]:
    """Return an architecture with a checkpoint's weights, its size if that is another, and notes.

    Raises
    ------
    CheckpointError, ModelFileError
        As `load_state`; where the weights fit at another size, with that.
    """
    model, state = create_untrained(name), read_state(weights)
    own = preprocessing_of(name, model).size
    resampled = hasattr(model, "set_input_size")
    at_size = None if resampled else architecture_at(name, state, image_size, own)
    if at_size is None:
        try:
            return model, None, load_state(name, model, state, weights)
        except CheckpointError as error:
            # Positions are resampled from a square only.
            at_size = architecture_at(name, state, image_size, own) if resampled else None
            if at_size is None:
                raise _advised(error, advice_on_size(name, create_untrained(name), state, own)) from error
    return *at_size, load_state(name, at_size[0], state, weights)


def _advised(error: CheckpointError, advice: str) -> CheckpointError:
    """Return an error with better advice, if there is any."""
    return CheckpointError(
        *(error.path, error.problem, advice or error.advice),
        missing=error.missing,
        unexpected=error.unexpected,
    )


def wrap(
    name: str,
    model: nn.Module,
    device: str,
    provenance: Provenance,
    notes: tuple[str, ...] = (),
    size: tuple[int, int] | None = None,
) -> TorchModel:
    """Make a timm module that has its weights ready to attend, at its own input size.

    Parameters
    ----------
    name
        What to call it.
    model
        Any timm module for colour pictures; it is put into evaluation mode and on the device.
    device
        "cpu", "cuda:0", "mps".
    provenance
        What is known of its weights.
    notes
        Sentences a person should read.
    size
        Height and width it was made for in pixels; None for the architecture's own.
    """
    preprocessing = preprocessing_of(name, model)
    preprocessing = preprocessing if size is None else replace(preprocessing, size=size)
    runner = TorchRunner(name, SizedModels(name, model.eval(), preprocessing.size), device)
    return TorchModel(name, preprocessing, runner, provenance, class_labels(model), notes)


def preprocessing_of(name: str, model: nn.Module) -> Preprocessing:
    """Return how a timm module wants its pictures.

    Raises
    ------
    InputError
        If it takes no colour pictures.
    """
    config = resolve_model_data_config(model)
    channels, *size = config["input_size"]
    # What a model was built for counts; the configuration tells what it was trained for.
    height, width = getattr(getattr(model, "patch_embed", None), "img_size", None) or size
    if channels != 3:
        raise InputError(f"{name} takes {channels} channels, not colour pictures.")
    return Preprocessing(
        size=(height, width),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        interpolation=config["interpolation"],
        crop_pct=config["crop_pct"],
        crop_mode=config["crop_mode"],
    )


def class_labels(model: nn.Module) -> Sequence[str]:
    """Return the names of a classifier's classes; nothing for a model that is no classifier."""
    classes = getattr(model, "num_classes", 0) or 0
    subset = infer_imagenet_subset(model) if classes else None
    if subset is not None:
        info = ImageNetInfo(subset)
        return [info.index_to_description(index) for index in range(classes)]
    # CLIP's and SigLIP's last layer is a projection into the space they share with texts.
    if "clip" in (model.pretrained_cfg.get("architecture") or "") and classes == model.pretrained_cfg.get(
        "num_classes"
    ):
        return ()
    return [f"class {index}" for index in range(classes)]
