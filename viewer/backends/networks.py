"""Opening networks for their receptive fields: also those that attend to nothing, which `open_model` refuses.

What a unit of a layer can see does not depend on the weights, so nothing is downloaded for that. What it
really sees does; then weights are needed, trained ones mostly.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from viewer.backends.model import Job
from viewer.backends.torchvision_names import PREFIX
from viewer.errors import InputError, ModelFileError, OfflineError, UnknownModelError

if TYPE_CHECKING:
    from torch import nn

    from viewer.backends.network_fields import NetworkFields
    from viewer.backends.opening import ImageSize
    from viewer.images.preprocess import Preprocessing

_NEAR = 5
_WAYS_OUT = (
    "Two ways out: take a checkpoint on this computer (--weights FILE; beside a model --compare-weights "
    "FILE), or random weights (--untrained; --compare-untrained)."
)
# torchvision warns of these two that how they begin may change; what they begin with does not matter here.
_QUIET = {name: {"init_weights": False} for name in ("googlenet", "inception_v3")}


@dataclass(frozen=True, eq=False)
class Network:
    """A PyTorch network with its weights.

    Attributes
    ----------
    name
        As it was asked for.
    module
        In evaluation mode, on `device`.
    preprocessing
        How it wants its pictures.
    device
        "cpu", "cuda:0", "mps".
    weights
        What its weights are, in words: "trained", a file's name, "random, as initialized" with what was done
        to them.
    """

    name: str
    module: nn.Module
    preprocessing: Preprocessing
    device: str
    weights: str


def network_fields(model: str | Path, image_size: ImageSize = None, job: Job | None = None) -> NetworkFields:
    """Return the theoretical receptive field of every layer of a network; its weights are not loaded.

    Parameters
    ----------
    model
        A timm name of any family, ``"torchvision/NAME"`` of any, ``"sample"``, or the path of an ONNX file or
        of a program (.pt2, TorchScript).
    image_size
        Height and width of the pass that is followed, in pixels, or one number for a square; None takes the
        network's own. Fields do not depend on it.
    job
        Told of progress; cancels.

    Raises
    ------
    UnknownModelError, ModelFileError, InputError, OfflineError
        Each with a text meant for a person.
    """
    job, name = job or Job(), str(model)
    job.step(f"Reading the layers of {name}", None)
    if name == "sample" or Path(name).suffix.lower() == ".onnx":
        return _of_onnx(name, job)
    from viewer.backends.receptive_field import receptive_fields

    if isinstance(model, Path) or _is_file(name):
        module, own = _program(name, image_size, job)
        return _followed(name, module, _sides(image_size, own))
    make, own = _torchvision(name) if name.startswith(PREFIX) else _timm(name)
    size = _sides(image_size, own)
    with suppress(RuntimeError, NotImplementedError, TypeError):
        # Without memory for the weights; where a model computes with numbers, they have to be there.
        from viewer.backends.architectures import shapes_only

        with shapes_only():
            outline = make().eval()
        return receptive_fields(name, outline, size)
    return _followed(name, make().eval(), size)


def open_network(
    model: str,
    weights: str | Path | None = None,
    image_size: ImageSize = None,
    device: str = "auto",
    job: Job | None = None,
    untrained: bool = False,
) -> Network:
    """Open a PyTorch network of timm or torchvision with its weights, whether or not it attends.

    Parameters
    ----------
    model
        A timm name of any family, or ``"torchvision/NAME"`` of any.
    weights
        A checkpoint; None takes the pretrained weights, downloaded if need be.
    image_size
        Height and width of the input in pixels, or one number for a square; None takes the network's own.
    device, job
        As for `viewer.backends.opening.open_model`.
    untrained
        Take random weights, as the network is initialized, instead; but norms whose weights are all 0 get 1,
        else residual blocks would pass on their shortcut alone.

    Raises
    ------
    UnknownModelError, ModelFileError, CheckpointError, OfflineError, DeviceError, InputError
        Each with a text meant for a person.
    """
    import torch

    from viewer.backends.devices import torch_device

    job, where = job or Job(), torch_device(device)
    job.step(f"Opening {model}", None)
    if Path(model).suffix.lower() == ".onnx" or model == "sample":
        raise InputError(
            f"{model} runs in ONNX Runtime, which gives no gradients, and effective fields are made of them. "
            "Open the same network in PyTorch, with its weights: --model NAME --weights FILE."
        )
    if _is_file(model):
        raise InputError(f"{model}: effective fields need a network by its name, and a checkpoint beside it.")
    trained = _trained_torchvision if model.startswith(PREFIX) else _trained_timm
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # random weights are to give the same figure again
        try:
            module, how = trained(model, weights, untrained, job)
        except OfflineError as error:
            raise OfflineError(error.problem, _WAYS_OUT) from error
    words = _wake_norms(module) if untrained else "trained" if weights is None else Path(weights).name
    how = replace(how, size=_sides(image_size, how.size))
    return Network(model, module.eval().to(where), how, where, words)


def _wake_norms(module: nn.Module) -> str:
    """Give norms that begin at 0 the weight 1, as those have that don't; say what the weights are now."""
    import torch
    from torch import nn

    # torch's own kinds, which timm's and torchvision's derive from.
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm)
    weights = [part.weight for part in module.modules() if isinstance(part, kinds)]
    zero = [weight for weight in weights if weight is not None and not weight.any()]
    with torch.no_grad():
        for weight in zero:
            weight.fill_(1)
    return f"random, as initialized{', zero norms set to 1' if zero else ''}"


