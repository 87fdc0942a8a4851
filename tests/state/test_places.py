from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from tests.state.records import mixed_record, random_record
from viewer.attention.layout import TokenLayout
from viewer.state.places import (
    asked_layout,
    patch_of,
    query_of,
    rectangles,
    sides,
    stepped,
)

FINE = TokenLayout.regular((8, 8), (16.0, 16.0))
COARSE = TokenLayout.regular((4, 4), (32.0, 32.0))


def offset(first, step, count):
    places = first + step * np.stack(np.meshgrid(range(count), range(count), indexing="ij"), axis=-1)
    return TokenLayout.from_positions(places.reshape(-1, 2).astype(np.float32))


@given(
    st.sampled_from([(8, 16.0, 16.0), (14, 16.0, 0.5), (12, 4.0, 2.0)]),
    st.sampled_from([(4, 32.0, 16.0), (7, 32.0, 0.5), (3, 40.0, 20.0), (2, 64.0, 8.0), (1, 128.0, 64.0)]),
    st.data(),
)
def test_every_patch_of_a_coarser_layer_can_be_asked_for(fine, coarse, data):
    places = offset(fine[2], fine[1], fine[0])
    layout = offset(coarse[2], coarse[1], coarse[0])
    reach = places.origin[0] + (fine[0] - 0.5) * fine[1]
    patch = tuple(data.draw(st.integers(0, coarse[0] - 1)) for _ in range(2))
    if any(layout.origin[0] + index * coarse[1] > reach for index in patch):
        return  # beyond the finest grid there is no query
    assert patch_of(layout, places, query_of(layout, places, patch)) == patch


def test_what_is_selected_on_the_same_patch_stays():
    assert query_of(COARSE, FINE, (1, 2), [None, "cls", (0, 0), (3, 4), (2, 5)]) == (3, 4)
    assert query_of(COARSE, FINE, (1, 2), [(0, 0)]) == query_of(COARSE, FINE, (1, 2))
    assert query_of(FINE, FINE, (1, 2), [(0, 0)]) == (1, 2)


@pytest.mark.parametrize(
    ("start", "step", "end"),
    [
        (None, (0, 1), (2, 2)),
        ("cls", (-1, 0), (2, 2)),
        ((1, 1), (0, 1), (1, 2)),
        ((1, 1), (1, 0), (2, 1)),
        ((0, 0), (-1, 0), (0, 0)),
        ((3, 4), (1, 1), (3, 4)),
    ],
)
def test_steps_go_from_patch_to_patch_and_stop_at_the_border(start, step, end):
    layout = TokenLayout.regular((4, 5), (16.0, 16.0))
    assert stepped(layout, layout, start, *step) == end


def test_a_step_in_a_coarser_layer_is_one_of_its_own_patches():
    query, seen = (0, 1), []
    for _ in range(5):
        query = stepped(COARSE, FINE, query, 0, 1)
        seen.append(patch_of(COARSE, FINE, query))
    assert seen == [(0, 1), (0, 2), (0, 3), (0, 3), (0, 3)]
    assert stepped(COARSE, FINE, (5, 5), -5, 0) == query_of(COARSE, FINE, (0, 2))
    # At the border nothing moves, not even within the patch.
    assert stepped(COARSE, FINE, (0, 1), -1, 0) == (0, 1)


def test_tiles_lie_around_their_true_centres():
    assert sides(FINE, (1, 2, 2, 4)) == (32, 16, 64, 32)
    assert sides(offset(0.5, 16, 14), (0, 0, 1, 14)) == (-7.5, -7.5, 216.5, 8.5)


@given(arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=9)))
def test_rectangles_cover_what_is_true_once(where):
    found = np.zeros(where.shape, int)
    for top, left, bottom, right in rectangles(where):
        found[top:bottom, left:right] += 1
    np.testing.assert_array_equal(found, where)


def test_asks_keys_where_the_views_show_who_attends():
    record = mixed_record()
    assert asked_layout(record, record.layers[2], "from").grid == (8, 8)
    assert asked_layout(record, record.layers[2], "to").grid == (2, 2)
    assert asked_layout(record, record.layers[4], "from") is record.layout


def test_windows_and_masks_limit_what_can_be_reached():
    assert [layer.limited for layer in mixed_record().layers] == [True, True, False, False, False, False]
    assert not any(layer.limited for layer in random_record().layers)
