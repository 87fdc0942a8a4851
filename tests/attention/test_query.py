from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.attention.builders import layer_of, naive_weights, random_scores, record_of
from viewer.attention.layout import TokenLayout
from viewer.attention.query import attention_from, attention_to
from viewer.attention.scores import QueryKeyScores, WeightScores
from viewer.attention.sweep import measure_record

LAYOUT = TokenLayout.regular((6, 8), (16, 16), ["cls", "reg1"])
POOL = TokenLayout.from_positions(np.full((1, 2), np.nan, np.float32), ["pool"])
BIAS = torch.zeros(LAYOUT.tokens)
BIAS[5] = -torch.inf


def many_layers():
    """Queries and keys, the same with a mask, weights alone, and attention pooling."""
    plain = random_scores(0, 3, LAYOUT.tokens)
    masked = QueryKeyScores(plain.query_vectors, plain.key_vectors, plain.scale, BIAS)
    weights = WeightScores(random_scores(1, 4, LAYOUT.tokens).weights(slice(None)))
    pooled = QueryKeyScores(torch.randn(2, 1, 8), torch.randn(2, LAYOUT.tokens, 8), 1.0)
    return (
        layer_of(plain, LAYOUT),
        layer_of(masked, LAYOUT, index=1),
        layer_of(weights, LAYOUT, index=2),
        layer_of(pooled, POOL, LAYOUT, kind="pool", index=3),
    )


@pytest.fixture(scope="module")
def record():
    return record_of(*many_layers())


@pytest.fixture(scope="module")
def measures(record):
    return measure_record(record)


QUERIES = [((0, 0), 2), ((5, 7), 49), ((2, 3), 21), ("cls", 0), ("reg1", 1), (33, 33)]


@pytest.mark.parametrize(("query", "token"), QUERIES)
def test_a_query_attends_as_its_matrix_row_says(record, query, token):
    found = attention_from(record, query)
    assert len(found) == 4
    for layer, weights in zip(record.layers[:3], found[:3], strict=True):
        assert weights.dtype == np.float32
        assert weights.shape == (layer.heads, LAYOUT.tokens)
        np.testing.assert_allclose(np.nansum(weights, axis=1), 1.0, rtol=1e-6)
        np.testing.assert_allclose(weights[1], layer.matrix(1)[token], rtol=1e-5, atol=1e-9)
        np.testing.assert_array_equal(weights, layer.weights(query))
    assert np.isnan(found[1][:, 5]).all()  # masked: out of reach, which is not the same as 0
    assert np.isfinite(np.delete(found[1], 5, axis=1)).all()


def test_attention_pooling_answers_with_its_only_query(record):
    for query in ((2, 3), "cls", 33):
        pooled = attention_from(record, query)[3]
        np.testing.assert_allclose(pooled, naive_weights(record.layers[3].scores)[:, 0], rtol=1e-5)


@pytest.mark.parametrize(("query", "token"), QUERIES)
def test_who_attends_is_the_matrix_column(record, measures, query, token):
    found = attention_to(record, measures, query)
    for layer, column in zip(record.layers, found, strict=True):
        assert column.dtype == np.float32
        assert column.shape == (layer.heads, layer.scores.queries)
        np.testing.assert_allclose(column[0], layer.matrix(0)[:, token], rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("query", [(6, 0), (0, 8), "dist", 50, -1])
def test_unknown_queries_and_keys_are_refused(record, measures, query):
    with pytest.raises(LookupError):
        attention_from(record, query)
    with pytest.raises(LookupError):
        attention_to(record, measures, query)


def test_asking_leaves_torchs_threads_as_they_were():
    layout = TokenLayout.regular((2, 2), (16.0, 16.0), ("cls",))
    record = record_of(layer_of(random_scores(0, 2, 5), layout))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        attention_from(record, (0, 1))
        attention_to(record, measure_record(record), "cls")
        with pytest.raises(LookupError):
            attention_from(record, (9, 9))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
