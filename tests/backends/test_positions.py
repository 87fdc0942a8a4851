"""Coordinates follow the data through every kind of operation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from viewer.backends.layer_plans import prefix_names
from viewer.backends.positions import Lost, PositionTrace
from viewer.backends.torch_tap import AttentionTap

HEIGHT, WIDTH = 32, 48


def places(compute, parameters=()):
    """Trace a function of a (1, 3, 32, 48) picture that returns tokens (..., N, d)."""
    picture = torch.randn(1, 3, HEIGHT, WIDTH)
    trace = PositionTrace(picture, parameters)
    with torch.no_grad(), AttentionTap(trace=trace):
        tokens = compute(picture)
    return trace.tokens(tokens)


def grid(patch, rows=None, columns=None, offset=0.0):
    rows, columns = rows or HEIGHT // patch, columns or WIDTH // patch
    y, x = np.mgrid[0:rows, 0:columns] * float(patch) + patch / 2 + offset
    return torch.from_numpy(y.ravel() + 1j * x.ravel()).to(torch.complex64)


def patchify(picture, patch=8):
    """Cut patches by hand: (1, N, 3 * patch * patch)."""
    rows, columns = HEIGHT // patch, WIDTH // patch
    cut = picture.reshape(1, 3, rows, patch, columns, patch)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(1, rows * columns, -1)


def same(found, expected):
    """Compare places of tokens, alike in all stacked (heads, windows) unless told for each."""
    assert not isinstance(found, Lost), found
    expected = expected.expand(len(found), -1) if expected.ndim == 1 else expected
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3, equal_nan=True)


PATCHES = torch.randn(5, 3, 8, 8)
MIX = torch.randn(5, 5)


def embed(picture):
    return functional.conv2d(picture, PATCHES, stride=8).flatten(2).transpose(1, 2)


# Each keeps every token on its patch.
KEEPING = {
    "patch convolution": embed,
    "linear": lambda x: functional.linear(embed(x), MIX, torch.randn(5)),
    "product from the right": lambda x: embed(x) @ MIX,
    "norm": lambda x: functional.layer_norm(embed(x), (5,)),
    "rms norm": lambda x: functional.rms_norm(embed(x), (5,)),
    "batch norm": lambda x: (
        functional.batch_norm(functional.conv2d(x, PATCHES, stride=8), torch.zeros(5), torch.ones(5))
        .flatten(2)
        .mT
    ),
    "activation": lambda x: functional.gelu(embed(x)).tanh().clamp(-1, 1) * 2 - 1,
    "residual": lambda x: embed(x) + functional.silu(embed(x) @ MIX),
    "position embedding": lambda x: torch.randn(1, 24, 5) + embed(x),
    "gate": lambda x: (embed(x) @ MIX).chunk(2, -1)[0] * embed(x)[..., :3],
    "heads": lambda x: (embed(x) @ torch.randn(5, 12)).reshape(1, 24, 3, 4).permute(0, 2, 1, 3),
    "joint projection": lambda x: (
        (embed(x) @ torch.randn(5, 36)).reshape(1, 24, 3, 3, 4).permute(2, 0, 3, 1, 4).unbind(0)[1]
    ),
    "rotary": lambda x: torch.stack([-embed(x)[..., 1::2], embed(x)[..., :4:2]], -1).reshape(1, 24, 4),
    "normalized": lambda x: functional.normalize(embed(x), dim=-1),
    "copies": lambda x: embed(x).clone().contiguous().to(torch.float64).to(torch.float32).detach(),
    "fused attention": lambda x: functional.scaled_dot_product_attention(*[embed(x)[None]] * 3)[0],
    "attention by hand": lambda x: (embed(x) @ embed(x).mT).softmax(-1) @ embed(x),
    "rolled there and back": lambda x: (
        functional.conv2d(x, PATCHES, stride=8).roll((1, -2), (2, 3)).roll((-1, 2), (2, 3)).flatten(2).mT
    ),
    "padded and cut": lambda x: functional.pad(embed(x), (0, 0, 2, 3))[:, 2:-3],
    "depthwise convolution": lambda x: (
        functional.conv2d(
            functional.conv2d(x, PATCHES, stride=8), torch.randn(5, 1, 3, 3), padding=1, groups=5
        )
        .flatten(2)
        .mT
    ),
    "attention with values on the left": lambda x: (
        (embed(x).mT @ (embed(x) @ embed(x).mT).softmax(-1).transpose(1, 2)).mT
    ),
    "average of copies": lambda x: torch.stack([embed(x), embed(x)]).mean(0),
    "masked": lambda x: embed(x).masked_fill(embed(x) > 0, 0.0),
    "where with a number": lambda x: torch.where(embed(x) > 0, 0.0, embed(x)),
    "where": lambda x: torch.where(embed(x) > 0, embed(x), torch.zeros(1)),
}


@pytest.mark.parametrize("way", KEEPING)
def test_tokens_keep_their_place(way):
    same(places(KEEPING[way]), grid(8))


def test_patches_cut_by_reshaping_sit_in_their_middle():
    same(places(lambda x: patchify(x).mean(-1, keepdim=True)), grid(8))
    same(places(lambda x: functional.linear(patchify(x), torch.randn(4, 192))), grid(8))


def test_overlapping_padded_patches_keep_their_spacing_at_the_border():
    kernel = torch.randn(5, 3, 7, 7)
    same(
        places(lambda x: functional.conv2d(x, kernel, stride=4, padding=3).flatten(2).mT),
        grid(4, offset=-1.5),
    )


def test_two_padded_convolutions_in_a_row():
    first, second = torch.randn(4, 3, 3, 3), torch.randn(4, 4, 3, 3)

    def stem(x):
        x = functional.conv2d(x, first, stride=2, padding=1)
        return functional.conv2d(x, second, stride=2, padding=1).flatten(2).mT

    # Each stride of 2 starts on the first pixel: centres at 0.5, 4.5, 8.5, ...
    same(places(stem), grid(4, offset=-1.5))


def test_explicit_padding_before_a_convolution_counts_like_its_own():
    kernel = torch.randn(5, 3, 7, 7)
    padded = places(
        lambda x: functional.conv2d(functional.pad(x, (3, 3, 3, 3)), kernel, stride=4).flatten(2).mT
    )
    same(padded, grid(4, offset=-1.5))


def test_dilated_convolution():
    kernel = torch.randn(2, 3, 2, 2)
    found = places(lambda x: functional.conv2d(x, kernel, stride=8, dilation=4).flatten(2).mT)
    same(found, grid(8, offset=-1.5))  # taps 0 and 4: the middle of pixels 0.5 and 4.5


def test_pooling_moves_to_the_middle_of_its_window():
    same(places(lambda x: functional.avg_pool2d(x, 8).flatten(2).mT), grid(8))
    same(places(lambda x: functional.max_pool2d(x, 8).flatten(2).mT), grid(8))
    same(places(lambda x: functional.max_pool2d(x, 3, 2, 1).flatten(2).mT), grid(2, offset=-0.5))


def test_moves_are_followed():
    order = torch.randperm(24)
    same(places(lambda x: embed(x)[:, order]), grid(8)[order])
    same(places(lambda x: embed(x).flip(1)), grid(8).flip(0))
    same(places(lambda x: embed(x).roll(5, 1)), grid(8).roll(5))
    same(places(lambda x: embed(x)[:, 3:20:2]), grid(8)[3:20:2])
    same(places(lambda x: embed(x).index_select(1, order[:7])), grid(8)[order[:7]])
    same(places(lambda x: torch.cat(embed(x).split([5, 19], 1)[::-1], 1)), grid(8).roll(-5))


def test_windows_are_followed():
    def windows(x):
        x = functional.conv2d(x, PATCHES, stride=8).view(5, 2, 2, 3, 2)
        return x.permute(1, 3, 2, 4, 0).reshape(6, 4, 5)

    whole = grid(8).view(4, 6)
    expected = [whole[y : y + 2, x : x + 2].flatten() for y in (0, 2) for x in (0, 2, 4)]
    same(places(windows), torch.stack(expected))
    same(places(lambda x: windows(x)[4]), expected[4])


def test_padding_has_no_place():
    found = places(lambda x: functional.pad(embed(x), (0, 0, 0, 2)))
    assert bool(found[:, -2:].real.isnan().all())
    same(found[:, :-2], grid(8))


def test_tokens_from_parameters_have_no_place_but_a_name():
    cls, registers, position = (nn.Parameter(torch.randn(1, n, 5)) for n in (1, 3, 28))
    named = [("cls_token", cls), ("stem.reg_token", registers), ("pos_embed", position)]
    picture = torch.randn(1, 3, HEIGHT, WIDTH)
    trace = PositionTrace(picture, named)
    with torch.no_grad(), AttentionTap(trace=trace):
        tokens = torch.cat([cls.expand(1, -1, -1), registers * 2, embed(picture)], 1) + position
        tokens = functional.layer_norm(tokens @ MIX, (5,))
    found = trace.tokens(tokens)
    assert bool(found.real[:, :4].isnan().all())
    same(found[:, 4:], grid(8))
    names = [trace.parameter_name(int(label)) for label in found.imag[0, :4]]
    assert names == ["cls_token"] + ["stem.reg_token"] * 3
    assert prefix_names(names) == ["cls", "reg1", "reg2", "reg3"]


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        (["cls_token"], ["cls"]),
        (["class_embedding"], ["cls"]),
        (["cls_token", "dist_token"], ["cls", "dist"]),
        (["cls_token", "register_tokens", "register_tokens"], ["cls", "reg1", "reg2"]),
        (["cls_token", "storage_tokens"], ["cls", "reg1"]),
        (["cls_token", "cls_token"], ["cls1", "cls2"]),
        (["attn_pool.latent"], ["latent"]),
        (["cls_token", "", "odd"], ["cls", "prefix1", "prefix2"]),
    ],
)
def test_prefix_tokens_are_called_after_their_parameters(parameters, names):
    assert prefix_names(parameters) == names


def test_a_query_without_a_place_gets_none_from_its_keys():
    probe = nn.Parameter(torch.randn(1, 1, 5))

    def pool(x):
        return (probe @ embed(x).mT).softmax(-1) @ embed(x)

    assert bool(places(pool, [("probe", probe)]).real.isnan().all())


def test_an_unknown_operation_stops_the_trace_with_its_name():
    found = places(lambda x: torch.cumprod(embed(x), 1) @ MIX)
    assert isinstance(found, Lost)
    assert found.reason == "the trace of positions stopped at the operation 'cumprod'"


def test_heads_that_look_elsewhere_are_noticed():
    def crossed(x):
        heads = embed(x)[..., :2].reshape(1, 24, 2, 1).transpose(1, 2)
        return torch.cat([heads[:, :1], heads[:, 1:].flip(2)], 1)

    same(places(crossed), torch.stack([grid(8), grid(8).flip(0)]))
    found = places(lambda x: crossed(x).transpose(1, 2).reshape(1, 24, 2))
    assert isinstance(found, Lost)
    assert "different places" in found.reason
