"""A mean over the whole picture that stands among the patches is a token without a place, called "mean"."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from timm.layers import AttentionPool2d
from timm.layers.attention_pool2d import RotAttentionPool2d
from torch import nn

from tests.backends.families import Truth, built, check, lattice, logits_of, picture, run_of, whole
from tests.backends.onnx_wild import NEW, OLD, export
from tests.backends.test_positions import PATCHES, embed, grid, places, same
from tests.backends.timm_zoo import fused, randomize
from viewer.backends.onnx_model import open_onnx
from viewer.backends.positions import MEAN

SIZE = (56, 72)
MEAN_QUERY = np.full((1, 1, 2), np.nan)


class Pooled(nn.Module):
    """Patches of 8 pixels, a squeeze-and-excitation gate, and timm's attention pooling."""

    def __init__(self, rotary: bool, is_fused: bool) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 8, 8)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(24, 24, 1), nn.Sigmoid())
        with fused(is_fused):
            self.head = (
                RotAttentionPool2d(24, out_features=8, num_heads=3, ref_feat_size=(7, 9))
                if rotary
                else AttentionPool2d(24, out_features=8, num_heads=3, feat_size=(7, 9))
            )
        randomize(self)

    def forward(self, x):
        x = self.stem(x)
        return self.head(x * self.gate(x))


class MeanAsks(nn.Module):
    """One query, the mean of all patches, asks them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 8, 8)
        self.query, self.key = nn.Linear(24, 24), nn.Linear(24, 24)
        randomize(self)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        weights = (self.query(x.mean(1, keepdim=True)) @ self.key(x).transpose(1, 2) * 24**-0.5).softmax(-1)
        return weights @ x


@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize("rotary", [True, False])
def test_attention_pooling(rotary, is_fused):
    net, tensor = Pooled(rotary, is_fused).eval(), picture(*SIZE)
    run = run_of(net, tensor)
    (layer,), (logits,) = run.layers, logits_of(net, tensor, "head")
    tokens = whole(lattice(7, 9, 8), 1)
    check_truth(run, Truth(logits, tokens, tokens))
    assert layer.key_layout.prefix_names == layer.query_layout.prefix_names == ("mean",)
    assert layer.weights("mean").shape == (3, 64)


def check_truth(run, truth):
    class Record:
        layers, output_unchanged = run.layers, run.unchanged

    check(Record, [truth])


# The older exporter makes graphs of rotary pooling that no runtime takes.
@pytest.mark.parametrize(
    ("make", "exporter"),
    [
        pytest.param(lambda: Pooled(True, False), NEW, id="rotary-new"),
        pytest.param(lambda: Pooled(False, True), OLD, id="learned-old"),
        pytest.param(lambda: Pooled(False, False), NEW, id="learned-new"),
        pytest.param(MeanAsks, OLD, id="mean-asks-old"),
        pytest.param(MeanAsks, NEW, id="mean-asks-new"),
    ],
)
def test_exports_agree(make, exporter, tmp_path):
    net, tensor = make(), picture(*SIZE)
    path = export(net.eval(), (tensor,), tmp_path / "net.onnx", **exporter)
    record, run = open_onnx(path).attend(tensor), run_of(net, tensor)
    assert record.verified
    for layer, twin in zip(record.layers, run.layers, strict=True):
        assert (layer.kind, layer.heads) == (twin.kind, twin.heads)
        for mine, its in ((layer.query_layout, twin.query_layout), (layer.key_layout, twin.key_layout)):
            np.testing.assert_array_equal(mine.positions, its.positions)
            assert mine.prefix_names == its.prefix_names
        for head in range(layer.heads):
            np.testing.assert_allclose(layer.matrix(head), twin.matrix(head), atol=1e-4)


def test_a_mean_asks_as_a_token_without_a_place():
    net, tensor = MeanAsks().eval(), picture(*SIZE)
    (logits,) = logits_of(net, tensor)
    run = run_of(net, tensor)
    check_truth(run, Truth(logits, MEAN_QUERY, whole(lattice(7, 9, 8))))
    assert run.layers[0].query_layout.prefix_names == ("mean",)


def test_clip_resnet():
    net = built("resnet50_clip", num_classes=4)
    tensor = picture(224, 224)
    run = run_of(net, tensor)
    assert [layer.verdict.verified for layer in run.layers] == [True]
    layout = run.layers[0].key_layout
    assert (layout.grid, layout.patch_px, layout.prefix_names) == ((7, 7), (32, 32), ("mean",))


def rows(x):
    return embed(x).reshape(1, 4, 6, 5)


@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        # A mean of some, of a row or of a window, still sits in the middle of them.
        (lambda x: rows(x).mean(2), grid(8).view(4, 6).mean(1)),
        (lambda x: rows(x).mean(1), grid(8).view(4, 6).mean(0)),
        (lambda x: embed(x)[:, :6].mean(1, keepdim=True), grid(8)[:6].mean()[None]),
        (
            lambda x: rows(x).reshape(1, 2, 2, 2, 3, 5).mean((2, 4)).reshape(1, 4, 5),
            grid(8).view(2, 2, 2, 3).mean((1, 3)).flatten(),
        ),
        # Of each token's channels.
        (lambda x: embed(x).mean(-1, keepdim=True), grid(8)),
        # What the mean of all gates, shifts or is put beside as channels keeps its place.
        (lambda x: embed(x) * embed(x).mean(1, keepdim=True).sigmoid(), grid(8)),
        (lambda x: embed(x) - embed(x).mean(1, keepdim=True).expand(1, 24, 5), grid(8)),
        (lambda x: torch.cat([embed(x), embed(x).mean(1, keepdim=True).expand(1, 24, 5)], -1), grid(8)),
        (
            lambda x: (
                nn.functional.adaptive_avg_pool2d(nn.functional.conv2d(x, PATCHES, stride=8), 2).flatten(2).mT
            ),
            grid(8).view(2, 2, 2, 3).mean((1, 3)).flatten(),
        ),
    ],
    ids=["rows", "columns", "part", "windows", "channels", "gate", "shift", "beside", "pooled to 2 x 2"],
)
def test_other_means_and_what_a_mean_modulates_keep_their_places(compute, expected):
    same(places(compute), expected)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: embed(x).mean(1, keepdim=True),
        lambda x: nn.functional.adaptive_avg_pool2d(x, 1).flatten(2).mT,
        lambda x: embed(x).mean(1, keepdim=True) @ torch.randn(5, 5) + torch.randn(5),
    ],
)
def test_a_mean_of_all_has_no_place(compute):
    found = places(compute)
    assert bool(found.real.isnan().all())
    assert set(found.imag.flatten().tolist()) == {-2.0}
    assert MEAN == "mean"
