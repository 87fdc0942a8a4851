"""Opening a model by name or file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Union

from viewer.backends.checkpoint_files import SUFFIXES
from viewer.backends.file_kind import require_regular
from viewer.backends.model import Job
from viewer.errors import InputError

WORKED_EXAMPLE = "worked-example"
"""Name of the nine patches of the lesson, whose figures are opened again by it."""

if TYPE_CHECKING:
    from viewer.backends.model import Model

ImageSize = Union[int, "tuple[int, int]", str, None]


def open_model(
    model: str | Path,
    weights: str | Path | None = None,
    image_size: ImageSize = None,
    device: str = "auto",
    job: Job | None = None,
) -> Model:
    """Open a model.

    Parameters
    ----------
    model
        ``"sample"``; ``"worked-example"``; a timm name; ``"torchvision/NAME"``; ``"hf:ORG/NAME"`` or a folder
        of transformers; or the path of an ONNX file, a program (.pt2, TorchScript) or weights whose shapes
        tell what they are of.
    weights
        A checkpoint to join with the architecture `model`.
    image_size
        Height and width of the input in pixels, one number for a square, or ``"whole"``: the picture's own
        aspect ratio, nothing cropped. None takes the model's own.
    device
        ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``.
    job
        Told of progress; cancels.

    Raises
    ------
    UnknownModelError, ModelFileError, UnnamedWeightsError, CheckpointError, OfflineError,
    NoAttentionError, DeviceError, InputError
        Each with a text meant for a person.
    """
    job = job or Job()
    size = _checked_size(image_size)
    name = str(model)
    if name == "sample" or Path(name).suffix.lower() == ".onnx":
        return _open_onnx(name, weights, size, device, job)
    if name == WORKED_EXAMPLE and weights is None and not _exists(Path(name)):
        from viewer.backends.worked_example_model import open_worked_example

        return open_worked_example(size, device)
    if isinstance(model, str) and name.startswith("torchvision/") and not _exists(Path(name)):
        from viewer.backends.torchvision_model import open_torchvision

        return open_torchvision(name, None if weights is None else Path(weights), size, device, job)
    folder = _exists(Path(name)) and Path(name).is_dir()
    if folder or (isinstance(model, str) and name.startswith("hf:")):
        if weights is not None:
            raise InputError(
                f"{name} holds its own weights; a checkpoint is joined with the name of an architecture."
            )
        from viewer.backends.hugging_face_model import open_hugging_face

        return open_hugging_face(name, size, device, job)
    if isinstance(model, Path) or _names_file(name):
        if weights is not None:
            raise InputError(f"{name} is a file; a checkpoint is joined with the name of an architecture.")
        return _open_file(Path(name), name, size, device, job)
    from viewer.backends.timm_model import open_timm

    return open_timm(name, None if weights is None else Path(weights), size, device, job)


def _open_onnx(name: str, weights: object, size: ImageSize, device: str, job: Job) -> Model:
    if weights is not None:
        raise InputError(
            f"{name} holds its own weights; a checkpoint is joined with the name of an architecture."
        )
    if name == "sample":
        from viewer.backends.sample import open_sample

        return open_sample(size, device, job)
    from viewer.backends.onnx_model import open_onnx

    return open_onnx(Path(name), name=name, image_size=size, device=device, job=job)


def _names_file(name: str) -> bool:
    """Return whether a text names a file rather than an architecture."""
    path = Path(name)
    return path.suffix.lower() in (*SUFFIXES, ".pt2", ".npz", ".h5") or len(path.parts) > 1 or _exists(path)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # longer than a file's name can be: no file then
        return False


def _open_file(path: Path, name: str, size: ImageSize, device: str, job: Job) -> Model:
    """Open a file that is given alone: a program, or weights that tell their architecture."""
    from viewer.backends.checkpoint_files import is_exported, is_scripted

    require_regular(path, "a checkpoint")
    if is_exported(path) or is_scripted(path):
        from viewer.backends.torch_program import open_program

        return open_program(path, name, size, device, job)
    from viewer.backends.unnamed_checkpoint import open_unnamed

    return open_unnamed(path, size, device, job)


def _checked_size(size: ImageSize) -> ImageSize:
    """Return an input size as it is.

    Raises
    ------
    InputError
        If it is none.
    """
    if size is None or size == "whole":
        return size
    sides = size if isinstance(size, tuple) else (size, size)
    if len(sides) == 2 and all(type(side) is int and side > 0 for side in sides):
        return size
    raise InputError(f"{size!r} is no input size; give a number, a height and a width, or 'whole'.")
