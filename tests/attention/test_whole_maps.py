"""What belongs to whole maps: likeness of rows, information, offsets and sinks, from their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.attention.builders import (
    layer_of,
    map_as_query_keys,
    map_as_weights,
    measures_of,
    naive_offset_share,
    naive_row_measures,
    naive_weights,
    random_scores,
    record_of,
    window_map,
)
from tests.attention.test_grouped import naive, windowed_layer
from tests.attention.test_sweep import LAYOUTS
from tests.state.records import mixed_record
from viewer.attention import sweep
from viewer.attention.layout import TokenLayout
from viewer.attention.measured import sink_threshold
from viewer.attention.scores import QueryKeyScores, WeightScores
from viewer.attention.sinks import sinks_of
from viewer.attention.sweep import measure_record

SQUARE = TokenLayout.regular((6, 6), (16, 16))
BOTH = pytest.mark.parametrize("scores_of", [map_as_weights, map_as_query_keys])


def shifting(grid: tuple[int, int], down: int, across: int) -> np.ndarray:
    """Every query looks at the key so many patches away, or at the nearest there is."""
    rows, columns = np.divmod(np.arange(grid[0] * grid[1]), grid[1])
    there = np.clip(rows + down, 0, grid[0] - 1) * grid[1] + np.clip(columns + across, 0, grid[1] - 1)
    return np.eye(grid[0] * grid[1])[there]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0])
def test_equals_every_pair_of_rows(layout, spread):
    scores = random_scores(0, 3, layout.tokens, spread=spread)
    measured = measures_of(scores, layout)
    rows = naive_weights(scores)[:, layout.patch_tokens]
    for head, weights in enumerate(rows):
        for name, expected in naive_row_measures(weights).items():
            assert getattr(measured, name)[head] == pytest.approx(expected, rel=1e-4, abs=1e-6)
    np.testing.assert_allclose(measured.received, rows.mean(axis=1), rtol=1e-5)
    fed = (rows > sink_threshold(layout.tokens)).mean(axis=1)
    np.testing.assert_allclose(measured.fed, fed, atol=1.5 / len(rows[0]))


@pytest.mark.parametrize("grid", [(6, 6), (1, 30), (30, 1), (5, 17), (17, 5), (2, 2)])
@pytest.mark.parametrize("rows", [1, 7, 128])
@pytest.mark.parametrize("prefix", [(), ("cls", "reg1")])
def test_offsets_equal_their_definition(grid, rows, prefix, monkeypatch):
    monkeypatch.setattr(sweep, "_chunk_rows", lambda heads, keys: rows)
    layout = TokenLayout.regular(grid, (16, 16), prefix)
    scores = random_scores(3, 2, layout.tokens, spread=1.5)
    measured = measures_of(scores, layout)
    patches = layout.patch_tokens
    for head, weights in enumerate(naive_weights(scores)[:, patches][:, :, patches]):
        expected = naive_offset_share(weights, np.arange(len(patches)), grid[1])
        assert measured.offset_share[head] == pytest.approx(expected, rel=1e-4)


def test_offsets_are_the_same_however_tokens_are_ordered():
    layout = TokenLayout.regular((5, 7), (16, 16), ["cls"])
    scores = random_scores(1, 2, layout.tokens, spread=2.0)
    order = np.random.default_rng(0).permutation(layout.tokens)
    moved = QueryKeyScores(scores.query_vectors[:, order], scores.key_vectors[:, order], scores.scale)
    shuffled = TokenLayout.from_positions(layout.positions[order], layout.prefix_names)
    expected = measures_of(scores, layout).offset_share
    np.testing.assert_allclose(measures_of(moved, shuffled).offset_share, expected, rtol=1e-5)


def test_a_head_that_shifts_is_all_offset_and_one_that_gathers_is_not():
    inner = measures_of(map_as_weights(np.eye(36)), SQUARE)
    assert inner.offset_share[0] == pytest.approx(1.0)
    shift = measures_of(map_as_weights(shifting((6, 6), 1, 0)), SQUARE)
    assert 0.7 < shift.offset_share[0] < 1  # the last row has nowhere to look
    gather = np.zeros((36, 36))
    gather[:, 14] = 1
    gathered = measures_of(map_as_weights(gather), SQUARE)
    assert gathered.offset_share[0] < 0.12
    assert gathered.row_cosine[0] == pytest.approx(1.0)
    assert gathered.nmi[0] == 0
    assert np.isnan(measures_of(map_as_weights(np.full((36, 36), 1 / 36)), SQUARE).offset_share[0])


def test_windows_are_maps_of_their_own():
    layer = windowed_layer((6, 9), 3, 4.0, heads=2)
    measured = measure_record(record_of(layer)).layers[0]
    for head, whole in enumerate(naive(layer)):
        blocks = [whole[at : at + 9, at : at + 9] for at in range(0, 54, 9)]
        found = [naive_row_measures(block) for block in blocks]
        for name in ("row_cosine", "nmi"):
            expected = np.mean([one[name] for one in found])
            assert getattr(measured, name)[head] == pytest.approx(expected, rel=1e-5)
        within = np.kron(np.eye(6), np.ones((9, 9))).astype(bool)
        joined = naive_offset_share(np.nan_to_num(whole), layer.key_layout.cells, 9, within)
        assert measured.offset_share[head] == pytest.approx(joined, rel=1e-4)
        received = np.concatenate([block.mean(axis=0) for block in blocks])
        np.testing.assert_allclose(measured.received[head], received, rtol=1e-5)


def test_layers_of_every_kind_have_what_they_can_have():
    measured = measure_record(mixed_record()).layers
    names = ("row_cosine", "nmi", "offset_share")
    has = [[bool(np.isfinite(getattr(one, name)).all()) for name in names] for one in measured]
    # Windows, shifted and masked ones, pooled keys, a grid set off, channels, a class token and padding.
    assert has == [[True] * 3, [True] * 3, [True, True, False], [True] * 3, [True, True, False], [True] * 3]
    assert [bool(np.isfinite(one.hop_sum).all()) for one in measured] == [True] * 4 + [False, True]
    assert [bool(np.isfinite(one.near_mass).all()) for one in measured] == [True] * 4 + [False, True]


def test_masked_windows_count_what_is_within_reach():
    layer = mixed_record().layers[1]
    measured = measure_record(record_of(layer)).layers[0]
    weights, reach = np.zeros((64, 64)), np.zeros((64, 64), bool)
    for token in range(64):
        found = layer.weights(token)[0]
        reach[token] = np.isfinite(found)
        weights[token] = np.nan_to_num(found)
    assert reach.sum() < 64 * 16
    expected = naive_offset_share(weights, layer.key_layout.cells, 8, reach)
    assert measured.offset_share[0] == pytest.approx(expected, rel=1e-4)


def test_a_pooling_query_is_no_map():
    pool = TokenLayout.from_positions(np.full((1, 2), np.nan, np.float32), ["pool"])
    scores = QueryKeyScores(torch.randn(2, 1, 8), torch.randn(2, 36, 8), 1.0)
    first = layer_of(random_scores(0, 2, 36), SQUARE)
    layer = layer_of(scores, pool, SQUARE, kind="pool", index=1)
    measured = measure_record(record_of(first, layer)).layers[1]
    for found in (measured.row_cosine, measured.nmi, measured.offset_share, measured.sink_mass()):
        assert np.isnan(found).all()
    assert sinks_of(layer, measured) == ((), ())


def test_a_single_key_and_a_single_patch():
    one = TokenLayout.regular((1, 1), (16, 16))
    alone = measures_of(map_as_weights(np.ones((1, 1))), one)
    for found in (alone.row_cosine, alone.nmi, alone.offset_share, alone.sink_mass()):
        assert np.isnan(found).all()
    assert alone.query_hops("renormalized")[0, 0] == 0
    assert alone.query_near(1, "renormalized")[0, 0] == 1
    layer = layer_of(WeightScores(torch.ones(1, 4, 1)), TokenLayout.regular((2, 2), (16, 16)), one)
    pooled = measure_record(record_of(layer)).layers[0]
    assert pooled.row_cosine[0] == pytest.approx(1)
    assert np.isnan(pooled.nmi[0]) and np.isnan(pooled.sink_mass()[0]) and np.isnan(pooled.offset_share[0])


@BOTH
def test_rows_of_zeros_are_no_rows(scores_of):
    attention = np.random.default_rng(0).dirichlet(np.ones(36), 36)
    attention[[3, 20]] = 0
    measured = measures_of(scores_of(attention), SQUARE)
    expected = naive_row_measures(attention)
    assert measured.row_cosine[0] == pytest.approx(expected["row_cosine"], rel=1e-5)
    assert measured.nmi[0] == pytest.approx(expected["nmi"], rel=1e-4)
    np.testing.assert_allclose(measured.received[0], attention.sum(axis=0) / 34, rtol=1e-5)


@BOTH
def test_a_map_of_zeros_alone_has_no_measures_of_rows(scores_of):
    measured = measures_of(scores_of(np.zeros((36, 36))), SQUARE)
    assert (
        np.isnan(measured.row_cosine[0]) and np.isnan(measured.nmi[0]) and np.isnan(measured.offset_share[0])
    )
    assert measured.sink_mass()[0] == 0
    assert np.isnan(measured.query_hops("renormalized")).all()


@pytest.mark.parametrize("spread", [1e-4, 30.0, 300.0])
def test_flat_and_sharp_logits_stay_within_the_ends(spread):
    layout = TokenLayout.regular((6, 6), (16, 16), ["cls"])
    measured = measures_of(random_scores(0, 4, 37, spread=spread), layout)
    for found in (measured.row_cosine, measured.nmi, measured.sink_mass(), measured.near_mass):
        assert np.isfinite(found).all()
        assert found.min() >= 0 and found.max() <= 1 + 1e-6
    if spread < 1:
        np.testing.assert_allclose(measured.row_cosine, 1, atol=1e-6)
        np.testing.assert_allclose(measured.nmi, 0, atol=1e-5)


def test_a_mask_over_the_whole_picture_makes_rows_unlike():
    causal = torch.full((36, 36), -torch.inf).triu(1)
    scores = QueryKeyScores(torch.zeros(1, 36, 4), torch.zeros(1, 36, 4), 1.0, causal)
    measured = measures_of(scores, SQUARE)
    even = np.tril(np.ones((36, 36)))
    weights = even / even.sum(axis=1, keepdims=True)
    for name, value in naive_row_measures(weights).items():
        assert getattr(measured, name)[0] == pytest.approx(value, rel=1e-4)
    expected = naive_offset_share(weights, np.arange(36), 6, even.astype(bool))
    assert measured.offset_share[0] == pytest.approx(expected, rel=1e-4)


@BOTH
@pytest.mark.parametrize("prefix", [(), ("cls",)])
def test_sinks_are_named_with_what_they_draw(scores_of, prefix):
    layout = TokenLayout.regular((6, 6), (16, 16), prefix)
    tokens = layout.tokens
    attention = np.full((tokens, tokens), 0.4 / (tokens - 1))
    sink = layout.token((2, 3))
    attention[:, sink] = 0.6
    layer = layer_of(scores_of(attention), layout)
    measured = measure_record(record_of(layer)).layers[0]
    ((found,),) = sinks_of(layer, measured)
    assert (found.token, found.key, found.fed) == (sink, (2, 3), 1.0)
    assert found.received == pytest.approx(0.6)
    assert measured.sink_mass()[0] == pytest.approx(0.6)


@BOTH
def test_a_key_that_less_than_half_of_the_queries_feed_is_no_sink(scores_of):
    layout = TokenLayout.regular((6, 6), (16, 16), ["cls"])
    attention = np.eye(37)
    attention[1:20] = 0
    attention[1:20, 0] = 1  # 19 of 36 patches look at the class token
    layer = layer_of(scores_of(attention), layout)
    ((found,),) = sinks_of(layer, measure_record(record_of(layer)).layers[0])
    assert (found.key, found.fed) == ("cls", pytest.approx(19 / 36))
    attention[1:20] = np.eye(37)[1:20]
    attention[1:19] = 0
    attention[1:19, 0] = 1  # 18 of 36 are not most
    layer = layer_of(scores_of(attention), layout)
    measured = measure_record(record_of(layer)).layers[0]
    assert sinks_of(layer, measured) == ((),)
    assert measured.sink_mass()[0] == 0


def test_even_attention_to_few_keys_makes_no_sinks():
    assert sink_threshold(1370) == sink_threshold(40) == 0.1
    assert sink_threshold(8) == 0.5
    layout = TokenLayout.regular((2, 3), (16, 16))
    assert measures_of(map_as_weights(np.full((6, 6), 1 / 6)), layout).sink_mass()[0] == 0


def test_local_share_of_windows_by_protocol():
    layout = TokenLayout.regular((14, 14), (16, 16), ["cls"])
    attention = np.zeros((197, 197))
    attention[1:, 1:] = 0.5 * window_map((14, 14), 1)
    attention[1:, 0] = 0.5
    attention[0, 0] = 1
    measured = measures_of(map_as_weights(attention), layout)
    np.testing.assert_allclose(measured.query_near(1, "renormalized"), 1, rtol=1e-6)
    np.testing.assert_allclose(measured.query_near(3, "original"), 0.5, rtol=1e-6)
    centre = 7 * 14 + 7
    assert measured.query_hops("renormalized")[0, centre] == pytest.approx(8 / 9)
    assert measured.query_hops("original")[0, centre] == pytest.approx(4 / 9)
