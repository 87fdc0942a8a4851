"""What ONNX Runtime makes of models when it optimizes them: fused operators, and what is left of others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from tests.backends.onnx_tiny import (
    BIAS,
    CONSTANTS,
    HEADS,
    PICTURE,
    TOKENS,
    WIDE,
    WIDTH,
    build,
    product,
    projections,
    softmax,
)
from tests.backends.onnx_wild import NEW, Tower, built, export, grids, in_torch, picture, truth
from viewer.backends.onnx_fused import put_beside
from viewer.backends.onnx_model import open_onnx
from viewer.errors import InputError, ModelFileError, NoAttentionError

PIXELS = picture((64, 64))
LEVELS = ("ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    return export(built(Tower), (PIXELS,), tmp_path_factory.mktemp("tower") / "tower.onnx")


def saved(source: Path, target: Path, level: str) -> Path:
    """Let ONNX Runtime optimize a model and save what it made of it."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(target)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return target


def optimized(source: Path, target: Path, multi_head: bool = False) -> Path:
    """Fuse attention as ONNX Runtime's transformers optimizer does."""
    from onnxruntime.transformers import optimizer
    from onnxruntime.transformers.fusion_options import FusionOptions

    wanted = FusionOptions("vit")
    wanted.use_multi_head_attention = multi_head
    fused = optimizer.optimize_model(
        str(source), "vit", num_heads=3, hidden_size=48, opt_level=0, optimization_options=wanted
    )
    fused.save_model_to_file(str(target))
    return target


def operators(path: Path) -> set[str]:
    return {node.op_type for node in onnx.load(path).graph.node}


def check_tower(path: Path, tolerance: float = 1e-5) -> None:
    record = open_onnx(path).attend(PIXELS)
    assert record.verified, [layer.verdict.reason for layer in record.layers]
    assert record.output_unchanged
    for layer, weights in zip(record.layers, truth(built(Tower), PIXELS), strict=True):
        assert layer.scores.how == "query-key"
        np.testing.assert_allclose(layer.scores.weights(slice(None)), weights, atol=tolerance)
        assert layer.key_layout.grid == (4, 4)
        assert layer.key_layout.prefix_names == ("cls",)
        np.testing.assert_array_equal(layer.key_layout.positions[1], (8, 8))


@pytest.mark.parametrize("level", LEVELS)
def test_saved_at_every_level(level, plain, tmp_path):
    path = saved(plain, tmp_path / "saved.onnx", level)
    if level != "ORT_ENABLE_BASIC":
        assert {"SkipLayerNormalization", "FusedMatMul"} <= operators(path)
    if level == "ORT_ENABLE_ALL":
        assert "ReorderOutput" in operators(path)  # the first convolution runs in blocks of channels
    check_tower(path)
    assert [layer.name for layer in open_onnx(path).attend(PIXELS).layers] == [
        "layers.0.attention",
        "layers.1.attention",
    ]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["tower", "swin"])
def test_names_come_from_parameters_where_modules_were_left_out(name, level, tmp_path):
    net = built(Tower) if name == "tower" else grids(name)
    new = export(net, (PIXELS,), tmp_path / "new.onnx", **NEW)
    path = saved(new, tmp_path / "saved.onnx", level)
    assert not any(node.metadata_props for node in onnx.load(path).graph.node)
    layers = open_onnx(path).attend(PIXELS).layers
    assert [layer.name for layer in layers] == [layer.name for layer in open_onnx(new).attend(PIXELS).layers]
    assert not any(layer.name.startswith("attention") for layer in layers)


@pytest.mark.parametrize("multi_head", [False, True])
def test_fused_attention(multi_head, plain, tmp_path):
    path = optimized(plain, tmp_path / "fused.onnx", multi_head)
    assert ("MultiHeadAttention" if multi_head else "Attention") in operators(path)
    check_tower(path)


def test_windows_of_an_optimized_model(tmp_path):
    path = export(grids("swin"), (PIXELS,), tmp_path / "swin.onnx")
    record = open_onnx(saved(path, tmp_path / "saved.onnx", "ORT_ENABLE_ALL")).attend(PIXELS)
    assert record.verified
    for layer, twin in zip(record.layers, in_torch("swin").attend(PIXELS).layers, strict=True):
        np.testing.assert_array_equal(layer.key_layout.positions, twin.key_layout.positions)
        np.testing.assert_allclose(layer.matrix(0), twin.matrix(0), atol=1e-4)


