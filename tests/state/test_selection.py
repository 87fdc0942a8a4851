from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state.records import random_record
from viewer.state.selection import HeadRef, Selection, SelectionValue, fitted


@pytest.fixture
def selection():
    return Selection()


@pytest.fixture
def spoken(selection):
    heard = []
    selection.changed.connect(heard.append)
    return heard


def test_speaks_only_on_a_change(selection, spoken):
    selection.hover((1, 2))
    selection.hover((1, 2))
    selection.hover_head(None)
    selection.set_fusion("mean")
    selection.unpin()
    assert [value.hovered for value in spoken] == [(1, 2)]


def test_a_pin_is_the_query_whatever_is_hovered(selection):
    selection.hover((0, 0))
    assert selection.value.query == (0, 0)
    selection.pin((2, 3))
    selection.hover((1, 1))
    assert selection.value.query == (2, 3)
    selection.unpin()
    assert selection.value.query == (1, 1)


def test_the_last_pin_is_active_and_unpinning_goes_back(selection):
    selection.pin((2, 3))
    selection.add_pin("cls")
    selection.add_pin((0, 1))
    selection.add_pin("cls")
    assert selection.value.pins == ((2, 3), (0, 1), "cls")
    selection.unpin((2, 3))
    assert selection.value.pins == ((0, 1), "cls")
    selection.unpin()
    assert selection.value.query == (0, 1)
    selection.pin((3, 3))
    assert selection.value.pins == ((3, 3),)


def test_hovering_a_head_looks_and_selects_nothing(selection):
    selection.select_head(HeadRef(1, 0))
    selection.hover_head(HeadRef(2, 1))
    assert (selection.value.shown, selection.value.head) == (HeadRef(2, 1), HeadRef(1, 0))
    selection.hover_head(None)
    assert selection.value.shown == HeadRef(1, 0)


def test_a_moved_query_is_the_active_pin_or_what_is_hovered(selection):
    selection.move_query((2, 2))
    assert selection.value == SelectionValue(hovered=(2, 2))
    selection.pin((0, 0))
    selection.add_pin((1, 1))
    selection.move_query((1, 2))
    assert selection.value.pins == ((0, 0), (1, 2))
    selection.move_query((0, 0))
    assert selection.value.pins == ((0, 0),)


def test_heads_go_round_by_way_of_all_heads(selection):
    seen = []
    for _ in range(4):
        selection.step_head(1, 3)
        seen.append(selection.value.shown.head)
    selection.step_head(-1, 3)
    assert [*seen, selection.value.shown.head] == [0, 1, 2, None, 2]


def test_layers_stop_at_both_ends_and_keep_the_head(selection):
    selection.select_head(HeadRef(0, 1))
    selection.step_layer(-1, 3)
    assert selection.value.shown == HeadRef(0, 1)
    for _ in range(5):
        selection.step_layer(1, 3)
    assert selection.value.shown == HeadRef(2, 1)


def test_a_key_is_seen_though_the_mouse_rests_on_a_head(selection):
    selection.hover_head(HeadRef(1, 1))
    selection.step_layer(1, 3)
    assert selection.value.shown == HeadRef(2, 1)


def test_another_record_drops_what_it_lacks():
    value = SelectionValue(
        hovered=(9, 9), pins=((3, 4), "reg1", (0, 7), "cls"), head=HeadRef(11, 1), hovered_head=HeadRef(2, 5)
    )
    found = fitted(value, random_record(layers=3, heads=2, grid=(4, 5)))
    assert found == SelectionValue(pins=((3, 4), "cls"), head=HeadRef(2, 1))


@given(
    st.integers(-3, 20),
    st.none() | st.integers(-2, 20),
    st.none() | st.just("cls") | st.tuples(st.integers(-2, 9), st.integers(-2, 9)),
)
def test_what_fits_once_fits_again(layer, head, query):
    record = RECORD
    once = fitted(SelectionValue(hovered=query, head=HeadRef(layer, head)), record)
    assert fitted(once, record) == once
    assert 0 <= once.head.layer < len(record.layers)
    if once.query is not None:
        record.layout.token(once.query)


RECORD = random_record()
