"""The same trained weights through ONNX Runtime and through PyTorch give the same attention."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import timm
import torch
from onnx import numpy_helper

from viewer.attention.record import Provenance
from viewer.attention.sweep import measure_record
from viewer.backends.onnx_file import read_onnx
from viewer.backends.onnx_model import OnnxModel
from viewer.backends.onnx_session import open_session
from viewer.backends.sample import open_sample, sample_path
from viewer.backends.timm_model import wrap
from viewer.backends.torch_model import TorchModel
from viewer.images.decode import open_image
from viewer.images.preprocess import prepare
from viewer.shipped import resource

POSITIONS = (
    "/backbone/embeddings/Concat_6_output_0"  # after the file's own resampling from 37 x 37 to 16 x 16
)


def renamed() -> dict[str, torch.Tensor]:
    """Return the sample's weights under timm's names, with position embeddings as the file resamples them."""
    file = read_onnx(sample_path())
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in file.proto.graph.initializer}
    by_node = {node.name: node for node in file.proto.graph.node}

    def matrix(path: str) -> torch.Tensor:
        node = by_node[f"/backbone/encoder/{path}/MatMul"]
        return torch.from_numpy(stored[node.input[1]].T.copy())

    def vector(path: str) -> torch.Tensor:
        return torch.from_numpy(stored[f"backbone.{path}"].copy())

    (positions,) = open_session(file, outputs=[POSITIONS]).run(
        [POSITIONS], {"input_image": np.zeros((1, 3, 224, 224), np.float32)}
    )
    state = {
        "cls_token": vector("embeddings.cls_token"),
        "pos_embed": torch.from_numpy(positions),
        "patch_embed.proj.weight": vector("embeddings.patch_embeddings.projection.weight"),
        "patch_embed.proj.bias": vector("embeddings.patch_embeddings.projection.bias"),
        "norm.weight": vector("layernorm.weight"),
        "norm.bias": vector("layernorm.bias"),
    }
    for index in range(12):
        ours, theirs = f"blocks.{index}", f"layer.{index}"
        attention = f"{theirs}.attention.attention".replace(".", "/").replace(f"layer/{index}", theirs)
        names = ("query", "key", "value")
        state[f"{ours}.attn.qkv.weight"] = torch.cat([matrix(f"{attention}/{name}") for name in names])
        state[f"{ours}.attn.qkv.bias"] = torch.cat(
            [vector(f"encoder.{theirs}.attention.attention.{name}.bias") for name in names]
        )
        for mine, other in {
            "attn.proj": "attention/output/dense",
            "mlp.fc1": "mlp/fc1",
            "mlp.fc2": "mlp/fc2",
        }.items():
            state[f"{ours}.{mine}.weight"] = matrix(f"{theirs}/{other}")
            state[f"{ours}.{mine}.bias"] = vector(f"encoder.{theirs}.{other.replace('/', '.')}.bias")
        for number in (1, 2):
            state[f"{ours}.norm{number}.weight"] = vector(f"encoder.{theirs}.norm{number}.weight")
            state[f"{ours}.norm{number}.bias"] = vector(f"encoder.{theirs}.norm{number}.bias")
            state[f"{ours}.ls{number}.gamma"] = vector(f"encoder.{theirs}.layer_scale{number}.lambda1")
    return state


@pytest.fixture(scope="module")
def onnx_model() -> OnnxModel:
    return open_sample()


@pytest.fixture(scope="module")
def torch_model() -> TorchModel:
    module = timm.create_model("vit_small_patch14_dinov2", img_size=224, pretrained=False)
    module.load_state_dict(renamed(), strict=True)
    return wrap("vit_small_patch14_dinov2", module, "cpu", Provenance("renamed sample"))


@pytest.mark.parametrize("name", ["cat", "coffee"])
def test_sample_agrees_with_its_weights_in_timm(name, onnx_model, torch_model):
    picture = prepare(open_image(resource("images", f"{name}.jpg")), onnx_model.preprocessing).tensor
    one, other = (model.attend(torch.from_numpy(picture)) for model in (onnx_model, torch_model))

    assert len(one.layers) == len(other.layers) == 12
    assert one.verified
    assert other.verified
    for layer, twin in zip(one.layers, other.layers, strict=True):
        difference = (layer.scores.weights(slice(None)) - twin.scores.weights(slice(None))).abs().max()
        assert difference < 1e-4
        np.testing.assert_allclose(layer.key_layout.positions, twin.key_layout.positions, atol=1e-3)
        assert layer.key_layout.prefix_names == twin.key_layout.prefix_names
        # The file has its normalizations written out.
        np.testing.assert_allclose(layer.stream_norms, twin.stream_norms, rtol=1e-3)
    for layer, twin in zip(measure_record(one).layers, measure_record(other).layers, strict=True):
        for protocol in ("renormalized", "original"):
            assert np.abs(layer.distance(protocol) - twin.distance(protocol)).max() < 0.05
        assert np.abs(layer.mean_entropy() - twin.mean_entropy()).max() < 1e-3
        assert np.abs(layer.mean_prefix_mass() - twin.mean_prefix_mass()).max() < 1e-4


def test_the_file_holds_the_trained_grid_of_positions():
    graph = onnx.load(sample_path(), load_external_data=False).graph
    shapes = {tuple(tensor.dims) for tensor in graph.initializer}
    assert (1, 37 * 37, 384) in shapes