def test_quantized_fused_attention(plain, tmp_path):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    fused = optimized(plain, tmp_path / "fused.onnx")
    path = tmp_path / "quantized.onnx"
    quantize_dynamic(
        fused, path, weight_type=QuantType.QInt8, op_types_to_quantize=["Attention"],
        extra_options={"DefaultTensorType": TensorProto.FLOAT},
    )  # fmt: skip
    assert "QAttention" in operators(path)
    record = open_onnx(path).attend(PIXELS)
    assert record.verified, [layer.verdict.reason for layer in record.layers]
    off = []
    for layer, weights in zip(record.layers, truth(built(Tower), PIXELS), strict=True):
        assert layer.scores.how == "query-key"
        off.append(np.abs(layer.scores.weights(slice(None)).numpy() - weights).max())
    assert 1e-4 < max(off) < 0.1  # what the 8 bits cost


FORMS = {
    "Attention": (
        "c3 = com.microsoft.Attention <num_heads = 2> (tokens, joint_weight, joint_bias)",
        lambda s: s / WIDTH**0.5,
    ),
    "Attention, scaled, with a bias": (
        "c3 = com.microsoft.Attention <num_heads = 2, scale = 0.3>"
        " (tokens, joint_weight, joint_bias, , , bias)",
        lambda s: s * 0.3 + BIAS,
    ),
    "Attention, masked": (
        "c3 = com.microsoft.Attention <num_heads = 2> (tokens, joint_weight, joint_bias, mask)",
        lambda s: s / WIDTH**0.5 + np.where(np.arange(TOKENS) < 4, 0, -10000.0),
    ),
    "Attention, causal": (
        "c3 = com.microsoft.Attention <num_heads = 2, unidirectional = 1> (tokens, joint_weight, joint_bias)",
        lambda s: np.where(np.tri(TOKENS, dtype=bool), s / WIDTH**0.5, -np.inf),
    ),
    "MultiHeadAttention": (
        "c3 = com.microsoft.MultiHeadAttention <num_heads = 2> (q3, k3, v3)",
        lambda s: s / WIDTH**0.5,
    ),
    "MultiHeadAttention, with biases": (
        "c3 = com.microsoft.MultiHeadAttention <num_heads = 2> (q3, k3, v3, joint_bias, , bias)",
        lambda s: s / WIDTH**0.5 + BIAS,
    ),
    "rotated first": (
        "qr = com.microsoft.RotaryEmbedding (q, places, cosines, sines)\n"
        " kr = com.microsoft.RotaryEmbedding (k, places, cosines, sines)\n"
        " kx = Transpose <perm = [0, 1, 3, 2]> (kr)\n s = MatMul (qr, kx)\n p = Softmax <axis = -1> (s)\n"
        " c = MatMul (p, v)\n ct = Transpose <perm = [0, 2, 1, 3]> (c)\n c3 = Reshape (ct, joined)",
        None,
    ),
}


def write(body: str, path: Path) -> Path:
    """Write the tiny graph of the pattern tests around a fused operator."""
    turned = "\n c4 = Reshape (c3, split)\n context = Transpose <perm = [0, 2, 1, 3]> (c4)"
    build(body + turned, path, check=False)
    model = onnx.load(path)
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    parts = [CONSTANTS[f"{part}_weight"] for part in ("query", "key", "value")]
    more = {
        "joint_weight": np.concatenate(parts, axis=1),
        "joint_bias": np.zeros(3 * WIDE, np.float32),
        "mask": (np.arange(TOKENS) < 4)[None].astype(np.int32),
        "packed_part": np.array([1, TOKENS, HEADS, 1, WIDTH]),
        "places": np.arange(TOKENS)[None],
        "cosines": np.cos(np.outer(np.arange(TOKENS), [1.0, 0.1])).astype(np.float32),
        "sines": np.sin(np.outer(np.arange(TOKENS), [1.0, 0.1])).astype(np.float32),
    }
    used = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in more.items() if name in used - set(stored)
    )
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("name", FORMS)
def test_form(name, tmp_path):
    body, logits = FORMS[name]
    record = open_onnx(write(body, tmp_path / "m.onnx")).attend(torch.from_numpy(PICTURE))
    (layer,) = record.layers
    assert layer.verdict.verified, layer.verdict.reason
    assert layer.scores.how == "query-key"
    assert layer.key_layout.grid == (2, 3)
    np.testing.assert_array_equal(layer.key_layout.patch_tokens, np.arange(6))
    if logits is not None:
        truth = softmax(logits(product()))
        np.testing.assert_allclose(layer.scores.weights(slice(None)), truth, atol=1e-5)


