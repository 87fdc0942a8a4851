"""Weights from the record equal an independent float64 softmax of the un-fused model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.backends.timm_zoo import REGISTERS, ZOO, attending, build, picture, reference
from viewer.attention.scores import QueryKeyScores


@pytest.mark.parametrize("name", ZOO)
def test_weights_equal_float64_softmax_of_the_unfused_model(name):
    _, prefix, pooled = ZOO[name]
    fused, unfused = (attending(name, build(name, is_fused)) for is_fused in (True, False))
    tensor = picture(fused)
    expected = reference(build(name, is_fused=False), tensor)
    records = [fused.attend(tensor), unfused.attend(tensor)]

    # The models must give attention something to tell apart: neither uniform nor one-hot.
    peaks = torch.stack([weights.amax(-1).mean() * weights.shape[-1] for weights in expected])
    assert bool((peaks > 1.5).all())
    for record in records:
        assert [layer.kind for layer in record.layers] == ["self", "self"] + ["pool"] * pooled
        assert record.verified
        assert record.output_unchanged
        for layer, weights in zip(record.layers, expected, strict=True):
            assert isinstance(layer.scores, QueryKeyScores)
            found = np.stack([layer.matrix(head) for head in range(layer.heads)])
            np.testing.assert_allclose(found, weights.numpy(), rtol=0, atol=1e-5)
            assert layer.verdict.output_error < 1e-5
        assert record.layout.prefix_names == prefix
    names = [[layer.name for layer in record.layers] for record in records]
    assert names[0] == names[1]
    assert names[0][:2] == ["blocks.0.attn", "blocks.1.attn"]


@pytest.mark.parametrize("name", ZOO)
def test_tokens_sit_on_their_patches_row_by_row(name):
    model = attending(name, build(name))
    record = model.attend(picture(model))
    height, width = model.preprocessing.size
    patch = model.module.patch_embed.feat_ratio()
    rows, columns = height // patch, width // patch
    assert record.grid == (rows, columns)
    assert record.patch_px == (patch, patch)
    y, x = np.mgrid[0:rows, 0:columns] * patch + patch / 2
    expected = np.stack([y.ravel(), x.ravel()], axis=1)
    for layer in record.layers:
        layout = layer.key_layout
        # A convolutional stem that pads one side more than the other looks a little to that side.
        shift = 2 if "_r_" in name else 0
        found = layout.positions[len(layout.prefix_tokens) :]
        np.testing.assert_allclose(found, expected, rtol=0, atol=shift)
        np.testing.assert_array_equal(layout.prefix_tokens, np.arange(len(layout.prefix_tokens)))


def test_pooling_query_has_a_name_and_no_place():
    name = "vit_base_patch16_siglip_224"
    model = attending(name, build(name))
    pool = model.attend(picture(model)).layers[-1]
    assert pool.name == "attn_pool"
    assert pool.query_layout.grid == (0, 0)
    assert pool.query_layout.prefix_names == ("latent",)
    assert pool.weights("latent").shape == (3, 16)


@pytest.mark.parametrize("registers", [0, 1, 3, 7])
def test_any_number_of_registers(registers):
    name = "vit_small_patch14_reg4_dinov2"
    module = build(name, reg_tokens=registers, img_size=42)
    record = attending(name, module).attend(torch.randn(1, 3, 42, 42))
    assert record.prefix_tokens == 1 + registers
    assert record.layout.prefix_names == ("cls", *(f"reg{index + 1}" for index in range(registers)))
    assert record.grid == (3, 3)


def test_a_named_query_reads_its_own_row():
    name = "vit_small_patch14_reg4_dinov2"
    model = attending(name, build(name))
    layer = model.attend(picture(model)).layers[1]
    matrix = layer.matrix(head=2)
    for token, query in enumerate(REGISTERS):
        np.testing.assert_allclose(layer.weights(query)[2], matrix[token], rtol=0, atol=1e-6)
    np.testing.assert_allclose(layer.weights((2, 3))[2], matrix[5 + 2 * 6 + 3], rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_softmax_is_done_in_float32(dtype):
    name = "vit_small_patch14_dinov2"
    module = build(name)
    exact = attending(name, build(name)).attend(torch.zeros(1, 3, 56, 56) + 0.3)
    record = attending(name, module.to(dtype)).attend(torch.zeros(1, 3, 56, 56) + 0.3)
    for layer, other in zip(record.layers, exact.layers, strict=True):
        weights = layer.matrix(0)
        assert weights.dtype == np.float32
        np.testing.assert_allclose(weights.sum(-1), 1, rtol=0, atol=1e-5)
        assert layer.verdict.verified
        np.testing.assert_allclose(weights, other.matrix(0), rtol=0, atol=0.1)
