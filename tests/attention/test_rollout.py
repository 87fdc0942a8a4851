"""Rollout against its definition and the published values of uniform attention."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.attention.builders import layer_of, naive_weights, random_scores, record_of
from viewer.attention.grouped import GroupedScores
from viewer.attention.layout import TokenLayout
from viewer.attention.rollout import rollout, why_no_rollout
from viewer.attention.scores import QueryKeyScores, WeightScores

PLAIN = TokenLayout.regular((3, 4), (16.0, 16.0), ("cls",))


def plain(layers: int = 4, heads: int = 3):
    scores = [random_scores(seed, heads, PLAIN.tokens, spread=1.5) for seed in range(layers)]
    return record_of(*(layer_of(one, PLAIN, index=i) for i, one in enumerate(scores)))


def naive(record, fusion: str, start: int) -> np.ndarray:
    """Straight from the definition, in float64."""
    found = np.eye(PLAIN.tokens)
    for layer in record.layers[start:]:
        mixed = getattr(naive_weights(layer.scores), fusion)(axis=0) + np.eye(PLAIN.tokens)
        found = mixed / mixed.sum(axis=1, keepdims=True) @ found
    return found


def test_uniform_attention_of_197_tokens_over_12_layers():
    layout = TokenLayout.regular((14, 14), (16.0, 16.0), ("cls",))
    uniform = QueryKeyScores(torch.zeros(2, 197, 4), torch.zeros(2, 197, 4), 1.0)
    found = rollout(record_of(*(layer_of(uniform, layout, index=i) for i in range(12)))).matrix
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.diag(found), 0.0053190, atol=5e-8)
    np.testing.assert_allclose(found[~np.eye(197, dtype=bool)], 0.0050749, atol=5e-8)


@pytest.mark.parametrize("fusion", ["mean", "max", "min"])
@pytest.mark.parametrize("start", [0, 2])
def test_it_is_the_product_of_the_layers_in_forward_order(fusion, start):
    record = plain()
    found = rollout(record, fusion, start)
    np.testing.assert_allclose(found.matrix, naive(record, fusion, start), atol=1e-6)
    np.testing.assert_allclose(found.matrix.sum(axis=1), 1, atol=1e-5)
    assert (found.start, found.fusion, found.layout) == (start, fusion, PLAIN)


def test_many_tokens_come_in_chunks_and_tell_how_far_they_are():
    layout = TokenLayout.regular((30, 40), (8.0, 8.0))
    record = record_of(*(layer_of(random_scores(i, 4, 1200), layout, index=i) for i in range(2)))
    told: list[float] = []
    found = rollout(record, step=lambda doing, share: told.append(share)).matrix
    assert len(told) > 4
    assert told == sorted(told)
    assert told[-1] < 1
    weights = [naive_weights(layer.scores).mean(axis=0) / 2 + np.eye(1200) / 2 for layer in record.layers]
    np.testing.assert_allclose(found, weights[1] @ weights[0], atol=1e-6)


def test_a_query_that_may_look_at_nothing_keeps_itself():
    bias = torch.zeros(13, 13)
    bias[2] = -torch.inf
    scores = QueryKeyScores(torch.zeros(1, 13, 4), torch.zeros(1, 13, 4), 1.0, bias)
    found = rollout(record_of(layer_of(scores, PLAIN))).matrix
    np.testing.assert_array_equal(found[2], np.eye(13)[2])


def test_it_stops_when_progress_raises():
    def stop(doing: str, share: float | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rollout(plain(), step=stop)


def test_what_has_other_tokens_somewhere_is_refused_with_the_layer():
    small = TokenLayout.regular((1, 4), (48.0, 16.0), ("cls",))
    moved = TokenLayout.from_positions(PLAIN.positions[::-1].copy(), ("cls",))
    windows = TokenLayout.regular((4, 4), (16.0, 16.0))
    same = layer_of(random_scores(0, 2, 13), PLAIN)
    nowhere = TokenLayout.from_positions(np.full((1, 2), np.nan, np.float32))
    cases = {
        "in layer 1 13 queries attend to 5 keys": layer_of(
            WeightScores(torch.rand(1, 13, 5)), PLAIN, small, index=1
        ),
        "layer 1 has other tokens than layer 0": layer_of(random_scores(1, 2, 13), moved, index=1),
        "in layer 1 1 query attends to 13 keys": layer_of(
            WeightScores(torch.rand(1, 1, 13)), nowhere, PLAIN, index=1
        ),
        "in layer 1 a learned query gathers all patches": layer_of(
            WeightScores(torch.rand(1, 1, 13)), nowhere, PLAIN, kind="pool", index=1
        ),
        "layer 1 attends within windows": layer_of(
            GroupedScores(random_scores(0, 4, 4), 4), windows, index=1
        ),
    }
    for reason, layer in cases.items():
        record = record_of(same, layer)
        assert why_no_rollout(record.layers) == (
            f"a rollout needs the same tokens in every layer, but {reason}"
        )
        with pytest.raises(ValueError, match=reason):
            rollout(record)
    assert why_no_rollout((same, cases["layer 1 has other tokens than layer 0"]), 1) == ""


def test_a_start_beyond_the_last_layer_is_refused():
    assert why_no_rollout(plain(2).layers, 2) == (
        "there is no layer 2 to begin with; the model has 2, from 0 on"
    )
