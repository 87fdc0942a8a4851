"""ONNX models as `viewer.backends.model.Model`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from viewer.attention.record import AttentionRecord, Provenance
from viewer.backends.devices import onnx_providers
from viewer.backends.inputs import as_picture, checked_tensor, describe, picture_facts
from viewer.backends.model import Job, short
from viewer.backends.onnx_classes import class_labels, predict
from viewer.backends.onnx_file import OnnxFile, read_onnx
from viewer.backends.onnx_fillers import filled_note
from viewer.backends.onnx_found import OnnxProgram
from viewer.backends.onnx_fused import put_beside
from viewer.backends.onnx_graph import Graph
from viewer.backends.onnx_input import (
    PictureInput,
    check_preprocessing,
    picture_input,
    wanted_preprocessing,
    why_not_whole,
)
from viewer.backends.onnx_patterns import find_attention
from viewer.backends.onnx_runner import OnnxRunner
from viewer.errors import ModelFileError, NoAttentionError
from viewer.images.preprocess import PreparedImage, Preprocessing, prepare, whole_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from viewer.backends.model import ModelInput
    from viewer.images.decode import DecodedImage


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """A model that runs in ONNX Runtime.

    Attributes
    ----------
    name, preprocessing
        As in `viewer.backends.model.Model`.
    file
        What was opened.
    input
        The input pictures go into.
    runner
        Runs it; shared by all that differ in preprocessing only.
    labels
        Name of each class; empty where the output is no classification.
    """

    name: str
    preprocessing: Preprocessing
    file: OnnxFile
    input: PictureInput
    runner: OnnxRunner
    labels: Sequence[str] = ()
    backend: str = "onnx"

    def __repr__(self) -> str:
        return short(self)

    @property
    def device(self) -> str:
        """Where it runs; the CPU after a device failed."""
        return self.runner.device

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences a person should read."""
        assumed = self.preprocessing.assumed
        fed = (filled_note(self.name, self.input.fillers),) if self.input.fillers else ()
        return ((assumed,) if assumed else ()) + fed + self.runner.notes

    @property
    def patch(self) -> tuple[int, int] | None:
        """See `viewer.backends.model.Model`."""
        return self.input.patch

    @property
    def why_not_whole(self) -> str:
        """See `viewer.backends.model.Model`."""
        return why_not_whole(self.name, self.input)

    def with_preprocessing(self, preprocessing: Preprocessing) -> OnnxModel:
        """Return this model with other preprocessing, sharing its session.

        Raises
        ------
        InputError
            If the model can't take that input size or layout.
        """
        check_preprocessing(self.name, self.input, preprocessing)
        return replace(self, preprocessing=preprocessing)

    def attend(self, image: ModelInput, job: Job | None = None) -> AttentionRecord:
        """Run the model once on one picture and return its attention.

        Raises
        ------
        InputError, LayoutError, Cancelled
            As `viewer.backends.model.Model.attend`.
        """
        job = job or Job()
        prepared: PreparedImage | None = None
        told = "none: the input was given as a tensor"
        if isinstance(image, Tensor):
            tensor = checked_tensor(self.name, image).cpu().numpy()
            size = (tensor.shape[2], tensor.shape[3])
            self.input.check(self.name, size)
            if self.preprocessing.layout == "NHWC":
                tensor = tensor.transpose(0, 2, 3, 1)
        else:
            picture = as_picture(image)
            job.step(f"Preparing {picture.name or 'the picture'}", None)
            how = self._sized(picture)
            prepared = prepare(picture, how)
            tensor, size, told = prepared.tensor, how.size, describe(how)
        run = self.runner.run(self.input.feed(tensor), self.preprocessing.layout, job)
        output = main_output(run.outputs)
        return AttentionRecord(
            layers=run.layers,
            input_size=size,
            provenance=Provenance(
                model=self.name,
                model_sha256=self.file.sha256,
                backend="onnx",
                device=self.device,
                preprocessing=told,
                **picture_facts(image),
            ),
            seen=prepared and prepared.seen,
            box=prepared and prepared.box,
            output=output,
            prediction=predict(output, self.labels),
            notes=(*self.notes, *run.notes),
            output_unchanged=run.unchanged,
        )

    def _sized(self, picture: DecodedImage) -> Preprocessing:
        """Choose the input size where a picture is to be seen whole."""
        if self.preprocessing.crop_mode != "whole" or self.patch is None:
            return self.preprocessing
        size = whole_size(picture.pixels.shape[:2], self.preprocessing.size, self.patch)
        return replace(self.preprocessing, size=size)


def main_output(outputs: dict[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32] | None:
    """Return the first floating-point output for the first picture; None where there is none."""
    for value in outputs.values():
        if np.issubdtype(value.dtype, np.floating):
            return np.array(value[0] if value.ndim else value, np.float32)
    return None


def open_onnx(
    path: str | Path,
    name: str | None = None,
    image_size: int | tuple[int, int] | str | None = None,
    device: str = "auto",
    job: Job | None = None,
) -> OnnxModel:
    """Open an ONNX file.

    Parameters
    ----------
    path
        The file; external weights lie beside it.
    name
        What to call it; by default the path.
    image_size
        Height and width of the input in pixels, one number for a square, or "whole"; None takes the model's
        own.
    device
        As for `viewer.backends.opening.open_model`.
    job
        Told of progress; cancels.

    Raises
    ------
    ModelFileError, NoAttentionError, DeviceError, InputError
        Each with a text meant for a person.
    """
    job = job or Job()
    name = name or str(path)
    chosen, providers = onnx_providers(device)
    job.step(f"Reading {name}")
    file = read_onnx(path)
    try:
        fused = put_beside(file.proto)
        graph = Graph(file.proto, file.folder)
        found, unmatched = find_attention(graph, fused)
        if not found:
            raise NoAttentionError(name, graph.census(), instead=unmatched)
        picture = picture_input(file, graph)
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        # Nodes that lack inputs or attributes they must have.
        raise ModelFileError(path, f"is a damaged ONNX model: its graph makes no sense ({error})") from error
    how = wanted_preprocessing(name, file, picture, image_size)
    job.step(f"Starting {name}")
    program = OnnxProgram(name, file, graph, found, picture.name, picture.fillers, unmatched)
    runner = OnnxRunner(program, chosen, providers)
    return OnnxModel(name, how, file, picture, runner, class_labels(graph, file.proto))
