from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.state.records import document_of, record_of, weights_of
from viewer.state.attended import attended
from viewer.state.scale import limits, plain_end, ticks


@pytest.mark.parametrize(
    ("value", "end"),
    [
        (0.0374, 0.04),
        (0.04, 0.04),
        (0.0401, 0.05),
        (0.11, 0.15),
        (0.66, 0.8),
        (0.95, 1.0),
        (1.0, 1.0),
        (0.0, 1.0),
        (float("nan"), 1.0),
        (7e-5, 8e-5),
    ],
)
def test_plain_ends(value, end):
    assert plain_end(value) == end


@given(st.floats(1e-9, 1.0))
def test_a_plain_end_is_near_above(value):
    assert value * (1 - 1e-5) <= plain_end(value) <= 1.51 * value


def test_shared_scale_is_the_median_head_and_one_for_all():
    # One head puts everything on a single patch: it must not leave the others black.
    hot = torch.eye(20)[None]
    calm = weights_of(3, 20, sharp=0.5)
    record = record_of([torch.cat([hot, calm])], (4, 5), ())
    found = attended(document_of(record), (1, 1), "from")
    assert found.peaks.max() == 1
    shared = limits(found, "shared")
    assert shared.shape == (1, 4)
    assert len(set(shared.ravel())) == 1
    assert np.median(found.peaks) <= shared[0, 0] <= 1.51 * np.median(found.peaks)


def test_own_scales_end_at_each_heads_strongest_patch():
    record = record_of([weights_of(2, 21), weights_of(3, 21, 1)], (4, 5))
    found = attended(document_of(record), (1, 1), "from")
    own = limits(found, "per head")
    assert own[1].tolist() == found.maps[1].max(axis=(1, 2)).tolist()
    assert own[0, 2] == 1  # a head the layer lacks


@given(st.floats(1e-6, 1.0), st.integers(2, 6))
def test_ticks_rise_from_zero_to_the_end_with_room_between(value, most):
    end = plain_end(value)
    found = ticks(end, 0.0, most)
    shares = [share for share, _ in found]
    assert shares[0] == 0
    assert shares[-1] == 1
    assert min(np.diff(shares)) > 0.6 / most
    assert len(found) <= most
    for share, text in found:
        assert float(text) == pytest.approx(share * end, rel=1e-5, abs=1e-12)


def test_the_end_says_what_lies_beyond():
    assert ticks(0.08, 0.1, 5)[-1] == (1.0, "≥ 0.08")
    assert [text for _, text in ticks(0.08, 0.08, 5)] == ["0", "0.02", "0.04", "0.06", "0.08"]
