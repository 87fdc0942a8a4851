from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from viewer.attention.layout import TokenLayout

grids = st.tuples(st.integers(2, 40), st.integers(2, 40))
patches = st.sampled_from([1, 2, 4, 8, 14, 16, 32, 64])
prefixes = st.integers(0, 5)


def regular_positions(grid, patch):
    y = (np.arange(grid[0]) + 0.5) * patch[0]
    x = (np.arange(grid[1]) + 0.5) * patch[1]
    return np.stack(np.meshgrid(y, x, indexing="ij"), axis=-1).reshape(-1, 2)


@st.composite
def scrambled(draw):
    """A grid whose tokens come in any order, with prefix tokens anywhere and float noise on the centres."""
    grid, patch, prefix = draw(grids), (draw(patches), draw(patches)), draw(prefixes)
    cells = grid[0] * grid[1]
    noise = draw(
        st_numpy.arrays(np.float32, 16, elements=st.floats(-0.03125, 0.03125, width=32), fill=st.nothing())
    )
    placed = regular_positions(grid, patch) + np.resize(noise, (cells, 2))
    everything = np.concatenate([placed, np.full((prefix, 2), np.nan)]).astype(np.float32)
    order = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).permutation(len(everything))
    return grid, patch, prefix, order, everything[order]


@given(scrambled())
def test_a_grid_is_found_in_any_order_of_tokens(case):
    grid, patch, prefix, order, positions = case
    layout = TokenLayout.from_positions(positions)
    assert layout.grid == grid
    np.testing.assert_allclose(layout.patch_px, patch, atol=0.07)
    np.testing.assert_array_equal(order[layout.patch_tokens], np.arange(grid[0] * grid[1]))
    assert set(order[layout.prefix_tokens]) == set(range(grid[0] * grid[1], len(order)))
    assert (np.diff(layout.prefix_tokens) > 0).all()
    assert layout.prefix_names == tuple(f"prefix{i}" for i in range(prefix))
    assert layout.tokens == len(order)


@given(scrambled(), st.data())
def test_every_patch_is_found_by_row_and_column(case, data):
    grid, patch, _, _, positions = case
    layout = TokenLayout.from_positions(positions)
    row, column = data.draw(st.integers(0, grid[0] - 1)), data.draw(st.integers(0, grid[1] - 1))
    centre = (row + 0.5) * patch[0], (column + 0.5) * patch[1]
    np.testing.assert_allclose(positions[layout.token((row, column))], centre, atol=0.05)


@given(grids, patches, patches, st.integers(0, 5))
def test_regular_is_what_its_positions_say(grid, height, width, prefix):
    names = tuple(f"reg{i}" for i in range(prefix))
    layout = TokenLayout.regular(grid, (height, width), names)
    assert layout.grid == grid
    assert layout.patch_px == (height, width)
    assert layout.prefix_names == names
    np.testing.assert_array_equal(layout.prefix_tokens, np.arange(prefix))
    np.testing.assert_array_equal(layout.patch_tokens, prefix + np.arange(grid[0] * grid[1]))
    np.testing.assert_allclose(layout.positions[prefix:], regular_positions(grid, (height, width)))


def test_first_patch_sits_half_a_patch_from_the_corner():
    layout = TokenLayout.regular((14, 20), (16, 8), ["cls"])
    np.testing.assert_array_equal(layout.positions[1], [8, 4])
    np.testing.assert_array_equal(layout.positions[-1], [216, 156])
    assert np.isnan(layout.positions[0]).all()


@pytest.mark.parametrize(("grid", "patch"), [((1, 9), (16, 16)), ((9, 1), (8, 32)), ((1, 1), (224, 224))])
def test_a_single_row_or_column(grid, patch):
    layout = TokenLayout.regular(grid, patch)
    assert layout.grid == grid
    assert layout.patch_px == patch


def test_tokens_without_any_place_have_no_grid():
    layout = TokenLayout.from_positions(np.full((3, 2), np.nan, np.float32), ["pool"])
    assert layout.grid == (0, 0)
    assert layout.patch_tokens.size == 0
    assert layout.prefix_names == ("pool", "prefix1", "prefix2")
    assert layout.token("pool") == 0


def test_a_token_with_half_a_place_has_none():
    positions = TokenLayout.regular((2, 2), (16, 16), ["cls"]).positions.copy()
    positions[0] = (8, np.nan)
    assert TokenLayout.from_positions(positions, ["cls"]).prefix_names == ("cls",)


def test_surplus_names_are_left_out():
    positions = TokenLayout.regular((2, 2), (16, 16), ["cls"]).positions
    assert TokenLayout.from_positions(positions, ["cls", "dist", "reg1"]).prefix_names == ("cls",)


