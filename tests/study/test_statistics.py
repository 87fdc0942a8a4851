"""Statistics that merge, against NumPy's own over everything at once."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from viewer.study.statistics import QUARTILES, Moments, moments, quartiles

COLUMNS = (2, 3)
values = st.integers(1, 40).flatmap(
    lambda count: arrays(
        np.float32,
        (count, *COLUMNS),
        elements=st.floats(-1e6, 1e6, width=32, allow_subnormal=False)
        | st.sampled_from([np.nan, 0.0, -0.0, 2.0**-100]),
    )
)


def cut(found, places):
    return np.split(found, sorted({place % len(found) for place in places}))


def reference(function, found, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of columns that are NaN throughout
        return function(found.astype(np.float64), axis=0, **more)


@settings(deadline=None, max_examples=60)
@given(values, st.lists(st.integers(0, 39), max_size=5))
def test_quartiles_are_numpys_exactly(found, places):
    blocks = [block for block in cut(found, places) if len(block)]
    count = np.isfinite(found).sum(axis=0)
    expected = reference(np.nanquantile, found, q=QUARTILES)
    np.testing.assert_allclose(quartiles(lambda: blocks, count), expected, rtol=1e-12, atol=1e-300)


@settings(deadline=None, max_examples=60)
@given(values, st.lists(st.integers(0, 39), max_size=5), st.randoms())
def test_moments_are_the_same_in_any_order_and_grouping(found, places, random):
    order = list(range(len(found)))
    random.shuffle(order)
    merged = moments(cut(found[order], places), *COLUMNS)
    scale = np.nan_to_num(np.abs(found)).max(initial=1.0)
    for got, function, more in (
        (merged.means, np.nanmean, {}),
        (merged.deviation, np.nanstd, {"ddof": 1}),
    ):
        np.testing.assert_allclose(got, reference(function, found, **more), rtol=1e-9, atol=1e-9 * scale)
    np.testing.assert_array_equal(merged.count, np.isfinite(found).sum(axis=0))


def test_numbers_far_from_zero_keep_their_spread():
    found = (np.float32(1e6) + np.arange(8, dtype=np.float32)).reshape(-1, 1, 1)
    assert moments(np.split(found, 4), 1, 1).deviation[0, 0] == pytest.approx(
        np.std(range(8), ddof=1), rel=1e-12
    )


def test_one_image_has_no_spread_and_none_has_no_mean():
    one = Moments.of(np.ones((1, 1, 1), np.float32))
    assert (one.means[0, 0], np.isnan(one.deviation[0, 0]), np.isnan(one.error[0, 0])) == (1, True, True)
    assert np.isnan(Moments.empty(1, 1).means[0, 0])
    assert np.isnan(quartiles(list, np.zeros((1, 1), np.int64))).all()


def test_the_standard_error_is_the_deviation_over_the_root_of_the_count():
    found = moments([np.arange(16, dtype=np.float32).reshape(-1, 1, 1)], 1, 1)
    assert found.error[0, 0] == pytest.approx(np.std(np.arange(16), ddof=1) / 4)


def test_memory_does_not_grow_with_the_number_of_images():
    def peak(images):
        def blocks():
            for seed in range(images // 50):
                yield np.random.default_rng(seed).random((50, 30, 10), np.float32)

        tracemalloc.start()
        found = moments(blocks(), 30, 10)
        quartiles(blocks, found.count)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(50)
    assert peak(1000) <= 1.05 * peak(100)
