"""What must hold of any attention on any grid."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attention.builders import layer_of, measures_of, random_scores, record_of
from viewer.attention.distance import uniform_distance, uniform_query_distance
from viewer.attention.layout import TokenLayout
from viewer.attention.query import attention_to
from viewer.attention.scores import QueryKeyScores
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


@few
@given(layouts, seeds, st.sampled_from([2, 3, 4]))
def test_distance_grows_with_the_patch(layout, seed, factor):
    scores = random_scores(seed, 2, layout.tokens)
    larger = TokenLayout.regular(
        layout.grid, tuple(factor * side for side in layout.patch_px), layout.prefix_names
    )
    before, after = measures_of(scores, layout), measures_of(scores, larger)
    np.testing.assert_allclose(after.distance("original"), factor * before.distance("original"), **CLOSE)
    np.testing.assert_allclose(
        after.distance("original", "patches"), before.distance("original", "patches"), **CLOSE
    )


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
