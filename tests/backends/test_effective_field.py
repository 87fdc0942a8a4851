"""Effective receptive fields against what theory says of linear stacks, and of a Vision Transformer."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import timm
import torch
from torch import Tensor, nn

from viewer.attention.layout import TokenLayout
from viewer.backends.effective_field import FAINT, EffectiveField, effective_fields
from viewer.backends.effective_network import network_effective_fields
from viewer.backends.effective_units import block_of, middle_token, units_of_maps
from viewer.backends.model import Job
from viewer.backends.networks import Network, open_network
from viewer.backends.receptive_field import receptive_fields
from viewer.errors import InputError, OfflineError
from viewer.images.decode import open_image
from viewer.images.preprocess import Preprocessing


class Red(nn.Module):
    """Convolutions of one channel, over the first colour."""

    def __init__(self, kernels: list[Tensor]) -> None:
        super().__init__()
        self.stack = nn.Sequential(
            *(nn.Conv2d(1, 1, tuple(k.shape), padding="same", bias=False) for k in kernels)
        )
        for conv, kernel in zip(self.stack, kernels, strict=True):
            conv.weight.data = kernel[None, None]

    def forward(self, picture: Tensor) -> Tensor:
        return self.stack(picture[:, :1])


def field(model: nn.Module, side: int, name: str = "stack") -> EffectiveField:
    picture = torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(0))
    units = units_of_maps(model, (side, side), [name])
    return effective_fields(model, [picture], units, Job(), draws=1)[0]


def test_one_convolution_is_the_size_of_its_kernel() -> None:
    kernel = torch.randn(5, 5, generator=torch.Generator().manual_seed(3))
    found = field(Red([kernel]), 21)
    assert found.centre == (10.5, 10.5)
    assert found.map[8:13, 8:13] == pytest.approx(kernel.abs().numpy(), rel=1e-6)
    assert np.count_nonzero(found.map) == 25


@pytest.mark.parametrize(("layers", "kernel"), [(1, 3), (8, 3), (20, 3), (10, 5)])
def test_uniform_stacks_have_the_sigma_of_their_sum(layers: int, kernel: int) -> None:
    # Each layer adds the variance of a uniform step of `kernel` places: (kernel^2 - 1) / 12.
    sigma = math.sqrt(layers * (kernel**2 - 1) / 12)
    found = field(Red([torch.full((kernel, kernel), 1 / kernel**2)] * layers), 101)
    assert found.deviation == pytest.approx((sigma, sigma), rel=1e-6)
    assert found.map.sum() == pytest.approx(1)
    if layers >= 8:
        # Nearly a Gaussian: its mean distance, and the disc in which it exceeds 4.55 % of its top.
        assert found.mean_distance == pytest.approx(sigma * math.sqrt(math.pi / 2), rel=0.01)
        assert found.size == pytest.approx(sigma * math.sqrt(-2 * math.pi * math.log(FAINT)), rel=0.04)


def test_two_taps_give_binomial_weights() -> None:
    found = field(Red([torch.tensor([[0.5, 0.0, 0.5]])] * 4), 31)
    row = found.map[15, 11:20]
    assert row == pytest.approx(np.array([1, 0, 4, 0, 6, 0, 4, 0, 1]) / 16)


def test_an_effective_field_lies_inside_the_theoretical_one() -> None:
    torch.manual_seed(0)
    model = timm.create_model("test_resnet").eval()
    stages = receptive_fields("it", model, (96, 96)).stages
    found = effective_fields(
        model,
        [torch.randn(1, 3, 96, 96)],
        units_of_maps(model, (96, 96), [stage.name for stage in stages]),
        Job(),
    )
    by_name = {one.layer: one for one in found}
    assert len(by_name) == len(stages)
    for stage in stages:
        rows = np.flatnonzero(by_name[stage.name].map.sum(axis=1))
        low = by_name[stage.name].centre[0] - stage.field[0] / 2
        assert rows[0] >= low - 1e-6
        assert rows[-1] + 1 <= low + stage.field[0] + 1e-6
        assert by_name[stage.name].size <= stage.field[0]


def test_a_mean_over_pictures_and_the_same_in_any_order() -> None:
    torch.manual_seed(0)
    model = timm.create_model("test_resnet").eval()
    pictures = [torch.randn(1, 3, 64, 64) for _ in range(3)]
    units = units_of_maps(model, (64, 64), ["layer2"])
    single = [effective_fields(model, [picture], units, Job())[0].map for picture in pictures]
    for order in (pictures, pictures[::-1]):
        found = effective_fields(model, order, units, Job())[0]
        assert found.images == 3
        assert found.map == pytest.approx(np.mean(single, axis=0))


def test_a_vit_is_asked_for_its_blocks() -> None:
    torch.manual_seed(0)
    model = timm.create_model("test_vit", img_size=64).eval()
    network = Network("test_vit", model, Preprocessing((64, 64)), "cpu", "random")
    fields = receptive_fields("test_vit", model, (64, 64))
    assert fields.end
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    found = network_effective_fields(network, fields, [open_image(pixels)], Job())
    names = [one.layer for one in found]
    assert names == ["patch_embed.proj", *(f"blocks.{index}" for index in range(len(model.blocks)))]
    # Four rows of 16-pixel patches: the middle one is the third.
    assert {one.centre for one in found} == {(40.0, 40.0)}
    embedding, *blocks = found
    assert np.count_nonzero(embedding.map) == 16 * 16
    assert all(np.count_nonzero(one.map) > 0.99 * 64 * 64 for one in blocks)
    assert not any(parameter.grad is not None for parameter in model.parameters())


def test_blocks_are_named_by_their_last_number() -> None:
    assert block_of("blocks.3.attn") == "blocks.3"
    assert block_of("encoder.layer.0.attention.attention") == "encoder.layer.0"
    assert block_of("layers.0.blocks.1.attn") == "layers.0.blocks.1"
    assert block_of("encoder.layers.encoder_layer_2.self_attention") == "encoder.layers.encoder_layer_2"


def test_prefix_tokens_are_stepped_over() -> None:
    layout = TokenLayout.regular((2, 2), (8.0, 8.0), ("cls",))

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Identity()

        def forward(self, picture: Tensor) -> Tensor:
            patches = picture.unfold(2, 8, 8).unfold(3, 8, 8).sum(dim=(1, 4, 5)).reshape(1, 4, 1)
            return self.inner(torch.cat([patches.new_zeros(1, 1, 1), patches], dim=1))

    units = {"inner": partial(middle_token, layout)}
    found = effective_fields(Tokens(), [torch.ones(1, 3, 16, 16)], units, Job(), draws=1)[0]
    assert found.centre == (12.0, 12.0)
    assert np.count_nonzero(found.map[8:, 8:]) == np.count_nonzero(found.map) == 64


def test_onnx_has_no_gradients() -> None:
    with pytest.raises(InputError, match="ONNX Runtime, which gives no gradients"):
        open_network("some.onnx")


def test_pretrained_weights_that_are_not_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(
        OfflineError, match=r"or random weights \(--untrained; --compare-untrained\)\.$"
    ) as caught:
        open_network("resnet18.a1_in1k")
    assert "sample" not in str(caught.value)


def test_an_untrained_network_says_so() -> None:
    network = open_network("test_resnet", device="cpu", image_size=(96, 64), untrained=True)
    words = "random, as initialized, zero norms set to 1"
    assert (network.weights, network.preprocessing.size) == (words, (96, 64))
    assert open_network("vgg11", device="cpu", untrained=True).weights == "random, as initialized"


def test_untrained_residual_blocks_pass_on_more_than_their_shortcut() -> None:
    size = 64
    network = open_network("resnet18", device="cpu", image_size=size, untrained=True)
    module = network.module
    picture = torch.rand(1, 3, size, size)
    names = [f"layer{number}" for number in range(1, 5)]
    woken, asleep = [], []
    for found in (woken, asleep):
        units = units_of_maps(module, (size, size), names)
        found += [one.size for one in effective_fields(module, [picture], units, Job())]
        for block in module.modules():
            if isinstance(block, timm.models.resnet.BasicBlock):
                nn.init.zeros_(block.bn2.weight)  # as timm begins
    assert asleep[-1] == asleep[1] < woken[1] < woken[2]
