"""Effective receptive fields of an opened model's blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from viewer.backends.effective_field import EffectiveField, effective_fields
from viewer.backends.effective_network import told
from viewer.backends.effective_units import block_of, units_of_blocks
from viewer.backends.torch_model import TorchModel
from viewer.errors import MapError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn

    from viewer.attention.record import AttentionRecord
    from viewer.backends.layer_plans import Planned
    from viewer.backends.model import Job, Model, ModelInput

KIND = "effective field"


def why_no_effective_field(record: AttentionRecord) -> str:
    """Return why a record's model has no effective fields, as a clause; empty if it should have some."""
    if record.provenance.backend == "onnx":
        return "it needs gradients, which ONNX Runtime does not compute; open the same weights in PyTorch"
    if record.what_if:
        return "it is worked out for the model as it is, not for a what-if"
    if not any(layer.name and layer.query_layout.placed for layer in record.layers):
        return "no layer has both a name and tokens with a place"
    return ""


def block_effective_fields(
    model: Model, record: AttentionRecord, images: Sequence[ModelInput], job: Job
) -> dict[int, EffectiveField]:
    """Run a model forward, and backward for each block; return the field of each layer's block by its number.

    Parameters
    ----------
    model
        That made `record`.
    record
        Says where the tokens are.
    images
        At least one to average over, all seen at the record's size; each as for
        `viewer.backends.model.Model.attend`.
    job
        Told of progress; cancels.

    Raises
    ------
    MapError
        If gradients can't be had, or no block gives tokens with a place.
    InputError, Cancelled
        As `viewer.backends.model.Model.attend`.
    """
    why = why_no_effective_field(record)
    if why:
        raise MapError(KIND, why)
    if not isinstance(model, TorchModel):
        raise MapError(KIND, f"it needs gradients, which {type(model).__name__} does not give")

    def look(module: nn.Module, _: Tensor, __: Planned) -> list[EffectiveField]:
        # One after the other, so that memory does not grow with their number.
        pictures = (model.tensor_of(image, job) for image in images)
        return effective_fields(module, told(pictures, len(images), job), units_of_blocks(record.layers), job)

    found = {one.layer: one for one in model.runner.watched(model.tensor_of(images[0], job), job, look)}
    if not found:
        raise MapError(KIND, "no block of the model hands out its tokens in an order that is known")
    named = ((layer.index, block_of(layer.name)) for layer in record.layers if layer.name)
    return {index: found[block] for index, block in named if block in found}
