"""Open pictures: whose records are kept, and whose have to go."""

from __future__ import annotations

import gc
import weakref

import numpy as np
from PIL import Image

from viewer.images.decode import open_image
from viewer.state.documents import Documents

from .records import random_record

SIZE = random_record().nbytes


def opened(count, records=3):
    """Documents whose budget is a number of records, and the keys of some pictures."""
    documents = Documents(record_bytes=records * SIZE)
    pixels = np.zeros((4, 4, 3), np.uint8)
    return documents, [documents.add(open_image(pixels, f"{number}")).key for number in range(count)]


def finish(documents, key):
    documents.update(key, status="done", record=random_record())


def statuses(documents):
    return [document.status for document in documents.all]


def test_records_stay_within_the_budget_and_the_oldest_goes_first():
    documents, keys = opened(5)
    finish(documents, keys[0])
    finish(documents, keys[1])
    oldest = weakref.ref(documents.get(keys[1]).record)
    resting = []
    documents.changed.connect(
        lambda key: resting.append(key) if documents.get(key).status == "resting" else None
    )
    for key in keys[2:]:
        finish(documents, key)
    # The first is current, so it stays.
    assert statuses(documents) == ["done", "resting", "resting", "done", "done"]
    assert sum(document.record is not None for document in documents.all) == 3
    assert resting == keys[1:3]
    gc.collect()
    assert oldest() is None


def test_what_was_shown_stays_longer_than_what_was_not():
    documents, keys = opened(4)
    for key in keys[:3]:
        finish(documents, key)
    documents.show(keys[1])
    documents.show(keys[0])
    finish(documents, keys[3])
    assert statuses(documents) == ["done", "done", "resting", "done"]


def test_the_current_record_is_kept_however_large():
    documents, keys = opened(2, records=0)
    finish(documents, keys[0])
    assert documents.current.record is not None
    finish(documents, keys[1])
    assert statuses(documents) == ["done", "done"]
    documents.show(keys[1])
    finish(documents, keys[1])
    assert statuses(documents) == ["resting", "done"]


def test_room_comes_back_when_pictures_are_closed_or_the_model_changes():
    documents, keys = opened(3, records=2)
    assert documents.has_room
    finish(documents, keys[0])
    assert documents.has_room
    finish(documents, keys[1])
    assert not documents.has_room
    documents.close(keys[0])
    assert documents.has_room
    finish(documents, keys[2])
    documents.set_model(None)
    assert documents.has_room
    assert statuses(documents) == ["waiting", "waiting"]


def test_the_memory_of_pictures_is_counted():
    documents, keys = opened(3)
    assert documents.pixel_bytes == 3 * 48
    documents.close(keys[1])
    assert documents.pixel_bytes == 2 * 48


def test_a_file_is_found_by_its_place_and_its_bytes(tmp_path, monkeypatch):
    def write(name, colour):
        Image.new("RGB", (4, 4), colour).save(tmp_path / name)
        return open_image(tmp_path / name)

    documents, _ = opened(1)
    red = documents.add(write("a.png", "red"))
    copy = write("b.png", "red")
    assert documents.find(copy) is None, "a copy is another file"
    again = documents.add(copy)
    assert documents.find(open_image(tmp_path / "a.png")) is red
    assert documents.find(open_image(tmp_path / "b.png")) is again
    monkeypatch.chdir(tmp_path)
    assert documents.find(open_image("a.png")) is red
    assert documents.find(open_image(tmp_path / ".." / tmp_path.name / "b.png")) is again
    assert documents.find(write("a.png", "blue")) is None, "its bytes have changed"
    assert documents.find(documents.all[0].image) is None, "it has no file"
    documents.close(again.key)
    assert documents.find(open_image("b.png")) is None
