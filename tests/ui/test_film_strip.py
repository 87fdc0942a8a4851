"""The film strip says of each picture what a person wants to know."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from PySide6.QtWidgets import QApplication, QLabel

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
    assert words(strip)[0] == ["grey.png", "measuring…"]
    documents.update(0, status="done")
    assert words(strip)[0] == ["grey.png", "tabby 62 %"]
    assert words(strip)[1].endswith("The model's best classes:\ntabby 62 %\nlynx 20 %")
    unsure = Prediction(("tabby", "lynx"), (0.0024, 0.0021))
    documents.update(0, record=replace(record, prediction=unsure), status="done")
    assert words(strip)[0] == ["grey.png", "tabby 0.24 %"]


def test_a_model_without_classes_leaves_the_size(shown):
    documents, strip = shown
    documents.update(0, record=key_query_record(2, 2, (4, 4)), status="done")
    assert words(strip)[0] == ["grey.png", "40 × 60 px"]
    assert "classes" not in words(strip)[1]


def test_pictures_of_one_name_are_told_apart_by_their_folders(shown, tmp_path):
    documents, strip = shown
    for folder in ("morning", "evening"):
        (tmp_path / folder).mkdir()
        Image.new("RGB", (40, 30)).save(tmp_path / folder / "cat.png")
        documents.add(open_image(tmp_path / folder / "cat.png"))
    for key in (1, 2):
        documents.update(key, status="done")
    QApplication.processEvents()
    assert [words_of(strip, row)[1] for row in (1, 2)] == ["in morning", "in evening"]
    documents.close(2)
    assert words_of(strip, 1) == ["cat.png", "30 × 40 px"]


def words_of(strip, row):
    frame = strip.itemWidget(strip.item(row))
    return [label.text() for label in frame.findChildren(QLabel) if label.text()]


def test_a_narrow_strip_puts_whole_names_below_the_thumbnails(shown):
    documents, strip = shown
    documents.update(0, status="done")
    frame = strip.itemWidget(strip.item(0))
    name = next(label for label in frame.findChildren(QLabel) if label.text() == "grey.png")
    picture = next(label for label in frame.findChildren(QLabel) if not label.pixmap().isNull())
    assert name.mapTo(frame, name.rect().topLeft()).x() > picture.geometry().right()
    strip.resize(strip.width_for(16.0), 300)
    QApplication.processEvents()
    assert name.text() == "grey.png"
    assert name.mapTo(frame, name.rect().topLeft()).y() > picture.geometry().center().y()
    documents.update(0, status="measuring")
    QApplication.processEvents()
    assert any(label.text() == "measuring…" and label.isVisible() for label in frame.findChildren(QLabel))


def test_news_of_a_picture_touches_no_other(shown, monkeypatch):
    documents, strip = shown
    for number in range(20):
        documents.add(open_image(np.zeros((40, 60, 3), np.uint8), f"{number}.png"))
    told = []
    whole = type(strip.itemWidget(strip.item(0))).tell

    def tell(frame, document, folder):
        told.append(document.key)
        whole(frame, document, folder)

    monkeypatch.setattr("viewer.ui.film_strip._Frame.tell", tell)
    documents.update(5, status="running")
    assert told == [5]
    assert words_of(strip, 5) == ["4.png", "running…"]
    told.clear()
    # With many pictures open, another model must not hold up the window.
    documents.set_model(None)
    assert told == list(range(21))
