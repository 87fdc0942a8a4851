from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.attention.builders import layer_of, random_scores, record_of
from tests.state.records import mixed_record
from tests.state.records import record_of as record_of_weights
from viewer.attention import likeness
from viewer.attention.layout import TokenLayout
from viewer.attention.likeness import measure_likeness
from viewer.attention.scores import QueryKeyScores
from viewer.attention.sweep import measure_record
from viewer.errors import Cancelled

LAYOUT = TokenLayout.regular((5, 6), (14.0, 14.0), ("cls",))


def found_of(record, step=None):
    return measure_likeness(record, measure_record(record), step)


def whole_maps(record):
    """float64 (layers, heads, queries, keys); keys out of reach get nothing."""
    maps = [[layer.matrix(head) for head in range(layer.heads)] for layer in record.layers]
    return np.nan_to_num(np.array(maps, np.float64))


def cosines(maps, centred):
    """Mean over keys of the cosine between columns, straight from the definition, of (n, queries, keys)."""
    if centred:
        maps = maps - maps.mean(axis=1, keepdims=True)
    found = np.empty((len(maps), len(maps)))
    for i, first in enumerate(maps):
        for j, second in enumerate(maps):
            lengths = np.linalg.norm(first, axis=0) * np.linalg.norm(second, axis=0)
            inner = (first * second).sum(axis=0)
            found[i, j] = np.mean(inner[lengths > 0] / lengths[lengths > 0])
    return found


def random_layers(layers=4, heads=3):
    scores = [random_scores(i, heads, LAYOUT.tokens, spread=1.5) for i in range(layers)]
    return record_of(*(layer_of(found, LAYOUT, index=i) for i, found in enumerate(scores)))


@pytest.mark.parametrize("chunk_bytes", [1, 20_000, 24 << 20])
@pytest.mark.parametrize("centred", [False, True])
def test_cosines_are_those_of_the_definition_in_float64(monkeypatch, chunk_bytes, centred):
    monkeypatch.setattr(likeness, "_CHUNK_BYTES", chunk_bytes)
    record = random_layers()
    maps, found = whole_maps(record), found_of(record)
    kind = found.centred if centred else found.plain
    for head in range(3):
        np.testing.assert_allclose(kind.heads[head], cosines(maps[:, head], centred), atol=1e-6)
    np.testing.assert_allclose(kind.fused, cosines(maps.mean(axis=1), centred), atol=1e-6)
    for layer, within in enumerate(kind.within):
        np.testing.assert_allclose(within, cosines(maps[layer], centred), atol=1e-6)


def test_masked_and_shared_keys_are_compared_as_they_are():
    generator = torch.Generator().manual_seed(3)
    bias = torch.zeros(31, 31)
    bias[:, 4] = -torch.inf
    bias[7:, 20:] = -100.0
    layers = []
    for index in range(3):
        queries, keys = (torch.randn(n, 31, 8, generator=generator) for n in (4, 2))
        layers.append(layer_of(QueryKeyScores(queries, keys, 0.5, bias), LAYOUT, index=index))
    record = record_of(*layers)
    maps, found = whole_maps(record), found_of(record)
    assert np.isfinite(found.plain.heads).all()
    for head in range(4):
        np.testing.assert_allclose(found.plain.heads[head], cosines(maps[:, head], False), atol=1e-6)
        np.testing.assert_allclose(found.centred.heads[head], cosines(maps[:, head], True), atol=1e-5)


def test_layers_are_like_themselves_and_each_other_alike():
    found = found_of(random_layers())
    for kind in (found.plain, found.centred):
        for matrix in (*kind.heads, kind.fused, *kind.within):
            np.testing.assert_array_equal(np.diag(matrix), 1)
            np.testing.assert_array_equal(matrix, matrix.T)
            assert (np.abs(matrix) <= 1).all()


