"""Opening torchvision's Vision Transformers by name: ViT, MaxViT and Swin.

torchvision is no dependency of Patchreach, so it is looked for only when one of its models is asked for.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from viewer.attention.record import Provenance
from viewer.backends.checkpoint_files import read_state
from viewer.backends.checkpoints import load_exactly
from viewer.backends.devices import torch_device
from viewer.backends.downloads import fetch_url
from viewer.backends.hashing import sha256_of
from viewer.backends.torch_model import TorchModel
from viewer.backends.torch_runner import TorchRunner
from viewer.backends.torch_sizes import SizedModels
from viewer.backends.torchvision_names import PREFIX, architectures
from viewer.errors import ModelFileError, UnknownModelError
from viewer.images.preprocess import Preprocessing

if TYPE_CHECKING:
    from viewer.backends.model import Job
    from viewer.backends.opening import ImageSize

_NEAR = 5


def open_torchvision(
    name: str, weights: Path | None, image_size: ImageSize, device: str, job: Job
) -> TorchModel:
    """Open a model of torchvision.

    Parameters
    ----------
    name
        ``"torchvision/"`` and an architecture, perhaps with ``.`` and the name of its weights:
        ``"torchvision/vit_b_16.IMAGENET1K_SWAG_E2E_V1"``.
    weights
        A checkpoint; None takes the pretrained weights, downloaded if need be.
    image_size, device, job
        As for `viewer.backends.opening.open_model`.

    Raises
    ------
    UnknownModelError, ModelFileError, CheckpointError, OfflineError, DeviceError, InputError
        Each with a text meant for a person.
    """
    where = torch_device(device)
    job.step(f"Opening {name}", None)
    published = published_of(name, architectures())
    file = weights or fetch_url(name, published.url, job)
    job.step(f"Loading {file.name}", None)
    state = read_state(file)
    model = _created(name, published, state)
    load_exactly(name, model, state, file)
    digest = sha256_of([file], job)
    provenance = Provenance(name, digest, "" if weights is None else str(weights), "torch")
    return wrap_torchvision(name, model, published, where, provenance).sized(image_size)


def wrap_torchvision(
    name: str,
    model: nn.Module,
    published: Any,  # noqa: ANN401
    device: str,
    provenance: Provenance,
) -> TorchModel:
    """Make a module that has its weights ready to attend.

    Parameters
    ----------
    published
        Member of one of torchvision's enumerations of weights: its transforms and class names hold.
    """
    how = preprocessing_of(published)
    labels = published.meta["categories"]
    classes = next((m.out_features for m in reversed(list(model.modules())) if isinstance(m, nn.Linear)), 0)
    if classes != len(labels):
        labels = [f"class {index}" for index in range(classes)]
    runner = TorchRunner(name, SizedModels(name, model.eval(), how.size), device)
    return TorchModel(name, how, runner, provenance, labels)


def preprocessing_of(published: Any) -> Preprocessing:  # noqa: ANN401
    """Return the transforms that belong to weights: shorter side resized, centre cut out."""
    how = published.transforms()
    [side], [resized] = how.crop_size, how.resize_size
    share = side / resized
    # The resized side is found again by dividing, where a rounding must not lose a pixel.
    if int(side / share) != resized:
        share = side / (resized + 0.5)
    return Preprocessing(
        (side, side), tuple(how.mean), tuple(how.std), how.interpolation.value, share, "center"
    )


def published_of(name: str, known: Sequence[str] | None = None) -> Any:  # noqa: ANN401
    """Return the weights that a name stands for.

    Parameters
    ----------
    name
        As for `open_torchvision`.
    known
        The architectures among which it is looked for; None takes all of torchvision's for whole pictures.

    Raises
    ------
    UnknownModelError
        If it is none of them, or has no weights of that name.
    ModelFileError
        If torchvision is not installed.
    """
    try:
        from torchvision import models
    except ImportError as error:
        raise ModelFileError(
            name,
            "needs torchvision, which is not installed",
            "Install it: `python -m pip install torchvision`.",
        ) from error
    known = models.list_models(module=models) if known is None else known
    architecture, _, tag = name.removeprefix(PREFIX).partition(".")
    if architecture not in known:
        near = difflib.get_close_matches(architecture, known, _NEAR, cutoff=0.6)
        raise UnknownModelError(name, [PREFIX + other for other in near])
    published = models.get_model_weights(architecture)
    if tag and tag not in published.__members__:
        raise UnknownModelError(name, [f"{PREFIX}{architecture}.{other.name}" for other in published])
    return published[tag] if tag else published.DEFAULT


def _created(name: str, published: Any, state: dict[str, Tensor]) -> nn.Module:  # noqa: ANN401
    """Make the architecture, with as many classes as the weights have."""
    from torchvision import models

    architecture = name.removeprefix(PREFIX).partition(".")[0]
    classifiers = (weight for key, weight in state.items() if key.startswith(("head", "classifier")))
    matrices = [weight for weight in classifiers if weight.ndim == 2]
    options: dict[str, object] = {"num_classes": len(matrices[-1])} if matrices else {}
    if architecture.startswith("vit"):
        options["image_size"] = preprocessing_of(published).size[0]
    return models.get_model(architecture, weights=None, **options)
