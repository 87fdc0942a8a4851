"""PyTorch's own transformer layers: the fast path shows the same attention as the slow one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from viewer.backends.model import Job
from viewer.backends.torch_fastpath import fast_path_off
from viewer.backends.torch_runner import TorchRunner
from viewer.backends.torch_sizes import SizedModels
from viewer.backends.torch_tap import AttentionTap

WIDTH, HEADS, SIDE = 48, 4, 64


class Encoder(nn.Module):
    """Patches of 16 pixels and a class token through `nn.TransformerEncoder`."""

    def __init__(self, **options):
        super().__init__()
        torch.manual_seed(3)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 96, batch_first=True, **options)
        self.cls_token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.patches = nn.Conv2d(3, WIDTH, 16, 16)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        with torch.no_grad():
            for weight in self.layers.parameters():
                if weight.ndim == 2:
                    weight.copy_(torch.randn(weight.shape) * 1.5 / math.sqrt(weight.shape[1]))

    def forward(self, picture):
        tokens = self.patches(picture).flatten(2).transpose(1, 2)
        return self.layers(torch.cat([self.cls_token, tokens], 1))[:, 0]


class Attending(nn.Module):
    """Patches through one `nn.MultiheadAttention`."""

    def __init__(self, need_weights):
        super().__init__()
        torch.manual_seed(4)
        self.need_weights = need_weights
        self.patches = nn.Conv2d(3, WIDTH, 16, 16)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, picture):
        tokens = self.patches(picture).flatten(2).transpose(1, 2)
        return self.attention(tokens, tokens, tokens, need_weights=self.need_weights)[0].mean(1)


def attend(model, picture):
    return TorchRunner("net", SizedModels("net", model.eval(), (SIDE, SIDE)), "cpu").run(picture, Job())


def weights_of(tokens, attention):
    """Softmax of queries and keys in float64, (heads, queries, keys)."""
    projected = functional.linear(
        tokens.double(), attention.in_proj_weight.double(), attention.in_proj_bias.double()
    )
    queries, keys, _ = projected[0].view(len(tokens[0]), 3, HEADS, WIDTH // HEADS).permute(1, 2, 0, 3)
    logits = queries @ keys.mT / math.sqrt(WIDTH // HEADS)
    powers = (logits - logits.amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)


@pytest.fixture(scope="module")
def picture():
    return torch.randn(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_transformer_encoder_shows_its_attention(picture, norm_first, activation):
    model = Encoder(norm_first=norm_first, activation=activation).eval()
    run = attend(model, picture)
    assert run.unchanged
    assert torch.backends.mha.get_fastpath_enabled()
    with torch.no_grad():
        torch.testing.assert_close(run.output, model(picture))  # the fast path this time
    assert [layer.name for layer in run.layers] == ["layers.layers.0.self_attn", "layers.layers.1.self_attn"]

    model.double()
    with torch.no_grad():
        tokens = torch.cat([model.cls_token, model.patches(picture.double()).flatten(2).mT], 1)
        for layer, module in zip(run.layers, model.layers.layers, strict=True):
            assert layer.verdict.verified
            assert layer.query_layout.grid == (4, 4)
            assert layer.query_layout.prefix_names == ("cls",)
            wanted = weights_of(module.norm1(tokens) if norm_first else tokens, module.self_attn)
            assert bool((wanted.amax(-1).mean() * 17) > 1.5)
            found = torch.stack([torch.from_numpy(layer.matrix(head)) for head in range(HEADS)])
            torch.testing.assert_close(found.double(), wanted, rtol=0, atol=1e-5)
            tokens = module(tokens)


@pytest.mark.parametrize("need_weights", [False, True])
def test_multi_head_attention_shows_its_attention(picture, need_weights):
    model = Attending(need_weights).eval()
    [layer] = (run := attend(model, picture)).layers
    assert run.unchanged
    assert layer.name == "attention"
    assert layer.verdict.verified
    with torch.no_grad():
        tokens = model.patches(picture).flatten(2).mT
        wanted = weights_of(tokens, model.attention)
    found = torch.stack([torch.from_numpy(layer.matrix(head)) for head in range(HEADS)])
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=1e-5)


def test_a_second_picture_runs_once(picture):
    """Both pictures go the same way, so that the second needs no trace of its own."""
    model = Encoder().eval()
    runner = TorchRunner("net", SizedModels("net", model, (SIDE, SIDE)), "cpu")
    runner.run(picture, Job())
    passes = []
    model.register_forward_pre_hook(lambda *given: passes.append(given))
    run = runner.run(picture + 0.1, Job())
    assert len(passes) == 1
    assert all(layer.verdict.verified for layer in run.layers)


def test_the_switch_is_back_when_the_last_of_several_is_done():
    assert torch.backends.mha.get_fastpath_enabled()
    first, second = fast_path_off(), fast_path_off()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not torch.backends.mha.get_fastpath_enabled()
    second.__exit__(None, None, None)
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("mask_type", [None, 0, 1])
def test_the_fused_attention_itself_taken_apart(averaged, need_weights, mask_type):
    """As it stands in scripted and exported programs, with every kind of mask."""
    torch.manual_seed(5)
    tokens, attention = torch.randn(1, 9, WIDTH), nn.MultiheadAttention(WIDTH, HEADS)
    shape = {None: None, 0: (9, 9), 1: (1, 9)}[mask_type]
    mask = None if shape is None else torch.rand(shape) > 0.7
    if mask is not None:
        mask[..., 0] = False  # something is left to look at
    given = (
        *(tokens, tokens, tokens, WIDTH, HEADS, attention.in_proj_weight, attention.in_proj_bias),
        *(attention.out_proj.weight, attention.out_proj.bias, mask, need_weights, averaged, mask_type),
    )
    with torch.no_grad():
        plain = torch._native_multi_head_attention(*given)
        with AttentionTap() as tap:
            tapped = torch._native_multi_head_attention(*given)
    assert len(tap.layers) == 1
    assert tap.layers[0].check.verdict().verified
    torch.testing.assert_close(tapped[0], plain[0])
    if need_weights:
        torch.testing.assert_close(tapped[1], plain[1])


def test_a_fused_encoder_shows_the_mask():
    model = Encoder()
    tokens, mask = torch.randn(1, 5, WIDTH), torch.ones(5, 5, dtype=torch.bool).triu_(1)
    with torch.no_grad():
        plain = model.layers.eval()(tokens, mask=mask)
        with AttentionTap() as tap:
            tapped = model.layers(tokens, mask=mask)
    torch.testing.assert_close(tapped, plain)
    assert len(tap.layers) == 2
    for layer in tap.layers:
        assert layer.check.verdict().verified
        weights = layer.scores.weights(list(range(5)))
        assert not bool(weights[:, mask].any())
