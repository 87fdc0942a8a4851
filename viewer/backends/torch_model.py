"""PyTorch models as `viewer.backends.model.Model`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from viewer.attention.record import AttentionRecord, Prediction, Provenance
from viewer.backends.inputs import as_picture, checked_tensor, describe, picture_facts, whole_refusal
from viewer.backends.model import Job, short
from viewer.backends.torch_batches import Together
from viewer.backends.torch_sizes import patch_size
from viewer.errors import InputError
from viewer.images.preprocess import PreparedImage, Preprocessing, prepare, whole_size

if TYPE_CHECKING:
    from viewer.backends.model import ModelInput
    from viewer.backends.opening import ImageSize
    from viewer.backends.torch_runner import TorchRunner
    from viewer.backends.what_if import Change
    from viewer.images.decode import DecodedImage

_BEST = 5


@dataclass(frozen=True, eq=False)
class TorchModel:
    """A model that runs in PyTorch.

    Attributes
    ----------
    name, preprocessing
        As in `viewer.backends.model.Model`.
    runner
        Runs it; shared by all that differ in preprocessing only.
    provenance
        What is known of the weights.
    labels
        Name of each class; empty where the output is no classification.
    opening_notes
        What was assumed or missing when it was opened.
    changes
        What is done to it while it runs (see `viewer.backends.what_if_model.with_changes`).
    """

    name: str
    preprocessing: Preprocessing
    runner: TorchRunner
    provenance: Provenance
    labels: Sequence[str] = ()
    opening_notes: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    backend: str = "torch"

    def __repr__(self) -> str:
        return short(self)

    @property
    def device(self) -> str:
        """Where it runs; the CPU after a device ran out of memory."""
        return self.runner.device

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences a person should read."""
        return (*self.opening_notes, *self.runner.notes)

    @property
    def module(self) -> nn.Module:
        """The PyTorch module, at its own input size."""
        return self.runner.sizes.base

    @property
    def patch(self) -> tuple[int, int] | None:
        """See `viewer.backends.model.Model`."""
        return patch_size(self.module)

    @property
    def why_not_whole(self) -> str:
        """See `viewer.backends.model.Model`."""
        sizes = self.runner.sizes
        # A model without patches is not resizable either, and the reason is the former.
        fixed = "" if self.patch is None or sizes.resizable else f"{sizes.own[0]}x{sizes.own[1]}"
        return whole_refusal(self.name, fixed, self.patch)

    def with_preprocessing(self, preprocessing: Preprocessing) -> TorchModel:
        """Return this model with other preprocessing, sharing its weights.

        Raises
        ------
        InputError
            If the model can't take that input size, or another layout than NCHW was asked for.
        """
        if preprocessing.layout != "NCHW":
            raise InputError(f"{self.name} takes its input as NCHW, not {preprocessing.layout}.")
        if preprocessing.crop_mode == "whole" and self.why_not_whole:
            raise InputError(self.why_not_whole)
        self.runner.sizes.check(preprocessing.size)
        return replace(self, preprocessing=preprocessing)

    def sized(self, size: ImageSize) -> TorchModel:
        """Return this model for another input size, given as to `viewer.backends.opening.open_model`.

        Raises
        ------
        InputError
            If the model can't take it.
        """
        if size is None:
            return self
        if size == "whole":
            return self.with_preprocessing(replace(self.preprocessing, crop_mode="whole"))
        sides = (size, size) if isinstance(size, int) else size
        return self.with_preprocessing(replace(self.preprocessing, size=sides))

    def attend(self, image: ModelInput, job: Job | None = None) -> AttentionRecord:
        """Run the model once on one picture and return its attention.

        Raises
        ------
        InputError, NoAttentionError, LayoutError, Cancelled
            As `viewer.backends.model.Model.attend`.
        """
        job = job or Job()
        tensor, prepared, how = self._prepared(image, job)
        told = "none: the input was given as a tensor"
        provenance = replace(self.provenance, backend="torch", preprocessing=told)
        if how is not None:
            provenance = replace(provenance, **picture_facts(image), preprocessing=describe(how))
        run = self.runner.run(tensor, job, self.changes)
        return AttentionRecord(
            layers=run.layers,
            input_size=(tensor.shape[-2], tensor.shape[-1]),
            provenance=replace(provenance, device=self.device),
            seen=prepared and prepared.seen,
            box=prepared and prepared.box,
            output=run.output[0].numpy(),
            prediction=self._prediction(run.output),
            notes=(*self.notes, *run.notes),
            output_unchanged=run.unchanged,
            features=None if run.features is None else run.features.numpy(),
            what_if=tuple(change.text for change in self.changes),
        )

    def attend_together(self, pictures: Tensor, count: int, job: Job | None = None) -> Together | None:
        """Run the model once on several pictures of one size, which takes less time than one after the other.

        Returns
        -------
        Together or None
            None where the model does not take so many at once, or they can't be told apart afterwards.

        Parameters
        ----------
        pictures
            float32 (n, 3, H, W), as `attend` takes one.
        count
            Pictures in a batch; fewer are filled up, so that the model does the same each time.
        job
            Cancels.

        Raises
        ------
        Cancelled
            If the job was cancelled.
        """
        if self.changes or count < 2:
            return None
        found = self.runner.together(pictures, count, job or Job())
        if found is None:
            return None
        layers, verified = found
        told = "none: the input was given as a tensor"
        provenance = replace(self.provenance, backend="torch", device=self.device, preprocessing=told)
        record = AttentionRecord(layers, (pictures.shape[-2], pictures.shape[-1]), provenance)
        return Together(record, len(pictures), verified)

    def tensor_of(self, image: ModelInput, job: Job) -> Tensor:
        """Return what the model is given for a picture, float32 (1, 3, H, W).

        Raises
        ------
        InputError, Cancelled
            As `attend`.
        """
        return self._prepared(image, job)[0]

    def _prepared(
        self, image: ModelInput, job: Job
    ) -> tuple[Tensor, PreparedImage | None, Preprocessing | None]:
        """Return the model's input, and of a picture how it came about."""
        if isinstance(image, Tensor):
            return checked_tensor(self.name, image), None, None
        picture = as_picture(image)
        job.step(f"Preparing {picture.name or 'the picture'}", None)
        how = self._sized(picture)
        prepared = prepare(picture, how)
        return torch.from_numpy(prepared.tensor), prepared, how

    def _sized(self, picture: DecodedImage) -> Preprocessing:
        """Choose the input size where a picture is to be seen whole."""
        if self.preprocessing.crop_mode != "whole" or self.patch is None:
            return self.preprocessing
        size = whole_size(picture.pixels.shape[:2], self.preprocessing.size, self.patch)
        return replace(self.preprocessing, size=size)

    def _prediction(self, output: Tensor) -> Prediction | None:
        if output.ndim != 2 or output.shape[1] != len(self.labels) or not self.labels:
            return None
        best = torch.softmax(output[0], dim=0).topk(min(_BEST, len(self.labels)))
        labels = tuple(self.labels[index] for index in best.indices.tolist())
        return Prediction(labels, tuple(best.values.tolist()))
