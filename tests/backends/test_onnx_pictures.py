"""ONNX models that treat one picture unlike another, and maps that are not what the model uses alone."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
import timm
import torch
from torch.nn import functional

from tests.backends.onnx_tiny import PLAIN, build
from tests.backends.test_torch_pictures import MIXED, Moved
from tests.backends.timm_zoo import fused
from viewer.backends.onnx_model import open_onnx
from viewer.errors import LayoutError, NoAttentionError

BRIGHT = torch.ones(1, 3, 64, 64)
DARK = -torch.ones(1, 3, 64, 64)


def exported(module, path, size=(64, 64), **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the exporters say of themselves
        torch.onnx.export(module.eval(), (torch.randn(1, 3, *size),), path, verbose=False, **options)
    return path


OLD, NEW = (
    {"dynamo": False, "opset_version": 17},
    {"dynamo": True, "opset_version": 18, "external_data": False},
)
NEWEST = {"dynamo": True, "opset_version": 23, "external_data": False}


def rolled(tokens, picture):
    shift = (picture.mean() > 0).long() * 2
    return tokens[:, (torch.arange(16) - shift) % 16]


@pytest.mark.parametrize("options", [OLD, NEW])
def test_tokens_that_move_with_the_picture(options, tmp_path):
    model = open_onnx(exported(Moved(rolled), tmp_path / "m.onnx", **options))
    for picture, shift in ((DARK, 0), (BRIGHT, 2), (DARK, 0), (BRIGHT, 2)):
        try:
            layout = model.attend(picture).layers[0].key_layout
        except LayoutError as error:
            assert "no rule covers" in str(error)  # refused is as good as right
            continue
        assert np.array_equal(layout.patch_tokens, np.argsort(np.roll(np.arange(16), shift)))


def nan_where_bright(tokens, picture):
    return tokens + (-picture.mean()).sqrt() * 0


@pytest.mark.parametrize("first", [BRIGHT, DARK])
def test_numbers_that_are_not_finite(first, tmp_path):
    model = open_onnx(exported(Moved(nan_where_bright), tmp_path / "m.onnx", **OLD))
    for picture in (first, BRIGHT, DARK, BRIGHT, DARK * 2):
        record = model.attend(picture)
        bright = bool(picture.mean() > 0)
        assert record.verified is not bright
        assert record.layers[0].verdict.reason == (
            "the model's numbers are not finite for this picture" if bright else ""
        )
        assert record.output_unchanged is True


def test_every_picture_is_verified_for_itself(tmp_path):
    """Weights rounded to eighteenths hit the exact ones on a picture of one colour, and miss on others."""
    body = f"""
      {PLAIN}
      p = Softmax <axis = -1> (s)
      pq = QuantizeLinear (p, step, no_offset)
      pd = DequantizeLinear (pq, step, no_offset)
      context = MatMul (pd, v)
    """
    path = build(body, tmp_path / "m.onnx")
    proto = onnx.load(path)
    step = next(tensor for tensor in proto.graph.initializer if tensor.name == "step")
    step.CopyFrom(onnx.numpy_helper.from_array(np.array(1 / 6 / 3, np.float32), "step"))
    onnx.save(proto, path)
    model = open_onnx(path)
    flat, noise = torch.ones(1, 3, 8, 12), torch.randn(1, 3, 8, 12)
    for picture, verified in ((flat, True), (noise, False), (flat, True)):
        assert model.attend(picture).verified is verified


@pytest.mark.parametrize("options", [OLD, NEW, NEWEST])
@pytest.mark.parametrize("name", MIXED)
def test_maps_the_model_does_not_use_alone(name, options, tmp_path):
    attend, _ = MIXED[name]
    if options is NEWEST and "outputs" not in name:
        pytest.skip("only fused attention is exported differently")
    path = exported(Moved(lambda tokens, picture: tokens, attend), tmp_path / "m.onnx", **options)
    try:
        record = open_onnx(path).attend(BRIGHT)
    except LayoutError as error:
        words = ("alone", "changed between softmax and values", "over the queries", "rearranged")
        assert any(word in str(error) for word in words), str(error)
    else:
        assert not record.verified


def test_plain_attention_beside_them_is_shown(tmp_path):
    plain = Moved(lambda tokens, picture: tokens, functional.scaled_dot_product_attention)
    assert open_onnx(exported(plain, tmp_path / "m.onnx", **OLD)).attend(BRIGHT).verified


@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize("name", ["vit_dlittle_patch16_reg1_gap_256", "vit_dpwee_patch16_reg1_gap_256"])
def test_differential_attention_is_refused_however_it_is_computed(name, is_fused, tmp_path):
    with fused(is_fused):
        built = timm.create_model(name, img_size=64, depth=2, embed_dim=64, num_heads=2)
    path = exported(built, tmp_path / "m.onnx", **NEW)
    with pytest.raises(LayoutError, match="so neither map is what the model uses alone"):
        open_onnx(path).attend(torch.randn(1, 3, 64, 64))


def test_tokens_through_a_branch_are_refused(tmp_path):
    """What an If does to tokens is inside its own graphs, which are not followed."""
    body = """
      mean = ReduceMean <keepdims = 0> (picture)
      bright = Greater (mean, zero)
      q5 = If (bright) <
        then_branch = then_graph () => (float[1, 2, 6, 4] a) { a = Identity (q) },
        else_branch = else_graph () => (float[1, 2, 6, 4] b) { b = Neg (q) }
      >
      s = MatMul (q5, kt)
      p = Softmax <axis = -1> (s)
      context = MatMul (p, v)
    """
    with pytest.raises((LayoutError, NoAttentionError)):
        open_onnx(build(body, tmp_path / "m.onnx")).attend(torch.ones(1, 3, 8, 12))
