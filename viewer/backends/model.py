"""What every backend gives: a model that can be asked for attention records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, Union

from viewer.errors import Cancelled

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from viewer.attention.record import AttentionRecord
    from viewer.images.decode import DecodedImage
    from viewer.images.preprocess import Preprocessing

Progress = Callable[[str, float | None], None]
"""Told what is being done, and the share done (0 to 1) or None where it is not known."""

ModelInput = Union["DecodedImage", "npt.NDArray[np.uint8]", "Tensor"]
"""A decoded picture, a uint8 (H, W, 3) array, or a preprocessed float32 (1, 3, H, W) tensor."""


class Job:
    """Progress and cancellation of one piece of slow work; plain, thread-safe, without Qt.

    Parameters
    ----------
    progress
        Called from the working thread.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Ask the work to stop at its next step."""
        self._cancelled.set()

    def step(self, doing: str, share: float | None = None) -> None:
        """Report what is being done, and stop if that was asked for.

        Raises
        ------
        Cancelled
            If `cancel` was called.
        """
        self.check()
        if self._progress is not None:
            self._progress(doing, share)

    def check(self) -> None:
        """Stop if that was asked for, without reporting anything.

        Raises
        ------
        Cancelled
            If `cancel` was called.
        """
        if self._cancelled.is_set():
            raise Cancelled


def short(model: Model) -> str:
    """Return the one line that an opened model is shown as in a Python session."""
    height, width = model.preprocessing.size
    size = f"input {height} x {width} px"
    return f"<{type(model).__name__}: {model.name}, {model.backend} on {model.device}, {size}>"


class Model(Protocol):
    """An opened model.

    Attributes
    ----------
    name
        Name or path as it was asked for.
    backend
        "torch" or "onnx".
    device
        Where it runs: "cpu", "cuda:0", "mps".
    preprocessing
        How it wants its pictures; may be replaced by `with_preprocessing`.
    notes
        Sentences a person should read (what was assumed, what fell back).
    patch
        Height and width of a patch in pixels, of which input sizes are multiples; None where it is not known.
    labels
        Name of each class; empty where the output is no classification.
    why_not_whole
        Why no size can be chosen for each picture, so that it is seen whole, as a sentence; empty where it
        can, as far as that is known before any picture.
    """

    name: str
    backend: str
    device: str
    preprocessing: Preprocessing
    notes: tuple[str, ...]
    patch: tuple[int, int] | None
    labels: Sequence[str]
    why_not_whole: str

    def attend(self, image: ModelInput, job: Job | None = None) -> AttentionRecord:
        """Run the model once on one picture and return its attention.

        Raises
        ------
        InputError
            If the model can't take this input.
        NoAttentionError, LayoutError
            If there is no attention to show, or its place can't be found.
        Cancelled
            If `job` was cancelled.
        """

    def with_preprocessing(self, preprocessing: Preprocessing) -> Model:
        """Return this model with other preprocessing, sharing its weights.

        Raises
        ------
        InputError
            If the model can't take that input size.
        """
