"""How things are shown: the settings a person chooses for all views and for the exports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from psygnal import Signal

Protocol = Literal["renormalized", "original"]
Unit = Literal["px", "patches"]
Scale = Literal["shared", "per head"]
Theme = Literal["light", "dark", "talk"]
MapKind = Literal["attention", "rollout", "class rollout", "norms", "effective field"]
"""What the picture shows over its patches; see `viewer.state.maps.MAPS`."""
RolloutFusion = Literal["mean", "max", "min"]
Centring = Literal["plain", "centred"]
Likened = Literal["layers", "heads"]
LikenedHeads = Literal["fused", "shown"]


@dataclass(frozen=True)
class DisplayValue:
    """Display settings.

    Attributes
    ----------
    protocol
        Of the attention distance; see `viewer.attention.distance`.
    unit
        Of the attention distance.
    scale
        Colour scale: one for all heads, or each head its own maximum.
    colormap
        A cmap name; perceptual and safe for colour-blind readers.
    opacity
        Of the overlay, 0 to 1; with `fade`, of its strongest patches.
    fade
        Whether weak patches are clearer than strong ones, so that the picture shows where attention is low.
    grid
        Whether patch borders are drawn.
    ring
        Number of stacked 3x3 convolutions whose reach is outlined around the query; 0 draws none.
    theme
        Colours and type size of the window and of figures.
    map
        What the picture shows over its patches.
    rollout_fusion
        How the heads of a layer become one in a rollout.
    start_layer
        First layer that is in a rollout.
    map_class
        Number of the class of a class rollout; -1 for the model's best.
    x_measure, y_measure
        What the scatter has along its axes: "layer" (along x), "mean_distance" in the chosen unit, or the
        name of a measure in `viewer.attention.measures.MEASURES`.
    compare
        Name or file of a convolutional network whose stages the scatter shows beside the heads; mostly empty.
    compare_weights
        What its effective fields are worked out with: "trained", "untrained", or the path of a checkpoint;
        empty for theoretical fields alone.
    stage
        Stage of that network whose effective field the map shows; empty for the model's own.
    kinds
        Whether the dots of the scatter have the colour and shape of their head's kind.
    likeness
        Which cosines the likeness view shows: of attention as it is, or without the means of its columns.
    likeness_of
        Whether it compares layers, or the heads of the shown layer.
    likeness_heads
        Whether layers are compared by the mean over their heads, or by the shown head.
    """

    protocol: Protocol = "renormalized"
    unit: Unit = "px"
    scale: Scale = "shared"
    colormap: str = "viridis"
    opacity: float = 0.8
    fade: bool = True
    grid: bool = False
    ring: int = 0
    theme: Theme = "light"
    map: MapKind = "attention"
    rollout_fusion: RolloutFusion = "mean"
    start_layer: int = 0
    map_class: int = -1
    x_measure: str = "layer"
    y_measure: str = "mean_distance"
    kinds: bool = False
    compare: str = ""
    compare_weights: str = ""
    stage: str = ""
    likeness: Centring = "plain"
    likeness_of: Likened = "layers"
    likeness_heads: LikenedHeads = "fused"


class Display:
    """The observable settings. `changed` carries the new value and speaks only when it differs."""

    changed = Signal(DisplayValue)

    def __init__(self, value: DisplayValue | None = None) -> None:
        self._value = value or DisplayValue()

    @property
    def value(self) -> DisplayValue:
        """The settings now."""
        return self._value

    def set(self, value: DisplayValue) -> None:
        """Change settings, and tell every view if anything differs."""
        if value != self._value:
            self._value = value
            self.changed.emit(value)
