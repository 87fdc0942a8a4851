from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.attention.builders import layer_of, naive_weights, random_scores, record_of
from viewer.attention.layout import TokenLayout
from viewer.attention.scores import QueryKeyScores, WeightScores

LAYOUT = TokenLayout.regular((15, 20), (16, 16), ["cls"])


@pytest.fixture(scope="module")
def layer():
    return layer_of(random_scores(0, 3, LAYOUT.tokens), LAYOUT)


def test_matrix_is_the_whole_softmax(layer):
    matrix = layer.matrix(2)
    assert matrix.shape == (301, 301)
    assert matrix.dtype == np.float32
    np.testing.assert_allclose(matrix, naive_weights(layer.scores)[2], rtol=1e-5)
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=1e-6)


def test_weights_by_patch_name_and_index(layer):
    expected = naive_weights(layer.scores)
    for query, token in (((14, 19), 300), ("cls", 0), (77, 77)):
        weights = layer.weights(query)
        assert weights.shape == (3, 301)
        assert weights.dtype == np.float32
        np.testing.assert_allclose(weights, expected[:, token], rtol=1e-5)


def test_given_weights_can_be_read_but_not_changed_through_a_row():
    given = torch.full((2, 5, 5), 0.2)
    layer = layer_of(WeightScores(given), TokenLayout.regular((2, 2), (16, 16), ["cls"]))
    layer.weights("cls")[:] = 7
    layer.matrix(0)[:] = 7
    np.testing.assert_array_equal(given, np.float32(0.2))


@pytest.mark.parametrize("head", [-1, 3])
def test_an_unknown_head_is_refused(layer, head):
    with pytest.raises(LookupError, match=f"no head {head}; layer 0 has 3"):
        layer.matrix(head)


def test_an_unknown_query_is_refused(layer):
    with pytest.raises(LookupError, match="no patch"):
        layer.weights((15, 0))


@pytest.mark.parametrize(("side", "heads", "dimension"), [(14, 6, 64), (37, 6, 64), (37, 12, 64)])
def test_memory_is_queries_and_keys_and_nothing_else(side, heads, dimension):
    layout = TokenLayout.regular((side, side), (14, 14), ["cls"])
    joint = torch.zeros(1, layout.tokens, 3, heads, dimension)
    queries, keys, _ = joint.permute(2, 0, 3, 1, 4)[:, 0]
    layer = layer_of(QueryKeyScores(queries, keys, 0.125), layout)
    assert layer.nbytes == 2 * 4 * heads * layout.tokens * dimension
    if side == 37:
        assert layer.nbytes <= 0.1 * 4 * heads * layout.tokens**2


def test_memory_that_layers_share_counts_once():
    scores = random_scores(0, 2, 17)
    mask = torch.zeros(17, 17)
    layout = TokenLayout.regular((4, 4), (16, 16), ["cls"])
    layers = [
        layer_of(QueryKeyScores(scores.query_vectors + i, scores.key_vectors + i, 1.0, mask), layout, index=i)
        for i in range(3)
    ]
    alone = 2 * 4 * 2 * 17 * 8
    assert layers[0].nbytes == alone + 4 * 17 * 17
    assert record_of(*layers).nbytes == 3 * alone + 4 * 17 * 17
