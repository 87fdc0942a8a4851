"""Maps over the picture other than raw attention: what they show, their words, and what they need."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from tests.state.records import document_of, mixed_record, random_record
from viewer.attention.class_rollout import ClassRollout
from viewer.attention.record import Prediction
from viewer.attention.rollout import rollout
from viewer.backends.model import Job
from viewer.errors import MapError
from viewer.state.display import DisplayValue, MapKind
from viewer.state.maps import MAPS, kept, mapped, wanted, work_out
from viewer.state.scale import ticks
from viewer.state.scene import compose
from viewer.state.selection import HeadRef, SelectionValue

AT = SelectionValue(hovered=(2, 3), head=HeadRef(1, 1))
ROLLOUT = DisplayValue(map="rollout")
NORMS = DisplayValue(map="norms")
CLASS = DisplayValue(map="class rollout")


def with_norms(record, norms):
    """The same record, with given norms of its tokens ahead of every layer."""
    layers = tuple(replace(layer, stream_norms=np.float32(norms)) for layer in record.layers)
    return replace(record, layers=layers)


def rolled(display=ROLLOUT, selection=AT, record=None):
    document = mapped(document_of(record or random_record()), None, display, Job())
    return document, compose(document, selection, display)


def test_every_kind_has_a_row():
    assert {row.kind for row in MAPS} >= set(get_args(MapKind))
    assert MAPS[0].kind == DisplayValue().map == "attention"


# -- rollout


def test_a_rollout_shows_the_row_of_the_query():
    document, scene = rolled()
    matrix = rollout(document.record).matrix
    token = document.record.layout.token((2, 3))
    np.testing.assert_array_equal(scene.overlay.values.ravel(), matrix[token, 1:])
    assert scene.overlay.prefix == (("cls", pytest.approx(float(matrix[token, 0]))),)
    title = "Rollout of layers 0 to 2, mean of heads: what patch (row 2, column 3) draws on"
    assert scene.overlay.title == title
    assert scene.overlay.label == "rollout weight"
    assert scene.overlay.layers == (0, 1, 2)
    assert "Rolled out, patch (row 2, column 3) draws" in scene.readout
    assert scene.heads.title.startswith("Every head: what patch"), "the heads stay with raw attention"


def test_a_column_shows_who_draws_on_the_query():
    document, scene = rolled(selection=replace(AT, direction="to"))
    matrix = rollout(document.record).matrix
    np.testing.assert_array_equal(
        scene.overlay.values.ravel(), matrix[1:, document.record.layout.token((2, 3))]
    )
    assert scene.overlay.title.endswith("which patches draw on patch (row 2, column 3)")
    assert scene.overlay.label == "rollout weight on patch (2, 3)"


def test_a_prefix_token_can_be_asked():
    document, scene = rolled(selection=replace(AT, hovered="cls"))
    np.testing.assert_array_equal(scene.overlay.values.ravel(), rollout(document.record).matrix[0, 1:])
    assert scene.overlay.title.endswith("what the class token draws on")


def test_one_scale_for_all_queries_or_each_its_own():
    shared = rolled()[1].overlay
    other = rolled(selection=replace(AT, hovered=(0, 0)))[1].overlay
    assert shared.vmax == other.vmax
    assert shared.scale_label == "one scale for all queries"
    own = rolled(replace(ROLLOUT, scale="per head"))[1].overlay
    assert own.largest == pytest.approx(float(own.values.max()))
    assert own.scale_label == "this map's own scale"


def test_fusion_and_start_are_in_the_words_and_in_what_is_worked_out():
    display = replace(ROLLOUT, rollout_fusion="max", start_layer=2)
    document, scene = rolled(display)
    token = document.record.layout.token((2, 3))
    np.testing.assert_array_equal(
        scene.overlay.values.ravel(), rollout(document.record, "max", 2).matrix[token, 1:]
    )
    assert scene.overlay.title.startswith("Rollout of layer 2, max of heads")
    assert wanted(document, display) is None
    assert wanted(document, ROLLOUT) == ("rollout", "mean", 0)


def test_while_it_is_worked_out_the_picture_is_bare():
    document = document_of(random_record())
    overlay = compose(document, AT, ROLLOUT).overlay
    assert overlay.values is None
    assert overlay.blank == ""
    assert overlay.title == "Rollout of layers 0 to 2, mean of heads: being worked out"
    failed = replace(document, maps={("rollout", "mean", 0): "there was no memory"})
    assert compose(failed, AT, ROLLOUT).overlay.blank == "there was no memory"
    assert wanted(failed, ROLLOUT) is None


def test_without_a_query_it_says_what_to_do():
    _, scene = rolled(selection=replace(AT, hovered=None))
    assert scene.overlay.title.endswith("point at a patch to see what it draws on")


def test_where_layers_differ_there_is_a_sentence():
    record = mixed_record()
    document = document_of(record, measured=False)
    overlay = compose(document, AT, ROLLOUT).overlay
    reason = "a rollout needs the same tokens in every layer, but layer 0 attends within windows"
    assert (overlay.blank, overlay.values) == (reason, None)
    assert overlay.title == f"Rollout: no map, {reason}"
    assert wanted(document, ROLLOUT) is None
    with pytest.raises(MapError, match=r"The rollout map can't be had: .* within windows\."):
        mapped(document, None, ROLLOUT, Job())


# -- norms


def test_norms_are_those_ahead_of_the_shown_layer():
    norms = np.arange(1, 22)
    record = with_norms(random_record(), norms)
    overlay = compose(document_of(record), AT, NORMS).overlay
    np.testing.assert_array_equal(overlay.values.ravel(), norms[1:])
    assert overlay.prefix == (("cls", 1.0),)
    assert overlay.vmax >= 21, "norms may be larger than 1"
    assert overlay.title == "Norms of the residual stream entering layer 1: no high-norm patch"
    assert (overlay.label, overlay.scale_label) == ("token norm", "this layer's own scale")
    assert overlay.marked == ()


def test_high_norm_patches_are_outlined_by_a_rule_that_is_said():
    norms = np.full(21, 2.0)
    norms[[1 + 7, 1 + 19]] = 6.1, 50
    scene = compose(document_of(with_norms(random_record(), norms)), AT, NORMS)
    assert scene.overlay.marked == ((1, 2), (3, 4))
    assert scene.overlay.title.endswith(": 2 high-norm patches")
    rule = "more than 3 times the median patch's norm"
    assert scene.overlay.caption.startswith(f"Outlined: 2 high-norm patches, {rule}. ")
    assert f"2 high-norm patches ({rule})" in scene.readout
    assert "Patch (row 2, column 3): 2, 1.00 times the median." in scene.readout


def test_the_frame_on_a_map_that_asks_no_patch_is_explained_with_the_patchs_number():
    norms = np.full(21, 2.0)
    norms[1 + 2 * 5 + 3] = 4.25
    document = document_of(with_norms(random_record(), norms))
    said = "Orange frame: patch (row 2, column 3), token norm 4.25. Model input"
    assert compose(document, AT, NORMS).overlay.caption.startswith(said)
    assert "frame" not in compose(document, replace(AT, hovered="cls"), NORMS).overlay.caption
    assert "frame" not in compose(document, AT, DisplayValue()).overlay.caption, "there it is the query"


def test_a_prefix_token_above_all_patches_lies_above_the_scale_too():
    norms = np.full(21, 2.0)
    norms[0] = 9
    overlay = compose(document_of(with_norms(random_record(), norms)), AT, NORMS).overlay
    assert (overlay.vmax, overlay.highest) == (2.0, 9.0)
    assert ticks(overlay.vmax, overlay.highest, 3)[-1] == (1.0, "≥ 2")


def test_norms_that_are_not_known_have_a_reason():
    record = random_record()
    layers = tuple(replace(layer, no_norms="there is no normalization") for layer in record.layers)
    document = document_of(replace(record, layers=layers))
    assert compose(document, AT, NORMS).overlay.blank == "there is no normalization"
    with pytest.raises(MapError, match="The norms map can't be had: there is no normalization"):
        mapped(document, None, NORMS, Job())
    broken = with_norms(record, [np.nan] * 21)
    assert compose(document_of(broken), AT, NORMS).overlay.blank == (
        "the model's numbers are not finite for this picture"
    )


# -- class rollout


def classified():
    record = replace(
        random_record(),
        output=np.float32([0.1, 3.0, 1.0]),
        prediction=Prediction(("hen", "cat"), (0.8, 0.1)),
    )
    layout = record.layers[0].query_layout
    relevance = np.linspace(0, 0.4, 21, dtype=np.float32)
    found = ClassRollout(relevance, layout, 0, 1, np.array([0]))
    return replace(document_of(record), maps={("class rollout", 1, 0): found})


def test_the_class_is_the_models_best_until_another_is_chosen():
    document = classified()
    overlay = compose(document, AT, CLASS).overlay
    assert overlay.title == "Class rollout of layers 0 to 2: what speaks for class 1 (hen)"
    np.testing.assert_allclose(overlay.values.ravel(), np.linspace(0, 0.4, 21)[1:], rtol=1e-6)
    assert overlay.label == "relevance (logits)"
    assert wanted(document, replace(CLASS, map_class=2)) == ("class rollout", 2, 0)
    other = compose(document, AT, replace(CLASS, map_class=2)).overlay
    assert other.title.endswith("what speaks for class 2 (cat) is being worked out")
    unlisted = compose(document, AT, replace(CLASS, map_class=0)).overlay
    assert "class 0 is being worked out" in unlisted.title
    beyond = compose(document, AT, replace(CLASS, map_class=3)).overlay
    assert beyond.blank == "there is no class 3; the model has 3, from 0 on"


def test_it_is_one_map_for_every_query_and_says_where_the_class_is_read():
    scene = compose(classified(), AT, CLASS)
    other = compose(classified(), replace(AT, hovered=(0, 0)), CLASS)
    np.testing.assert_array_equal(scene.overlay.values, other.overlay.values)
    assert (
        "For class 1 (hen), read from the class token, patch (3, 4) speaks most, with 9.5 %" in scene.readout
    )
    assert "Patch (row 2, column 3): 6.7 %." in scene.readout


def test_work_of_a_class_needs_the_model_that_made_the_record():
    document = classified()
    with pytest.raises(MapError, match="it needs gradients, which NoneType does not give"):
        work_out(document, None, ("class rollout", 1, 0), Job())


def test_few_results_are_kept():
    maps: dict = {}
    for number in range(5):
        maps = kept(maps, ("rollout", "mean", number), number)
    assert list(maps.values()) == [2, 3, 4]
    assert list(kept(maps, ("rollout", "mean", 3), 9).values()) == [2, 4, 9]
