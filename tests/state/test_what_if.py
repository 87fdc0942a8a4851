"""The what-if's state: editing, history, results that hold and results that do not."""

from __future__ import annotations

import math

import numpy as np
import pytest
import timm
import torch

from viewer.attention.measures import MEASURES
from viewer.attention.record import Provenance
from viewer.attention.sweep import measure_record
from viewer.backends.model import Job
from viewer.backends.timm_model import wrap
from viewer.backends.what_if import WHY_NOT_ONNX, parse
from viewer.images.decode import open_image
from viewer.state.before_after import CLASSIFIER_INPUT, OWN_OUTPUT, class_rows, features, measure_rows
from viewer.state.display import Display
from viewer.state.documents import Documents
from viewer.state.scene import Scene
from viewer.state.selection import HeadRef, Selection
from viewer.state.what_if import WhatIf, compare

UNIFORM, CB, SKIP = parse("uniform:layer=1"), parse("cb"), parse("skip:layer=0")


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(4)
    return wrap("test_vit", timm.create_model("test_vit", pretrained=False), "cpu", Provenance("test_vit"))


@pytest.fixture(scope="module")
def measured(model):
    """A picture, and what the model made of it."""
    pixels = np.random.default_rng(0).integers(0, 255, (170, 180, 3), np.uint8)
    image = open_image(pixels, "noise")
    record = model.attend(image)
    return image, record, measure_record(record)


@pytest.fixture
def documents(model, measured):
    image, record, measures = measured
    found = Documents()
    found.set_model(model)
    opened = found.add(image)
    found.update(opened.key, status="done", record=record, measures=measures)
    return found


@pytest.fixture
def what_if(documents):
    found = WhatIf(documents)
    # It came after the model.
    documents.model_changed.emit(documents.model)
    return found


def run(what_if, documents):
    """What the window's slow work does."""
    document = what_if.wanted
    parts = (document.image, what_if.value.changes, document.record, document.measures, Job())
    what_if.take(compare(documents.model, *parts))
    return what_if.value.result


def test_edits_can_be_undone_and_made_again(what_if):
    heard = []
    what_if.edited.connect(lambda: heard.append(what_if.value.changes))
    what_if.add(UNIFORM)
    what_if.add(CB)
    what_if.remove(0)
    assert what_if.value.changes == (CB,)
    what_if.undo()
    what_if.undo()
    assert what_if.value.changes == (UNIFORM,)
    what_if.redo()
    assert what_if.value.changes == (UNIFORM, CB)
    what_if.clear()
    what_if.undo()
    assert what_if.value.changes == (UNIFORM, CB)
    assert not what_if.can_redo or what_if.value.changes
    assert len(heard) == 8


def test_a_new_edit_ends_what_could_be_made_again(what_if):
    what_if.add(UNIFORM)
    what_if.undo()
    assert what_if.can_redo
    what_if.add(CB)
    assert not what_if.can_redo
    what_if.undo()
    assert not what_if.can_undo


def test_another_number_for_the_same_takes_its_place(what_if):
    for change in (CB, UNIFORM, parse("cb:strength=0.2")):
        what_if.add(change)
    assert what_if.value.changes == (parse("cb:strength=0.2"), UNIFORM)


def test_a_result_is_shown_in_all_views_and_by_one_switch(what_if, documents):
    selection = Selection()
    scene = Scene(documents, selection, Display(), what_if)
    selection.pin((3, 3))
    selection.select_head(HeadRef(1, 0))
    plain = scene.value
    what_if.add(UNIFORM)
    result = run(what_if, documents)
    assert scene.value.document.record is result.after
    np.testing.assert_allclose(
        scene.value.attended.layers[1], 1 / result.after.layers[1].scores.keys, rtol=1e-5
    )
    assert not np.allclose(scene.value.scatter.layer.size and scene.value.heads.maps, plain.heads.maps)
    for view in (scene.value.overlay, scene.value.heads, scene.value.scatter):
        assert view.title.startswith("What if · ")
    assert scene.value.readout.startswith("What if · ")
    what_if.show("before")
    assert scene.value.document.record is result.before
    assert scene.value.overlay.title == plain.overlay.title
    # An edit takes the result away, and with it what was shown of it.
    what_if.show("after")
    what_if.add(CB)
    assert scene.value.document.record is result.before


def test_dots_of_heads_that_nothing_is_made_of_are_marked(what_if, documents):
    scene = Scene(documents, Selection(), Display(), what_if)
    assert not scene.value.scatter.unused.any()
    what_if.set_changes([SKIP, parse("head-removed:layers=2,heads=1"), parse("uniform:layer=3")])
    run(what_if, documents)
    scatter = scene.value.scatter
    marked = np.stack([scatter.layer, scatter.head], axis=1)[scatter.unused]
    assert marked.tolist() == [[0, 0], [0, 1], [2, 1]]
    what_if.show("before")
    assert not scene.value.scatter.unused.any()


