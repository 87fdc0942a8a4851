"""The worked 3 x 3 example as a model: one layer and one head over the brightness of nine patches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from viewer.attention.layer import AttentionLayer, Verdict
from viewer.attention.record import AttentionRecord, Provenance
from viewer.attention.worked_example import GRID, layout_of, scores_of, tokens_of
from viewer.backends.inputs import as_picture, describe, picture_facts
from viewer.backends.model import Job, short
from viewer.backends.opening import WORKED_EXAMPLE
from viewer.errors import DeviceError, InputError
from viewer.images.preprocess import Preprocessing, prepare

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.backends.model import ModelInput
    from viewer.backends.opening import ImageSize

SIDE = 288
"""Height and width of its input in pixels."""

_TOLERANCE = 1e-5
_NO_STREAM = "the worked example is one attention, without a residual stream"
_PLAIN = Preprocessing(
    (SIDE, SIDE), mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0), interpolation="box", crop_mode="squash"
)


class WorkedExampleModel:
    """Attends over nine patches by their brightness; a `viewer.backends.model.Model` without weights.

    Parameters
    ----------
    preprocessing
        By default the whole picture, squeezed to a square.

    Raises
    ------
    InputError
        If the input's sides are not divisible by three.
    """

    name = WORKED_EXAMPLE
    backend = "torch"
    device = "cpu"
    notes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    why_not_whole = ""
    patch: tuple[int, int] | None = None  # a whole picture is squeezed to any size

    def __init__(self, preprocessing: Preprocessing = _PLAIN) -> None:
        height, width = preprocessing.size
        if height % GRID[0] or width % GRID[1]:
            raise InputError(
                f"The worked example has 3 x 3 patches, so its input's sides are divisible by 3, "
                f"unlike {height} x {width} pixels."
            )
        self.preprocessing = preprocessing

    def __repr__(self) -> str:
        return short(self)

    def attend(self, image: ModelInput, job: Job | None = None) -> AttentionRecord:
        """Return the attention of nine patches.

        Raises
        ------
        InputError
            If the input is no picture; a preprocessed tensor has no brightness to speak of.
        Cancelled
            If `job` was cancelled.
        """
        (job or Job()).step("Attending over nine patches")
        picture = as_picture(image)
        prepared = prepare(picture, self.preprocessing)
        brightness = brightness_of(prepared.seen)
        layout = layout_of(self.preprocessing.size)
        scores = scores_of(brightness)
        verdict = _verdict(brightness, scores.weights(slice(None))[0].double().numpy())
        layer = AttentionLayer(
            0, "nine patches", "self", scores, layout, layout, verdict, no_norms=_NO_STREAM
        )
        facts = Provenance(
            self.name,
            backend=self.backend,
            device=self.device,
            preprocessing=describe(self.preprocessing),
            **picture_facts(image),
        )
        return AttentionRecord((layer,), self.preprocessing.size, facts, prepared.seen, prepared.box)

    def with_preprocessing(self, preprocessing: Preprocessing) -> WorkedExampleModel:
        """Return it with other preprocessing.

        Raises
        ------
        InputError
            If the input's sides are not divisible by three.
        """
        return WorkedExampleModel(preprocessing)


def open_worked_example(image_size: ImageSize = None, device: str = "auto") -> WorkedExampleModel:
    """Open the worked example.

    Parameters
    ----------
    image_size
        As for `viewer.backends.opening.open_model`; the picture is squeezed to it, never cropped.
    device
        "auto" or "cpu": nine patches want no other.

    Raises
    ------
    InputError
        If its sides are not divisible by three.
    DeviceError
        If another device is asked for.
    """
    if device not in ("auto", "cpu"):
        raise DeviceError(f"The worked example is computed on the CPU alone, not on {device!r}.")
    if image_size is None or isinstance(image_size, str):
        return WorkedExampleModel()
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    return WorkedExampleModel(replace(_PLAIN, size=size))


def brightness_of(seen: npt.NDArray[np.uint8]) -> tuple[float, ...]:
    """Return the mean brightness of each of the nine patches, row by row, 0 (black) to 1 (white).

    Parameters
    ----------
    seen
        uint8 (H, W, 3), sides divisible by three.
    """
    rows, columns = GRID
    parts = seen.reshape(rows, seen.shape[0] // rows, columns, seen.shape[1] // columns, 3)
    return tuple((parts.mean(axis=(1, 3, 4), dtype=np.float64) / 255).ravel().tolist())


def picture_of(brightness: tuple[float, ...]) -> npt.NDArray[np.uint8]:
    """Return nine grey squares, uint8 (288, 288, 3).

    Parameters
    ----------
    brightness
        Of each square, row by row, 0 (black) to 1 (white).
    """
    squares = np.round(255 * np.asarray(brightness).reshape(GRID)).astype(np.uint8)
    grey = squares.repeat(SIDE // GRID[0], axis=0).repeat(SIDE // GRID[1], axis=1)
    return np.repeat(grey[..., None], 3, axis=2)


def _verdict(brightness: tuple[float, ...], weights: npt.NDArray[np.float64]) -> Verdict:
    """Compare with a softmax written out in float64, by what weights make of the tokens as values."""
    tokens = tokens_of(brightness)[0].double()
    logits = (tokens @ tokens.T / 2**0.5).numpy()
    exact = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    values = torch.cat([tokens, torch.ones(len(tokens), 1)], dim=1).numpy()
    real = exact @ values
    error = float(np.abs(weights @ values - real).max() / np.abs(real).max())
    rows = float(np.abs(weights.sum(axis=1) - 1).max())
    good = max(error, rows) < _TOLERANCE
    return Verdict(good, error, rows, "" if good else "it differs from the softmax in float64")
