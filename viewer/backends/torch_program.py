"""Opening programs that need no Python class: TorchScript files and `torch.export` files (.pt2)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from viewer.attention.record import Provenance
from viewer.backends.checkpoint_files import is_exported
from viewer.backends.devices import torch_device
from viewer.backends.exported_archive import read_exported
from viewer.backends.exported_program import ExportedProgram
from viewer.backends.hashing import sha256_of
from viewer.backends.program_errors import Refused
from viewer.backends.torch_model import TorchModel
from viewer.backends.torch_runner import TorchRunner
from viewer.backends.torch_sizes import SizedModels
from viewer.backends.torchscript_program import ScriptedProgram, recorded_size
from viewer.errors import InputError, ModelFileError
from viewer.images.preprocess import Preprocessing

if TYPE_CHECKING:
    from viewer.backends.model import Job
    from viewer.backends.opening import ImageSize


def open_program(path: Path, name: str, image_size: ImageSize, device: str, job: Job) -> TorchModel:
    """Open a TorchScript program or an exported one.

    Parameters
    ----------
    path
        An existing file of either kind.
    name, image_size, device, job
        As for `viewer.backends.opening.open_model`.

    Raises
    ------
    ModelFileError, InputError, DeviceError, NoAttentionError, LayoutError
        Each with a text meant for a person.
    """
    where = torch_device(device)
    job.step(f"Opening {path.name}", None)
    provenance = Provenance(name, sha256_of([path], job), "", "torch")
    make = _exported if is_exported(path) else _scripted
    try:
        module, size = make(path, image_size)
    except Refused as error:
        raise ModelFileError(path, str(error), _OTHER_WAYS) from error
    if next(module.parameters(), None) is None:
        raise ModelFileError(path, "is a program without weights")
    runner = TorchRunner(name, SizedModels(name, module, size), where)
    how = Preprocessing(size=size, assumed=_assumed(name))
    return TorchModel(name, how, runner, provenance).sized(image_size)


_OTHER_WAYS = (
    "Other ways: export the model to ONNX, or save its weights alone and give the architecture "
    "(--model NAME --weights FILE)."
)


def _assumed(name: str) -> str:
    how = Preprocessing((0, 0))
    return (
        f"{name} does not say how it wants pictures; assumed: ImageNet mean and deviation, values 0 to 1, "
        f"{how.interpolation} resizing."
    )


def _exported(path: Path, image_size: ImageSize) -> tuple[nn.Module, tuple[int, int]]:
    archive = read_exported(path)
    try:
        program = ExportedProgram(str(path), archive)
    # Entries that are missing, or of another kind than the format says.
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise Refused("is a damaged exported program") from error
    return program, program.size


def _scripted(path: Path, image_size: ImageSize) -> tuple[nn.Module, tuple[int, int]]:
    program, size = ScriptedProgram(path), recorded_size(path)
    if size is None:
        if image_size is None or isinstance(image_size, str):
            raise InputError(
                f"{path} is a TorchScript program that does not say its input size; give it: "
                "--image-size 224, or --image-size 384x512 for height and width."
            )
        size = (image_size, image_size) if isinstance(image_size, int) else image_size
    return program, size
