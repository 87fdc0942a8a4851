"""Grids that do not cover the picture are refused: their places were averaged on the way."""

import numpy as np
import pytest
import torch

from viewer.attention.layout import TokenLayout
from viewer.backends.cover import require_cover
from viewer.backends.layer_plans import plan_layers
from viewer.backends.positions import PositionTrace
from viewer.backends.torch_tap import AttentionTap
from viewer.errors import LayoutError

FINE = TokenLayout.regular((4, 6), (16.0, 16.0), ("cls",))


@pytest.mark.parametrize("size", [(64, 96), (70, 96), (56, 110)])
def test_a_grid_over_the_picture_passes_borders_aside(size):
    require_cover(FINE, size)


@pytest.mark.parametrize("size", [(128, 192), (64, 192), (32, 96)])
def test_a_grid_over_part_of_the_picture_is_refused(size):
    with pytest.raises(ValueError, match=r"4 x 6 patches of 16 x 16 px do not cover a picture of"):
        require_cover(FINE, size)


class Mixing(torch.nn.Module):
    """Tokens are changed by something made of the whole picture before they attend."""

    def __init__(self, mix):
        super().__init__()
        self.embed = torch.nn.Conv2d(3, 8, 16, 16)
        self.mix = mix

    def forward(self, picture):
        tokens = self.mix(self.embed(picture).flatten(2).transpose(1, 2))
        heads = tokens.reshape(1, -1, 2, 4).transpose(1, 2)
        return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)


def planned(mix):
    torch.manual_seed(0)
    net, picture = Mixing(mix).eval(), torch.rand(1, 3, 64, 96)
    trace = PositionTrace(picture, net.named_parameters())
    tap = AttentionTap(trace=trace)
    with torch.no_grad(), tap:
        net(picture)
    return plan_layers("mixing", tap.layers, trace)


@pytest.mark.parametrize(
    "mix",
    [
        lambda tokens: tokens * torch.sigmoid(tokens.mean(1, keepdim=True)),
        lambda tokens: tokens.mean((0, 1)) + tokens,
        lambda tokens: tokens / tokens.abs().amax(),
    ],
    ids=["gate", "context", "number"],
)
def test_what_is_made_of_the_whole_picture_moves_no_place(mix):
    (layer,) = planned(mix).layers
    for layout in (layer.query_layout, layer.key_layout):
        np.testing.assert_allclose(layout.positions, TokenLayout.regular((4, 6), (16, 16)).positions)


@pytest.mark.parametrize(
    "mix",
    [lambda tokens: tokens + tokens.flip(1), lambda tokens: tokens / 2 + tokens[:, :1] * tokens.roll(6, 1)],
)
def test_places_averaged_with_others_are_refused(mix):
    with pytest.raises(LayoutError):
        planned(mix)
