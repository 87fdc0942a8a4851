from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.state.records import channel_record, document_of, mixed_record, random_record
from viewer.attention.likeness import measure_likeness
from viewer.state.display import DisplayValue
from viewer.state.likeness import NOT_YET, Likeness, keep, known, likeness
from viewer.state.selection import HeadRef, SelectionValue
from viewer.state.words import model_words, source_words


def compared(record):
    document = document_of(record)
    keep(document.measures, measure_likeness(record, document.measures))
    return document


def describe(document, head=HeadRef(1, None), **display) -> Likeness:  # noqa: B008 - a tuple
    return likeness(document, SelectionValue(head=head), DisplayValue(**display))


def test_none_before_there_are_measures_and_empty_before_they_are_compared():
    record = random_record()
    assert describe(document_of(record, measured=False)) is None
    waiting = describe(document_of(record))
    assert (waiting.values, waiting.blank) == (None, NOT_YET)


def test_what_is_kept_goes_with_the_measures():
    document = compared(random_record())
    assert known(document.measures) is not None
    assert known(document_of(random_record()).measures) is None


def test_layers_are_compared_by_their_mean_or_by_the_shown_head():
    document = compared(random_record(layers=4, heads=3))
    found = known(document.measures)
    fused = describe(document, HeadRef(2, 1))
    assert fused.values is found.plain.fused or np.array_equal(fused.values, found.plain.fused)
    assert (fused.of, fused.shown, fused.title) == ("layers", 2, "How alike the layers are, mean of heads")
    one = describe(document, HeadRef(2, 1), likeness_heads="shown", likeness="centred")
    np.testing.assert_array_equal(one.values, found.centred.heads[1])
    assert one.title == "How alike the layers are, head 1"
    assert "column means removed" in one.label
    assert one.refs[3] == HeadRef(3, 1)


def test_heads_of_the_shown_layer_are_compared():
    document = compared(random_record(layers=4, heads=3))
    heads = describe(document, HeadRef(2, 1), likeness_of="heads")
    np.testing.assert_array_equal(heads.values, known(document.measures).plain.within[2])
    assert (heads.shown, heads.refs) == (1, (HeadRef(2, 0), HeadRef(2, 1), HeadRef(2, 2)))
    assert heads.title == "How alike the heads of layer 2 are"
    assert heads.pair_words(2, 0) == f"layer 2, heads 0 and 2: {heads.values[0, 2]:.3f}"


def test_pairs_have_their_number_or_the_reason_why_not():
    document = compared(mixed_record())
    shown = describe(document)
    whose = "mean of heads: not comparable"
    assert shown.pair_words(1, 1) == "layer 1, mean of heads: 1.000"
    assert shown.pair_words(3, 0) == f"layers 0 and 3, {whose}, their tokens, heads or windows differ"
    assert shown.pair_words(4, 0) == f"layers 0 and 4, {whose}, in layer 4 channels attend to channels"
    third = describe(document, HeadRef(3, 2), likeness_heads="shown")
    assert third.pair_words(0, 0) == "layer 0, head 2: not comparable, layer 0 has no head 2"


def test_words_on_a_pair_can_stand_alone():
    document = compared(random_record(layers=4, heads=3))
    heads = describe(document, HeadRef(2, 1), likeness_of="heads", likeness="centred")
    record = document.record
    first, second = heads.told(0, 2).split("\n")
    assert first == (
        f"Layer 2, heads 0 and 2: {heads.values[0, 2]:.3f} (cosine of attention maps, column means removed; "
        "per key column, mean over keys, prefix tokens included)."
    )
    assert second == source_words(record, document.image.name)
    assert document.image.name in second and model_words(record.provenance.model) in second


def test_nothing_to_compare_is_a_sentence():
    blank = describe(compared(channel_record()), HeadRef(0, None))
    assert blank.values is None
    assert "in no layer do patches attend to patches" in blank.blank
    heads = describe(compared(mixed_record()), HeadRef(4, None), likeness_of="heads")
    assert heads.blank == "Nothing to compare: in layer 4 channels attend to channels."


@pytest.mark.parametrize(
    ("least", "low", "texts"),
    [
        (0.3, 0.0, ["0", "0.25", "0.5", "0.75", "1"]),
        (-0.04, -0.1, ["-0.1", "0", "0.25", "0.5", "0.75", "1"]),
        (-0.62, -0.7, ["-0.7", "0", "0.5", "1"]),
        (-1.0, -1.0, ["-1", "-0.5", "0", "0.5", "1"]),
    ],
)
def test_the_colour_bar_begins_at_0_or_below_all(least, low, texts):
    document = compared(random_record(layers=2))
    found = known(document.measures)
    values = np.array([[1.0, least], [least, 1.0]])
    keep(document.measures, replace(found, plain=replace(found.plain, fused=values)))
    shown = describe(document)
    assert shown.low == pytest.approx(low)
    assert [text for _, text in shown.ticks] == texts
    for share, text in shown.ticks:
        assert shown.low + share * (1 - shown.low) == pytest.approx(float(text), abs=1e-9)
