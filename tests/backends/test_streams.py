"""The residual stream ahead of each attention, against what the model's own modules are given."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
import onnxruntime
import pytest
import timm
import torch
from onnx import TensorProto, helper
from timm.layers import RmsNorm
from torch import nn

from tests.backends import onnx_zoo
from tests.backends.families import picture, run_of
from tests.backends.timm_zoo import ZOO, attending, build, fused, randomize
from tests.backends.timm_zoo import picture as own_picture
from viewer.backends.onnx_graph import Graph
from viewer.backends.onnx_model import open_onnx
from viewer.backends.onnx_streams import StreamTensor, find_streams, norm_nodes


class ByHand(nn.Module):
    """A root mean square written out, as language models' code has it."""

    def __init__(self, width: int, **_: object) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        squares = given.float().pow(2).mean(-1, keepdim=True)
        return (given.float() * torch.rsqrt(squares + 1e-6)).to(given.dtype) * self.weight


def given_norms(blocks: Iterable[nn.Module], model: nn.Module, tensor: torch.Tensor) -> list[np.ndarray]:
    """What the first normalization of each block is given in an untapped pass, as lengths of tokens."""
    found: list[np.ndarray] = []
    hooks = [
        block.norm1.register_forward_hook(
            lambda module, given, output: found.append(given[0].detach().norm(dim=-1)[0].numpy())
        )
        for block in blocks
    ]
    with torch.no_grad():
        model(tensor)
    for hook in hooks:
        hook.remove()
    return found


@pytest.mark.parametrize("name", ZOO)
def test_norms_are_of_what_the_blocks_normalize(name):
    model = build(name)
    wrapped = attending(name, model)
    tensor = own_picture(wrapped)
    wanted = given_norms(model.blocks, model, tensor)
    record = wrapped.attend(tensor)
    again = wrapped.attend(tensor)
    for layer, other, norms in zip(record.layers, again.layers, wanted, strict=False):
        np.testing.assert_allclose(layer.stream_norms, norms, rtol=1e-6)
        np.testing.assert_array_equal(layer.stream_norms, other.stream_norms)
        assert layer.no_norms == ""
    for pooling in record.layers[len(wanted) :]:
        assert pooling.stream_norms is None
        assert pooling.no_norms == "its query is learned, and no token of the residual stream"


@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize(
    "arguments",
    [
        {"qk_norm": True},
        {"norm_layer": RmsNorm},
        {"norm_layer": RmsNorm, "qk_norm": True},
        {"norm_layer": ByHand},
    ],
)
def test_other_normalizations_and_those_of_queries(is_fused, arguments):
    model = build("vit_tiny_patch16_224", is_fused, **arguments)
    tensor = picture(64, 64)
    wanted = given_norms(model.blocks, model, tensor)
    run = run_of(model, tensor)
    for layer, norms in zip(run.layers, wanted, strict=True):
        np.testing.assert_allclose(layer.stream_norms, norms, rtol=1e-6)


def test_windows_have_the_norms_of_their_patches():
    with fused(True):
        model = timm.create_model(
            "swin_tiny_patch4_window7_224",
            pretrained=False,
            img_size=64,
            window_size=4,
            depths=(2, 2),
            embed_dim=24,
            num_heads=(2, 4),
        ).eval()
    randomize(model)
    tensor = picture(64, 64)
    wanted = given_norms([block for stage in model.layers for block in stage.blocks], model, tensor)
    for layer, norms in zip(run_of(model, tensor).layers, wanted, strict=True):
        assert layer.no_norms == ""
        rows, columns = layer.query_layout.grid
        there = layer.stream_norms[layer.query_layout.patch_tokens].reshape(rows, columns)
        np.testing.assert_allclose(there, norms, rtol=1e-6)


def test_a_stream_that_is_normalized_behind_the_attention_is_not_found():
    model = build("vit_tiny_patch16_224", block_fn=timm.models.vision_transformer.ResPostBlock)
    for layer in run_of(model, picture(64, 64)).layers:
        assert layer.stream_norms is None
        assert layer.no_norms == "no normalization was found between the residual stream and its queries"


# -- ONNX: each form of a normalization in a graph of its own


