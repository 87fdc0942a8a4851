"""What a Python session shows of an object: one line of facts, no arrays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.backends import onnx_zoo
from tests.export.scenes import make_document, make_record
from viewer import open_model
from viewer.attention.record import Provenance
from viewer.backends.timm_model import wrap


@pytest.fixture(scope="module")
def record():
    return make_record(4, 3, (2, 3), doubted=(1,))


def test_records_and_their_parts(record):
    assert repr(record) == (
        "<AttentionRecord: cat.jpg in vit_small_patch16_224, 4 layers, input 32 x 48 px, 2 rows x 3 columns, "
        "1 prefix token, not verified>"
    )
    assert repr(replace(record, layers=record.layers[2:])).endswith("1 prefix token, verified>")
    assert repr(record.layers[1]) == (
        "<AttentionLayer 1: blocks.1.attn, self, 3 heads, 7 queries x 7 keys, 2 rows x 3 columns, "
        "not verified>"
    )
    assert repr(record.layout) == (
        "<TokenLayout: 7 tokens, 2 rows x 3 columns of patches, 16 x 16 px each; prefix tokens: cls>"
    )


def test_measures_and_pictures(record):
    document = make_document(record)
    assert repr(document.measures) == "<RecordMeasures: 4 layers, 12 heads>"
    assert repr(document.measures.layers[0]) == "<LayerMeasures: 3 heads, 6 queries, 7 keys>"
    assert repr(document.image) == "<DecodedImage: cat.jpg, 32 x 48 px>"


def test_models_of_both_backends(tmp_path):
    model = onnx_zoo.model("vit")
    given = Provenance("vit_tiny", weights="own.safetensors")
    assert (
        repr(wrap("vit_tiny", model, "cpu", given))
        == "<TorchModel: vit_tiny, torch on cpu, input 64 x 96 px>"
    )
    path = onnx_zoo.export("vit", "torchscript-17", tmp_path / "net.onnx")
    assert repr(open_model(path, device="cpu")) == f"<OnnxModel: {path}, onnx on cpu, input 64 x 96 px>"
