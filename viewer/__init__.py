"""Patchreach: how far every attention head of a Vision Transformer reaches.

The public Python interface::

    from viewer import head_kinds, measure_named, measure_record, open_image, open_model

    model = open_model("sample")
    record = model.attend(open_image("cat.png"))
    layer = record.layers[3]
    layer.weights(query=(4, 5))                 # float32 (heads, keys)

    measured = measure_record(record).layers[3]
    measure_named("mean_distance_px").of_heads(measured, "renormalized")  # float64 (heads,)
    [found.kind for found in head_kinds(layer, measured)]                  # "local", "content", ...

`MEASURES` has every measure with its words, unit and source: distances, entropy, attention on prefix tokens
and the others. Names are loaded when first used, so ``import viewer`` costs neither torch nor Qt.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from viewer.version import __version__

if TYPE_CHECKING:
    from viewer.attention.kinds import head_kinds
    from viewer.attention.layer import AttentionLayer, Verdict
    from viewer.attention.layout import TokenLayout
    from viewer.attention.measures import MEASURES, measure_named
    from viewer.attention.record import AttentionRecord
    from viewer.attention.sweep import measure_record
    from viewer.backends.model import Model
    from viewer.backends.network_fields import NetworkFields
    from viewer.backends.networks import network_fields
    from viewer.backends.opening import open_model
    from viewer.images.decode import DecodedImage, open_image

_HOMES = {
    "AttentionLayer": "viewer.attention.layer",
    "AttentionRecord": "viewer.attention.record",
    "DecodedImage": "viewer.images.decode",
    "MEASURES": "viewer.attention.measures",
    "Model": "viewer.backends.model",
    "NetworkFields": "viewer.backends.network_fields",
    "TokenLayout": "viewer.attention.layout",
    "Verdict": "viewer.attention.layer",
    "head_kinds": "viewer.attention.kinds",
    "measure_named": "viewer.attention.measures",
    "measure_record": "viewer.attention.sweep",
    "network_fields": "viewer.backends.networks",
    "open_image": "viewer.images.decode",
    "open_model": "viewer.backends.opening",
}

__all__ = [
    "MEASURES",
    "AttentionLayer",
    "AttentionRecord",
    "DecodedImage",
    "Model",
    "NetworkFields",
    "TokenLayout",
    "Verdict",
    "__version__",
    "head_kinds",
    "measure_named",
    "measure_record",
    "network_fields",
    "open_image",
    "open_model",
]


def __getattr__(name: str) -> object:
    """Import a public name from the room it lives in."""
    if name not in _HOMES:
        raise AttributeError(f"module 'viewer' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