def test_the_order_of_queries_and_of_keys_does_not_matter():
    record = random_layers()
    order = np.random.default_rng(0).permutation(LAYOUT.tokens).tolist()
    for side in ("query_vectors", "key_vectors"):
        turned = []
        for layer in record.layers:
            parts = {name: getattr(layer.scores, name) for name in ("query_vectors", "key_vectors")}
            parts[side] = parts[side][:, order]
            turned.append(replace(layer, scores=QueryKeyScores(*parts.values(), layer.scores.scale)))
        other, found = found_of(replace(record, layers=tuple(turned))), found_of(record)
        np.testing.assert_allclose(other.plain.heads, found.plain.heads, atol=1e-6)
        np.testing.assert_allclose(other.centred.fused, found.centred.fused, atol=1e-6)


def test_a_layer_twice_is_wholly_like_itself_and_weights_do_as_well_as_queries_and_keys():
    first, second = random_layers(2).layers
    record = record_of(first, second, replace(first, index=2))
    found = found_of(record)
    assert found.centred.heads[:, 0, 2] == pytest.approx(1, abs=1e-6)
    given = record_of_weights([layer.scores.weights(slice(None)) for layer in record.layers], (5, 6))
    np.testing.assert_allclose(found_of(given).centred.heads, found.centred.heads, atol=1e-5)
    np.testing.assert_allclose(found_of(given).plain.fused, found.plain.fused, atol=1e-6)


def test_uniform_maps_are_alike_and_have_nothing_left_when_centred():
    uniform = torch.full((2, 31, 31), 1 / 31)
    found = found_of(record_of_weights([uniform, uniform], (5, 6)))
    np.testing.assert_allclose(found.plain.heads, 1)
    assert np.isnan(found.centred.heads).all()
    assert np.isnan(found.centred.within[0]).all()
    # Through queries and keys, float32 leaves noise in place of nothing.
    scores = QueryKeyScores(torch.full((2, 31, 8), 0.7), torch.full((2, 31, 8), 0.3), 1.0)
    found = found_of(record_of(*(layer_of(scores, LAYOUT, index=i) for i in range(2))))
    assert np.isnan(found.centred.fused).all()


def test_all_positive_maps_have_a_high_cosine_by_themselves():
    generator = torch.Generator().manual_seed(0)
    weights = [torch.softmax(0.5 * torch.randn(1, 400, 400, generator=generator), -1) for _ in range(2)]
    found = found_of(record_of_weights(weights, (20, 20), ()))
    assert found.plain.fused[0, 1] > 0.7
    assert abs(found.centred.fused[0, 1]) < 0.01


def test_only_layers_of_the_same_tokens_are_compared():
    record = mixed_record()
    twice = (*record.layers, replace(record.layers[0], index=6))
    found = found_of(replace(record, layers=twice))
    assert found.alike.tolist() == [0, 1, 2, 3, -1, 5, 0]
    known = np.isfinite(found.plain.fused)
    expected = np.diag([True, True, True, True, False, True, True])
    expected[0, 6] = expected[6, 0] = True
    np.testing.assert_array_equal(known, expected)
    # The third head is there in layers 3 and 5 alone.
    assert np.isfinite(found.plain.heads[2]).sum() == 2
    assert np.isnan(found.plain.within[4]).all()
    # Of windows, each query counts in its own group only.
    maps = np.array([twice[0].matrix(head) for head in range(2)], np.float64)
    inside = np.isfinite(maps[0])
    columns = np.stack([maps[head].T[inside.T].reshape(64, 16).T for head in range(2)])
    np.testing.assert_allclose(found.centred.within[0], cosines(columns, True), atol=1e-6)


def test_it_can_be_watched_and_stopped(monkeypatch):
    monkeypatch.setattr(likeness, "_CHUNK_BYTES", 10_000)
    record = random_layers()
    told = []
    found_of(record, lambda doing, share: told.append((doing, share)))
    assert len(told) > 3 and told[0] == ("Comparing layers and heads", 0.0)
    assert [share for _, share in told] == sorted(share for _, share in told)

    def stop(doing, share):
        raise Cancelled

    with pytest.raises(Cancelled):
        found_of(record, stop)
