"""The lesson on real state: what each step shows and says, what is edited, and what is put back."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.state.records import document_of, key_query_record, state_of
from viewer.backends.opening import open_model
from viewer.state.documents import Documents
from viewer.state.lesson import Lesson
from viewer.state.lesson_looks import EYE, EYE_HEAD
from viewer.state.lesson_stage import Stage, nine_patches, sample, sample_is_here
from viewer.state.lesson_steps import STEPS, slide_name
from viewer.state.lesson_table import table
from viewer.state.selection import HeadRef

DIAGONAL = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)


@pytest.fixture(scope="module")
def stage() -> Stage:
    """As many layers, heads and patches as the sample model has, with other attention."""
    document = document_of(key_query_record(12, 6, (16, 16)))
    return Stage(open_model("worked-example"), document.image, document.record, document.measures)


@pytest.fixture
def state():
    """A window's state with one picture open, and a lesson that has begun."""
    documents, selection, display, scene = state_of(key_query_record(3, 2, (4, 5)))
    selection.select_head(HeadRef(2, 1))
    selection.pin((3, 2))
    display.set(replace(display.value, ring=4, theme="talk", opacity=0.3))
    lesson = Lesson(documents, selection, display)
    before = (documents.current, selection.value, display.value)
    lesson.begin(nine_patches(DIAGONAL))
    return documents, selection, display, scene, lesson, before


def said(scene, lesson) -> str:
    return " ".join(lesson.value.step.words(scene.value))


def test_it_begins_at_the_top_left_of_nine_patches(state):
    documents, selection, display, scene, lesson, _ = state
    assert (lesson.value.index, lesson.value.ready) == (0, True)
    assert documents.current.image.name == "nine patches"
    assert len(documents.all) == 1
    assert selection.value.query == (0, 0)
    assert (display.value.ring, display.value.theme, display.value.grid) == (0, "talk", True)
    assert scene.value.overlay.values[2, 2] == pytest.approx(0.298, abs=5e-4)
    assert "Patch 0 is (2.0, 0.0)." in said(scene, lesson)


def test_numbers_of_the_shares_are_those_of_the_views(state):
    *_, scene, lesson, _ = state
    lesson.go(1)
    assert "e^2.8284 = 16.92" in said(scene, lesson)
    assert "sum of all nine, 56.76" in said(scene, lesson)
    listed = table(scene.value, lesson.value.step)
    assert listed.columns == ("score", "exponential", "share")
    assert listed.rows[8].texts == ("2.828", "16.92", "0.298")
    assert listed.rows[1].texts == ("0.000", "1.00", "0.018")
    assert listed.rows[5].name == "5 (1, 2)"
    assert listed.sums == ("", "56.76", "1.000")
    assert [row.asks for row in listed.rows] == [True, *[False] * 8]


def test_another_query_asks_anew(state):
    _, selection, _, scene, lesson, _ = state
    lesson.go(1)
    selection.hover((0, 1))
    listed = table(scene.value, lesson.value.step)
    assert listed.rows[1].asks
    # A dark query scores by the patch's number alone: 0.1 * 0.8 / sqrt(2) with the last.
    assert listed.rows[8].texts[0] == f"{0.08 / 2**0.5:.3f}"
    assert scene.value.overlay.values[2, 2] == pytest.approx(float(listed.rows[8].texts[2]), abs=5e-4)
    assert "Patch 1 scores" in said(scene, lesson)


def test_convolutions_go_hop_by_hop_and_attention_does_not(state):
    _, _, display, scene, lesson, _ = state
    lesson.go(2)
    assert display.value.ring == 1
    assert scene.value.overlay.ring == (0, 0, 2, 2)
    for ring, reached, outside in ((0, 1, "0.702"), (1, 4, "0.369")):
        display.set(replace(display.value, ring=ring))
        listed = table(scene.value, lesson.value.step)
        assert sum(row.reached for row in listed.rows) == reached
        assert not listed.rows[8].reached
        assert f"{outside} of this query's attention lies outside" in said(scene, lesson)
    display.set(replace(display.value, ring=2))
    assert all(row.reached for row in table(scene.value, lesson.value.step).rows)
    assert "reach 9 of the 9 patches (dashed). None of this query's" in said(scene, lesson)
    assert "Patch 8 is 2 hops away: that takes 2 stacked 3x3 convolutions" in said(scene, lesson)
    assert "a share of 0.298 at once" in said(scene, lesson)


def test_brightness_is_edited_and_everything_follows_at_once(state):
    documents, _, _, scene, lesson, _ = state
    lesson.go(3)
    key = documents.current.key
    assert "content beats proximity" in said(scene, lesson)
    lesson.brighten(8, 0.0)
    assert documents.current.key == key
    assert lesson.brightness == (*DIAGONAL[:8], 0.0)
    assert scene.value.overlay.values[2, 2] < 0.03
    assert not scene.value.overlay.seen[200:, 200:].any()
    assert documents.current.measures is not None
    assert "distance takes nothing away" in said(scene, lesson)
    lesson.brighten(1, 0.75)
    assert lesson.brightness[1] == pytest.approx(0.75, abs=0.5 / 255)
    assert "Now the near one holds more" in said(scene, lesson)
    assert table(scene.value, lesson.value.step).rows[1].texts[0] == "0.75"
    lesson.go(2)
    assert lesson.brightness == DIAGONAL


