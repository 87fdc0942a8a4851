"""The layers of a network with what each of them sees of the picture, in forward order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from viewer.backends.fields import Pair, Seen

Kind = str
MIXED = "From {} on every unit sees the whole picture: places are mixed with all others."
STAGE = "stage"
"""Kind of a row that sums up a stage: what its last output sees, skipped-to branches included."""


@dataclass(frozen=True)
class FieldLayer:
    """A convolution, a pooling, or the end of a stage.

    Attributes
    ----------
    name
        Module or graph node; of a stage what its modules' names have in common.
    kind
        "conv", "transposed conv", "max pool", "average pool", or `STAGE`.
    kernel, stride, dilation
        Height and width in units of what it takes in; None for a stage.
    jump
        Pixels of the input from one unit to the next, (y, x).
    field
        Height and width of what a unit sees, in pixels of the input.
    start
        Centre of what the first unit sees, (y, x) in pixels; the first pixel's own is (0.5, 0.5).
    gated
        Whether units also depend on the whole picture, through something that is the same at every place.
    """

    name: str
    kind: Kind
    kernel: tuple[int, ...] | None
    stride: tuple[int, ...] | None
    dilation: tuple[int, ...] | None
    jump: Pair
    field: Pair
    start: Pair
    gated: bool


@dataclass(frozen=True)
class NetworkFields:
    """What every layer of a network sees.

    Attributes
    ----------
    name
        Of the network, as it was asked for.
    backend
        "torch" or "onnx": what the graph was read from.
    layers
        In forward order; each stage follows its last layer.
    end
        Where fields end before the network does, and why, as a sentence; empty for a global pooling.
    """

    name: str
    backend: str
    layers: tuple[FieldLayer, ...]
    end: str = ""

    @property
    def stages(self) -> tuple[FieldLayer, ...]:
        """The ends of stages."""
        return tuple(layer for layer in self.layers if layer.kind == STAGE)

    @property
    def gated(self) -> bool:
        """Whether any layer is."""
        return any(layer.gated for layer in self.layers)


def layer(name: str, kind: Kind, seen: Seen, windows: Sequence[Sequence[int]] | None) -> FieldLayer:
    """Return the row of a layer; `windows` are kernel, stride and dilation, None for a stage."""
    kernel, stride, dilation = (None, None, None) if windows is None else map(tuple, windows)
    start = (seen.low[0] + seen.high[0]) / 2, (seen.low[1] + seen.high[1]) / 2
    return FieldLayer(name, kind, kernel, stride, dilation, seen.jump, seen.field, start, seen.gated)


def stage_of(name: str) -> str:
    """Return the stage that a module is of: its name up to the first part with a number.

    ``"layer1.0.conv1"`` is of "layer1", ``"stages.0.blocks.2.conv_dw"`` of "stages.0".
    """
    parts = name.split(".")
    numbered = next((place for place, part in enumerate(parts) if re.search(r"\d", part)), len(parts) - 1)
    return ".".join(parts[: numbered + 1])


class Collector:
    """Gathers the layers of a network while it is followed, and what each stage saw last."""

    def __init__(self) -> None:
        self._layers: list[tuple[FieldLayer, str]] = []
        self._last: dict[str, Seen] = {}

    def add(self, found: FieldLayer, stage: str) -> None:
        """Take the next layer, and the name of its stage."""
        self._layers.append((found, stage))

    def passed(self, stage: str, seen: Seen) -> None:
        """Note what the latest operation of a stage sees."""
        self._last[stage] = seen

    def rows(self) -> tuple[FieldLayer, ...]:
        """Return the layers, after the last of each stage a row for the stage."""
        ends = {stage: place for place, (_, stage) in enumerate(self._layers)}
        rows: list[FieldLayer] = []
        for place, (found, stage) in enumerate(self._layers):
            rows.append(found)
            if ends[stage] == place and stage in self._last:
                rows.append(layer(stage, STAGE, self._last[stage], None))
        return tuple(rows)
