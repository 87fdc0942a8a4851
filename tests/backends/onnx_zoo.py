"""Small seeded models of every family, their ONNX exports, and what their attention truly is."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import timm
import torch
from timm.layers import set_fused_attn
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

SMALL = {"embed_dim": 48, "depth": 2, "num_heads": 3}
EXPORTERS = ("torchscript-17", "dynamo-18", "dynamo-20", "dynamo-23")


@dataclass(frozen=True)
class Family:
    """A model family: a timm name, the input size, and what its layout must be."""

    timm_name: str
    size: tuple[int, int]
    patch: int
    prefix: tuple[str, ...]
    pools: bool = False
    options: tuple[tuple[str, object], ...] = (("num_classes", 10),)


REGISTERS = ("reg1", "reg2", "reg3", "reg4")
FAMILIES = {
    "vit": Family("vit_tiny_patch16_224", (64, 96), 16, ("cls",)),
    "deit": Family("deit_tiny_patch16_224", (64, 64), 16, ("cls",)),
    "deit-distilled": Family("deit_tiny_distilled_patch16_224", (64, 64), 16, ("cls", "dist")),
    "dinov2": Family("vit_small_patch14_dinov2", (70, 56), 14, ("cls",), options=()),
    "dinov2-registers": Family(
        "vit_small_patch14_reg4_dinov2", (56, 84), 14, ("cls", *REGISTERS), options=()
    ),
    "dinov3": Family("vit_small_patch16_dinov3", (64, 64), 16, ("cls", *REGISTERS), options=()),
    "eva02": Family("eva02_tiny_patch14_224", (56, 56), 14, ("cls",)),
    "beit": Family("beit_base_patch16_224", (64, 64), 16, ("cls",)),
    "relpos": Family("vit_relpos_small_patch16_224", (64, 80), 16, ()),
    "siglip": Family("vit_base_patch16_siglip_224", (64, 64), 16, (), pools=True, options=()),
    "clip": Family("vit_base_patch16_clip_224", (64, 64), 16, ("cls",), options=(("num_classes", 128),)),
}


@cache
def model(family: str, fused: bool = True) -> nn.Module:
    """Build a family's model with weights large enough that no head attends uniformly."""
    made = FAMILIES[family]
    torch.manual_seed(0)
    set_fused_attn(fused)
    try:
        built = timm.create_model(made.timm_name, img_size=made.size, **SMALL, **dict(made.options)).eval()
    finally:
        set_fused_attn(True)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in built.named_parameters():
            if weight.ndim > 1:
                spread = (2.0 / weight[0].numel()) ** 0.5 if "weight" in name else 0.5
                weight.copy_(torch.randn(weight.shape, generator=generator) * spread)
    return built


def picture(family: str) -> torch.Tensor:
    """Return a preprocessed input, float32 (1, 3, H, W)."""
    return torch.randn(1, 3, *FAMILIES[family].size, generator=torch.Generator().manual_seed(5))


@cache
def true_attention(family: str) -> tuple[np.ndarray, ...]:
    """Return each layer's weights, float64 (heads, queries, keys), from un-fused attention in float64."""
    built = model(family, fused=False).double()
    rows: list[np.ndarray] = []
    hooks = [
        module.register_forward_pre_hook(lambda _, inputs: rows.append(inputs[0][0].numpy()))
        for name, module in built.named_modules()
        if name.endswith("attn_drop")
    ]
    with torch.no_grad():
        if FAMILIES[family].pools:
            rows.append(_pooling_weights(built, built.forward_features(picture(family).double())))
        else:
            built(picture(family).double())
    for hook in hooks:
        hook.remove()
    built.float()
    return tuple(rows)


def _pooling_weights(built: nn.Module, tokens: torch.Tensor) -> np.ndarray:
    """Return what the pooling query attends to, from the pooling layer's own parameters."""
    pool = built.attn_pool
    split = (1, -1, pool.num_heads, pool.head_dim)
    query = pool.q(pool.latent).reshape(split).transpose(1, 2)
    key = pool.kv(tokens)[..., : pool.num_heads * pool.head_dim].reshape(split).transpose(1, 2)
    return torch.softmax(query @ key.mT / pool.head_dim**0.5, dim=-1)[0].numpy()


@cache
def _program(family: str) -> torch.export.ExportedProgram:
    # The exporter fails on fused kernels with a mask (BEiT, relpos) unless told to take the plain one.
    with sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        return torch.export.export(model(family), (picture(family),))


def export(family: str, exporter: str, path: Path, **options: object) -> Path:
    """Export a family's model to an ONNX file."""
    kind, opset = exporter.split("-")
    with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
        warnings.simplefilter(
            "ignore"
        )  # the exporters deprecate parts of themselves and trace through asserts
        if kind == "dynamo":
            torch.onnx.export(
                _program(family),
                (),
                path,
                opset_version=int(opset),
                verbose=False,
                **{"external_data": False, **options},
            )
        else:
            # This exporter can't take rotary attention fused; it has no way for a traced is_causal.
            plain = model(family, fused=family not in ("dinov3", "eva02"))
            torch.onnx.export(
                plain, (picture(family),), path, opset_version=int(opset), dynamo=False, **options
            )
    return path
