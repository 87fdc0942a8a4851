"""Patchreach: how far every attention head of a Vision Transformer reaches.

The public Python interface::

    from viewer import open_model, open_image
    model = open_model("sample")
    record = model.attend(open_image("cat.png"))
    record.layers[3].weights(query=(4, 5))      # float32 (heads, keys)

Names are loaded when first used, so ``import viewer`` costs neither torch nor Qt.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from viewer.version import __version__

if TYPE_CHECKING:
    from viewer.attention.layer import AttentionLayer, Verdict
    from viewer.attention.layout import TokenLayout
    from viewer.attention.record import AttentionRecord
    from viewer.backends.model import Model
    from viewer.backends.network_fields import NetworkFields
    from viewer.backends.networks import network_fields
    from viewer.backends.opening import open_model
    from viewer.images.decode import DecodedImage, open_image

_HOMES = {
    "AttentionLayer": "viewer.attention.layer",
    "AttentionRecord": "viewer.attention.record",
    "DecodedImage": "viewer.images.decode",
    "Model": "viewer.backends.model",
    "NetworkFields": "viewer.backends.network_fields",
    "TokenLayout": "viewer.attention.layout",
    "Verdict": "viewer.attention.layer",
    "network_fields": "viewer.backends.networks",
    "open_image": "viewer.images.decode",
    "open_model": "viewer.backends.opening",
}

__all__ = [
    "AttentionLayer",
    "AttentionRecord",
    "DecodedImage",
    "Model",
    "NetworkFields",
    "TokenLayout",
    "Verdict",
    "__version__",
    "network_fields",
    "open_image",
    "open_model",
]


def __getattr__(name: str) -> object:
    """Import a public name from the room it lives in."""
    if name not in _HOMES:
        raise AttributeError(f"module 'viewer' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
