"""Where a rollout begins and for which class: kept for another model only where that means the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from viewer.images.decode import open_image
from viewer.state.display import Display, DisplayValue
from viewer.state.documents import Documents
from viewer.state.model_choices import ModelChoices

from .records import random_record

CHOSEN = DisplayValue(map="class rollout", rollout_fusion="max", start_layer=2, map_class=1)
ANIMALS, COLOURS = ("cat", "dog", "owl"), ["red", "green", "blue"]


class Opened:
    """What of an opened model is looked at."""

    def __init__(self, labels):
        self.labels = labels


@pytest.fixture
def parts():
    documents, display = Documents(), Display()
    documents.add(open_image(np.zeros((8, 8, 3), np.uint8), "a"))
    return documents, display, ModelChoices(documents, display)


def look(documents, layers, labels):
    """Open a model, and have it look at the picture."""
    documents.set_model(Opened(labels))
    documents.update(documents.current.key, record=random_record(layers=layers), status="measuring")


@pytest.mark.parametrize(
    ("layers", "labels", "kept"),
    [
        (4, list(ANIMALS), {"start_layer": 2, "map_class": 1}),
        (5, ANIMALS, {"start_layer": 0, "map_class": 1}),
        (4, COLOURS, {"start_layer": 2, "map_class": -1}),
        (3, (), {"start_layer": 0, "map_class": -1}),
    ],
)
def test_another_model_keeps_what_means_the_same(parts, layers, labels, kept):
    documents, display, _choices = parts
    look(documents, 4, ANIMALS)
    display.set(CHOSEN)
    look(documents, layers, labels)
    assert display.value == replace(CHOSEN, **kept)


def test_nothing_is_let_go_of_before_the_model_has_looked(parts):
    documents, display, _choices = parts
    look(documents, 4, ANIMALS)
    display.set(CHOSEN)
    documents.set_model(Opened(COLOURS))
    assert display.value == CHOSEN


def test_a_figures_choices_are_for_the_model_that_comes_with_it_and_no_other(parts):
    documents, display, choices = parts
    look(documents, 4, ANIMALS)
    display.set(CHOSEN)
    choices.expect()
    look(documents, 9, COLOURS)
    assert display.value == CHOSEN
    look(documents, 4, ANIMALS)
    assert display.value == replace(CHOSEN, start_layer=0, map_class=-1)


def test_choices_made_before_any_model_are_for_the_first(parts):
    documents, display, _choices = parts
    display.set(CHOSEN)
    look(documents, 4, ANIMALS)
    assert display.value == CHOSEN
