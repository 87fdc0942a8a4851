from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.attention.builders import layer_of, record_of
from viewer.attention.grouped import GroupedScores
from viewer.attention.layout import TokenLayout
from viewer.attention.query import attention_from, attention_to
from viewer.attention.scores import QueryKeyScores, WeightScores
from viewer.attention.sweep import measure_record
from viewer.attention.uniform import uniform_layer_distance


def window_positions(grid, window, patch, shift=0):
    """Centres of the tokens of each window, window by window and row by row, of a grid rolled by `shift`."""
    rows, columns = np.meshgrid(np.arange(grid[0]), np.arange(grid[1]), indexing="ij")
    centres = (np.stack([rows, columns], axis=-1) + 0.5) * patch
    centres = np.roll(centres, (-shift, -shift), axis=(0, 1))
    high, wide = grid[0] // window, grid[1] // window
    return centres.reshape(high, window, wide, window, 2).transpose(0, 2, 1, 3, 4).reshape(-1, 2)


def windowed_layer(grid=(4, 6), window=2, patch=8.0, heads=3, shift=0, bias=None, seed=0):
    positions = window_positions(grid, window, patch, shift).astype(np.float32)
    groups, tokens = grid[0] * grid[1] // window**2, window**2
    queries, keys = torch.randn(2, groups * heads, tokens, 8, generator=torch.Generator().manual_seed(seed))
    layout = TokenLayout.from_positions(positions)
    return layer_of(GroupedScores(QueryKeyScores(queries, keys, 0.4, bias), groups), layout)


def naive(layer):
    """The whole matrix, float64 (heads, queries, keys), NaN between groups."""
    scores = layer.scores
    stacked = scores.stacked
    logits = stacked.scale * stacked.query_vectors.double() @ stacked.key_vectors.double().mT
    if stacked.bias is not None:
        logits = logits + stacked.bias.double()
    blocks = (
        torch.softmax(logits, -1).view(scores.groups, scores.heads, stacked.queries, stacked.keys).numpy()
    )
    whole = np.full((scores.heads, scores.queries, scores.keys), np.nan)
    for group, block in enumerate(blocks):
        rows = slice(group * stacked.queries, (group + 1) * stacked.queries)
        keys = slice(group * stacked.keys, (group + 1) * stacked.keys)
        whole[:, rows, keys] = block
    return whole


