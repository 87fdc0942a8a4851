"""torchvision's Vision Transformers by name, with the transforms that belong to their weights."""

from __future__ import annotations

import math
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from tests.backends.timm_zoo import Softmaxes, randomize, windows_of_swin
from viewer import open_image, open_model
from viewer.attention.record import Provenance
from viewer.backends import torchvision_model, torchvision_names
from viewer.backends.catalogue import model_names
from viewer.backends.model import Job
from viewer.backends.torch_runner import TorchRunner
from viewer.backends.torch_sizes import SizedModels
from viewer.backends.torchvision_model import preprocessing_of, wrap_torchvision
from viewer.errors import CheckpointError, ModelFileError, OfflineError, UnknownModelError
from viewer.images.preprocess import prepare

models = pytest.importorskip("torchvision.models")

PUBLISHED = [
    weights
    for architecture in torchvision_names.architectures()
    for weights in models.get_model_weights(architecture)
]


def test_they_are_listed():
    names = model_names("torchvision/*")
    assert "torchvision/vit_b_16" in names
    assert "torchvision/vit_b_16.IMAGENET1K_SWAG_E2E_V1" in names
    assert "torchvision/maxvit_t" in names
    assert "torchvision/swin_v2_t" in names
    assert not any("resnet" in name or "mvit" in name for name in names)


def tiny_vit(image_size=64, classes=1000):
    torch.manual_seed(0)
    model = models.VisionTransformer(image_size, 16, 2, 3, 48, 96, num_classes=classes)
    randomize(model)
    return model.eval()


def test_a_vit_shows_what_a_float64_softmax_gives():
    model = tiny_vit(224)
    published = models.get_model_weights("vit_b_16").DEFAULT
    opened = wrap_torchvision("tv", model, published, "cpu", Provenance("tv"))
    tensor = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    record = opened.attend(tensor)
    assert record.verified
    assert record.output_unchanged
    assert record.layout.prefix_names == ("cls",)
    assert record.grid == (14, 14)
    assert [layer.name for layer in record.layers] == [
        f"encoder.layers.encoder_layer_{index}.self_attention" for index in range(2)
    ]
    assert record.prediction.labels[0] == published.meta["categories"][int(np.argmax(record.output))]
    with torch.no_grad():
        model.double()
        tokens = model.conv_proj(tensor.double()).flatten(2).mT
        tokens = torch.cat([model.class_token, tokens], 1) + model.encoder.pos_embedding
        for layer, block in zip(record.layers, model.encoder.layers, strict=True):
            attention = block.self_attention
            joined = functional.linear(block.ln_1(tokens), attention.in_proj_weight, attention.in_proj_bias)
            queries, keys, _ = joined[0].view(197, 3, 3, 16).permute(1, 2, 0, 3)
            weights = (queries @ keys.mT / math.sqrt(16)).softmax(-1)
            found = np.stack([layer.matrix(head) for head in range(3)])
            np.testing.assert_allclose(found, weights.numpy(), rtol=0, atol=1e-5)
            tokens = block(tokens)


def test_swin_shows_its_shifted_windows():
    torch.manual_seed(0)
    model = models.SwinTransformer([4, 4], 24, [2, 1], [2, 3], [4, 4]).eval()
    randomize(model)
    opened = TorchRunner("tv", SizedModels("tv", model, (64, 64)), "cpu")
    tensor = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    run = opened.run(tensor, Job())
    assert run.unchanged
    with torch.no_grad(), Softmaxes() as seen:
        model.double()(tensor.double())
    for layer, windows, side, shift in zip(run.layers, seen.weights, (16, 16, 8), (0, 2, 0), strict=True):
        assert layer.verdict.verified
        windows_of_swin(layer, windows, side, shift)


