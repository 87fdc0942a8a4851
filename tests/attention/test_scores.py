from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.attention.builders import naive_weights, random_scores
from viewer.attention.scores import QueryKeyScores, Scratch, WeightScores, storage_bytes

HEADS, QUERIES, KEYS, DIMENSION = 4, 11, 13, 8


def tensors(key_heads: int = HEADS, spread: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    queries = torch.randn(HEADS, QUERIES, DIMENSION, generator=generator) * spread
    return queries, torch.randn(key_heads, KEYS, DIMENSION, generator=generator) * spread


def swept(scores, rows: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, entropy and normalizer of all rows, by chunks."""
    scratch = Scratch(scores.heads, rows, scores.keys, scores.device)
    chunks = []
    for start in range(0, scores.queries, rows):
        found = scores.softmax_rows(slice(start, min(start + rows, scores.queries)), scratch)
        chunks.append([None if part is None else part.clone() for part in found])
    return tuple(torch.cat(part, dim=1).numpy() for part in zip(*chunks, strict=True) if part[0] is not None)


@pytest.mark.parametrize("spread", [0.01, 1.0, 3.0])
def test_weights_equal_float64_softmax(spread):
    queries, keys = tensors(spread=spread)
    scores = QueryKeyScores(queries, keys, 0.3)
    expected = naive_weights(scores)
    np.testing.assert_allclose(scores.weights(slice(None)), expected, rtol=2e-5, atol=1e-12)
    np.testing.assert_allclose(scores.weights([7, 2]), expected[:, [7, 2]], rtol=2e-5, atol=1e-12)
    weights, entropy, normalizer = swept(scores)
    np.testing.assert_allclose(weights, expected, rtol=2e-5, atol=1e-12)
    np.testing.assert_allclose(entropy, -(expected * np.log(expected)).sum(-1), rtol=2e-5, atol=2e-7)
    logits = 0.3 * queries.double() @ keys.double().mT
    np.testing.assert_allclose(normalizer, torch.logsumexp(logits, dim=-1), rtol=1e-6, atol=1e-6)


def test_entropy_of_a_sharp_row_keeps_its_digits():
    # One key far above twelve others, all on top of logits around 1000, where float32 has steps of 6e-5:
    # H = ln(1 + 12 e^-9) + 9 * 12 e^-9 / (1 + 12 e^-9).
    queries = torch.ones(1, 1, 1)
    keys = torch.tensor([1009.0] + [1000.0] * 12).view(1, 13, 1)
    _, entropy, normalizer = swept(QueryKeyScores(queries, keys, 1.0))
    rest = 12 * np.exp(-9.0)
    assert entropy[0, 0] == pytest.approx(np.log1p(rest) + 9 * rest / (1 + rest), abs=5e-7)
    assert normalizer[0, 0] == pytest.approx(1009 + np.log1p(rest), rel=1e-6)


def test_logits_beyond_float32_exponentials_stay_finite():
    queries, keys = tensors(spread=60.0)
    scores = QueryKeyScores(queries, keys, 1.0)
    assert scores.logits(slice(None)).abs().max() > 1000
    weights, entropy, normalizer = swept(scores)
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-6)
    assert np.isfinite(entropy).all()
    assert np.isfinite(normalizer).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_tensors_are_taken_in_float32(dtype):
    queries, keys = (tensor.to(dtype) for tensor in tensors(spread=30.0))
    scores = QueryKeyScores(queries, keys, 1.0)
    exact = QueryKeyScores(queries.float(), keys.float(), 1.0)
    np.testing.assert_array_equal(scores.weights(slice(None)), exact.weights(slice(None)))


@pytest.mark.parametrize(
    "shape",
    [
        (KEYS,),
        (1, KEYS),
        (QUERIES, KEYS),
        (1, 1, KEYS),
        (1, QUERIES, KEYS),
        (HEADS, 1, KEYS),
        (HEADS, QUERIES, KEYS),
    ],
)
def test_bias_of_any_shape_that_broadcasts(shape):
    queries, keys = tensors()
    bias = torch.randn(shape, generator=torch.Generator().manual_seed(5))
    scores = QueryKeyScores(queries, keys, 0.3, bias)
    assert scores.bias.untyped_storage().nbytes() == bias.untyped_storage().nbytes()
    expected = naive_weights(scores)
    logits = 0.3 * queries.double() @ keys.double().mT + bias.double()
    np.testing.assert_allclose(expected, torch.softmax(logits, dim=-1))
    weights, entropy, normalizer = swept(scores)
    np.testing.assert_allclose(weights, expected, rtol=2e-5)
    np.testing.assert_allclose(scores.weights([4]), expected[:, [4]], rtol=2e-5)
    np.testing.assert_allclose(entropy, -(expected * np.log(expected)).sum(-1), rtol=2e-5, atol=2e-7)
    column = scores.column(6, torch.from_numpy(normalizer))
    np.testing.assert_allclose(column, expected[:, :, 6], rtol=2e-5)


def test_forbidden_keys_get_nothing():
    queries, keys = tensors()
    bias = torch.zeros(QUERIES, KEYS)
    bias[:, 4] = -torch.inf
    bias[3, :-1] = -torch.inf
    scores = QueryKeyScores(queries, keys, 0.3, bias)
    weights, entropy, normalizer = swept(scores)
    np.testing.assert_allclose(weights, naive_weights(scores), rtol=2e-5)
    np.testing.assert_array_equal(weights[:, :, 4], 0.0)
    np.testing.assert_array_equal(weights[:, 3, -1], 1.0)
    np.testing.assert_array_equal(entropy[:, 3], 0.0)
    np.testing.assert_array_equal(scores.column(4, torch.from_numpy(normalizer)), 0.0)


def test_a_query_that_may_look_nowhere_has_zeros():
    queries, keys = tensors()
    bias = torch.zeros(QUERIES, KEYS)
    bias[2] = -torch.inf
    scores = QueryKeyScores(queries, keys, 0.3, bias)
    weights, entropy, normalizer = swept(scores)
    for found in (weights, scores.weights(slice(None)).numpy()):
        np.testing.assert_array_equal(found[:, 2], 0.0)
        np.testing.assert_allclose(np.delete(found, 2, axis=1).sum(axis=-1), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(entropy[:, 2], 0.0)
    np.testing.assert_array_equal(normalizer[:, 2], -np.inf)
    column = scores.column(5, torch.from_numpy(normalizer))
    np.testing.assert_array_equal(column[:, 2], 0.0)
    np.testing.assert_allclose(column, weights[:, :, 5], rtol=2e-5)


def test_numbers_that_are_not_stay_visible():
    queries, keys = tensors()
    queries[0, 1, 0] = torch.nan
    scores = QueryKeyScores(queries, keys, 0.3, torch.zeros(KEYS))
    weights, entropy, _ = swept(scores)
    assert np.isnan(weights[0, 1]).all()
    assert np.isnan(entropy[0, 1])
    assert scores.weights([1])[0].isnan().all()


def test_key_heads_shared_by_groups_of_query_heads():
    queries, keys = tensors(key_heads=2)
    grouped = QueryKeyScores(queries, keys, 0.3)
    spread_out = QueryKeyScores(queries, keys.repeat_interleave(2, dim=0), 0.3)
    np.testing.assert_allclose(grouped.weights(slice(None)), spread_out.weights(slice(None)), rtol=1e-6)
    weights, _, normalizer = swept(grouped)
    np.testing.assert_allclose(weights, naive_weights(grouped), rtol=2e-5)
    column = grouped.column(9, torch.from_numpy(normalizer))
    np.testing.assert_allclose(column, weights[:, :, 9], rtol=2e-5)


@pytest.mark.parametrize("key", [0, 5, KEYS - 1])
def test_column_equals_the_matrix_column(key):
    scores = random_scores(1, HEADS, KEYS, spread=4.0)
    weights, _, normalizer = swept(scores)
    column = scores.column(key, torch.from_numpy(normalizer))
    np.testing.assert_allclose(column, weights[:, :, key], rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize(
    "joint",
    [
        pytest.param(torch.randn(3, HEADS, KEYS, DIMENSION), id="one after another"),
        pytest.param(torch.randn(KEYS, 3, HEADS, DIMENSION).permute(1, 2, 0, 3), id="interleaved"),
    ],
)
def test_a_slice_of_a_joint_tensor_does_not_keep_the_rest_alive(joint):
    queries, keys, _ = joint
    scores = QueryKeyScores(queries, keys, 1.0)
    assert storage_bytes(scores.tensors) == 2 * 4 * HEADS * KEYS * DIMENSION
    np.testing.assert_array_equal(scores.key_vectors, keys)


def test_fitting_tensors_are_not_copied():
    queries, keys = tensors()
    scores = QueryKeyScores(queries, keys, 1.0)
    assert scores.query_vectors.data_ptr() == queries.data_ptr()
    assert scores.key_vectors.data_ptr() == keys.data_ptr()


def test_parameters_do_not_drag_a_graph_along():
    queries, keys = tensors()
    scores = QueryKeyScores(queries.requires_grad_(), keys.requires_grad_(), 1.0)
    assert not scores.weights([0]).requires_grad


def test_weights_are_given_back_as_they_are():
    given = torch.softmax(torch.randn(HEADS, QUERIES, KEYS), dim=-1)
    scores = WeightScores(given)
    np.testing.assert_array_equal(scores.weights([3, 1]), given[:, [3, 1]])
    np.testing.assert_array_equal(scores.column(7, None), given[:, :, 7])
    weights, entropy = swept(scores)
    np.testing.assert_array_equal(weights, given)
    exact = given.double()
    np.testing.assert_allclose(entropy, -(exact * exact.log()).sum(-1), rtol=1e-5)


@pytest.mark.parametrize(
    ("queries", "keys", "bias", "message"),
    [
        ((4, 11, 8), (4, 13, 9), None, "do not match"),
        ((11, 8), (13, 8), None, "do not match"),
        ((4, 11, 8), (3, 13, 8), None, "3 key heads can't serve 4 query heads"),
        ((4, 11, 8), (4, 13, 8), torch.zeros(11), "does not fit"),
        ((4, 11, 8), (4, 13, 8), torch.ones(13, dtype=torch.bool), "can't be torch.bool"),
    ],
)
def test_tensors_that_do_not_belong_together_are_refused(queries, keys, bias, message):
    with pytest.raises(ValueError, match=message):
        QueryKeyScores(torch.zeros(queries), torch.zeros(keys), 1.0, bias)


def test_weights_of_another_rank_are_refused():
    with pytest.raises(ValueError, match="three dimensions, not 2"):
        WeightScores(torch.zeros(3, 3))
