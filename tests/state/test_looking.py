"""A picture with a record always has a query in sight."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from viewer.images.decode import open_image
from viewer.state.documents import Documents
from viewer.state.looking import Looking
from viewer.state.selection import HeadRef, Selection, SelectionValue

from .records import mixed_record, random_record, record_of


@pytest.fixture
def parts():
    documents, selection = Documents(), Selection()
    return documents, selection, Looking(documents, selection)


def add(documents, name="a", path=None, **kind):
    image = replace(open_image(np.zeros((8, 8, 3), np.uint8), name), path=path)
    document = documents.add(image)
    documents.update(document.key, record=random_record(**kind), status="measuring")
    return document.key


def test_a_first_record_shows_the_middle_patch_and_the_middle_layer(parts):
    documents, selection, _ = parts
    add(documents, layers=6, grid=(4, 7))
    assert selection.value.query == (2, 3)
    assert selection.value.head == HeadRef(3, None)


def test_the_first_layer_shown_is_one_with_patches(parts):
    documents, selection, _ = parts
    document = documents.add(open_image(np.zeros((8, 8, 3), np.uint8), "a"))
    mixed = mixed_record()
    layers = tuple(replace(mixed.layers[at], index=i) for i, at in enumerate((0, 4, 2)))
    documents.update(document.key, record=replace(mixed, layers=layers), status="measuring")
    assert selection.value.head == HeadRef(2, None)


def test_of_channels_and_one_pooling_layer_the_pooling_is_shown(parts):
    documents, selection, _ = parts
    document = documents.add(open_image(np.zeros((8, 8, 3), np.uint8), "a"))
    channels = mixed_record().layers[4]
    pooling = record_of([], (4, 4), (), pooling=torch.full((1, 1, 16), 1 / 16)).layers[0]
    layers = tuple(replace(layer, index=i) for i, layer in enumerate((channels, channels, channels, pooling)))
    record = replace(mixed_record(), layers=layers)
    documents.update(document.key, record=record, status="measuring")
    assert selection.value.head == HeadRef(3, None)
    assert selection.value.query == (2, 2)


def test_what_is_selected_already_is_left_alone(parts):
    documents, selection, _ = parts
    selection.set(SelectionValue(hovered=(1, 0), head=HeadRef(1, 1)))
    add(documents)
    assert selection.value == SelectionValue(hovered=(1, 0), head=HeadRef(1, 1))


def test_the_last_query_stays_when_the_mouse_leaves(parts):
    documents, selection, _ = parts
    add(documents)
    selection.hover((3, 4))
    selection.hover(None)
    assert selection.value.query == (3, 4)
    selection.hover("cls")
    selection.hover(None)
    assert selection.value.query == "cls"


def test_a_last_query_that_the_record_lacks_gives_way_to_the_middle(parts):
    documents, selection, _ = parts
    first = add(documents, grid=(9, 9))
    selection.hover((8, 8))
    documents.close(first)
    add(documents, grid=(4, 4))
    selection.hover(None)
    assert selection.value.query == (2, 2)


def test_letting_the_pin_go_keeps_its_query(parts):
    documents, selection, _ = parts
    add(documents)
    selection.pin((0, 1))
    selection.hover(None)
    selection.unpin()
    assert selection.value.pins == ()
    assert selection.value.query == (0, 1)


def test_without_a_record_nothing_is_in_sight(parts):
    _, selection, _ = parts
    selection.hover((1, 1))
    selection.hover(None)
    assert selection.value.query is None


def test_a_wish_waits_for_its_picture_and_leaves_out_what_the_record_lacks(parts):
    documents, selection, looking = parts
    wanted = SelectionValue(pins=((50, 50), (1, 2)), head=HeadRef(2, 1), direction="to", fusion="max")
    looking.wish(str(Path("a.png").absolute()), wanted)
    add(documents, path=Path("a.png"), layers=3, grid=(4, 5))
    assert selection.value == replace(wanted, pins=((1, 2),))
    selection.unpin()
    documents.update(documents.current.key, status="done")
    assert selection.value.pins == ()


@pytest.mark.parametrize("path", [None, Path("a.png")])
def test_a_wish_for_another_picture_is_not_taken(parts, path):
    documents, selection, looking = parts
    looking.wish("/elsewhere.png", SelectionValue(pins=((1, 2),)))
    add(documents, path=path)
    assert selection.value.pins == ()