def _trained_timm(
    name: str, weights: str | Path | None, untrained: bool, job: Job
) -> tuple[nn.Module, Preprocessing]:
    from viewer.backends.catalogue import create_trained
    from viewer.backends.checkpoints import load_checkpoint
    from viewer.backends.timm_model import preprocessing_of

    make, _ = _timm(name)
    if weights is None and not untrained:
        module, _ = create_trained(name, job)
    else:
        module = make()
    if weights is not None:
        load_checkpoint(name, module, Path(weights))
    return module, preprocessing_of(name, module)


def _trained_torchvision(
    name: str, weights: str | Path | None, untrained: bool, job: Job
) -> tuple[nn.Module, Preprocessing]:
    from viewer.backends.checkpoint_files import read_state
    from viewer.backends.checkpoints import load_exactly
    from viewer.backends.downloads import fetch_url
    from viewer.backends.torchvision_model import preprocessing_of, published_of

    published, (make, _) = published_of(name), _torchvision(name)
    module = make()
    if not untrained:
        file = Path(weights) if weights is not None else fetch_url(name, published.url, job)
        load_exactly(name, module, read_state(file), file)
    return module, preprocessing_of(published)


def _followed(name: str, module: nn.Module, size: tuple[int, int]) -> NetworkFields:
    from viewer.backends.receptive_field import receptive_fields

    try:
        return receptive_fields(name, module, size)
    except (RuntimeError, AssertionError, ValueError) as error:
        raise InputError(
            f"{name} can't be run on a picture of {size[0]}x{size[1]} pixels: {error}"
        ) from error


def _is_file(name: str) -> bool:
    """Return whether a text names a file rather than an architecture."""
    from viewer.backends.checkpoint_files import SUFFIXES

    path = Path(name)
    try:
        return path.suffix.lower() in (*SUFFIXES, ".pt2") or path.exists()
    except (OSError, ValueError):  # longer than a file's name can be
        return False


def _sides(size: ImageSize, own: tuple[int, int]) -> tuple[int, int]:
    if size == "whole":
        raise InputError("A network's layers are read at one input size; give it as 224 or 224x320.")
    if size is None:
        return own
    return (size, size) if isinstance(size, int) else size  # type: ignore[return-value]


def _of_onnx(name: str, job: Job) -> NetworkFields:
    from viewer.backends.onnx_file import read_onnx
    from viewer.backends.onnx_graph import Graph
    from viewer.backends.onnx_input import picture_input
    from viewer.backends.onnx_receptive_field import onnx_receptive_fields
    from viewer.backends.sample import sample_path

    file = read_onnx(sample_path(job) if name == "sample" else Path(name))
    try:
        found = picture_input(file, Graph(file.proto, file.folder))
        return onnx_receptive_fields(name, file, found.name, found.layout)
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        # Nodes that lack inputs or attributes they must have.
        raise ModelFileError(name, f"is a damaged ONNX model: its graph makes no sense ({error})") from error


def _timm(name: str) -> tuple[Callable[[], nn.Module], tuple[int, int]]:
    """Return how an architecture of timm is made with weights still to be loaded, and its input size."""
    import timm

    from viewer.backends.catalogue import check_name

    try:
        check_name(name)
    except UnknownModelError as error:
        near = difflib.get_close_matches(name, timm.list_models(), _NEAR, cutoff=0.6)
        raise UnknownModelError(name, near) from error
    config = timm.get_pretrained_cfg(name)
    channels, *sides = config.input_size if config else (3, 224, 224)
    if channels != 3:
        raise InputError(f"{name} takes {channels} channels, not colour pictures.")
    return partial(timm.create_model, name, pretrained=False), (sides[0], sides[1])


def _torchvision(name: str) -> tuple[Callable[[], nn.Module], tuple[int, int]]:
    """Return the same for any of torchvision's classifiers."""
    from viewer.backends.torchvision_model import preprocessing_of, published_of

    how = preprocessing_of(published_of(name))
    from torchvision import models

    architecture = name.removeprefix(PREFIX).partition(".")[0]
    return partial(models.get_model, architecture, weights=None, **_QUIET.get(architecture, {})), how.size


def _program(name: str, image_size: ImageSize, job: Job) -> tuple[nn.Module, tuple[int, int]]:
    """Return an exported or scripted program and its input size."""
    from viewer.backends.checkpoint_files import is_exported, is_scripted
    from viewer.backends.file_kind import foreign_kind, require_regular
    from viewer.backends.torch_program import open_program

    path = Path(name).expanduser()
    if not path.is_dir():
        require_regular(path, "a network")
    if path.is_dir() or not (is_exported(path) or is_scripted(path)):
        kind = "is a folder" if path.is_dir() else foreign_kind(path)[0] or "holds no program"
        raise ModelFileError(
            path,
            f"{kind}, and receptive fields need a network",
            "Name the network: --model resnet50, or a file that holds it (.onnx, .pt2, TorchScript).",
        )
    opened = open_program(path, name, image_size, "cpu", job)
    return opened.module, opened.preprocessing.size