def test_a_result_of_other_changes_or_another_picture_is_not_taken(what_if, documents):
    what_if.add(UNIFORM)
    document = what_if.wanted
    parts = (document.image, what_if.value.changes, document.record, document.measures, Job())
    late = compare(documents.model, *parts)
    what_if.add(CB)
    what_if.take(late)
    assert what_if.value.result is None
    what_if.undo()
    other = documents.add(open_image(np.zeros((40, 40, 3), np.uint8), "black"))
    documents.show(other.key)
    what_if.take(late)
    assert what_if.value.result is None
    assert what_if.wanted is None  # until the model has looked at that picture


def test_another_picture_is_run_in_its_turn(what_if, documents, model):
    what_if.add(UNIFORM)
    first = documents.current.key
    run(what_if, documents)
    other = documents.add(open_image(np.full((40, 40, 3), 90, np.uint8), "grey"))
    documents.show(other.key)
    assert what_if.value.result is None
    record = model.attend(other.image)
    documents.update(other.key, status="done", record=record, measures=measure_record(record))
    assert what_if.wanted.key == other.key
    assert run(what_if, documents).before is record
    documents.show(first)
    assert what_if.wanted.key == first


def test_another_model_starts_anew_and_other_preprocessing_does_not(what_if, documents, model):
    what_if.add(UNIFORM)
    documents.set_model(model.with_preprocessing(model.preprocessing))
    assert what_if.value.changes == (UNIFORM,)

    class Onnx:
        name, backend = "net.onnx", "onnx"

    documents.set_model(Onnx())
    assert what_if.value.changes == ()
    assert not what_if.can_undo
    assert what_if.refusal == WHY_NOT_ONNX


def test_changes_that_a_figure_asks_for_come_with_its_model(what_if, documents, model):
    what_if.expect([UNIFORM, SKIP])
    assert what_if.value.changes == ()
    documents.set_model(model)
    assert what_if.value.changes == (UNIFORM, SKIP)


def test_a_failure_is_said_until_something_is_edited(what_if):
    what_if.add(parse("uniform:layer=99"))
    what_if.fail("There is no layer 99.")
    assert what_if.wanted is None
    what_if.undo()
    what_if.add(UNIFORM)
    assert what_if.value.problem == ""
    assert what_if.wanted is not None


def test_every_measure_before_after_and_their_difference(what_if, documents, measured):
    what_if.add(UNIFORM)
    result = run(what_if, documents)
    rows = {row.name: row for row in measure_rows(result, HeadRef(1, 0), "renormalized")}
    assert list(rows) == [measure.name for measure in MEASURES]
    entropy = rows["entropy_nats"]
    keys = result.before.layers[1].scores.keys
    assert entropy.after == pytest.approx(math.log(keys), abs=1e-4)
    assert entropy.before == pytest.approx(measured[2].layers[1].mean_entropy()[0])
    assert entropy.difference == entropy.after - entropy.before > 0
    # The layer before the change is what it was; a layer is the mean of its heads.
    for row in measure_rows(result, HeadRef(0, None), "original"):
        assert row.difference == 0 or math.isnan(row.difference)
    layer = {row.name: row for row in measure_rows(result, HeadRef(1, None), "renormalized")}
    assert layer["mean_distance_px"].before == pytest.approx(
        measured[2].layers[1].distance("renormalized").mean()
    )
    whole = {row.name: row for row in measure_rows(result, None, "renormalized")}
    expected = np.mean([one.mean_entropy() for one in measured[2].layers])
    assert whole["entropy_nats"].before == pytest.approx(expected)


def test_classes_and_final_features(what_if, documents, measured):
    what_if.add(CB)
    result = run(what_if, documents)
    rows = class_rows(result.before, result.after)
    softmax = [
        torch.softmax(torch.from_numpy(one.output), 0).numpy() for one in (result.before, result.after)
    ]
    best = [one.prediction for one in (result.before, result.after)]
    assert {row.label for row in rows} == {*best[0].labels, *best[1].labels}
    assert [row.before for row in rows] == sorted((row.before for row in rows), reverse=True)
    by_label = {row.label: row for row in rows}
    for label, share in zip(best[1].labels, best[1].probabilities, strict=True):
        assert by_label[label].after == pytest.approx(share, rel=1e-5)
    top = int(softmax[0].argmax())
    assert rows[0].before == pytest.approx(float(softmax[0][top]), rel=1e-5)
    assert rows[0].after == pytest.approx(float(softmax[1][top]), rel=1e-5)
    found = features(result.before, result.after)
    a, b = result.before.features, result.after.features
    assert found.cosine == pytest.approx(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)), abs=1e-6)
    assert found.of == CLASSIFIER_INPUT
    assert features(result.before, result.before).cosine == pytest.approx(1)


def test_a_model_without_a_classifier_is_compared_by_its_output(measured):
    bare = wrap(
        *("bare", timm.create_model("test_vit", pretrained=False, num_classes=0), "cpu", Provenance("bare"))
    )
    before = bare.attend(measured[0])
    result = compare(bare, measured[0], [CB], before, measured[2], Job())
    assert class_rows(result.before, result.after) == []
    found = features(result.before, result.after)
    assert found.of == OWN_OUTPUT
    assert -1 <= found.cosine < 1
