"""Small models, opened, and the same models written by hand with a change, in plain PyTorch."""

from __future__ import annotations

import contextlib
import copy

import timm
import torch
from torch import nn

from viewer.attention.record import Provenance
from viewer.backends.timm_model import wrap
from viewer.backends.what_if import parse
from viewer.backends.what_if_model import with_changes

VIT, SWIN = "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224"
SIDE = {VIT: 96, SWIN: 112}
GRID = 6  # patches along a side of the plain model


def build(name, fused=True, **options):
    """A model with weights large enough that its attention is far from uniform."""
    torch.manual_seed(5)
    if name == VIT:
        options = {"depth": 4, "reg_tokens": 1, **options}
    with _fused(fused):
        module = timm.create_model(name, pretrained=False, img_size=SIDE[name], **options).eval()
    with torch.no_grad():
        for key, weight in module.named_parameters():
            if "qkv.weight" in key:
                weight.mul_(6)
            elif "relative_position_bias_table" in key:
                weight.normal_()
    return module


@contextlib.contextmanager
def _fused(wanted):
    """timm reads this switch when a module is built."""
    from timm.layers import set_fused_attn, use_fused_attn

    before = use_fused_attn()
    set_fused_attn(wanted)
    try:
        yield
    finally:
        set_fused_attn(bool(before))


def opened(name, fused=True, **options):
    return wrap(name, build(name, fused, **options), "cpu", Provenance(name))


def picture(name, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, 3, SIDE[name], SIDE[name], generator=generator)


def changed(model, *texts):
    return with_changes(model, [parse(text) for text in texts])


def by_hand(model, replace):
    """The output of a copy in which `replace(module)` made its changes."""
    module = copy.deepcopy(model.module)
    replace(module)
    with torch.no_grad():
        return module(picture(model.name)).numpy()


class Attention(nn.Module):
    """timm's plain attention, written out, with weights that a function changes.

    `alter(logits, softmax)` gives the weights (1, heads, N, N); `keep` is what becomes of each head's output.
    """

    def __init__(self, original, alter=None, keep=None):
        super().__init__()
        self.original = original
        self.alter = alter or (lambda logits: logits.softmax(dim=-1))
        self.keep = torch.ones(original.num_heads) if keep is None else torch.tensor(keep)

    def forward(self, x, *_, **__):
        own = self.original
        batch, tokens, width = x.shape
        q, k, v = own.qkv(x).reshape(batch, tokens, 3, own.num_heads, -1).permute(2, 0, 3, 1, 4)
        logits = q @ k.transpose(-2, -1) * own.head_dim**-0.5
        out = self.alter(logits) @ v * self.keep.view(1, -1, 1, 1)
        return own.proj(out.transpose(1, 2).reshape(batch, tokens, width))


class Mlp(nn.Module):
    """An MLP with Context Broadcasting at its end, as in the paper: half itself, half the mean token."""

    def __init__(self, original, strength=0.5):
        super().__init__()
        self.original, self.strength = original, strength

    def forward(self, x):
        x = self.original(x)
        mean = x.mean(dim=tuple(range(1, x.ndim - 1)), keepdim=True)
        return x * (1 - self.strength) + mean * self.strength


class Skipped(nn.Module):
    """A block that does nothing."""

    def forward(self, x, *_, **__):
        return x


def hops(prefix, grid=GRID):
    """Chebyshev hops between tokens of a plain model, 0 to and from prefix tokens."""
    found = torch.zeros(prefix + grid**2, prefix + grid**2)
    for q in range(grid**2):
        for k in range(grid**2):
            rows, columns = abs(q // grid - k // grid), abs(q % grid - k % grid)
            found[prefix + q, prefix + k] = max(rows, columns)
    return found
