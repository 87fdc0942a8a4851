"""Pictures through the model: every measure of every head, in whatever process the model lives."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from viewer.attention.measured import number_or_none
from viewer.attention.measures import MEASURES
from viewer.errors import Cancelled, InputError, PatchreachError
from viewer.images.preprocess import Preprocessing
from viewer.state.references import convolution_levels
from viewer.study.decoding import Failed, Prepared

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from viewer.attention.distance import Protocol
    from viewer.attention.layer import AttentionLayer
    from viewer.attention.position_share import PositionShare
    from viewer.attention.record import AttentionRecord
    from viewer.attention.sweep import RecordMeasures
    from viewer.backends.model import Job, Model
    from viewer.backends.opening import ImageSize
    from viewer.backends.torch_batches import Together
    from viewer.study.decoding import Decoded


class Measured(NamedTuple):
    """What is kept of one picture.

    Attributes
    ----------
    name, place, sha256
        Which picture, and what its file held.
    verified
        Whether every layer of its record was.
    values
        float32 (heads of all layers in order, measures), NaN where a measure is not defined. The measures are
        made from float32 weights, so this loses nothing that is known.
    """

    name: str
    place: int
    sha256: str
    verified: bool
    values: npt.NDArray[np.float32]


Result = Measured | Failed


class Batch(NamedTuple):
    """Results of some pictures in their order, and the sums of position's share over those measured.

    `position` is None where pictures have sizes of their own, and so no places in common.
    """

    results: list[Result]
    position: PositionShare | None


@dataclass(frozen=True)
class Opening:
    """Which model, and how; small enough to be sent anywhere.

    Attributes
    ----------
    model, weights, image_size, device
        As in `viewer.backends.opening.open_model`.
    preprocessing
        Where a person chose another than the model's own.
    """

    model: str
    weights: str | None = None
    image_size: ImageSize = None
    device: str = "auto"
    preprocessing: Preprocessing | None = None

    def open(self, job: Job | None = None) -> Model:
        """Open it."""
        from viewer.backends.opening import open_model

        model = open_model(self.model, self.weights, self.image_size, self.device, job)
        return model if self.preprocessing is None else model.with_preprocessing(self.preprocessing)

    def to_facts(self) -> dict[str, Any]:
        """Return it ready for JSON, without the device, which may be another each time."""
        facts = asdict(self)
        del facts["device"]
        return facts

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> Opening:
        """Return what `to_facts` gave, read back from JSON.

        Raises
        ------
        KeyError, TypeError
            If it is something else.
        """
        how = facts["preprocessing"]
        size = facts["image_size"]
        return cls(
            facts["model"],
            facts["weights"],
            tuple(size) if isinstance(size, list) else size,
            preprocessing=how and Preprocessing(**{key: _hashable(value) for key, value in how.items()}),
        )

    def absolute(self) -> Opening:
        """Return it with files that are found from any folder."""
        model, weights = (
            str(Path(name).resolve()) if name and Path(name).exists() else name
            for name in (self.model, self.weights)
        )
        return replace(self, model=self.model if self.model == "sample" else model, weights=weights)


def _hashable(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


class Measurer:
    """A model that pictures are measured with.

    Parameters
    ----------
    model
        Of any backend.
    protocol
        Of the distances.
    heads
        Of each layer, which every picture must have.
    together
        Pictures that the model runs on at once, where it takes several.
    """

    def __init__(self, model: Model, protocol: Protocol, heads: tuple[int, ...], together: int = 1) -> None:
        self._model, self._protocol, self._heads, self._together = model, protocol, heads, together

    def batch(self, pictures: Iterable[Decoded], job: Job | None = None) -> Batch:
        """Run the model on some pictures; what can't be measured is given back as failed.

        Raises
        ------
        Cancelled
            If the job was cancelled.
        """
        from viewer.attention.position_share import PositionShare

        position = None if self._model.preprocessing.crop_mode == "whole" else PositionShare()
        results: list[Result] = []
        source = iter(pictures)
        while some := list(islice(source, self._together)):
            results += self._some(some, position, job)
        return Batch(results, position)

    def _some(self, pictures: list[Decoded], position: PositionShare | None, job: Job | None) -> list[Result]:
        """Run the model once on pictures of the same size, or one at a time; results come in their order."""
        sizes: dict[tuple[int, ...], list[int]] = {}
        for at, picture in enumerate(pictures):
            if isinstance(picture, Prepared):
                sizes.setdefault(picture.tensor.shape, []).append(at)
        found: dict[int, Result] = {}
        for places in sizes.values():
            # A batch is filled up to its number, so few pictures are sooner done alone.
            if 2 * len(places) >= self._together > 1:
                alike = [pictures[at] for at in places]
                found.update(zip(places, self._at_once(alike, position, job), strict=False))
        return [
            found[at] if at in found else self._measure(picture, position, job)
            for at, picture in enumerate(pictures)
        ]

    def _at_once(
        self, pictures: list[Prepared], position: PositionShare | None, job: Job | None
    ) -> list[Measured]:
        """Run the model once; no results where it does not take these pictures together."""
        passed = _attend_together(self._model, pictures, self._together, job)
        if passed is None:
            return []
        together, measures = passed
        if tuple(layer.heads // len(pictures) for layer in together.record.layers) != self._heads:
            return []
        try:
            if position is not None:
                position.add(together.record, len(pictures))
        except ValueError:
            return []
        layers = np.split(values_of(measures, self._protocol), np.cumsum(self._heads)[:-1] * len(pictures))
        by_picture = [layer.reshape(len(pictures), -1, layer.shape[-1]) for layer in layers]
        values = np.concatenate(by_picture, axis=1)
        return [
            Measured(picture.name, picture.place, picture.sha256, verified, values[at])
            for at, (picture, verified) in enumerate(zip(pictures, together.verified, strict=True))
        ]

    def _measure(self, picture: Decoded, position: PositionShare | None, job: Job | None) -> Result:
        if isinstance(picture, Failed):
            return picture
        try:
            record, measures = _attend(self._model, picture, job)
        except Cancelled:
            raise
        except PatchreachError as error:
            return Failed(picture.name, picture.place, str(error))
        heads = tuple(layer.heads for layer in record.layers)
        if heads != self._heads:
            reason = f"{picture.name} made the model attend in other layers or heads than it mostly does."
            return Failed(picture.name, picture.place, reason)
        try:
            if position is not None:
                position.add(record)
        except ValueError as error:
            return Failed(picture.name, picture.place, f"{picture.name} differs from the others: {error}.")
        values = values_of(measures, self._protocol)
        return Measured(picture.name, picture.place, picture.sha256, record.verified, values)


def _attend(model: Model, picture: Prepared, job: Job | None) -> tuple[AttentionRecord, RecordMeasures]:
    import torch

    from viewer.attention.sweep import measure_record

    record = model.attend(torch.from_numpy(picture.tensor), job)
    return record, measure_record(record, None if job is None else job.step)


def _attend_together(
    model: Model, pictures: list[Prepared], count: int, job: Job | None
) -> tuple[Together, RecordMeasures] | None:
    import torch

    from viewer.attention.sweep import measure_record
    from viewer.backends.torch_model import TorchModel

    if not isinstance(model, TorchModel):
        return None
    tensor = torch.from_numpy(np.concatenate([picture.tensor for picture in pictures]))
    together = model.attend_together(tensor, count, job)
    if together is None:
        return None
    return together, measure_record(together.record, None if job is None else job.step)


def values_of(measures: RecordMeasures, protocol: Protocol) -> npt.NDArray[np.float32]:
    """Return every measure of every head, float32 (heads of all layers in order, measures)."""
    layers = [
        np.stack([np.asarray(measure.of_heads(found, protocol)) for measure in MEASURES], axis=1)
        for found in measures.layers
    ]
    return np.concatenate(layers).astype(np.float32)


def probe(model: Model, protocol: Protocol, job: Job | None = None, together: int = 1) -> dict[str, Any]:
    """Run a model on a grey picture, and tell all that a study's settings hold of it, ready for JSON.

    So a model that can't be studied is refused before anything is written.

    Raises
    ------
    NoAttentionError, LayoutError, InputError, Cancelled
        As `viewer.backends.model.Model.attend`.
    """
    from viewer.backends.inputs import describe

    height, width = model.preprocessing.size
    record = model.attend(np.full((height, width, 3), 127, np.uint8), job)
    if not any(layer.heads for layer in record.layers):
        raise InputError(f"{model.name} has no heads to study.")
    placed = record.layout.placed
    # Whole pictures have a grid each, and so no common reference.
    common = model.preprocessing.crop_mode != "whole"
    return {
        "model": {
            "name": model.name,
            "sha256": record.provenance.model_sha256,
            "weights": record.provenance.weights,
            "backend": model.backend,
        },
        "preprocessing": describe(model.preprocessing),
        "input_size": list(record.input_size) if common else None,
        "grid": list(record.grid) if placed and common else None,
        "patch_px": list(record.patch_px) if placed else None,
        "prefix_tokens": list(record.prefix_names),
        "layers": [_layer(layer, protocol, common) for layer in record.layers],
        "batch": _batch(model, together, job),
        "convolution": _convolution(record) if common and placed else {},
        "notes": list(dict.fromkeys((*model.notes, *record.notes))),
    }


def _batch(model: Model, together: int, job: Job | None) -> int:
    """Return how many pictures the model takes at once: so many, or 1."""
    if together > 1:
        grey = np.zeros((1, 3, *model.preprocessing.size), np.float32)
        if _attend_together(model, [Prepared("", 0, grey, "")], together, job) is not None:
            return together
    return 1


def _layer(layer: AttentionLayer, protocol: Protocol, common: bool) -> dict[str, Any]:
    uniform = {
        measure.name: number_or_none(measure.uniform(layer, protocol))
        for measure in MEASURES
        if measure.uniform is not None and common
    }
    return {"name": layer.name, "kind": layer.kind, "heads": layer.heads, "uniform": uniform}


def _convolution(record: AttentionRecord) -> dict[str, list[float]]:
    """Return the line of stacked convolutions for each measure that has one."""
    levels = {m.name: convolution_levels(record, m, len(record.layers)).tolist() for m in MEASURES}
    return {name: line for name, line in levels.items() if line}
