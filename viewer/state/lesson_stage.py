"""What the lesson is played on: nine patches, and the sample model with its photograph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from viewer.attention.record import AttentionRecord
    from viewer.attention.sweep import RecordMeasures
    from viewer.backends.model import Job, Model
    from viewer.images.decode import DecodedImage

StageName = Literal["nine patches", "sample"]


@dataclass(frozen=True, eq=False)
class Stage:
    """A model, a picture, and all that was measured of it."""

    model: Model
    image: DecodedImage
    record: AttentionRecord
    measures: RecordMeasures


def nine_patches(brightness: tuple[float, ...], model: Model | None = None) -> Stage:
    """Attend over nine grey patches; takes a millisecond once torch is loaded.

    Parameters
    ----------
    brightness
        Of each patch, row by row, 0 to 1.
    model
        The worked example, where it is open already.
    """
    from viewer.attention.sweep import measure_record
    from viewer.backends.opening import WORKED_EXAMPLE, open_model
    from viewer.backends.worked_example_model import picture_of
    from viewer.images.decode import open_image

    model = model or open_model(WORKED_EXAMPLE)
    image = open_image(picture_of(brightness), "nine patches")
    record = model.attend(image)
    return Stage(model, image, record, measure_record(record))


def sample(job: Job) -> Stage:
    """Let the sample model look at the first of the shipped photographs.

    It is opened anew also where a person has it open, who may have chosen other preprocessing.

    Parameters
    ----------
    job
        Told of progress; cancels.

    Raises
    ------
    PatchreachError
        As `viewer.backends.opening.open_model` does, if the model can't be had.
    """
    from viewer.attention.sweep import measure_record
    from viewer.backends.opening import open_model
    from viewer.images.decode import open_image
    from viewer.images.samples import SAMPLES

    image = open_image(SAMPLES[0].path)
    model = open_model("sample", job=job)
    record = model.attend(image, job)
    return Stage(model, image, record, measure_record(record, job.step))


def sample_is_here() -> bool:
    """Return whether the sample model lies on this machine, so that opening it needs no connection."""
    from viewer.backends.sample import cached_path

    return cached_path().is_file()
