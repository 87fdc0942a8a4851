"""The film strip says of each picture what a person wants to know."""

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtWidgets import QLabel

from tests.state.records import key_query_record
from viewer.attention.record import Prediction
from viewer.images.decode import open_image
from viewer.state.documents import Documents
from viewer.ui.film_strip import FilmStrip


@pytest.fixture
def shown(qtbot):
    documents = Documents()
    strip = FilmStrip(documents)
    qtbot.addWidget(strip)
    strip.resize(260, 300)
    strip.show()
    documents.add(open_image(np.zeros((40, 60, 3), np.uint8), "grey.png"))
    return documents, strip


def words(strip):
    frame = strip.itemWidget(strip.item(0))
    return [label.text() for label in frame.findChildren(QLabel) if label.text()], frame.toolTip()


def test_the_best_class_stands_under_the_name_and_the_others_in_the_tip(shown):
    documents, strip = shown
    best = Prediction(("tabby", "lynx"), (0.62, 0.2))
    record = replace(key_query_record(2, 2, (4, 4)), prediction=best)
    documents.update(0, record=record, status="measuring")
    assert words(strip)[0] == ["grey.png", "measuring distances…"]
    documents.update(0, status="done")
    assert words(strip)[0] == ["grey.png", "tabby 62 %"]
    assert words(strip)[1].endswith("The model's best classes:\ntabby 62 %\nlynx 20 %")


def test_a_model_without_classes_leaves_the_size(shown):
    documents, strip = shown
    documents.update(0, record=key_query_record(2, 2, (4, 4)), status="done")
    assert words(strip)[0] == ["grey.png", "60 × 40 px"]
    assert "classes" not in words(strip)[1]
