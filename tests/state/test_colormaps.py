from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest

from viewer.state.colormaps import COLORMAPS, levels, lut, rgba


@pytest.mark.parametrize("name", COLORMAPS)
def test_tables_are_opaque_and_rise_in_lightness(name):
    table = lut(name)
    assert (table.shape, table.dtype) == ((256, 4), np.uint8)
    assert (table[:, 3] == 255).all()
    linear = (table[:, :3] / 255.0) ** 2.2 @ [0.2126, 0.7152, 0.0722]
    assert np.all(np.diff(np.cbrt(linear)) > -0.01)
    assert linear[-1] - linear[0] > 0.3


@pytest.mark.parametrize("name", ["viridis", "magma", "cividis"])
def test_same_colours_as_matplotlib(name):
    values = np.linspace(-0.1, 1.2, 777).astype(np.float32)
    theirs = np.round(mpl.colormaps[name](np.clip(values, 0, 1)) * 255)
    assert np.abs(rgba(values, 1.0, name).astype(int) - theirs).max() <= 1


def test_levels_are_even_steps_from_0_to_vmax():
    values = np.array([0, 0.001, 0.0999, 0.1, 0.5, 0.9999, 1.0, 3.0, np.nan], np.float32)
    assert levels(values, 1.0).tolist() == [0, 0, 25, 25, 128, 255, 255, 255, 0]
    each = levels(np.ones((2, 1), np.float32), np.array([[1], [4]], np.float32))
    assert each.ravel().tolist() == [255, 64]


def test_what_is_no_number_is_transparent():
    colours = rgba(np.array([np.nan, 0.0], np.float32), 1.0, "viridis")
    assert colours.tolist() == [[0, 0, 0, 0], lut("viridis")[0].tolist()]


def test_a_table_cannot_be_painted_over():
    with pytest.raises(ValueError, match="read-only"):
        lut("viridis")[0] = 0
