"""A receptive field as a mean distance: published values of convolution stacks and of uniform attention."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewer.attention.distance import uniform_distance
from viewer.attention.field_distance import field_distance
from viewer.attention.layout import TokenLayout

GRID = TokenLayout.regular((14, 14), (16.0, 16.0), ("cls",))
# MEASURES: uniform over what L stacked 3x3 convolutions over patches reach, in px.
STACKS = (16.70, 28.83, 40.22, 51.15, 61.66, 71.78, 81.50, 90.61, 98.73, 105.56, 110.91, 114.60, 116.49)


def test_odd_numbers_of_patches_are_stacks_of_convolutions() -> None:
    found = [field_distance(GRID, ((2 * hops + 1) * 16,) * 2) for hops in range(1, 14)]
    assert found == pytest.approx(STACKS, abs=0.006)


def test_a_patch_or_less_reaches_nowhere_and_the_whole_picture_is_uniform() -> None:
    assert field_distance(GRID, (16, 16)) == field_distance(GRID, (7, 7)) == 0
    assert field_distance(GRID, (448, 448)) == pytest.approx(uniform_distance(GRID))
    assert field_distance(GRID, (9999, 9999), "patches") == pytest.approx(7.28076, abs=1e-5)


def test_against_a_plain_sum() -> None:
    layout = TokenLayout.regular((5, 7), (10.0, 14.0))
    y, x = np.meshgrid(np.arange(5), np.arange(7), indexing="ij")
    field, means = (36.0, 50.0), []
    for row in range(5):
        for column in range(7):
            down, across = np.abs(y - row), np.abs(x - column)
            share = np.clip(field[0] / 20 - down + 0.5, 0, 1) * np.clip(field[1] / 28 - across + 0.5, 0, 1)
            means.append((share * np.hypot(10 * down, 14 * across)).sum() / share.sum())
    assert field_distance(layout, field) == pytest.approx(np.mean(means))


@given(st.floats(1, 400), st.floats(0, 100))
def test_a_wider_field_never_reaches_less(field: float, more: float) -> None:
    assert field_distance(GRID, (field, field)) <= field_distance(GRID, (field + more,) * 2) + 1e-9
