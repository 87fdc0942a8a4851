from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.state.records import document_of, random_record, record_of, weights_of
from viewer.state.attended import attended
from viewer.state.display import DisplayValue
from viewer.state.heads import heads
from viewer.state.selection import HeadRef, SelectionValue

AT = SelectionValue(hovered=(2, 3), head=HeadRef(1, 1))


def describe(record, selection=AT, **display):
    document = document_of(record)
    found = None
    if selection.query is not None:
        found = attended(document, selection.query, selection.direction)
    return heads(document, found, selection, DisplayValue(**display))


def test_one_map_for_every_head_there_is():
    weights = [weights_of(2, 21), weights_of(3, 21, 1)]
    shown = describe(record_of(weights, (4, 5)))
    assert shown.heads == (2, 3)
    assert shown.layer_names == ("blocks.0.attn", "blocks.1.attn")
    assert shown.grid == (4, 5)
    np.testing.assert_array_equal(shown.maps[1, 2].ravel(), weights[1][2, 14, 1:])
    assert np.isnan(shown.maps[0, 2]).all()


def test_hovering_another_head_shows_it():
    shown = describe(random_record(), replace(AT, hovered_head=HeadRef(0, 0)))
    assert shown.shown == HeadRef(0, 0)


def test_scales_are_named():
    assert describe(random_record()).scale_label == "one scale for all heads"
    own = describe(random_record(), scale="per head")
    assert (own.shared, own.scale_label) == (False, "each head its own scale")


def test_without_a_query_there_are_cells_and_no_maps():
    shown = describe(random_record(), SelectionValue())
    assert shown.maps is None
    assert shown.vmax.shape == (3, 2)


def test_nothing_before_the_model_looked():
    document = replace(document_of(random_record()), record=None)
    assert heads(document, None, AT, DisplayValue()) is None