PACKED = {
    "keys and values": (
        "ku = Reshape (k3, packed_part)\n vu = Reshape (v3, packed_part)\n kv = Concat <axis = 3> (ku, vu)\n"
        " c3 = com.microsoft.MultiHeadAttention <num_heads = 2> (q3, kv)"
    ),
    "all": (
        "qu = Reshape (q3, packed_part)\n ku = Reshape (k3, packed_part)\n vu = Reshape (v3, packed_part)\n"
        " qkv = Concat <axis = 3> (qu, ku, vu)\n"
        " c3 = com.microsoft.MultiHeadAttention <num_heads = 2> (qkv)"
    ),
}


@pytest.mark.parametrize("name", PACKED)
def test_packed_forms_that_the_cpu_can_not_run(name, tmp_path):
    """What is put beside is right; the operator itself runs on other devices only, and that is said."""
    path = write(PACKED[name], tmp_path / "m.onnx")
    with pytest.raises(InputError, match="not implemented for CPU"):
        open_onnx(path).attend(torch.from_numpy(PICTURE))
    model = onnx.load(path)
    found = put_beside(model)["c3"]
    kept, gone = [], {"c3"}
    for node in model.graph.node:
        if gone & {*node.input, *node.output}:
            gone.update(node.output)
        else:
            kept.append(node)
    del model.graph.node[:], model.graph.output[:]
    model.graph.node.extend(kept)
    sides = [found.queries.tensor, found.keys.tensor]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sides)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for value, expected in zip(session.run(sides, {"picture": PICTURE}), projections(), strict=True):
        np.testing.assert_allclose(value[0], expected, atol=1e-5)


def test_operators_that_no_form_covers_are_named(tmp_path):
    body = "c3 = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2> (q3, k3, v3)"
    with pytest.raises(NoAttentionError) as caught:
        open_onnx(write(body, tmp_path / "m.onnx"))
    assert str(caught.value).endswith(
        "The operator 'c3', a GroupQueryAttention, could not be read: no form covers it."
    )
    body = "c3 = com.microsoft.Attention <num_heads = 2, do_rotary = 1> (tokens, joint_weight, joint_bias)"
    with pytest.raises(NoAttentionError, match="it has tokens of an earlier run, or rotary embeddings"):
        open_onnx(write(body, tmp_path / "m.onnx"))


def test_what_only_other_devices_run_is_said(tmp_path):
    body = "c3 = com.microsoft.PackedAttention <num_heads = 2> (tokens, joint_weight, joint_bias, mask, mask)"
    with pytest.raises((NoAttentionError, ModelFileError), match="PackedAttention"):
        open_onnx(write(body, tmp_path / "m.onnx"))


def test_attention_that_never_meets_values_is_listed_beside_others(plain, tmp_path):
    """A map that is handed out as it is: said, with what stands around it."""
    model = onnx.load(plain)
    softmax_node = next(node for node in model.graph.node if node.op_type == "Softmax")
    extra = [
        helper.make_node("Softmax", [softmax_node.input[0]], ["map"], "map", axis=-1),
        helper.make_node("ReduceMax", ["map"], ["peak"], "peak", keepdims=0),
    ]
    model.graph.node.extend(extra)
    model.graph.output.append(helper.make_tensor_value_info("peak", TensorProto.FLOAT, None))
    onnx.save(model, tmp_path / "m.onnx")
    record = open_onnx(tmp_path / "m.onnx").attend(PIXELS)
    assert len(record.layers) == 2
    assert record.verified
    before = _maker(model, softmax_node.input[0])
    assert record.notes[-1] == (
        f"The softmax 'map', between '{before}' and 'peak', could not be matched to values."
    )


def _maker(model: onnx.ModelProto, name: str) -> str:
    return next(node.name for node in model.graph.node if name in node.output)


def test_both_exporters_agree_when_optimized(tmp_path):
    path = export(built(Tower), (PIXELS,), tmp_path / "new.onnx", **NEW)
    check_tower(optimized(path, tmp_path / "fused.onnx"))
