"""The statistics of a whole study, and the table they are written as."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from viewer.attention.measures import measure_named
from viewer.errors import FileError, StudyError
from viewer.study.names import SUMMARY
from viewer.study.statistics import Moments, moments, quartiles

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.study.settings import Settings
    from viewer.study.store import Store

_KEY = b"patchreach"
_NUMBERS = ("mean", "sd", "se", "q1", "median", "q3")


@dataclass(frozen=True, eq=False)
class Summary:
    """Statistics of every measure of every head over the images.

    Attributes
    ----------
    settings
        What was studied; its `layer_of` and `head_of` say which head a row is.
    images
        Number of images measured.
    count
        int64 (heads, measures): images in which the measure is defined.
    mean, sd, se
        float64 (heads, measures): mean, standard deviation of the sample, standard error of the mean.
    quartiles
        float64 (3, heads, measures): first quartile, median, third; None while a study runs.
    failed
        Number of images that could not be measured, and are left out.
    """

    settings: Settings
    images: int
    count: npt.NDArray[np.int64]
    mean: npt.NDArray[np.float64]
    sd: npt.NDArray[np.float64]
    se: npt.NDArray[np.float64]
    quartiles: npt.NDArray[np.float64] | None
    failed: int = 0

    @classmethod
    def of(
        cls, settings: Settings, found: Moments, quarters: npt.NDArray[np.float64] | None, failed: int
    ) -> Summary:
        """Return the summary that moments and quartiles make."""
        images = int(found.count.max(initial=0))
        return cls(settings, images, found.count, found.means, found.deviation, found.error, quarters, failed)

    def column(self, measure: str) -> int:
        """Return where a measure stands.

        Raises
        ------
        LookupError
            If the study does not have it.
        """
        if measure not in self.settings.measures:
            raise LookupError(f"The study has no {measure}; it has {', '.join(self.settings.measures)}.")
        return self.settings.measures.index(measure)


def summarize(store: Store) -> Summary:
    """Compute the statistics over everything that is committed, in constant memory.

    The images are taken in the order of the parts and in blocks of the same size wherever parts end, so a
    study that was stopped and resumed gives the very numbers of one that was not.
    """
    settings = store.settings
    found = moments(store.blocks(), len(settings.layer_of), len(settings.measures))
    _, failed = store.counts()
    return Summary.of(settings, found, quartiles(store.blocks, found.count), failed)


def encode(summary: Summary) -> bytes:
    """Return the summary as a Parquet file: one row for each layer, head and measure."""
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema(
        [
            *((name, pyarrow.int32()) for name in ("layer", "head")),
            *((name, pyarrow.string()) for name in ("name", "kind", "measure", "unit", "protocol")),
            ("images", pyarrow.int64()),
            *((name, pyarrow.float64()) for name in (*_NUMBERS, "uniform")),
        ],
        metadata={_KEY: json.dumps({**summary.settings.facts, "images": summary.images})},
    )
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(_rows(summary)), schema), file)
    return file.getvalue()


def _rows(summary: Summary) -> Iterator[dict[str, Any]]:
    settings = summary.settings
    numbers = np.stack([summary.mean, summary.sd, summary.se, *summary.quartiles])
    for at, (layer, head) in enumerate(zip(settings.layer_of, settings.head_of, strict=True)):
        facts = settings.facts["layers"][layer]
        for column, name in enumerate(settings.measures):
            measure = measure_named(name)
            found = (float(value) if np.isfinite(value) else None for value in numbers[:, at, column])
            yield {
                "layer": layer,
                "head": head,
                "name": facts["name"],
                "kind": facts["kind"],
                "measure": name,
                "unit": measure.unit,
                "protocol": settings.protocol if measure.by_protocol else None,
                "images": int(summary.count[at, column]),
                **dict(zip(_NUMBERS, found, strict=True)),
                "uniform": facts["uniform"].get(name),
            }


def read(store: Store) -> Summary:
    """Read the summary of a finished study.

    Raises
    ------
    FileError
        If it is not there (the study is not finished) or damaged.
    """
    import pyarrow
    import pyarrow.parquet

    folder, settings = store.folder, store.settings
    path = folder / SUMMARY
    shape = (len(settings.layer_of), len(settings.measures))
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            table = file.read(["images", *_NUMBERS])
        count, *numbers = (
            table.column(name).to_numpy(zero_copy_only=False).reshape(shape) for name in table.column_names
        )
    except FileNotFoundError as error:
        raise StudyError(
            folder,
            "is a study that is not finished",
            "Go on with it by --resume.",
            "Open it again and press “Go on”.",
        ) from error
    except (OSError, pyarrow.ArrowException, ValueError) as error:
        raise FileError(path, f"is damaged ({error})") from error
    mean, sd, se, *quarters = (np.asarray(column, np.float64) for column in numbers)
    _, failed = store.counts()
    images, quartiles = int(count.max(initial=0)), np.stack(quarters)
    return Summary(settings, images, count.astype(np.int64), mean, sd, se, quartiles, failed)
