"""Nine patches with a bright diagonal, small enough to follow by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attention.builders import layer_of, measures_of, record_of
from viewer.attention.distance import uniform_query_distance
from viewer.attention.layout import TokenLayout
from viewer.attention.query import attention_from, attention_to
from viewer.attention.scores import QueryKeyScores
from viewer.attention.sweep import measure_record
from viewer.attention.worked_example import DIAGONAL, explain, scores_of

LAYOUT = TokenLayout.regular((3, 3), (16, 16))
BRIGHT = [0, 4, 8]
DARK = [1, 2, 3, 5, 6, 7]
TOKENS = torch.tensor([[[2.0 if i in BRIGHT else 0.0, 0.1 * i] for i in range(9)]])


@pytest.fixture
def scores():
    return QueryKeyScores(TOKENS, TOKENS, 2**-0.5)


def test_scores_of_query_0(scores):
    logits = scores.logits([0])[0, 0].numpy()
    np.testing.assert_allclose(logits[BRIGHT], 2.828, atol=5e-4)
    np.testing.assert_allclose(logits[DARK], 0.0, atol=1e-7)
    np.testing.assert_allclose(np.exp(logits[0]), 16.92, atol=5e-3)


def test_weights_of_query_0(scores):
    weights = layer_of(scores, LAYOUT).weights((0, 0))[0]
    np.testing.assert_allclose(weights[BRIGHT], 0.298, atol=5e-4)
    np.testing.assert_allclose(weights[DARK], 0.018, atol=5e-4)
    assert weights.sum() == pytest.approx(1.0, abs=1e-6)


def test_denominator_of_query_0(scores):
    measured = measures_of(scores, LAYOUT)
    assert np.exp(measured.log_normalizer[0, 0]) == pytest.approx(56.76, abs=5e-3)


def test_attention_connects_in_one_layer_what_takes_two_convolutions(scores):
    record = record_of(layer_of(scores, LAYOUT))
    weights = attention_from(record, (0, 0))[0][0]
    assert weights[LAYOUT.token((2, 2))] == pytest.approx(0.298, abs=5e-4)
    # Of the nine patches one 3x3 convolution reaches four from the corner: it goes less far than two do.
    once = uniform_query_distance(LAYOUT, unit="patches", hops=1)[0]
    twice = uniform_query_distance(LAYOUT, unit="patches", hops=2)[0]
    assert once == pytest.approx((1 + 1 + 2**0.5) / 4)
    assert twice == uniform_query_distance(LAYOUT, unit="patches")[0] > once
    measured = measures_of(scores, LAYOUT)
    far = weights[[2, 5, 6, 7, 8]].sum() * 2 + weights[[1, 3, 4]].sum()
    assert measured.query_hops("renormalized")[0, 0] == pytest.approx(far, rel=1e-6)


def test_who_attends_to_the_far_corner(scores):
    record = record_of(layer_of(scores, LAYOUT))
    column = attention_to(record, measure_record(record), (2, 2))[0][0]
    np.testing.assert_allclose(column, scores.weights(slice(None))[0, :, 8], rtol=1e-5)
    assert set(np.argsort(column)[-3:]) == set(BRIGHT)


def test_the_softmax_of_a_query_is_taken_apart_from_the_layer_itself():
    layer = layer_of(scores_of(DIAGONAL), LAYOUT)
    found = explain(layer, (0, 0))
    assert found.token == (2.0, 0.0)
    assert found.total == pytest.approx(56.76, abs=5e-3)
    assert [key.number for key in found.keys if key.brightness == 1.0] == BRIGHT
    for key in found.keys:
        bright = key.number in BRIGHT
        assert key.score == pytest.approx(2.828 if bright else 0.0, abs=5e-4)
        assert key.exponential == pytest.approx(16.92 if bright else 1.0, abs=5e-3)
        assert key.share == pytest.approx(0.298 if bright else 0.018, abs=5e-4)
    assert [key.hops for key in found.keys] == [0, 1, 2, 1, 1, 2, 2, 2, 2]
    assert [len(found.reached(hops)) for hops in range(3)] == [1, 4, 9]


def test_a_far_patch_made_dark_loses_what_it_had():
    dark = explain(layer_of(scores_of((*DIAGONAL[:8], 0.0)), LAYOUT), (0, 0))
    total = 2 * np.exp(4 / 2**0.5) + 7
    assert dark.total == pytest.approx(total, rel=1e-6)
    assert dark.keys[8].share == pytest.approx(1 / total, rel=1e-5)
    assert dark.keys[8].share == pytest.approx(dark.keys[1].share, rel=1e-5)
    half = explain(layer_of(scores_of((*DIAGONAL[:8], 0.5)), LAYOUT), (0, 0))
    assert half.keys[8].score == pytest.approx(2 * 1 / 2**0.5, rel=1e-6)


@given(
    st.lists(st.floats(0, 1, width=32), min_size=9, max_size=9),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
)
@settings(max_examples=40, deadline=None)
def test_shares_are_exponentials_over_their_sum(brightness, query):
    found = explain(layer_of(scores_of(brightness), LAYOUT), query)
    assert found.query == 3 * query[0] + query[1]
    assert sum(key.share for key in found.keys) == pytest.approx(1, abs=1e-5)
    for key in found.keys:
        exact = (
            4 * brightness[found.query] * brightness[key.number] + 0.01 * found.query * key.number
        ) / 2**0.5
        assert key.score == pytest.approx(exact, abs=1e-5)
        assert key.share == pytest.approx(key.exponential / found.total, abs=1e-6)