def test_steps_of_the_sample_wait_for_it_and_say_what_is_missing(state, stage):
    documents, selection, _, scene, lesson, _ = state
    told = []
    lesson.changed.connect(told.append)
    lesson.go(4)
    assert not lesson.value.ready
    assert documents.current.image.name == "nine patches"
    lesson.lack("There is no connection.")
    assert told[-1].problem == "There is no connection."
    lesson.go(3)
    assert lesson.value.ready
    lesson.lack("Too late to matter.")
    assert lesson.value.problem == ""
    lesson.go(4)
    lesson.provide("sample", stage)
    assert told[-1].ready
    assert documents.current.record is stage.record
    assert (selection.value.query, selection.value.shown) == (EYE, EYE_HEAD)
    assert "head 5 of layer 6 looks at the other" in said(scene, lesson)


def test_back_and_forth_keeps_both_stages(state, stage):
    documents, *_, lesson, _ = state
    lesson.provide("sample", stage)
    lesson.go(6)
    model = documents.model
    lesson.go(1)
    assert documents.current.image.name == "nine patches"
    lesson.go(7)
    assert documents.model is model
    assert documents.current.record is stage.record
    lesson.go(8)
    lesson.go(-1)
    assert lesson.value.index == 7


@pytest.mark.parametrize("index", range(4, 8))
def test_words_on_a_model_are_whole_sentences_with_units(state, stage, index):
    *_, scene, lesson, _ = state
    lesson.provide("sample", stage)
    lesson.go(index)
    for paragraph in lesson.value.step.words(scene.value):
        assert paragraph[-1] in ".!?"
        assert "nan" not in paragraph
    assert re.search(r"\d patches|\d px", said(scene, lesson))


def test_the_end_puts_back_all_but_the_theme(state):
    documents, selection, display, _, lesson, (document, selected, shown) = state
    lesson.go(2)
    display.set(replace(display.value, theme="dark"))
    ended = []
    lesson.changed.connect(ended.append)
    lesson.end()
    assert ended == [None]
    assert documents.current is document
    assert documents.current.record is document.record
    assert selection.value == selected
    assert display.value == replace(shown, theme="dark")
    assert lesson.value is None
    lesson.go(1)
    lesson.end()
    assert documents.current is document


def test_it_can_begin_twice(state):
    documents, *_, lesson, (document, *_) = state
    lesson.end()
    lesson.begin(nine_patches(DIAGONAL))
    assert lesson.value.index == 0
    lesson.go(3)
    lesson.begin(nine_patches(DIAGONAL))
    assert lesson.value.index == 3
    lesson.end()
    assert documents.current is document


def test_closing_its_picture_ends_it(state):
    documents, *_, lesson, (document, *_) = state
    documents.close(documents.current.key)
    assert lesson.value is None
    assert documents.current is document


def test_rooms_keep_what_they_hold(stage):
    documents = Documents()
    mine = documents.add(stage.image)
    other = documents.furnish(stage.model, stage.image, stage.record, stage.measures)
    left = documents.exchange(other)
    assert documents.current.key != mine.key
    assert documents.get(mine.key) is None
    assert left.current == mine.key
    back = documents.exchange(left)
    assert documents.current is mine
    assert documents.model is None
    assert back.documents[0].record is stage.record
    assert documents.add(stage.image).key not in (mine.key, back.current)


def test_slides_are_named_in_their_order():
    assert slide_name(2, ".png") == "3-hop-by-hop.png"
    assert len({step.name for step in STEPS}) == len(STEPS) == 8


@pytest.mark.skipif(not sample_is_here(), reason="the sample model was not fetched on this machine")
def test_the_sample_says_what_was_measured_of_it():
    from viewer.backends.model import Job

    documents, selection, display, scene = state_of(key_query_record(1, 1, (2, 2)))
    lesson = Lesson(documents, selection, display)
    lesson.begin(nine_patches(DIAGONAL))
    lesson.provide("sample", sample(Job()))
    found = []
    for index in range(4, 8):
        lesson.go(index)
        found.append(said(scene, lesson))
    assert "16 × 16 patches of 14 px. Each of its 12 layers has 6 heads" in found[0]
    assert "52 % of its attention lies on patch (7, 11)" in found[0]
    assert "That is 6 hops, or 85 px: it would take 6 stacked 3x3 convolutions." in found[0]
    assert "Head 1 of layer 1 looks 1.2 patches (16 px) away" in found[1]
    assert "92 % of its attention on patches stays within one hop" in found[1]
    assert "From here, 98 % goes to patch (6, 6)." in found[1]
    assert "uniform attention looks 8.3 patches away" in found[2]
    assert "head 4 of layer 0 spends 41 % on the class token" in found[3]
    assert "it looks 8.1 patches away; counted as 0 (original protocol), 4.8." in found[3]
