"""What must hold of any attention on any grid."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attention.builders import layer_of, measures_of, random_scores, record_of
from viewer.attention.distance import uniform_distance, uniform_query_distance
from viewer.attention.layout import TokenLayout
from viewer.attention.measures import MEASURES
from viewer.attention.query import attention_to
from viewer.attention.scores import QueryKeyScores, WeightScores
from viewer.attention.sweep import measure_record

layouts = st.builds(
    TokenLayout.regular,
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.sampled_from([4, 8, 14, 16]), st.sampled_from([4, 8, 14, 16])),
    st.sampled_from([(), ("cls",), ("cls", "dist"), ("cls", "reg1", "reg2")]),
)
seeds = st.integers(0, 2**16)
spreads = st.sampled_from([0.0, 0.3, 1.0, 4.0])
few = settings(max_examples=60)
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@few
@given(layouts, seeds, spreads)
def test_joint_permutation_of_tokens_changes_nothing(layout, seed, spread):
    scores = random_scores(seed, 2, layout.tokens, spread=spread)
    order = np.random.default_rng(seed).permutation(layout.tokens)
    moved = QueryKeyScores(scores.query_vectors[:, order], scores.key_vectors[:, order], scores.scale)
    before = measures_of(scores, layout)
    after = measures_of(moved, TokenLayout.from_positions(layout.positions[order], layout.prefix_names))
    for protocol in ("renormalized", "original"):
        np.testing.assert_allclose(after.query_distance(protocol), before.query_distance(protocol), **CLOSE)
    np.testing.assert_allclose(after.entropy, before.entropy, **CLOSE)
    np.testing.assert_allclose(after.prefix_mass, before.prefix_mass, **CLOSE)
    for measure in MEASURES:
        found = measure.of_heads(after, "renormalized")
        # A weight at a sink's limit may fall to either side of it by rounding.
        if measure.name != "sink_mass":
            expected = measure.of_heads(before, "renormalized")
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=measure.name)


@few
@given(layouts, seeds, spreads)
def test_transposing_the_picture_changes_nothing(layout, seed, spread):
    scores = random_scores(seed, 2, layout.tokens, spread=spread)
    transposed = TokenLayout.from_positions(layout.positions[:, ::-1], layout.prefix_names)
    before, after = measures_of(scores, layout), measures_of(scores, transposed)
    assert transposed.grid == layout.grid[::-1]
    for unit in ("px", "patches"):
        np.testing.assert_allclose(
            after.distance("renormalized", unit), before.distance("renormalized", unit), **CLOSE
        )
    np.testing.assert_allclose(uniform_distance(transposed), uniform_distance(layout), rtol=1e-12)
    for measure in MEASURES:
        expected = measure.of_heads(before, "renormalized")
        found = measure.of_heads(after, "renormalized")
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=measure.name)


@few
@given(layouts, seeds, st.sampled_from([2, 3, 4]))
def test_distance_grows_with_the_patch(layout, seed, factor):
    scores = random_scores(seed, 2, layout.tokens)
    larger = TokenLayout.regular(
        layout.grid, tuple(factor * side for side in layout.patch_px), layout.prefix_names
    )
    before, after = measures_of(scores, layout), measures_of(scores, larger)
    np.testing.assert_allclose(after.distance("original"), factor * before.distance("original"), **CLOSE)
    for measure in MEASURES:
        if measure.unit != "px":
            expected = measure.of_heads(before, "original")
            found = measure.of_heads(after, "original")
            np.testing.assert_allclose(found, expected, **CLOSE, err_msg=measure.name)


@few
@given(layouts, seeds, spreads)
def test_protocols_differ_by_the_prefix_mass(layout, seed, spread):
    scores = random_scores(seed, 2, layout.tokens, spread=spread)
    measured = measures_of(scores, layout)
    renormalized, original = (measured.query_distance(name) for name in ("renormalized", "original"))
    assert (renormalized >= original * (1 - 1e-6)).all()
    np.testing.assert_allclose(original, renormalized * measured.patch_mass, **CLOSE)
    np.testing.assert_allclose(measured.patch_mass + measured.prefix_mass, 1.0, rtol=3e-6)
    if not len(layout.prefix_tokens):
        np.testing.assert_array_equal(measured.prefix_mass, 0.0)


@few
@given(layouts, seeds, spreads)
def test_bounds(layout, seed, spread):
    measured = measures_of(random_scores(seed, 2, layout.tokens, spread=spread), layout)
    farthest = np.hypot(*((np.array(layout.grid) - 1) * layout.patch_px))
    assert (measured.query_distance("renormalized") <= farthest * (1 + 1e-5)).all()
    assert (measured.query_distance("renormalized") >= 0).all()
    assert (measured.entropy >= -3e-7).all()
    assert (measured.entropy <= np.log(layout.tokens) + 1e-5).all()


@few
@given(layouts)
def test_zero_queries_attend_uniformly(layout):
    scores = random_scores(0, 1, layout.tokens, spread=0.0)
    measured = measures_of(scores, layout)
    for protocol in ("renormalized", "original"):
        for unit in ("px", "patches"):
            np.testing.assert_allclose(
                measured.query_distance(protocol, unit)[0],
                uniform_query_distance(layout, protocol, unit),
                rtol=1e-5,
                atol=1e-6,
            )


@few
@given(layouts, seeds, spreads, st.data())
def test_a_column_is_the_matrix_column(layout, seed, spread, data):
    layer = layer_of(random_scores(seed, 2, layout.tokens, spread=spread), layout)
    record = record_of(layer)
    key = data.draw(st.integers(0, layout.tokens - 1))
    column = attention_to(record, measure_record(record), key)[0]
    np.testing.assert_allclose(column[1], layer.matrix(1)[:, key], rtol=2e-4, atol=1e-10)


@few
@given(layouts, st.integers(1, 9), st.booleans(), st.sampled_from(["euclidean", "chebyshev"]))
def test_the_reference_is_the_plain_double_sum(layout, hops, include_self, metric):
    places = layout.positions[layout.patch_tokens].astype(float)
    y, x = np.moveaxis(abs(places[:, None] - places), -1, 0)
    apart = np.hypot(y, x) if metric == "euclidean" else np.maximum(y, x)
    near = np.maximum(y / layout.patch_px[0], x / layout.patch_px[1]) <= hops
    near &= include_self | ~np.eye(len(places), dtype=bool)
    found = uniform_query_distance(layout, hops=hops, include_self=include_self, metric=metric)
    count = near.sum(axis=1)
    expected = np.divide((near * apart).sum(axis=1), count, out=np.full(len(count), np.nan), where=count > 0)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def soft_maps(seed: int, tokens: int, sharp: float, heads: int = 2) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(0, sharp, (heads, tokens, tokens))
    exponential = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponential / exponential.sum(axis=-1, keepdims=True)


@few
@given(layouts, seeds, st.floats(0.5, 6.0), st.floats(0.05, 0.95))
def test_mixing_with_uniform_makes_attention_denser_and_queries_less_relevant(layout, seed, sharp, strength):
    attention = soft_maps(seed, layout.tokens, sharp)
    mixed = (1 - strength) * attention + strength / layout.tokens
    before, after = (
        measures_of(WeightScores(torch.from_numpy(x).float()), layout) for x in (attention, mixed)
    )
    assert (after.entropy >= before.entropy - 1e-6).all()
    # Even attention knows nothing of the query, and makes the keys less certain too.
    assert (np.isnan(after.nmi) | (after.nmi <= before.nmi + 1e-5)).all()
    # The original protocol is linear in the map.
    uniform = uniform_query_distance(layout, "original")
    expected = (1 - strength) * before.query_distance("original") + strength * uniform
    np.testing.assert_allclose(after.query_distance("original"), expected, rtol=1e-4, atol=1e-4)


@few
@given(layouts, seeds)
def test_context_broadcasting_keeps_the_mean_token_and_halves_what_differs(layout, seed):
    count = layout.grid[0] * layout.grid[1]
    plain = TokenLayout.regular(layout.grid, layout.patch_px)
    matrix = (np.eye(count) + 1 / count) / 2
    tokens = np.random.default_rng(seed).normal(size=(count, 5))
    mixed = matrix @ tokens
    np.testing.assert_allclose(mixed.mean(axis=0), tokens.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(mixed - mixed.mean(axis=0), (tokens - tokens.mean(axis=0)) / 2, atol=1e-12)
    measured = measures_of(WeightScores(torch.from_numpy(matrix[None]).float()), plain)
    np.testing.assert_allclose(measured.distance("renormalized"), uniform_distance(plain) / 2, **CLOSE)
    own, other = 0.5 + 0.5 / count, 0.5 / count
    entropy = -own * np.log(own) - (count - 1) * other * np.log(other)
    np.testing.assert_allclose(measured.mean_entropy(), entropy, **CLOSE)


@few
@given(layouts, seeds, spreads)
def test_shares_grow_with_the_hops_and_stay_within_one(layout, seed, spread):
    measured = measures_of(random_scores(seed, 2, layout.tokens, spread=spread), layout)
    near = np.stack([measured.query_near(hops, "renormalized") for hops in (1, 2, 3)])
    assert (np.diff(near, axis=0) >= -1e-6).all()
    assert near.max() <= 1 + 1e-5
    # What lies within k hops has at most k, what lies beyond at least k + 1.
    hops = measured.query_hops("renormalized")
    for k in (1, 2, 3):
        assert (hops >= (k + 1) * (1 - near[k - 1]) - 1e-4).all()
    assert (measured.received >= 0).all()
    np.testing.assert_allclose(measured.received.sum(axis=1), 1, rtol=1e-5)
