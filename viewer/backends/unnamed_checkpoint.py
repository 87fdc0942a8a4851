"""Opening weights that come without the name of their architecture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from viewer.backends.architectures import fitting
from viewer.backends.checkpoint_config import read_config
from viewer.backends.checkpoint_files import read_state
from viewer.backends.timm_model import open_timm
from viewer.errors import UnnamedWeightsError

if TYPE_CHECKING:
    from viewer.backends.model import Job
    from viewer.backends.opening import ImageSize
    from viewer.backends.torch_model import TorchModel

_SHOWN = 8


def open_unnamed(path: Path, image_size: ImageSize, device: str, job: Job) -> TorchModel:
    """Open weights alone: where exactly one of timm's architectures fits them, with that one.

    Where several fit, the one that the checkpoint's configuration names.

    Parameters
    ----------
    path
        A checkpoint.
    image_size, device, job
        As for `viewer.backends.opening.open_model`.

    Raises
    ------
    UnnamedWeightsError
        If several architectures fit (it carries them, best first), or none.
    ModelFileError, DeviceError, InputError
        As `viewer.backends.timm_model.open_timm`.
    """
    job.step(f"Loading {path.name}", None)
    state = read_state(path)
    names = fitting(state, job)
    said = read_config(path).architecture
    if len(names) > 1 and said in names:
        model = open_timm(said, path, image_size, device, job)
        note = f"{path.name} fits {len(names)} architectures; its configuration says {said}."
        return replace(model, opening_notes=(note, *model.opening_notes))
    if not names:
        raise UnnamedWeightsError(
            path,
            f"holds {len(state)} weights but not the architecture they belong to, and of those in timm that "
            "can be shown, none has weights of these shapes",
            f"Join it with one: --model NAME --weights {path} (`patchreach models` lists the names).",
        )
    if len(names) > 1:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise UnnamedWeightsError(
            path,
            f"does not say its architecture, and its weights fit {len(names)}, which no shape tells apart: "
            f"{', '.join(names[:_SHOWN])}{more}",
            f"Say which: --model {names[0]} --weights {path}",
            names,
        )
    model = open_timm(names[0], path, image_size, device, job)
    note = (
        f"{path.name} does not say its architecture; only {names[0]} of timm's has weights of these shapes."
    )
    return replace(model, opening_notes=(note, *model.opening_notes))