def normalized_by(*nodes: onnx.NodeProto, opset: int = 20) -> Graph:
    """A graph in which `nodes` make "normed" of "x", and queries are projected from that."""
    project = helper.make_node("MatMul", ["normed", "w"], ["queries"])
    stored = {
        "w": np.ones((4, 4), np.float32),
        "one": np.ones(4, np.float32),
        "two": np.array(2, np.float32),
        "eps": np.array(1e-6, np.float32),
    }
    graph = helper.make_graph(
        [*nodes, project],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4])],
        [helper.make_tensor_value_info("queries", TensorProto.FLOAT, [1, 3, 4])],
        [onnx.numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return Graph(model, None)


def node(op: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


LAST = {"axes": [-1]}
WRITTEN_OUT = (
    node("ReduceMean", "x", "mean", **LAST),
    node("Sub", "x mean", "apart"),
    node("Pow", "apart two", "squares"),
    node("ReduceMean", "squares", "variance", **LAST),
    node("Add", "variance eps", "safe"),
    node("Sqrt", "safe", "deviation"),
    node("Div", "apart deviation", "even"),
)
FORMS = {
    "one operator": (node("LayerNormalization", "x one", "normed"),),
    "of opset 23": (node("RMSNormalization", "x one", "normed"),),
    "simplified": (node("SimplifiedLayerNormalization", "x one", "normed"),),
    "written out": (*WRITTEN_OUT, node("Mul", "even one", "gained"), node("Add", "gained one", "normed")),
    "root mean square": (
        node("Cast", "x", "wide", to=TensorProto.FLOAT),
        node("Pow", "wide two", "squares"),
        node("ReduceMean", "squares", "mean", **LAST),
        node("Add", "mean eps", "safe"),
        node("Sqrt", "safe", "root"),
        node("Div", "one root", "inverse"),
        node("Mul", "inverse wide", "even"),
        node("Mul", "even one", "normed"),
    ),
}


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("family", ["vit", "dinov2-registers", "eva02", "siglip"])
def test_files_give_the_norms_that_the_model_has_in_torch(family, optimized, tmp_path):
    model, tensor = onnx_zoo.model(family), onnx_zoo.picture(family)
    path = onnx_zoo.export(family, "torchscript-17", tmp_path / "net.onnx")
    if optimized:  # which joins additions with the normalizations behind them
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
        options.log_severity_level = 4
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        path = tmp_path / "optimized.onnx"
    layers = open_onnx(path).attend(tensor).layers
    for layer, twin in zip(layers, run_of(model, tensor).layers, strict=True):
        assert layer.no_norms == twin.no_norms
        if twin.stream_norms is not None:
            np.testing.assert_allclose(layer.stream_norms, twin.stream_norms, rtol=1e-4)


@pytest.mark.parametrize("form", FORMS)
def test_a_normalization_of_each_form_is_found(form):
    assert find_streams(normalized_by(*FORMS[form]), ["queries"]) in (
        (StreamTensor("x"),),
        (StreamTensor("wide"),),
    )


def test_a_joined_addition_hands_out_its_sum_or_is_added_again():
    shown = node("SkipLayerNormalization", "x x one one one", "normed", domain="com.microsoft")
    assert find_streams(normalized_by(shown), ["queries"]) == (StreamTensor("x", ("x", "one")),)
    shown.output.extend(["", "", "sum"])
    assert find_streams(normalized_by(shown), ["queries"]) == (StreamTensor("sum"),)


def test_queries_that_are_a_sum_of_two_streams_have_none():
    nodes = (
        node("LayerNormalization", "x one", "first"),
        node("Mul", "x two", "y"),
        node("LayerNormalization", "y one", "second"),
        node("Add", "first second", "normed"),
    )
    assert find_streams(normalized_by(*nodes), ["queries"]) == (None,)
    assert find_streams(normalized_by(node("Relu", "x", "normed")), ["queries"]) == (None,)


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("added", [(), ("x", "one")])
def test_the_nodes_compute_the_length_of_each_token(opset, added):
    graph = normalized_by(node("Identity", "x", "normed"), opset=opset)
    stream = StreamTensor("x", added)
    nodes = norm_nodes(graph, [stream])
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4])],
            [helper.make_tensor_value_info(stream.norms, TensorProto.FLOAT, [1, 3])],
            [onnx.numpy_helper.from_array(np.ones(4, np.float32), "one")],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )
    given = np.random.default_rng(0).normal(size=(1, 3, 4)).astype(np.float32)
    (found,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": given})
    wanted = 2 * given + 1 if added else given
    np.testing.assert_allclose(found, np.linalg.norm(wanted, axis=-1), rtol=1e-6)
