"""Small members of each family, with weights that make attention worth looking at."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import numpy as np
import timm
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from viewer.attention.layer import AttentionLayer
from viewer.attention.record import AttentionRecord, Provenance
from viewer.backends.timm_model import wrap
from viewer.backends.torch_model import TorchModel

# name: (arguments that keep it small, names of its prefix tokens, whether it ends in attention pooling)
REGISTERS = ("cls", "reg1", "reg2", "reg3", "reg4")
ZOO: dict[str, tuple[dict, tuple[str, ...], bool]] = {
    "vit_tiny_patch16_224": ({"img_size": 64}, ("cls",), False),
    "vit_base_patch16_gap_224": ({"img_size": 48, "embed_dim": 96, "num_heads": 3}, (), False),
    "deit_tiny_patch16_224": ({"img_size": (48, 80)}, ("cls",), False),
    "deit_tiny_distilled_patch16_224": ({"img_size": 64}, ("cls", "dist"), False),
    "deit3_small_patch16_224": ({"img_size": 64}, ("cls",), False),
    "vit_small_patch14_dinov2": ({"img_size": 56}, ("cls",), False),
    "vit_small_patch14_reg4_dinov2": ({"img_size": (56, 84)}, REGISTERS, False),
    "vit_small_patch16_dinov3": ({"img_size": (64, 96)}, REGISTERS, False),
    "eva02_tiny_patch14_224": ({"img_size": 56}, ("cls",), False),
    "beit_base_patch16_224": ({"img_size": 64, "embed_dim": 192, "num_heads": 3}, ("cls",), False),
    "vit_relpos_small_patch16_224": ({"img_size": 64}, (), False),
    "vit_relpos_base_patch16_clsgap_224": (
        {"img_size": 64, "embed_dim": 96, "num_heads": 3},
        ("cls",),
        False,
    ),
    "vit_base_patch16_siglip_224": ({"img_size": 64, "embed_dim": 192, "num_heads": 3}, (), True),
    "vit_base_patch32_clip_224": ({"img_size": 128, "embed_dim": 192, "num_heads": 3}, ("cls",), False),
    "vit_tiny_r_s16_p8_224": ({"img_size": 128}, ("cls",), False),
    "vit_base_patch16_clip_quickgelu_224": (
        {"img_size": 64, "embed_dim": 192, "num_heads": 3},
        ("cls",),
        False,
    ),
}


@contextlib.contextmanager
def fused(enabled: bool) -> Iterator[None]:
    """Build models with timm's fused attention on or off."""
    timm.layers.set_fused_attn(enabled)
    try:
        yield
    finally:
        timm.layers.set_fused_attn(True)


def build(name: str, is_fused: bool = True, seed: int = 0, **arguments: object) -> nn.Module:
    """Make a two-layer model of a family with seeded random weights."""
    chosen = {"depth": 2, **ZOO.get(name, ({}, (), False))[0], **arguments}
    with fused(is_fused):
        model = timm.create_model(name, pretrained=False, **chosen).eval()
    randomize(model, seed)
    return model


def randomize(model: nn.Module, seed: int = 0) -> None:
    """Give every parameter noise of a size that keeps activations near 1 and attention uneven."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if weight.ndim >= 2 and "token" not in name and "embed" not in name.split(".")[0]:
                weight.copy_(noise * 1.5 / math.sqrt(weight[0].numel()))
            elif weight.ndim >= 2:
                weight.copy_(noise * (1 / math.sqrt(weight[0].numel()) if "proj" in name else 0.5))
            elif "gamma" in name:
                weight.copy_(0.5 + 0.1 * noise)
            elif name.endswith("bias"):
                weight.copy_(0.2 * noise)
            else:
                weight.copy_(1 + 0.1 * noise)


def attending(name: str, model: nn.Module) -> TorchModel:
    """Return a model ready to attend on the CPU."""
    return wrap(name, model, "cpu", Provenance(name))


def picture(model: TorchModel, seed: int = 1) -> torch.Tensor:
    """Return a preprocessed picture of the model's own size."""
    return torch.randn(1, 3, *model.preprocessing.size, generator=torch.Generator().manual_seed(seed))


class Softmaxes(TorchFunctionMode):
    """Computes each softmax anew, in float64, from the logits the model's own code hands over."""

    def __init__(self) -> None:
        self.weights: list[torch.Tensor] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (torch.Tensor.softmax, torch.softmax, nn.functional.softmax):
            logits = args[0].double()
            powers = (logits - logits.amax(-1, keepdim=True)).exp()
            self.weights.append(powers / powers.sum(-1, keepdim=True))
        return func(*args, **kwargs)


def reference(model: nn.Module, tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the weights of an un-fused model run in float64, (heads, queries, keys) for each layer."""
    with torch.no_grad(), Softmaxes() as found:
        model.double()(tensor.double())
    return [weights[0] for weights in found.weights]


def matrices(layer: AttentionLayer) -> np.ndarray:
    """Return the whole attention of a layer, float32 (heads, queries, keys)."""
    return np.stack([layer.matrix(head) for head in range(layer.heads)])


def same_attention(record: AttentionRecord, wanted: AttentionRecord, weights: list[torch.Tensor]) -> None:
    """Check names, places and weights of the same model in another form."""
    assert [layer.name for layer in record.layers] == [layer.name for layer in wanted.layers]
    for layer, other, expected in zip(record.layers, wanted.layers, weights, strict=True):
        np.testing.assert_allclose(matrices(layer), expected.numpy(), rtol=0, atol=1e-5)
        np.testing.assert_array_equal(layer.key_layout.positions, other.key_layout.positions)
        assert layer.key_layout.prefix_names == other.key_layout.prefix_names


def windows_of_swin(layer: AttentionLayer, windows: torch.Tensor, side: int, shift: int) -> None:
    """Check a layer of windows of 4 x 4 patches, of 64 px in all, against each window's own weights.

    Parameters
    ----------
    layer
        What was recorded.
    windows
        (windows, heads, 16, 16), window by window of the rolled grid.
    side, shift
        Patches along a side of the picture, and by how many of them the grid was rolled.
    """
    order = np.arange(side * side).reshape(side, side)
    order = np.roll(order, (-shift, -shift), (0, 1)).reshape(side // 4, 4, side // 4, 4)
    order = order.transpose(0, 2, 1, 3).reshape(-1, 16)
    patches = (layer.key_layout.positions // (64 // side)).astype(int)
    numbers = patches[:, 0] * side + patches[:, 1]
    for head in range(layer.heads):
        wanted, found = np.zeros((2, side * side, side * side))
        for tokens, window in zip(order, windows, strict=True):
            wanted[np.ix_(tokens, tokens)] = window[head].numpy()
        found[np.ix_(numbers, numbers)] = np.nan_to_num(layer.matrix(head))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
