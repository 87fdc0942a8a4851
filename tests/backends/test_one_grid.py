"""Models whose grid changes on the way are refused by both backends."""

import numpy as np
import pytest
import timm
import torch

from viewer.attention.layout import TokenLayout
from viewer.backends.one_grid import require_cover, require_one_grid
from viewer.backends.opening import open_model
from viewer.backends.positions import PositionTrace
from viewer.backends.torch_layers import plan_layers
from viewer.backends.torch_tap import AttentionTap
from viewer.errors import LayoutError

FINE = TokenLayout.regular((4, 6), (16.0, 16.0), ("cls",))
COARSE = TokenLayout.regular((2, 3), (32.0, 32.0))
LATENT = TokenLayout.regular((0, 0), (0.0, 0.0), ("latent",))


def test_one_grid_with_any_prefix_and_pooling_passes():
    require_one_grid("net", [("a", FINE, FINE), ("b", TokenLayout.regular((4, 6), (16.0, 16.0)), FINE)])
    require_one_grid("net", [("a", FINE, FINE), ("pool", LATENT, FINE)])


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ([("a", FINE, COARSE)], "the keys of a sit on a grid of 2 x 3 patches, others on 4 x 6 patches"),
        ([("a", FINE, FINE), ("b", COARSE, COARSE)], "the queries of b sit on a grid of 2 x 3 patches"),
        ([("a", FINE, FINE), ("pool", LATENT, COARSE)], "the keys of pool sit on a grid of 2 x 3"),
    ],
)
def test_another_grid_is_refused_by_name(layers, said):
    with pytest.raises(LayoutError, match=said):
        require_one_grid("net", layers)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_pooled_keys_are_refused_in_onnx_graphs(tmp_path):
    torch.manual_seed(0)
    net = timm.create_model("pvt_v2_b0", depths=(1, 1, 1, 1)).eval()
    torch.onnx.export(net, torch.zeros(1, 3, 64, 64), tmp_path / "pvt.onnx", dynamo=False, opset_version=17)
    with pytest.raises(LayoutError, match="only models with one grid throughout can be shown"):
        open_model(str(tmp_path / "pvt.onnx")).attend(torch.zeros(1, 3, 64, 64))


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
