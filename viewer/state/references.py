"""Uniform attention of a layer, kept while the layer is: every hover asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.layer import AttentionLayer
    from viewer.state.display import Protocol, Unit

# Not `lru_cache`, which would keep a layer, and with it a whole record, alive.
_kept: WeakKeyDictionary[AttentionLayer, dict[tuple[str, str], npt.NDArray[np.float64]]] = WeakKeyDictionary()


def uniform_distances(layer: AttentionLayer, protocol: Protocol, unit: Unit) -> npt.NDArray[np.float64]:
    """Return the distance of each patch query if it attended evenly to all it can reach.

    float64 (R * C,) of the layer's own queries; empty where they or the keys have no place.
    """
    from viewer.attention.uniform import uniform_layer_distance

    of_layer = _kept.setdefault(layer, {})
    if (protocol, unit) not in of_layer:
        of_layer[protocol, unit] = uniform_layer_distance(layer, protocol, unit)
    return of_layer[protocol, unit]


def mean_of_numbers(values: npt.NDArray[np.float64]) -> float:
    """Return the mean of those that are numbers; NaN where none is."""
    there = values[np.isfinite(values)]
    return float(there.mean()) if there.size else float("nan")
