"""Weights of ONNX records against an independent float64 softmax, for every family and exporter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.onnx_zoo import EXPORTERS, FAMILIES, export, picture, true_attention
from viewer.backends.onnx_model import OnnxModel, open_onnx


@pytest.fixture(scope="module", params=[(family, exporter) for family in FAMILIES for exporter in EXPORTERS],
                ids=lambda pair: "-".join(pair))  # fmt: skip
def opened(request, tmp_path_factory) -> tuple[str, OnnxModel]:
    family, exporter = request.param
    path = export(family, exporter, tmp_path_factory.mktemp("onnx") / "model.onnx")
    return family, open_onnx(path)


def test_record_equals_the_truth(opened):
    family, model = opened
    record = model.attend(picture(family))
    truth = true_attention(family)
    made = FAMILIES[family]

    assert len(record.layers) == len(truth)
    for layer, weights in zip(record.layers, truth, strict=True):
        found = layer.scores.weights(slice(None)).numpy()
        assert found.shape == weights.shape
        assert np.abs(found - weights).max() < 1e-5
        entropy = -(weights * np.log(weights)).sum(-1).mean() / np.log(weights.shape[-1])
        assert entropy < 0.95, "uniform attention would prove nothing"
        assert layer.scores.how == "query-key"
        assert layer.verdict.verified, layer.verdict.reason

    rows, columns = made.size[0] // made.patch, made.size[1] // made.patch
    assert record.input_size == made.size
    for layer in record.layers:
        assert layer.key_layout.grid == (rows, columns)
        assert layer.key_layout.patch_px == (made.patch, made.patch)
        assert layer.key_layout.prefix_names == made.prefix
        prefix = len(made.prefix)
        np.testing.assert_array_equal(
            layer.key_layout.patch_tokens, np.arange(prefix, prefix + rows * columns)
        )
        np.testing.assert_allclose(layer.key_layout.positions[prefix], (made.patch / 2, made.patch / 2))
    kinds = [layer.kind for layer in record.layers]
    assert kinds == ["self", "self", "pool"] if made.pools else kinds == ["self", "self"]
    assert [layer.name for layer in record.layers[:2]] == ["blocks.0.attn", "blocks.1.attn"]
    assert record.output_unchanged is True
    assert record.verified
