from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.state.records import document_of, random_record, state_of
from viewer.state.display import DisplayValue
from viewer.state.scene import compose
from viewer.state.selection import HeadRef, SelectionValue


@pytest.fixture
def state():
    return state_of(random_record())


def test_every_view_follows_the_hovered_patch(state):
    _, selection, _, scene = state
    selection.hover((2, 3))
    value = scene.value
    assert value.overlay.query == (2, 3)
    assert value.heads.maps is value.attended.maps
    assert value.scatter.query_label == "patch (2, 3)"
    assert "Patch (row 2, column 3)" in value.readout
    np.testing.assert_allclose(value.overlay.values, value.attended.maps[0].mean(axis=0))


def test_attention_is_computed_again_only_for_another_query(state):
    documents, selection, display, scene = state
    selection.hover((2, 3))
    first = scene.value.attended
    selection.hover_head(HeadRef(1, 0))
    selection.set_fusion("max")
    display.set(replace(display.value, unit="patches", colormap="magma"))
    documents.update(documents.current.key, status="done")
    assert scene.value.attended is first
    assert scene.value.overlay.colormap == "magma"
    selection.set_direction("to")
    second = scene.value.attended
    assert second is not first
    selection.hover((2, 4))
    assert scene.value.attended is not second


def test_one_change_is_one_moment(state):
    _, selection, display, scene = state
    heard = []
    scene.changed.connect(heard.append)
    selection.hover((2, 3))
    selection.hover((2, 3))
    display.set(replace(display.value, ring=2))
    assert [value.overlay.ring for value in heard] == [None, (0, 1, 4, 5)]


def test_a_smaller_record_fits_the_selection(state):
    documents, selection, _, scene = state
    selection.pin((3, 4))
    selection.select_head(HeadRef(2, 1))
    heard = []
    scene.changed.connect(heard.append)
    documents.update(documents.current.key, record=random_record(layers=1, grid=(2, 2)), measures=None)
    assert selection.value == SelectionValue(head=HeadRef(0, 1))
    assert [value.overlay.grid for value in heard] == [(2, 2)]
    assert scene.value.scatter is None


def test_a_document_without_a_record_shows_nothing(state):
    documents, _, _, scene = state
    documents.set_model(None)
    assert (scene.value.overlay, scene.value.heads, scene.value.readout) == (None, None, "")
    documents.close(documents.current.key)
    assert scene.value.document is None


def test_composing_leaves_out_what_the_record_lacks():
    document = document_of(random_record())
    value = compose(document, SelectionValue(hovered=(99, 0), head=HeadRef(99, 99)), DisplayValue())
    assert value.selection == SelectionValue(head=HeadRef(2, None))
    assert value.overlay.values is None


def test_an_earlier_moment_of_another_document_is_not_kept():
    one, two = document_of(random_record()), document_of(random_record(heads=1))
    selection = SelectionValue(hovered=(1, 1))
    before = compose(one, selection, DisplayValue())
    after = compose(two, selection, DisplayValue(), before)
    assert after.attended.maps.shape[1] == 1
    assert compose(None, selection, DisplayValue(), after).attended is None
