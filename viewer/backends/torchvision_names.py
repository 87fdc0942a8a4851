"""The names of torchvision's Vision Transformers, none where torchvision is not installed."""

from __future__ import annotations

from functools import lru_cache

PREFIX = "torchvision/"
"""What these names begin with."""

_FAMILIES = ("maxvit", "swin", "vit")


@lru_cache(maxsize=1)
def architectures() -> tuple[str, ...]:
    """Return torchvision's own names of the architectures: ``"vit_b_16"``."""
    try:
        from torchvision import models
    except ImportError:
        return ()
    return tuple(name for name in models.list_models(module=models) if name.startswith(_FAMILIES))


@lru_cache(maxsize=1)
def torchvision_names() -> tuple[str, ...]:
    """Return what can be opened: each architecture, and each with the name of some weights."""
    if not architectures():
        return ()
    from torchvision import models

    names = []
    for architecture in architectures():
        names.append(f"{PREFIX}{architecture}")
        tags = models.get_model_weights(architecture).__members__
        names.extend(f"{PREFIX}{architecture}.{tag}" for tag in tags if tag != "DEFAULT")
    return tuple(names)
