"""Effective receptive fields of a whole network: of its stages, and of its blocks where it attends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from viewer.attention.record import Provenance
from viewer.backends.effective_field import EffectiveField, FindUnit, effective_fields
from viewer.backends.effective_units import units_of_blocks, units_of_maps
from viewer.backends.torch_model import TorchModel
from viewer.backends.torch_runner import TorchRunner
from viewer.backends.torch_sizes import SizedModels
from viewer.errors import LayoutError, NoAttentionError
from viewer.images.preprocess import prepare

if TYPE_CHECKING:
    from torch import Tensor

    from viewer.backends.model import Job
    from viewer.backends.network_fields import NetworkFields
    from viewer.backends.networks import Network
    from viewer.images.decode import DecodedImage


def network_effective_fields(
    network: Network, fields: NetworkFields, images: Sequence[DecodedImage], job: Job
) -> list[EffectiveField]:
    """Return the effective fields of a network's stages and blocks, averaged over pictures.

    Parameters
    ----------
    network
        With the weights it is to be asked with.
    fields
        Its theoretical fields, which name the stages.
    images
        At least one.
    job
        Told of progress; cancels.
    """
    units: dict[str, FindUnit] = {}
    if fields.end:
        units.update(_of_blocks(network, _prepared(network, images[0]), job))
    names = [stage.name for stage in fields.stages]
    units.update(units_of_maps(network.module, network.preprocessing.size, names))
    pictures = (_prepared(network, image) for image in images)
    return effective_fields(network.module, told(pictures, len(images), job), units, job)


def _prepared(network: Network, image: DecodedImage) -> Tensor:
    return torch.from_numpy(prepare(image, network.preprocessing).tensor)


def _of_blocks(network: Network, picture: Tensor, job: Job) -> dict[str, FindUnit]:
    sizes = SizedModels(network.name, network.module, network.preprocessing.size)
    runner = TorchRunner(network.name, sizes, network.device)
    model = TorchModel(network.name, network.preprocessing, runner, Provenance(network.name))
    try:
        return units_of_blocks(model.attend(picture, job).layers)
    except (NoAttentionError, LayoutError):
        return {}  # what it does instead has no tokens with a place


def told(pictures: Iterable[Tensor], count: int, job: Job) -> Iterator[Tensor]:
    """Hand on pictures one by one, and tell of each."""
    for place, picture in enumerate(pictures):
        job.step(f"Picture {place + 1} of {count}", place / count)
        yield picture
