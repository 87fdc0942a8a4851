"""The models that can be opened by name: those of timm and torchvision with softmax attention."""

from __future__ import annotations

import difflib
import fnmatch
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from viewer.backends.torchvision_names import torchvision_names
from viewer.errors import (
    CheckpointError,
    InputError,
    NoAttentionError,
    UnknownModelError,
)

if TYPE_CHECKING:
    from torch import nn

    from viewer.backends.model import Job

# timm's modules whose models attend with a softmax. COVERAGE.md tells of each what is found in it.
_FAMILIES = (
    *("beit", "cait", "convit", "cpubone", "crossvit", "csatv2", "davit", "deepseek_vit", "deit", "edgenext"),
    *("efficientformer", "efficientformer_v2", "efficientvit_msra", "eva", "gcvit", "gemma4_vit", "hiera"),
    *("hieradet_sam2", "iformer", "levit", "lowformer", "maxxvit", "mobilenetv5", "mvitv2", "naflexvit"),
    *("nest", "nextvit", "pit", "pvt_v2", "qwen3_vit", "shvit", "swin_transformer", "swin_transformer_v2"),
    *(
        "swin_transformer_v2_cr",
        "tiny_vit",
        "tnt",
        "twins",
        "vision_transformer",
        "vision_transformer_hybrid",
    ),
    *("vision_transformer_relpos", "vision_transformer_sam", "visformer", "vitamin", "volo", "xcit"),
)
# Of these only the models with such names do.
_IN_PART = {
    "byoanet": ("*bot*", "*halo*"),
    "byobnet": ("*_clip*",),
    "fastvit": ("fastvit_[sm]a*", "fastvit_mci*"),
    "metaformer": ("caformer_*",),
    "mobilenetv3": ("*_hybrid_*",),
    "mobilevit": ("mobilevit_*",),
}
# Of these it is known without a download that there is nothing to show.
_CONVOLUTIONAL = frozenset(
    [
        *("convnext", "densenet", "efficientnet", "hrnet", "inception_v3", "mobilenetv3", "regnet"),
        *("res2net", "resnet", "resnetv2", "vgg"),
    ]
)
_SUGGESTIONS = 5


@lru_cache(maxsize=1)
def _all_names() -> tuple[str, ...]:
    import timm

    found = {"sample", *torchvision_names()}
    for family in (*_FAMILIES, *_IN_PART):
        for pretrained in (False, True):
            names = timm.list_models(module=family, pretrained=pretrained)
            found.update(name for name in names if _attends(family, name))
    return tuple(sorted(found, key=lambda name: (name != "sample", _natural(name))))


def _attends(family: str, name: str) -> bool:
    """Return whether a model of one of timm's modules attends with a softmax, as far as is known."""
    architecture = name.partition(".")[0]
    patterns = _IN_PART.get(family, ("*",) if family in _FAMILIES else ())
    return any(fnmatch.fnmatchcase(architecture, pattern) for pattern in patterns)


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """Sort numbers in names as numbers."""
    return [
        (part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", name)
    ]


def model_names(pattern: str = "") -> tuple[str, ...]:
    """Return the names that can be opened: ``sample``, architectures, and architectures with a weight tag.

    Parameters
    ----------
    pattern
        A part of the name, or with ``*`` and ``?`` a pattern for all of it.
    """
    wanted = pattern.lower()
    if not any(character in wanted for character in "*?["):
        wanted = f"*{wanted}*"
    return tuple(name for name in _all_names() if fnmatch.fnmatchcase(name.lower(), wanted))


def names_not_shown(pattern: str) -> tuple[str, ...]:
    """Return timm's architectures that a pattern fits (as in `model_names`) but that can't be shown."""
    import timm

    wanted = pattern.lower()
    if not any(character in wanted for character in "*?["):
        wanted = f"*{wanted}*"
    shown = set(_all_names())
    names = (name for name in timm.list_models() if name not in shown)
    return tuple(name for name in names if fnmatch.fnmatchcase(name.lower(), wanted))


def check_family(name: str) -> None:
    """Refuse, before anything is downloaded, a model of a family that has nothing to show.

    Raises
    ------
    NoAttentionError
        If it is a convolutional network.
    """
    from timm.models import model_entrypoint

    family = model_entrypoint(name.partition(".")[0]).__module__.rpartition(".")[2]
    if family in _CONVOLUTIONAL and not _attends(family, name):
        raise NoAttentionError(name, {}, convolutional=True)


def near_names(name: str) -> tuple[str, ...]:
    """Return names that come near one that does not exist, best first."""
    architecture = name.partition(".")[0].lower()
    architectures = [known for known in _all_names() if "." not in known]
    # Names differ in few characters and share most: first those that merely go on, then the similar.
    longer = [known for known in architectures if architecture and known.startswith(architecture)]
    tagged = [known for known in _all_names() if "." in known and known.startswith(f"{architecture}.")]
    similar = difflib.get_close_matches(architecture, architectures, _SUGGESTIONS, cutoff=0.6)
    candidates = dict.fromkeys([*(tagged if "." in name else []), *longer, *similar])
    return tuple(candidates)[:_SUGGESTIONS]


def check_name(name: str) -> None:
    """See whether timm has a model of that name, in any family.

    Raises
    ------
    UnknownModelError
        If not; it carries names that come near.
    """
    import timm

    architecture, _, tag = name.partition(".")
    known = timm.is_model(architecture)
    if known and tag:
        try:
            timm.get_pretrained_cfg(name)
        except RuntimeError:
            known = False
    if not known:
        raise UnknownModelError(name, near_names(name))


def create_trained(name: str, job: Job) -> tuple[nn.Module, Path]:
    """Make a model with its pretrained weights, downloaded if need be.

    Returns
    -------
    tuple
        The model, and the file its weights came from.

    Raises
    ------
    OfflineError
        If the weights are not here and can't be fetched.
    CheckpointError
        If there are none to fetch.
    Cancelled
        If the job was.
    """
    import timm

    from viewer.backends.downloads import fetch

    config = timm.get_pretrained_cfg(name)
    if config is None or not config.hf_hub_id:
        raise CheckpointError(
            name,
            "has no trained weights to download, and random ones would show nothing",
            f"Join it with a checkpoint: --model {name} --weights FILE.",
        )
    path = fetch(name, config.hf_hub_id, config.hf_hub_filename, job)
    job.step(f"Loading {name}", None)
    # The file is timm's own conversion; a custom loader would take it for the original's format.
    overlay = {"file": str(path), "custom_load": False}
    return timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay), path


def create_untrained(name: str, **options: object) -> nn.Module:
    """Make a model whose weights are still to be loaded; `options` are timm's, such as ``img_size``.

    Raises
    ------
    InputError
        If the architecture does not take colour pictures.
    """
    import timm

    model = timm.create_model(name, pretrained=False, **options)
    channels = (model.pretrained_cfg.get("input_size") or (3,))[0]
    if channels != 3:
        raise InputError(f"{name} takes {channels} channels, not colour pictures.")
    return model