@given(scrambled(), st.data())
def test_a_missing_patch_is_refused(case, data):
    _, _, _, _, positions = case
    placed = np.flatnonzero(np.isfinite(positions[:, 0]))
    missing = data.draw(st.sampled_from(placed.tolist()))
    # Without one corner of a 2x2 grid all coordinates are still there, so the count must tell.
    with pytest.raises(ValueError, match="do not fill a grid"):
        TokenLayout.from_positions(np.delete(positions, missing, axis=0))


@given(scrambled(), st.data())
def test_two_tokens_in_one_place_are_refused(case, data):
    _, _, _, _, positions = case
    placed = np.flatnonzero(np.isfinite(positions[:, 0])).tolist()
    first, second = data.draw(st.lists(st.sampled_from(placed), min_size=2, max_size=2, unique=True))
    doubled = positions.copy()
    doubled[second] = doubled[first]
    with pytest.raises(ValueError, match="do not fill a grid"):
        TokenLayout.from_positions(doubled)


def test_border_tokens_that_are_too_far_out_are_refused():
    positions = TokenLayout.regular((4, 4), (16, 16)).positions.copy()
    positions[:4, 0] -= 3
    with pytest.raises(
        ValueError, match=r"rows of tokens are not evenly spaced; they begin at 5\.0, 24\.0, 40\.0"
    ):
        TokenLayout.from_positions(positions)


def test_unknown_tokens_are_named():
    layout = TokenLayout.regular((3, 4), (16, 16), ["cls", "reg1"])
    assert (layout.token("reg1"), layout.token((2, 3)), layout.token(13)) == (1, 13, 13)
    with pytest.raises(LookupError, match="no prefix token 'dist'; this model's prefix tokens: cls, reg1"):
        layout.token("dist")
    with pytest.raises(LookupError, match=r"no patch \(3, 0\); the grid has 3 rows and 4 columns"):
        layout.token((3, 0))
    with pytest.raises(LookupError, match=r"no patch \(0, -1\)"):
        layout.token((0, -1))
    with pytest.raises(LookupError, match="no token 14; there are 14"):
        layout.token(14)
    with pytest.raises(LookupError, match="prefix tokens: none"):
        TokenLayout.regular((2, 2), (16, 16)).token("cls")
    channels = TokenLayout.from_positions(
        np.full((192, 2), np.nan, np.float32), [f"channel{index}" for index in range(192)]
    )
    with pytest.raises(LookupError, match=r"tokens: channel0, channel1, .*channel7, \.\.\. 184 more\.$"):
        channels.token("cls")


def test_a_single_row_spans_the_picture_where_its_size_is_known():
    """Convolutions of stride 64 that start on the first pixel leave one row of two patches."""
    places = np.array([[0.5, 0.5], [0.5, 64.5]], np.float32)
    layout = TokenLayout.from_positions(places, size=(64, 96))
    assert (layout.grid, layout.patch_px, layout.origin) == ((1, 2), (64.0, 64.0), (0.5, 0.5))
    assert TokenLayout.from_positions(places).patch_px == (1.0, 64.0)


@pytest.mark.parametrize("place", [4.0, 6.0, 8.0])
def test_a_patch_that_is_partly_padding_stands_nearer_to_the_next(place):
    missing = 8 - place
    rows = np.array([8, 24, 40, 56 - missing], np.float32)
    columns = np.array([8 + missing, 24, 40], np.float32)
    positions = np.stack(np.meshgrid(rows, columns, indexing="ij"), axis=-1).reshape(-1, 2)
    layout = TokenLayout.from_positions(positions)
    assert (layout.grid, layout.patch_px) == ((4, 3), (16.0, 16.0))
    assert layout.origin == (8.0, 8.0)
    assert layout.patch_at(70, 10) == (3, 0)
    np.testing.assert_array_equal(layout.positions, positions)  # measures keep the true places


@pytest.mark.parametrize("rows", [[8, 24, 36, 52], [8, 24, 40, 47], [1, 8, 24, 40]])
def test_rows_that_are_uneven_elsewhere_or_by_more_are_refused(rows):
    positions = np.array([(row, column) for row in rows for column in (8, 24)], np.float32)
    with pytest.raises(ValueError, match="rows of tokens are not evenly spaced"):
        TokenLayout.from_positions(positions)


def test_tokens_without_a_place_are_no_patches():
    nowhere = TokenLayout.from_positions(np.full((6, 2), np.nan, np.float32), tuple("c" * 6))
    assert repr(nowhere) == "<TokenLayout: 6 tokens without a place on the picture>"
    assert nowhere.token(5) == 5
    with pytest.raises(LookupError, match=r"no patch \(0, 0\): no token here has a place on the picture"):
        nowhere.token((0, 0))
