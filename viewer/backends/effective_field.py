"""The effective receptive field: what a unit really depends on, by its gradient with the picture.

After Luo et al. 2016, "Understanding the Effective Receptive Field in Deep Convolutional Neural Networks":
the gradient is 1 at the unit in the middle of a layer's output and 0 at all others, and is carried back to
the picture; its size there, summed over colours and averaged over pictures, is the map. The middle unit has
many channels. A plain sum of them would ask for their mean only, which a layer norm behind it takes away
again; so each channel counts with a sign drawn at random (the same for every picture), averaged over draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from viewer.backends.torch_fastpath import fast_path_off
from viewer.backends.torch_ops import tensors_in

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.backends.model import Job

DRAWS = 2
"""Draws of signs that are averaged."""
FAINT = 1 - 0.9545
"""What a pixel's gradient must exceed, as a share of the largest, to be in the field (Luo et al.)."""


@dataclass(frozen=True)
class Unit:
    """The unit a gradient starts from.

    Attributes
    ----------
    index
        Into its layer's output, the batch included; all channels are left in.
    centre
        Where it sits, (y, x) in pixels of the input.
    """

    index: tuple[int | slice, ...]
    centre: tuple[float, float]


FindUnit = Callable[[Tensor], "Unit | None"]
"""Returns the middle unit of a layer's output, None where the output is no map and no tokens of one."""


@dataclass(frozen=True, eq=False)
class EffectiveField:
    """What the unit in the middle of a layer depends on.

    Attributes
    ----------
    layer
        Name of the module whose output it is.
    map
        float64 (H, W), mean size of the gradient at each pixel of the input.
    centre
        Where the unit sits, (y, x) in pixels.
    images
        Number of pictures that were averaged.
    """

    layer: str
    map: npt.NDArray[np.float64]
    centre: tuple[float, float]
    images: int

    @property
    def size(self) -> float:
        """Side in pixels of a square as large as all pixels over 4.55 % of the largest (Luo et al.)."""
        return math.sqrt(np.count_nonzero(self.map > FAINT * self.map.max()))

    @cached_property
    def mean_distance(self) -> float:
        """Mean distance from the unit in pixels, weighted by the gradient, as an attention distance is."""
        return self.distance((1.0, 1.0))

    def distance(self, step: tuple[float, float]) -> float:
        """Return the same in units of `step`, height and width in pixels: those of a patch."""
        down, across = self._apart
        return self._mean(np.hypot(down / step[0], across / step[1]))

    @cached_property
    def deviation(self) -> tuple[float, float]:
        """Root mean square distance along rows and columns, (y, x) in pixels: the sigma of a Gaussian."""
        down, across = self._apart
        return math.sqrt(self._mean(down**2)), math.sqrt(self._mean(across**2))

    @property
    def _apart(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        height, width = self.map.shape
        return (np.arange(height) + 0.5 - self.centre[0])[:, None] + np.zeros(width), (
            np.arange(width) + 0.5 - self.centre[1]
        )[None, :] + np.zeros((height, 1))

    def _mean(self, values: npt.NDArray[np.float64]) -> float:
        total = self.map.sum()
        return float((self.map * values).sum() / total) if total > 0 else float("nan")


def effective_fields(
    model: nn.Module, pictures: Iterable[Tensor], units: Mapping[str, FindUnit], job: Job, draws: int = DRAWS
) -> list[EffectiveField]:
    """Return the fields of several layers, in the order in which the model runs them.

    Parameters
    ----------
    model
        In evaluation mode.
    pictures
        Preprocessed, float32 (1, 3, H, W), all of one size; taken one by one.
    units
        For each module's name how its middle unit is found. Modules that do not run, or whose output has no
        such unit, are left out.
    job
        Told of progress; cancels.
    draws
        Draws of signs; a layer of a single channel needs only one.
    """
    totals: dict[str, Tensor] = {}
    centres: dict[str, tuple[float, float]] = {}
    images = 0
    for images, picture in enumerate(pictures, 1):  # noqa: B007
        for name, unit, gradient in _gradients(model, picture, units, job, draws):
            totals[name] = totals.get(name, 0) + gradient
            centres[name] = unit.centre
    return [
        EffectiveField(name, total.cpu().numpy() / images, centres[name], images)
        for name, total in totals.items()
    ]


def _gradients(
    model: nn.Module, picture: Tensor, units: Mapping[str, FindUnit], job: Job, draws: int
) -> Iterator[tuple[str, Unit, Tensor]]:
    """Yield for each layer its unit and the size of the gradient, float64 (H, W)."""
    parameter = next(model.parameters(), picture)
    with torch.inference_mode(False), torch.enable_grad(), fast_path_off():
        source = picture.detach().clone().to(parameter.device, parameter.dtype).requires_grad_()
        with _outputs(model, units) as outputs:
            job.step("Running the network forward", None)
            model(source)
        found = [(name, unit, out) for name, out in outputs.items() if (unit := units[name](out)) is not None]
        for place, (name, unit, output) in enumerate(found):
            total = torch.zeros(picture.shape[-2:], dtype=torch.float64, device=source.device)
            for draw in range(draws):
                job.step(f"Following the gradient of {name}", (place + draw / draws) / len(found))
                (gradient,) = torch.autograd.grad(
                    output, source, _start(output, unit, draw), retain_graph=True, allow_unused=True
                )
                if gradient is not None:
                    total += gradient[0].abs().sum(dim=0).double() / draws
            yield name, unit, total


def _start(output: Tensor, unit: Unit, draw: int) -> Tensor:
    """Return the gradient at a layer's output: a sign for each channel of the unit, 0 elsewhere."""
    start = torch.zeros_like(output)
    channels = start[unit.index].numel()
    generator = torch.Generator().manual_seed(draw)
    signs = torch.randint(0, 2, (channels,), generator=generator) * 2 - 1
    start[unit.index] = signs.to(start)
    return start


@contextmanager
def _outputs(model: nn.Module, names: Iterable[str]) -> Iterator[dict[str, Tensor]]:
    """Collect what modules return, in the order in which they end; a copy goes on and may be written to."""
    found: dict[str, Tensor] = {}

    def take(name: str, output: object) -> object:
        first = next(tensors_in(output), None)
        if first is None or not first.requires_grad:
            return None
        found[name] = first
        return first.clone() if isinstance(output, Tensor) else None

    modules = dict(model.named_modules())
    handles = [
        modules[name].register_forward_hook(lambda _module, _args, output, name=name: take(name, output))
        for name in names
        if name in modules
    ]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()
