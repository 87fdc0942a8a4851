"""Opening a model by name or file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from viewer.backends.model import Job, Model


def open_model(
    model: str | Path,
    weights: str | Path | None = None,
    image_size: int | tuple[int, int] | str | None = None,
    device: str = "auto",
    job: Job | None = None,
) -> Model:
    """Open a model.

    Parameters
    ----------
    model
        ``"sample"``, a timm name, or a path (.onnx; .safetensors, .pth, .pt, .bin only with a name).
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
    UnknownModelError, ModelFileError, CheckpointError, OfflineError, NoAttentionError, DeviceError, InputError
        Each with a text meant for a person.
    """
    raise NotImplementedError
