"""Which of transformers' models can be opened, and what each wants besides a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Family:
    """One kind of model in transformers.

    Attributes
    ----------
    backbone
        Class that gives features.
    others
        Classes to prefer where a checkpoint says that it was saved from them.
    resizes
        Whether it takes pictures of other sizes than the one it was trained with.
    note
        What a person should know of how it is run, as a sentence.
    """

    backbone: str
    others: tuple[str, ...] = ()
    resizes: bool = False
    note: str = ""


_TOWER = "Only the vision tower is opened, not the text model: pictures are encoded, and no class is named."
FAMILIES: Mapping[str, Family] = {
    "vit": Family("ViTModel", ("ViTForImageClassification",), True),
    "deit": Family(
        "DeiTModel", ("DeiTForImageClassification", "DeiTForImageClassificationWithTeacher"), True
    ),
    "beit": Family("BeitModel", ("BeitForImageClassification",), True),
    "data2vec-vision": Family("Data2VecVisionModel", ("Data2VecVisionForImageClassification",), True),
    "dinov2": Family("Dinov2Model", ("Dinov2ForImageClassification",), True),
    "dinov2_with_registers": Family(
        "Dinov2WithRegistersModel", ("Dinov2WithRegistersForImageClassification",), True
    ),
    "dinov3_vit": Family("DINOv3ViTModel", (), True),
    "clip": Family("CLIPVisionModel", (), True, _TOWER),
    "clip_vision_model": Family("CLIPVisionModel", (), True),
    "siglip": Family("SiglipVisionModel", (), True, _TOWER),
    "siglip_vision_model": Family("SiglipVisionModel", (), True),
    "siglip2": Family("Siglip2VisionModel", (), True, _TOWER),
    "siglip2_vision_model": Family("Siglip2VisionModel", (), True),
    "swin": Family("SwinModel", ("SwinForImageClassification",)),
    "swinv2": Family("Swinv2Model", ("Swinv2ForImageClassification",)),
    "hiera": Family("HieraModel", ("HieraForImageClassification",)),
    "segformer": Family(
        "SegformerModel", ("SegformerForImageClassification", "SegformerForSemanticSegmentation"), True
    ),
    "dpt": Family("DPTModel", ("DPTForDepthEstimation", "DPTForSemanticSegmentation")),
    "vit_mae": Family(
        "ViTMAEModel",
        note="In training, a masked autoencoder hides most patches at random; here it sees all, in order.",
    ),
}
"""By ``model_type``, as config.json has it."""


def patch_px_of(config: Any) -> tuple[int, int] | None:  # noqa: ANN401
    """Return height and width in pixels of the patches that a model's first convolution cuts."""
    size = getattr(config, "patch_size", None) or next(iter(getattr(config, "strides", ())), None)
    if isinstance(size, (list, tuple)):
        return (int(size[0]), int(size[-1]))
    return (size, size) if isinstance(size, int) else None


def own_size(config: Any) -> tuple[int, int] | None:  # noqa: ANN401
    """Return height and width in pixels of the pictures a model was made for, None where it does not say."""
    size = getattr(config, "image_size", None)
    if isinstance(size, (list, tuple)):
        return (int(size[0]), int(size[-1]))
    return (size, size) if isinstance(size, int) else None


def prepare(model: nn.Module, family: Family) -> None:
    """Let a model be called with a picture alone: what else it wants is put in on the way.

    Parameters
    ----------
    model
        Of transformers.
    family
        Its own.
    """
    model.patch_px = patch_px_of(model.config)
    model.takes_sizes = family.resizes
    given = _WANTS.get(family.backbone, _interpolating)
    model.register_forward_pre_hook(
        lambda module, args, kwargs: ((), given(module, args[0])), with_kwargs=True
    )


def _interpolating(model: nn.Module, picture: Tensor) -> dict[str, Any]:
    """Resample position embeddings for other sizes, where the model can be told to."""
    if tuple(picture.shape[-2:]) == own_size(model.config) or not _can_interpolate(model):
        return {"pixel_values": picture}
    return {"pixel_values": picture, "interpolate_pos_encoding": True}


def _can_interpolate(model: nn.Module) -> bool:
    import inspect

    return "interpolate_pos_encoding" in inspect.signature(model.forward).parameters


def _unmasked(model: nn.Module, picture: Tensor) -> dict[str, Any]:
    """Keep every patch of a masked autoencoder, in order: those with the least noise are kept."""
    model.config.mask_ratio = 0.0
    height, width = model.patch_px
    patches = (picture.shape[-2] // height) * (picture.shape[-1] // width)
    noise = torch.arange(patches, dtype=torch.float32, device=picture.device)[None]
    return {"pixel_values": picture, "noise": noise}


def _patches(model: nn.Module, picture: Tensor) -> dict[str, Any]:
    """Cut the picture into patches of (row, column, channel), as SigLIP 2 takes them."""
    side = model.patch_px[0]
    rows, columns = picture.shape[-2] // side, picture.shape[-1] // side
    cut = picture.reshape(1, 3, rows, side, columns, side).permute(0, 2, 4, 3, 5, 1)
    count = rows * columns
    return {
        "pixel_values": cut.reshape(1, count, side * side * 3),
        "pixel_attention_mask": torch.ones((1, count), dtype=torch.int64, device=picture.device),
        "spatial_shapes": torch.tensor([[rows, columns]], device=picture.device),
    }


_WANTS: dict[str, Callable[[nn.Module, Tensor], dict[str, Any]]] = {
    "ViTMAEModel": _unmasked,
    "Siglip2VisionModel": _patches,
}
