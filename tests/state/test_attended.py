from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.state.records import (
    VERIFIED,
    document_of,
    key_query_record,
    mixed_record,
    random_record,
    record_of,
    weights_of,
)
from viewer.attention.grouped import GroupedScores
from viewer.attention.layer import AttentionLayer
from viewer.attention.layout import TokenLayout
from viewer.attention.record import AttentionRecord, Provenance
from viewer.attention.scores import QueryKeyScores
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


def test_keys_of_other_windows_have_no_number():
    record = mixed_record()
    found = attended(document_of(record), (2, 5), "from")
    window = np.zeros((8, 8), bool)
    window[:4, 4:] = True
    np.testing.assert_array_equal(np.isfinite(found.maps[0, 0]), window)
    layer = record.layers[0]
    token = layer.query_layout.token((2, 5))
    np.testing.assert_array_equal(found.layers[0], layer.weights(token))
    for row, column in np.argwhere(window):
        key = layer.key_layout.token((int(row), int(column)))
        assert found.maps[0, 1, row, column] == found.layers[0][1, key]
    assert found.maps[0, 1, window].sum() == pytest.approx(1, abs=1e-5)
    assert found.peaks[0, 1] == found.maps[0, 1, window].max()
    # Shifted by two: the window of (2, 5) is rows and columns 2 to 5, whole.
    window[:] = False
    window[2:6, 2:6] = True
    np.testing.assert_array_equal(np.isfinite(found.maps[1, 0]), window)


def test_a_mask_keeps_the_ends_of_the_picture_apart():
    found = attended(document_of(mixed_record()), (0, 7), "from")
    there = np.zeros((8, 8), bool)
    there[:2, 6:] = True
    np.testing.assert_array_equal(np.isfinite(found.maps[1, 0]), there)
    to = attended(document_of(mixed_record()), (0, 7), "to")
    np.testing.assert_array_equal(np.isfinite(to.maps[1, 0]), there)


def test_a_coarser_layer_is_spread_over_the_patches_under_which_it_lies():
    record = mixed_record()
    found = attended(document_of(record), (2, 5), "from")
    pooled = found.maps_of(record, 2)
    assert pooled.shape == (2, 2, 2)
    np.testing.assert_array_equal(found.maps[2, :2], np.kron(pooled, np.ones((1, 4, 4), np.float32)))
    # Centres at 8, 40, 72, 104 px: the fine patches at 8, 24 (half way, so the one before), 40, ... px.
    own = found.maps_of(record, 3)[1]
    under = [0, 0, 1, 1, 2, 2, 3, 3]
    np.testing.assert_array_equal(found.maps[3, 1], own[np.ix_(under, under)])
    assert found.peaks[3, 1] == own.max()


def test_overlapping_windows_show_the_key_that_can_be_reached():
    queries = TokenLayout.from_positions(np.array([[4, 4], [4, 12], [4, 20], [4, 28]], np.float32))
    keys = np.array([[4, 4], [4, 12], [4, 20], [4, 12], [4, 20], [4, 28]], np.float32)
    keys = TokenLayout.from_positions(keys, repeats=True)
    scores = GroupedScores(QueryKeyScores(torch.randn(2, 2, 4), torch.randn(2, 3, 4), 0.5), 2)
    layer = AttentionLayer(0, "halo", "self", scores, queries, keys, VERIFIED)
    record = AttentionRecord((layer,), (8, 32), Provenance("given"))
    document = document_of(record)
    found = attended(document, (0, 3), "from")
    np.testing.assert_array_equal(found.maps[0, 0, 0, 1:], layer.weights((0, 3))[0, 3:])
    assert np.isnan(found.maps[0, 0, 0, 0])
    assert np.isfinite(attended(document, (0, 1), "to").maps).all()


def test_layers_without_a_map_say_why():
    document = document_of(mixed_record())
    found = attended(document, (2, 5), "from")
    assert [bool(why) for why in found.blank] == [False] * 4 + [True, False]
    assert found.blank[4] == "channels attend to channels here, and they have no place on the picture"
    assert np.isnan(found.maps[4]).all()
    of_class = attended(document, "cls", "from")
    assert of_class.blank[0] == "this layer does not have the class token"
    assert of_class.blank[5] == ""
    assert np.isfinite(of_class.maps[5]).all()
    assert np.isfinite(of_class.prefix[5, :, 0]).all()
    assert np.isnan(of_class.prefix[:4]).all()


def test_a_learned_query_has_nobody_to_attend_to_it():
    record = record_of([weights_of(2, 20)], (4, 5), (), pooling=torch.full((1, 1, 20), 0.05))
    document = document_of(record)
    assert attended(document, (0, 0), "from").blank == ("", "")
    assert "a learned query gathers all patches" in attended(document, (0, 0), "to").blank[1]


def test_weights_that_are_no_numbers_are_not_called_out_of_reach():
    weights = weights_of(2, 20)
    weights[1, 13, 4] = np.nan
    record = record_of([weights, weights_of(2, 20, 1)], (4, 5), ())
    found = attended(document_of(record, measured=False), (2, 3), "from")
    assert found.blank == ("some of its weights are not numbers", "")
    assert attended(document_of(record, measured=False), (0, 0), "from").blank == ("", "")


@pytest.mark.parametrize("shifted", [0, 1])
def test_windows_tell_weights_that_are_no_numbers_from_what_is_out_of_reach(shifted):
    record = mixed_record()
    broken, layer = 5, record.layers[shifted]
    scores = layer.scores.stacked
    # One head of one window gives no numbers, as overflowing keys do.
    scores.query_vectors[broken] = np.nan
    window = broken // layer.heads
    inside = layer.query_layout.cells.reshape(layer.scores.groups, -1)[window]
    why = "some of its weights are not numbers"
    for cell in range(64):
        query = divmod(cell, 8)
        found = attended(document_of(record, measured=False), query, "from")
        assert found.blank[shifted] == (why if cell in inside else "")
        assert found.blank[1 - shifted] == ""
        token = layer.query_layout.token(query)
        assert layer.reach(token).sum() == layer.reached_by(token).sum() > 0
