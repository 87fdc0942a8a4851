"""One tiny graph for each row of the pattern tables, in both operand orders, and graphs without attention."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from tests.backends.onnx_tiny import (
    BIAS,
    CONSTANTS,
    FINISH,
    PICTURE,
    PLAIN,
    TOKENS,
    WIDTH,
    after,
    attend,
    before,
    build,
    masked,
    product,
    softmax,
)
from tests.backends.test_onnx_rearranged import WINDOWED
from viewer.backends.onnx_forms import AFTER, BETWEEN
from viewer.backends.onnx_model import open_onnx
from viewer.errors import NoAttentionError

ROWS = {
    "no scale": (f"{PLAIN} p = Softmax <axis = -1> (s)\n context = MatMul (p, v)", lambda s: s),
    "transposed keys": (
        "kx = Transpose <perm = [0, 1, 3, 2]> (k)\n s = MatMul (q, kx)\n z = Mul (s, half)\n " + FINISH,
        lambda s: s * 0.5,
    ),
    "Mul logits first": (before("z = Mul (s, half)"), lambda s: s * 0.5),
    "Mul scale first": (before("z = Mul (half, s)"), lambda s: s * 0.5),
    "Mul per head": (before("z = Mul (s, per_head)"), lambda s: s * CONSTANTS["per_head"][0]),
    "Mul computed": (before("c = Sqrt (two)", "z = Mul (s, c)"), lambda s: s * 2**0.5),
    "Div": (before("z = Div (s, two)"), lambda s: s / 2),
    "Add logits first": (before("z = Add (s, bias)"), lambda s: s + BIAS),
    "Add bias first": (before("z = Add (bias, s)"), lambda s: s + BIAS),
    "Add before Mul": (before("a = Add (s, bias)\n z = Mul (a, half)"), lambda s: (s + BIAS) * 0.5),
    "Mul before Add": (before("a = Mul (s, half)\n z = Add (a, bias)"), lambda s: s * 0.5 + BIAS),
    "Where logits where true": (before("z = Where (allowed, s, minus_infinity)"), masked),
    "Where logits where false": (before("z = Where (forbidden, minus_infinity, s)"), masked),
    "mask made into a bias": (before("m = Where (allowed, zero, minus_infinity)", "z = Add (s, m)"), masked),
    "Cast": (before("z = Cast <to = 1> (s)"), lambda s: s),
    "Identity": (before("z = Identity (s)"), lambda s: s),
    "Sub": (before("z = Sub (s, bias)"), lambda s: s - BIAS),
    "Squeeze and Unsqueeze": (
        before("y = Squeeze (s, leading)\n a = Mul (y, half)\n z = Unsqueeze (a, leading)"),
        lambda s: s * 0.5,
    ),
    "Reshape after": (after("pr = Reshape (p, square)", "pr"), lambda s: s),
    "Squeeze after": (
        f"{PLAIN} p = Softmax <axis = -1> (s)\n ps = Squeeze (p, leading)\n vs = Squeeze (v, leading)\n"
        " c = MatMul (ps, vs)\n context = Unsqueeze (c, leading)",
        lambda s: s,
    ),
    "Unsqueeze after": (
        f"{PLAIN} p = Softmax <axis = -1> (s)\n pu = Unsqueeze (p, leading)\n vu = Unsqueeze (v, leading)\n"
        " c = MatMul (pu, vu)\n context = Squeeze (c, leading)",
        lambda s: s,
    ),
    "values times weights": (
        "e = MatMul (q, kt)\n z = Mul (e, half)\n p = Softmax <axis = -1> (z)\n"
        " pt = Transpose <perm = [0, 1, 3, 2]> (p)\n vt = Transpose <perm = [0, 1, 3, 2]> (v)\n"
        " ct = MatMul (vt, pt)\n context = Transpose <perm = [0, 1, 3, 2]> (ct)",
        lambda s: s * 0.5,
    ),
    "Dropout": (before("z = Dropout (s)"), lambda s: s),
    "both sides scaled before": (
        "q2 = Mul (q, half)\n k2 = Mul (half, kt)\n z = MatMul (q2, k2)\n " + FINISH,
        lambda s: s * 0.25,
    ),
    "FusedMatMul": (
        "z = com.microsoft.FusedMatMul <alpha = 0.5, transB = 1> (q, k)\n " + FINISH,
        lambda s: s * 0.5,
    ),
    "Cast after": (after("pc = Cast <to = 1> (p)", "pc"), lambda s: s),
    "Dropout after": (after("pd = Dropout (p)", "pd"), lambda s: s),
    "Identity after": (after("pi = Identity (p)", "pi"), lambda s: s),
    "guard after": (after("n = IsNaN (p)\n pg = Where (n, zero, p)", "pg"), lambda s: s),
    "guard after, turned round": (
        after("n = IsNaN (p)\n o = Not (n)\n pg = Where (o, p, zero)", "pg"),
        lambda s: s,
    ),
    "Einsum": (
        'e = Einsum <equation = "bqhd,bkhd->bhqk"> (q4, k4)\n z = Mul (e, half)\n'
        " p = Softmax <axis = -1> (z)\n"
        ' context = Einsum <equation = "bhqk,bkhd->bhqd"> (p, v4)',
        lambda s: s * 0.5,
    ),
    "Einsum, keys first": (
        'e = Einsum <equation = "bkhd,bqhd->bhqk"> (k4, q4)\n p = Softmax <axis = -1> (e)\n'
        ' context = Einsum <equation = "bkhd,bhqk->bhqd"> (v4, p)',
        lambda s: s,
    ),
    "Attention, four axes": ("context = Attention (q, k, v)", lambda s: s / WIDTH**0.5),
    "Attention, scale": ("context = Attention <scale = 0.75> (q, k, v)", lambda s: s * 0.75),
    "Attention, float mask": ("context = Attention (q, k, v, bias)", lambda s: s / WIDTH**0.5 + BIAS),
    "Attention, bool mask": ("context = Attention (q, k, v, allowed)", lambda s: masked(s / WIDTH**0.5)),
    "Attention, causal": (
        "context = Attention <is_causal = 1> (q, k, v)",
        lambda s: np.where(np.tri(TOKENS, dtype=bool), s / WIDTH**0.5, -np.inf),
    ),
    "Attention, three axes": (
        "c3 = Attention <q_num_heads = 2, kv_num_heads = 2> (q3, k3, v3)\n"
        " c4 = Reshape (c3, split)\n context = Transpose <perm = [0, 2, 1, 3]> (c4)",
        lambda s: s / WIDTH**0.5,
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_row(name, tmp_path):
    body, logits = ROWS[name]
    record = attend(body, tmp_path)
    (layer,) = record.layers
    assert layer.scores.how == "query-key"
    truth = softmax(logits(product()))
    np.testing.assert_allclose(layer.scores.weights(slice(None)).numpy(), truth, atol=3e-6)
    assert layer.verdict.verified, layer.verdict.reason
    assert record.output_unchanged
    assert layer.query_layout.grid == layer.key_layout.grid == (2, 3)
    assert layer.key_layout.prefix_names == ()


def test_every_row_of_the_tables_is_tested():
    others = (body for body, _ in (*FALLBACKS.values(), *WINDOWED.values()))
    bodies = " ".join(
        [*(body for body, _ in ROWS.values()), *others, DYNAMICALLY_QUANTIZED, QUANTIZED_WEIGHTS]
    )
    for row in (*BETWEEN, *AFTER):
        assert any(f"{start}{row.op} {end}" in bodies for start in ("= ", ".") for end in "(<"), row.op


FALLBACKS = {
    "Tanh": (before("z = Tanh (s)"), np.tanh),
    "Clip": (before("z = Clip (s, zero)"), lambda s: s.clip(0)),
    "Max": (before("z = Max (s, zero)"), lambda s: s.clip(0)),
    "Min": (before("z = Min (zero, s)"), lambda s: s.clip(None, 0)),
    "integers multiplied and added": (
        before(
            "sq = QuantizeLinear (s, tenth, middle)",
            "hq = QuantizeLinear (half, step, no_offset)",
            "mq = com.microsoft.QLinearMul (sq, tenth, middle, hq, step, no_offset, tenth, middle)",
            "bq = QuantizeLinear (bias, tenth, middle)",
            "aq = com.microsoft.QLinearAdd (mq, tenth, middle, bq, tenth, middle, tenth, middle)",
            "z = DequantizeLinear (aq, tenth, middle)",
        ),
        lambda s: np.round(s * 10).clip(-128, 127) / 10 * 128 / 255 + np.round(BIAS * 10) / 10,
    ),
    "heads mixed before": (
        "e = MatMul (q, kt)\n t = Transpose <perm = [0, 2, 3, 1]> (e)\n m = MatMul (t, mixer)\n"
        " z = Transpose <perm = [0, 3, 1, 2]> (m)\n " + FINISH,
        lambda s: np.einsum("hqk,hg->gqk", s, CONSTANTS["mixer"]),
    ),
    "Attention, softcap": (
        "context = Attention <softcap = 2.0> (q, k, v)",
        lambda s: 2 * np.tanh(s / WIDTH**0.5 / 2),
    ),
}


@pytest.mark.parametrize("name", FALLBACKS)
def test_softmax_result_is_taken_where_logits_are_not_understood(name, tmp_path):
    body, logits = FALLBACKS[name]
    record = attend(body, tmp_path)
    (layer,) = record.layers
    assert layer.scores.how == "weights"
    np.testing.assert_allclose(
        layer.scores.weights(slice(None)).numpy(),
        softmax(logits(product())),
        atol=0.05 if "integers" in name else 1e-6,
    )
    assert layer.verdict.verified, layer.verdict.reason
    assert layer.query_layout.grid == layer.key_layout.grid == (2, 3)


DYNAMICALLY_QUANTIZED = """
      qq, qs, qz = DynamicQuantizeLinear (q)
      kq, ks, kz = DynamicQuantizeLinear (kt)
      i = MatMulInteger (qq, kq, qz, kz)
      f = Cast <to = 1> (i)
      c = Mul (qs, ks)
      z = Mul (f, c)
      p = Softmax <axis = -1> (z)
      pq, ps, pz = DynamicQuantizeLinear (p)
      vq, vs, vz = DynamicQuantizeLinear (v)
      ci = MatMulInteger (pq, vq, pz, vz)
      cf = Cast <to = 1> (ci)
      cs = Mul (ps, vs)
      context = Mul (cf, cs)
    """
QUANTIZED_WEIGHTS = f"""
  {PLAIN}
  p = Softmax <axis = -1> (s)
  pq = QuantizeLinear (p, step, no_offset)
  pd = DequantizeLinear (pq, step, no_offset)
  context = MatMul (pd, v)
