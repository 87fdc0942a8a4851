"""Small models of forms that are found in the wild: windows, own grids for layers, several inputs, heads."""

from __future__ import annotations

import math
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import timm
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.backends.timm_zoo import randomize
from viewer.attention.record import Provenance
from viewer.backends.timm_model import wrap
from viewer.backends.torch_model import TorchModel

OLD = {"dynamo": False, "opset_version": 17}
NEW = {"dynamo": True, "opset_version": 18, "external_data": False}
NEWEST = {"dynamo": True, "opset_version": 23, "external_data": False}

# name: (timm name, what keeps it small, input size)
GRIDS = {
    "swin": (
        "swin_tiny_patch4_window7_224",
        {"img_size": 64, "window_size": 4, "embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4)},
        (64, 64),
    ),
    "swin-v2": (
        "swinv2_tiny_window8_256",
        {"img_size": 64, "window_size": 4, "embed_dim": 24, "depths": (2, 1), "num_heads": (2, 4)},
        (64, 64),
    ),
    "pvt-v2": ("pvt_v2_b0", {"depths": (1, 1, 1, 1)}, (64, 96)),
    "levit": ("levit_128s", {"img_size": 128, "depth": (1, 1, 1)}, (128, 128)),
    "hiera": ("hiera_tiny_224", {"img_size": (64, 64), "embed_dim": 24, "stages": (1, 1, 1, 1)}, (64, 64)),
    "davit": (
        "davit_tiny",
        {"depths": (1, 1), "embed_dims": (24, 48), "num_heads": (2, 2)},
        (64, 64),
    ),
    "cait": ("cait_xxs24_224", {"depth": 2, "img_size": 64, "embed_dim": 48, "num_heads": 3}, (64, 64)),
    "coatnet": ("coatnet_pico_rw_224", {"img_size": 64}, (64, 64)),
    "twins": ("twins_svt_small", {"depths": (1, 1, 1, 1), "embed_dims": (32, 32, 64, 64)}, (64, 64)),
}


@cache
def grids(name: str) -> nn.Module:
    """Build a model whose layers have grids of their own, with uneven attention."""
    timm_name, small, size = GRIDS[name]
    torch.manual_seed(0)
    net = timm.create_model(timm_name, num_classes=10, **small).eval()
    randomize(net)
    if name == "levit":  # batch norms that were never trained let numbers grow until softmax hangs on a hair
        with torch.no_grad():
            for weight in net.parameters():
                weight *= 0.6
    net.pretrained_cfg = net.default_cfg = {**_plain(net.pretrained_cfg), "input_size": (3, *size)}
    return net


def _plain(told: object) -> dict:
    return told if isinstance(told, dict) else told.to_dict()


def picture(size: tuple[int, int], seed: int = 1) -> torch.Tensor:
    return torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(seed))


def in_torch(name: str) -> TorchModel:
    return wrap(name, grids(name), "cpu", Provenance(name))


def export(
    net: nn.Module, inputs: tuple, path: Path, names: list[str] | None = None, **options: object
) -> Path:
    """Export a module to an ONNX file."""
    with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        warnings.simplefilter("ignore")  # what the exporters say of themselves
        torch.onnx.export(net, inputs, path, input_names=names, verbose=False, **(options or OLD))
    return path


class Attention(nn.Module):
    """Attention written out, with projections of their own, as BERT and its kin have it."""

    def __init__(self, width: int = 48, heads: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dense = nn.Linear(width, width)

    def split(self, tokens):
        return tokens.view(tokens.size(0), tokens.size(1), self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, queries, tokens, mask=None):
        q, k, v = (
            self.split(self.query(queries)),
            self.split(self.key(tokens)),
            self.split(self.value(tokens)),
        )
        logits = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
        logits = logits if mask is None else logits + mask
        context = torch.matmul(logits.softmax(-1), v).permute(0, 2, 1, 3).contiguous()
        return self.dense(context.view(context.size(0), context.size(1), -1))


class Block(nn.Module):
    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, tokens, mask=None):
        normed = self.norm1(tokens)
        tokens = self.attention(normed, normed, mask) + tokens
        return self.down(nn.functional.gelu(self.up(self.norm2(tokens)))) + tokens