@given(st.integers(1, 3), st.integers(1, 3), st.integers(2, 3), st.integers(1, 3), st.integers(0, 2**31))
def test_tokens_look_at_their_own_window_only(high, wide, window, heads, seed):
    grid = (high * window, wide * window)
    layer = windowed_layer(grid, window, heads=heads, seed=seed)
    expected = naive(layer)
    for head in range(heads):
        np.testing.assert_allclose(layer.matrix(head), expected[head], rtol=1e-5, atol=1e-7)
    order = layer.query_layout.patch_tokens
    for place in (0, len(order) - 1):
        query = divmod(place, grid[1])
        np.testing.assert_allclose(layer.weights(query), expected[:, order[place]], rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(layer.reach(query), np.isfinite(expected[0, order[place]]))


def test_who_attends_is_a_column_with_nothing_from_other_windows():
    record = record_of(windowed_layer())
    expected = naive(record.layers[0])
    found = attention_to(record, measure_record(record), (2, 3))[0]
    token = record.layout.token((2, 3))
    np.testing.assert_allclose(found, expected[:, :, token], rtol=1e-5, atol=1e-7)


def test_measures_are_those_of_the_whole_matrix():
    layer = windowed_layer(grid=(6, 9), window=3, patch=4.0)
    weights = np.nan_to_num(naive(layer))
    places = layer.query_layout.positions.astype(np.float64)
    far = np.linalg.norm(places[:, None] - places[None], axis=-1)
    order = layer.query_layout.patch_tokens
    measured = measure_record(record_of(layer)).layers[0]
    np.testing.assert_allclose(measured.distance_sum, (weights * far).sum(-1)[:, order], rtol=1e-5)
    np.testing.assert_allclose(measured.distance_sum_patches, measured.distance_sum / 4, rtol=1e-6)
    np.testing.assert_allclose(measured.patch_mass, 1, rtol=1e-6)
    np.testing.assert_array_equal(measured.prefix_mass, 0)
    logs = np.log(weights, where=weights > 0, out=np.zeros_like(weights))
    np.testing.assert_allclose(measured.entropy, -(weights * logs).sum(-1)[:, order], rtol=1e-5)
    assert measured.keys == 9


@pytest.mark.parametrize(("patch", "distance"), [(4, 14.438), (8, 28.876), (16, 57.751), (32, 115.503)])
def test_uniform_in_windows_of_seven_has_the_published_distances(patch, distance):
    layer = windowed_layer((14, 21), 7, float(patch))
    found = uniform_layer_distance(layer)
    assert found.shape == (14 * 21,)
    assert found.mean() == pytest.approx(distance, abs=5e-4)
    assert uniform_layer_distance(layer, unit="patches").mean() == pytest.approx(distance / patch, abs=5e-4)


def test_a_masked_window_reaches_only_its_own_part():
    """The last window of a shifted grid joins both ends of the picture; a mask keeps them apart."""
    positions = window_positions((4, 4), 2, 8.0, shift=1)
    blocks = positions.reshape(4, 4, 2)
    regions = 2 * (blocks[..., 0] < 8) + (blocks[..., 1] < 8)
    apart = regions[:, :, None] != regions[:, None]
    bias = torch.from_numpy(np.where(apart, -100.0, 0.0).astype(np.float32)).repeat_interleave(3, dim=0)
    layer = windowed_layer((4, 4), 2, 8.0, shift=1, bias=bias)
    for row in range(4):
        for column in range(4):
            reach = layer.reach((row, column))
            places = layer.key_layout.positions[reach]
            here = layer.key_layout.positions[layer.query_layout.token((row, column))]
            # Only neighbours on the picture: what the roll brought from the other end is out of reach.
            assert np.abs(places - here).max() <= 8
            mean = np.linalg.norm(places - here, axis=1).mean()
            assert uniform_layer_distance(layer)[row * 4 + column] == pytest.approx(mean)
    # The corner of the picture stands alone in its window.
    assert layer.reach((0, 0)).sum() == 1


def test_weights_tell_what_is_forbidden_where_the_bias_is_known():
    bias = torch.zeros(4, 3, 3)
    bias[2:, :, 2] = -100
    weights = torch.softmax(bias, -1)
    assert WeightScores(weights).reach([0]) is None
    assert WeightScores(weights, torch.ones(1, 3, 3)).reach([0]) is None
    layout = TokenLayout.from_positions(np.array([(4, x) for x in range(4, 48, 8)], np.float32))
    layer = layer_of(GroupedScores(WeightScores(weights, bias), 2), layout)
    np.testing.assert_array_equal(layer.reach((0, 0)), [True] * 3 + [False] * 3)
    np.testing.assert_array_equal(layer.reach((0, 4)), [False] * 3 + [True, True, False])
    turned = GroupedScores(WeightScores(weights, bias).picked([2, 3, 0, 1]), 2)
    np.testing.assert_array_equal(layer_of(turned, layout).reach((0, 0)), [True, True] + [False] * 4)


def test_pooled_keys_are_measured_at_their_own_places():
    fine, coarse = TokenLayout.regular((4, 4), (8.0, 8.0)), TokenLayout.regular((2, 2), (16.0, 16.0))
    layer = layer_of(WeightScores(torch.full((1, 16, 4), 0.25)), fine, coarse)
    record = record_of(layer)
    assert (record.grid, layer.stride, record.one_grid) == ((4, 4), (2.0, 2.0), False)
    expected = np.linalg.norm(fine.positions[:, None] - coarse.positions[None], axis=-1).mean(axis=1)
    np.testing.assert_allclose(measure_record(record).layers[0].distance_sum[0], expected, rtol=1e-6)
    np.testing.assert_allclose(uniform_layer_distance(layer), expected, rtol=1e-6)


def test_a_query_is_a_place_in_layers_of_another_grid():
    fine, coarse = TokenLayout.regular((4, 4), (8.0, 8.0)), TokenLayout.regular((2, 2), (16.0, 16.0))
    weights = torch.softmax(torch.randn(2, 4, 4), -1)
    record = record_of(
        layer_of(WeightScores(torch.softmax(torch.randn(2, 16, 16), -1)), fine),
        layer_of(WeightScores(weights), coarse, index=1),
    )
    for query, token in (((0, 1), 0), ((1, 2), 1), ((3, 0), 2), ((3, 3), 3)):
        np.testing.assert_allclose(attention_from(record, query)[1], weights[:, token], rtol=1e-6)
        to = attention_to(record, measure_record(record), query)[1]
        np.testing.assert_allclose(to, weights[:, :, token], rtol=1e-6)


def test_overlapping_windows_share_keys():
    """Halo attention: each block of queries looks at its own and its neighbours' keys."""
    queries = TokenLayout.from_positions(window_positions((2, 4), 2, 8.0).astype(np.float32))
    left = [(y, x) for y in (4, 12) for x in (4, 12, 20)]
    right = [(y, x) for y in (4, 12) for x in (12, 20, 28)]
    places = np.array(left + right, np.float32)
    with pytest.raises(ValueError, match="do not fill"):
        TokenLayout.from_positions(places)
    keys = TokenLayout.from_positions(places, repeats=True)
    scores = GroupedScores(QueryKeyScores(torch.randn(2, 4, 8), torch.randn(2, 6, 8), 0.4), 2)
    record = record_of(layer_of(scores, queries, keys))
    layer = record.layers[0]
    assert layer.reach((0, 0)).sum() == 6
    column = attention_to(record, measure_record(record), (0, 1))[0]
    for token in range(8):
        mine = layer.weights(token)[0][keys.cells == 1]
        np.testing.assert_allclose(column[0, token], np.nansum(mine), rtol=1e-5)
    assert np.isfinite(column).all()  # both blocks see the second patch
    np.testing.assert_allclose(attention_from(record, (0, 0))[0], layer.weights((0, 0)))


def test_a_row_that_is_partly_padding_counts_where_it_is():
    """Uniform attention is that over true places also where all patches are in reach."""
    rows = (8, 24, 36)
    places = np.array([(row, column) for row in rows for column in (8, 24)], np.float32)
    layout = TokenLayout.from_positions(places)
    assert (layout.grid, layout.patch_px, layout.even) == ((3, 2), (16.0, 16.0), False)
    assert TokenLayout.regular((3, 2), (16.0, 16.0), ("cls",)).even
    layer = layer_of(WeightScores(torch.full((1, 6, 6), 1 / 6)), layout)
    expected = np.linalg.norm(places[:, None] - places[None], axis=-1).mean(axis=1)
    assert not layer.limited
    np.testing.assert_allclose(uniform_layer_distance(layer), expected, rtol=1e-6)
    np.testing.assert_allclose(
        measure_record(record_of(layer)).layers[0].distance_sum[0], expected, rtol=1e-6
    )
