"""Whether attention is dense or sparse: nearer to uniform attention, or to a 3x3 window."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from viewer.attention.even import even_measures

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from viewer.attention.layer import AttentionLayer
    from viewer.attention.measured import LayerMeasures


@dataclass(frozen=True)
class DensityReference:
    """The row entropies that heads of a layer are compared with, in nats, over all keys.

    Attributes
    ----------
    uniform
        Of even attention to all keys that a query can reach, prefix keys included.
    local
        Of even attention to the patches of the 3x3 window around the query, cut off at the border (and to
        what the query can reach); NaN where queries or keys have no place.
    """

    uniform: float
    local: float

    @property
    def limit(self) -> float:
        """Halfway between the two: a head of more entropy is nearer to uniform.

        In effective tokens it is the geometric mean.
        """
        return (self.uniform + self.local) / 2


def density_reference(layer: AttentionLayer) -> DensityReference:
    """Return what the heads of a layer are compared with."""
    placed = layer.query_layout.placed and layer.key_layout.placed
    local = float(even_measures(layer, window=True).mean_entropy()[0]) if placed else math.nan
    return DensityReference(float(even_measures(layer).mean_entropy()[0]), local)


def nearer_to_uniform(layer: AttentionLayer, measured: LayerMeasures) -> npt.NDArray[np.bool_] | None:
    """Return which heads have an entropy nearer to uniform attention's than to a 3x3 window's, bool (heads,).

    None where there is no such window: queries or keys without a place, or keys so few or so far apart that
    the window holds no less than all.
    """
    reference = density_reference(layer)
    if not reference.uniform > reference.local:
        return None
    return measured.mean_entropy() > reference.limit


def dense_share(layer: AttentionLayer, measured: LayerMeasures) -> float:
    """Return the share of a layer's heads that are nearer to uniform than to local; NaN where undefined."""
    found = nearer_to_uniform(layer, measured)
    return math.nan if found is None else float(found.mean())