class Tower(nn.Module):
    """A Vision Transformer of 4 x 4 patches on 64 pixels."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 48, 16, 16)
        self.cls_token, self.positions = (
            nn.Parameter(torch.zeros(1, 1, 48)),
            nn.Parameter(torch.zeros(1, 17, 48)),
        )
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(48), nn.Linear(48, classes)

    def tokens(self, pixels):
        tokens = self.embed(pixels).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls_token.expand(tokens.size(0), -1, -1), tokens], 1) + self.positions
        for layer in self.layers:
            tokens = layer(tokens)
        return self.norm(tokens)

    def forward(self, pixels):
        return self.head(self.tokens(pixels)[:, 0])


class Towers(nn.Module):
    """A picture and a text compared, as CLIP does; the text attends causally, within its mask."""

    def __init__(self) -> None:
        super().__init__()
        self.vision, self.text = Tower(48), Block()
        self.words = nn.Embedding(32, 48)

    def forward(self, input_ids, pixel_values, attention_mask):
        ahead = torch.full((8, 8), -1e4).triu(1)
        hidden = (1 - attention_mask[:, None, None].float()) * -1e4
        text = self.text(self.words(input_ids), ahead + hidden)[:, 0]
        return self.vision(pixel_values) @ text.t()


class Detector(nn.Module):
    """A tower with DETR's decoder: learned queries attend to the picture, to one another, and again."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Tower()
        self.query_embed = nn.Parameter(torch.zeros(1, 5, 48))
        self.cross, self.among, self.again = Attention(), Attention(), Attention()
        self.boxes = nn.Linear(48, 4)

    def forward(self, pixel_values):
        memory = self.backbone.tokens(pixel_values)[:, 1:]
        queries = self.query_embed.expand(memory.size(0), -1, -1)
        queries = queries + self.cross(queries, memory)
        queries = queries + self.among(queries, queries)
        return self.boxes(queries + self.again(queries, memory)).sigmoid()


class DetrDecoder(nn.Module):
    """A tower with DETR's first decoder layer as it is: learned queries attend to one another first."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Tower()
        self.query_embed = nn.Parameter(torch.zeros(1, 5, 48))
        self.among, self.cross = Attention(), Attention()
        self.boxes = nn.Linear(48, 4)

    def forward(self, pixel_values):
        memory = self.backbone.tokens(pixel_values)[:, 1:]
        queries = self.query_embed + self.among(self.query_embed, self.query_embed)
        return self.boxes(queries + self.cross(queries, memory)).sigmoid()


class Choosing(nn.Module):
    """A tower with RT-DETR's decoder: the best tokens of the picture are the queries."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Tower()
        self.score = nn.Linear(48, 1)
        self.among, self.cross = Attention(), Attention()
        self.boxes = nn.Linear(48, 4)

    def chosen(self, memory):
        return self.score(memory)[..., 0].topk(5, dim=1).indices

    def forward(self, pixel_values):
        memory = self.backbone.tokens(pixel_values)[:, 1:]
        queries = memory.gather(1, self.chosen(memory)[..., None].expand(-1, -1, 48))
        queries = queries + self.among(queries, queries)
        return self.boxes(queries + self.cross(queries, memory)).sigmoid()


class Bytes(nn.Module):
    """A tower that takes uint8 pixels, channels last, of any size, and prepares them itself."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = Tower()
        self.register_buffer("mean", torch.tensor([124.0, 116.0, 104.0]))

    def forward(self, image):
        pixels = ((image.float() - self.mean) / 58.0).permute(0, 3, 1, 2)
        pixels = nn.functional.interpolate(pixels, size=(64, 64), mode="bilinear", align_corners=False)
        return self.tower(pixels)


@cache
def built(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    net = kind().eval()
    randomize(net)
    with torch.no_grad():
        for name, weight in net.named_parameters():
            if "query_embed" in name or "words" in name:
                weight.normal_(0, 1, generator=torch.Generator().manual_seed(7))
    return net


def truth(net: Tower, pixels: torch.Tensor) -> list[np.ndarray]:
    """Return the weights of each of a tower's layers, float64 (heads, queries, keys)."""
    found: list[np.ndarray] = []

    def watch(module: Attention, inputs: tuple) -> None:
        q, k = module.split(module.query(inputs[0])), module.split(module.key(inputs[1]))
        found.append(torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1)[0].numpy())

    hooks = [layer.attention.register_forward_pre_hook(watch) for layer in net.layers]
    with torch.no_grad():
        net.double()(pixels.double())
    net.float()
    for hook in hooks:
        hook.remove()
    return found
