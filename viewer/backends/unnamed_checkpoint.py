"""Opening weights that come without the name of their architecture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from viewer.backends.checkpoint_files import read_state
from viewer.errors import ModelFileError

if TYPE_CHECKING:
    from viewer.backends.model import Job, Model
    from viewer.backends.opening import ImageSize


def open_unnamed(path: Path, image_size: ImageSize, device: str, job: Job) -> Model:
    """Say what to do with weights that have no architecture."""
    state = read_state(path)
    raise ModelFileError(
        path,
        f"holds {len(state)} weights but not the architecture they belong to",
        f"Join it with one: --model NAME --weights {path} (`patchreach models` lists the names).",
    )