def test_maxvit_shows_its_windows_and_grids():
    torch.manual_seed(0)
    sizes = {"block_channels": [16, 32], "block_layers": [1, 1], "head_dim": 8, "stochastic_depth_prob": 0.0}
    model = models.MaxVit((64, 64), 16, 4, **sizes).eval()
    randomize(model)
    tensor = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    run = TorchRunner("tv", SizedModels("tv", model, (64, 64)), "cpu").run(tensor, Job())
    assert run.unchanged
    with torch.no_grad(), Softmaxes() as seen:
        model.double()(tensor.double())
    kinds = [layer.name.split(".")[-3] for layer in run.layers]
    assert kinds == ["window_attention", "grid_attention"] * 2
    for layer, windows, kind, side in zip(run.layers, seen.weights, kinds, (16, 16, 8, 8), strict=True):
        assert layer.verdict.verified
        blocks = np.arange(side * side)
        if kind == "window_attention":  # 4 x 4 neighbours
            blocks = blocks.reshape(side // 4, 4, side // 4, 4).transpose(0, 2, 1, 3)
        else:  # 4 x 4 patches spread over the picture
            blocks = blocks.reshape(4, side // 4, 4, side // 4).transpose(1, 3, 0, 2)
        order = blocks.reshape(-1, 16)
        patches = (layer.key_layout.positions // (64 // side)).round().astype(int)
        numbers = patches[:, 0] * side + patches[:, 1]
        wanted, found = np.zeros((2, side * side, side * side))
        for tokens, window in zip(order, windows.reshape(-1, layer.heads, 16, 16), strict=True):
            wanted[np.ix_(tokens, tokens)] = window[0].numpy()
        found[np.ix_(numbers, numbers)] = np.nan_to_num(layer.matrix(0))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("published", PUBLISHED, ids=str)
@pytest.mark.parametrize("shape", [(300, 400), (400, 300), (100, 90)])
def test_pictures_are_prepared_as_the_weights_want_them(published, shape):
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
    wanted = published.transforms()(Image.fromarray(pixels))
    found = prepare(open_image(pixels), preprocessing_of(published)).tensor[0]
    np.testing.assert_allclose(found, wanted.numpy(), rtol=0, atol=1e-6)


def test_a_local_checkpoint(tmp_path):
    path = tmp_path / "w.pth"
    trained = models.get_model("swin_t", num_classes=7)
    torch.save(trained.state_dict(), path)
    model = open_model("torchvision/swin_t", weights=path)
    assert model.preprocessing.size == (224, 224)
    assert model.labels == [f"class {index}" for index in range(7)]
    for key, value in model.module.state_dict().items():
        assert torch.equal(value, trained.state_dict()[key])
    with pytest.raises(CheckpointError, match=r"does not fit torchvision/swin_s: it lacks 168 parameters"):
        open_model("torchvision/swin_s", weights=path)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("torchvision/vit_b16", "torchvision/vit_b_16"),
        ("torchvision/resnet50", ""),
        ("torchvision/vit_b_16.IMAGENET1K_V2", "torchvision/vit_b_16.IMAGENET1K_V1"),
    ],
)
def test_near_names(wrong, meant):
    with pytest.raises(UnknownModelError) as caught:
        open_model(wrong)
    assert f"No model is called {wrong!r}" in str(caught.value)
    assert caught.value.candidates[:1] == ((meant,) if meant else ())


def test_offline_says_the_two_ways_out_and_soon(monkeypatch, tmp_path):
    torch.hub.set_dir(tmp_path)
    published = models.ViT_B_16_Weights.DEFAULT
    monkeypatch.setattr(torchvision_model, "published_of", lambda name, known: Nowhere(published))
    started = time.monotonic()
    try:
        with pytest.raises(OfflineError) as caught:
            open_model("torchvision/vit_b_16")
    finally:
        torch.hub._hub_dir = None
    assert time.monotonic() - started < 9
    assert str(caught.value) == (
        "torchvision/vit_b_16 could not be downloaded: there is no network connection to the model hub. Two "
        "ways out: join it with a checkpoint on this computer (--model torchvision/vit_b_16 --weights FILE), "
        "or open the sample model (--model sample)."
    )


class Nowhere:
    """Weights that lie where nobody answers."""

    url = "http://127.0.0.1:9/vit_b_16-c867db91.pth"

    def __init__(self, published):
        self.meta, self.transforms = published.meta, published.transforms


def test_without_torchvision_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(ModelFileError) as caught:
        open_model("torchvision/vit_b_16")
    assert str(caught.value) == (
        "torchvision/vit_b_16 needs torchvision, which is not installed. Install it: "
        "`python -m pip install torchvision`."
    )
    torchvision_names.architectures.cache_clear()
    torchvision_names.torchvision_names.cache_clear()
    try:
        assert torchvision_names.torchvision_names() == ()
    finally:
        torchvision_names.architectures.cache_clear()
        torchvision_names.torchvision_names.cache_clear()
