"""Windowed models, pooled keys and mixed heads: PyTorch and its own ONNX exports give the same attention."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.onnx_wild import GRIDS, NEW, NEWEST, OLD, export, grids, in_torch, picture
from viewer.attention.record import AttentionRecord
from viewer.attention.sweep import measure_record
from viewer.backends.onnx_model import open_onnx

# The current exporter takes seconds a model; these it can export and each shows something else.
EXPORTS = [(name, "old") for name in GRIDS] + [("swin", "new"), ("swin", "newest"), ("pvt-v2", "newest")]
OPTIONS = {"old": OLD, "new": NEW, "newest": NEWEST}


@pytest.fixture(scope="module", params=EXPORTS, ids="-".join)
def pair(request, tmp_path_factory) -> tuple[str, AttentionRecord, AttentionRecord]:
    name, exporter = request.param
    size = GRIDS[name][2]
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    export(grids(name), (picture(size),), path, **OPTIONS[exporter])
    return name, open_onnx(path).attend(picture(size)), in_torch(name).attend(picture(size))


def test_layers_are_the_same(pair):
    _, one, other = pair
    assert one.verified
    assert len(one.layers) == len(other.layers)
    for layer, twin in zip(one.layers, other.layers, strict=True):
        assert (layer.name, layer.kind, layer.heads) == (twin.name, twin.kind, twin.heads)
        assert (layer.scores.groups, layer.scores.how) == (twin.scores.groups, twin.scores.how)
        for mine, its in ((layer.query_layout, twin.query_layout), (layer.key_layout, twin.key_layout)):
            np.testing.assert_array_equal(mine.positions, its.positions)
            assert (mine.grid, mine.patch_px, mine.origin) == (its.grid, its.patch_px, its.origin)
            assert mine.prefix_names == its.prefix_names


def test_weights_are_the_same_and_out_of_reach_alike(pair):
    _, one, other = pair
    for layer, twin in zip(one.layers, other.layers, strict=True):
        for head in range(layer.heads):
            mine, its = layer.matrix(head), twin.matrix(head)
            np.testing.assert_array_equal(np.isnan(mine), np.isnan(its))
            np.testing.assert_allclose(mine, its, atol=1e-4)


def test_measures_are_the_same(pair):
    _, one, other = pair
    for mine, its in zip(measure_record(one).layers, measure_record(other).layers, strict=True):
        np.testing.assert_allclose(mine.mean_entropy(), its.mean_entropy(), atol=1e-3)


def test_what_each_shows(pair):
    name, one, _ = pair
    kinds = {layer.kind for layer in one.layers}
    groups = [layer.scores.groups for layer in one.layers]
    keys = [layer.key_layout.grid for layer in one.layers]
    if name == "swin":
        assert groups == [16, 16, 4, 4]
        assert keys == [(16, 16)] * 2 + [(8, 8)] * 2
        reach = one.layers[1].reach((0, 0))
        assert reach.sum() == 4  # the corner that the roll brought to the other end stands apart
    elif name == "pvt-v2":
        assert keys[0] == (2, 3)
        assert one.layers[0].query_layout.grid == (16, 24)
        assert not one.one_grid
    elif name == "davit":
        assert "channel" in kinds
    elif name == "cait":
        assert one.layers[0].note == "weights of the softmax, before the model mixes or scales them"
        assert [layer.kind for layer in one.layers] == ["self", "self", "pool", "pool"]
    elif name in ("hiera", "twins"):
        assert max(groups) > 1
