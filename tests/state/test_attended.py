from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.state.records import document_of, key_query_record, random_record, record_of, weights_of
from viewer.state.attended import attended


def test_rows_land_on_the_patches_in_row_major_order():
    weights = weights_of(2, 22, 3)
    record = record_of([weights], (4, 5), ("cls", "reg1"))
    found = attended(document_of(record), (2, 3), "from")
    row = weights[:, 2 + 2 * 5 + 3]
    assert found.maps.shape == (1, 2, 4, 5)
    assert found.maps[0, 1, 3, 0] == row[1, 2 + 15]
    np.testing.assert_array_equal(found.maps[0].reshape(2, 20), row[:, 2:])
    np.testing.assert_array_equal(found.prefix[0], row[:, :2])


def test_columns_are_who_attends_to_the_query():
    weights = weights_of(2, 21, 3)
    record = record_of([weights], (4, 5))
    found = attended(document_of(record), (0, 4), "to")
    np.testing.assert_allclose(found.maps[0].reshape(2, 20), weights[:, 1:, 1 + 4], rtol=1e-6)
    np.testing.assert_allclose(found.prefix[0, :, 0], weights[:, 0, 1 + 4], rtol=1e-6)


def test_columns_of_a_query_key_record_agree_with_its_rows():
    document = document_of(key_query_record(2, 2, (3, 4)))
    column = attended(document, (1, 1), "to").maps
    for row in range(3):
        for at in range(4):
            there = attended(document, (row, at), "from").maps[:, :, 1, 1]
            np.testing.assert_allclose(column[:, :, row, at], there, rtol=1e-4)


def test_a_prefix_token_can_be_the_query():
    weights = weights_of(1, 21)
    found = attended(document_of(record_of([weights], (4, 5))), "cls", "from")
    np.testing.assert_array_equal(found.maps[0, 0].ravel(), weights[0, 0, 1:])


def test_lacking_heads_and_pooling_queries_have_no_number():
    pooling = torch.softmax(torch.randn(1, 1, 20, generator=torch.Generator().manual_seed(1)), dim=-1)
    record = record_of([weights_of(2, 20)], (4, 5), (), pooling=pooling)
    document = document_of(record)
    found = attended(document, (0, 0), "from")
    np.testing.assert_array_equal(found.maps[1, 0].ravel(), pooling[0, 0])
    assert np.isnan(found.maps[1, 1]).all()
    assert np.isnan(found.peaks[1, 1])
    to = attended(document, (0, 0), "to")
    assert np.isnan(to.maps[1]).all()
    assert np.isfinite(to.maps[0]).all()


def test_nothing_before_there_is_what_it_takes():
    record = random_record()
    assert attended(document_of(record, measured=False), (0, 0), "to") is None
    assert attended(document_of(record, measured=False), (0, 0), "from") is not None


def test_a_query_that_is_not_there_is_refused():
    with pytest.raises(LookupError, match="4 rows and 5 columns"):
        attended(document_of(random_record()), (4, 0), "from")