"""


ROUNDS = "weights of the softmax, which the model rounds before use"


@pytest.mark.parametrize("body", [QUANTIZED_WEIGHTS, DYNAMICALLY_QUANTIZED], ids=["QDQ", "integers"])
def test_weights_in_eight_bits_are_shown_as_the_softmax_gave_them(body, tmp_path):
    """The rounded weights make the model's output exactly, and are those shown but for rounding."""
    (layer,) = attend(body, tmp_path).layers
    exact = body is QUANTIZED_WEIGHTS
    assert layer.scores.how == ("query-key" if exact else "weights")
    assert layer.note == ROUNDS
    tolerance = 1e-6 if exact else 0.1  # queries and keys are rounded as well
    np.testing.assert_allclose(layer.scores.weights(slice(None)).numpy(), softmax(product()), atol=tolerance)
    assert layer.verdict.verified, layer.verdict.reason
    assert layer.verdict.output_error < 1e-6
    assert layer.key_layout.grid == (2, 3)


def test_weights_rounded_far_off_are_not_verified(tmp_path):
    path = build(QUANTIZED_WEIGHTS, tmp_path / "tiny.onnx")
    model = onnx.load(path)
    step = next(tensor for tensor in model.graph.initializer if tensor.name == "step")
    step.CopyFrom(numpy_helper.from_array(np.array(1 / 12, np.float32), "step"))
    onnx.save(model, path)
    (layer,) = open_onnx(path).attend(torch.from_numpy(PICTURE)).layers
    assert not layer.verdict.verified
    assert "the model rounds its weights by as much as 0.0" in layer.verdict.reason


def test_heads_mixed_after_the_softmax(tmp_path):
    body = f"""
      {PLAIN}
      p = Softmax <axis = -1> (s)
      t = Transpose <perm = [0, 2, 3, 1]> (p)
      m = MatMul (t, mixer)
      w = Transpose <perm = [0, 3, 1, 2]> (m)
      context = MatMul (w, v)
    """
    (layer,) = attend(body, tmp_path).layers
    np.testing.assert_allclose(layer.scores.weights(slice(None)).numpy(), softmax(product()), atol=1e-6)
    assert layer.note == "weights of the softmax, before the model mixes or scales them"


NOT_ATTENTION = {
    "classifier softmax": (
        "z = MatMul (tokens, query_weight)\n y = Softmax <axis = -1> (z)\n context = Reshape (y, split)"
    ),
    "softmax times parameters": (
        "z = MatMul (tokens, query_weight)\n y = Softmax <axis = -1> (z)\n w = MatMul (y, key_weight)\n"
        " context = Reshape (w, split)"
    ),
    "no softmax": f"{PLAIN} context = MatMul (s, v)",
}


@pytest.mark.parametrize("name", NOT_ATTENTION)
def test_other_softmaxes_are_no_attention(name, tmp_path):
    path = build(NOT_ATTENTION[name], tmp_path / "tiny.onnx")
    with pytest.raises(NoAttentionError) as caught:
        open_onnx(path)
    assert caught.value.census["MatMul"] >= 3
    assert "Conv" in caught.value.census
    assert "matrix products" in str(caught.value)


def test_census_of_a_convolutional_net(tmp_path):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "convnet",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.zeros((4, 3, 3, 3), np.float32), "w")],
    )
    path = tmp_path / "convnet.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with pytest.raises(NoAttentionError) as caught:
        open_onnx(path)
    assert caught.value.census == {"Conv": 1, "Relu": 1, "GlobalAveragePool": 1}
    assert str(caught.value) == (
        f"{path} has no attention that Patchreach can find. It holds 1 convolution, 1 pooling."
    )
