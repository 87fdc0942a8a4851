"""How changes are written, told and refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewer.backends.what_if import KINDS, Change, is_removed, note, parse, sentence

WRITTEN = [
    ("cb", Change("cb", amount=0.5), "Context Broadcasting (strength 0.5) after the MLP of every layer"),
    (
        "cb:layers=0-3+7,strength=.25",
        Change("cb", (0, 1, 2, 3, 7), amount=0.25),
        "Context Broadcasting (strength 0.25) after the MLP of layers 0 to 3, 7",
    ),
    ("uniform:layer=3", Change("uniform", (3,)), "uniform attention in layer 3"),
    ("uniform", Change("uniform"), "uniform attention in every layer"),
    ("local:layers=all,hops=2", Change("local", amount=2), "attention within 2 hops in every layer"),
    ("local:hops=1,head=0", Change("local", heads=(0,)), "attention within 1 hop in head 0 of every layer"),
    ("skip:layers=2+1", Change("skip", (1, 2)), "the block of layers 1 to 2 skipped"),
    ("head-removed:layer=3,head=2", Change("head-removed", (3,), (2,)), "head 2 of layer 3 removed"),
    ("head-removed:heads=all", Change("head-removed"), "every head of every layer removed"),
    (" temperature : t = 0.5 ", Change("temperature", amount=0.5), "temperature 0.5 in every layer"),
]


@pytest.mark.parametrize(("text", "change", "words"), WRITTEN)
def test_what_is_written_is_read_and_told(text, change, words):
    assert parse(text) == change
    assert change.words == words
    assert parse(change.text) == change


WRONG = [
    (
        "unifrom",
        "there is no change 'unifrom'; there are cb, uniform, local, skip, head-removed, temperature",
    ),
    ("", "there is no change ''; there are cb, uniform, local, skip, head-removed, temperature"),
    ("cb:strenght=0.5", "cb has no setting 'strenght=0.5'; it takes layers, strength"),
    ("cb:heads=1", "cb has no setting 'heads=1'; it takes layers, strength"),
    ("cb:strength=2", "strength of cb is a number from 0 to 1, not 2"),
    ("cb:strength=half", "strength of cb is 'half', which is no plain number"),
    ("local:hops=1.5", "hops of local is a whole number from 0 to 9999, not 1.5"),
    ("temperature:t=0", "t of temperature is a number from 0.01 to 100, not 0"),
    ("uniform:layers=3-1", "'3-1' names no layers; write all, 3, 0-3 or 0-3+7"),
    ("uniform:layer", "uniform has no setting 'layer'; it takes layers, heads"),
    ("uniform:layers=0-8,8", "a comma parts settings; join numbers with +: layers=0-8+8"),
    ("uniform:head=1, 3-4,layer=2", "a comma parts settings; join numbers with +: head=1+3-4"),
    ("local:hops=1,2", "local has no setting '2'; it takes layers, heads, hops"),
    ("uniform:layer=1,layers=2", "layers of uniform is given twice"),
    (
        "head-removed:layer=3",
        "head-removed wants to know which: head-removed:layer=3,head=2, or heads=all",
    ),
]


@pytest.mark.parametrize(("text", "sentence"), WRONG)
def test_what_is_wrong_is_said(text, sentence):
    with pytest.raises(ValueError) as refusal:
        parse(text)
    assert str(refusal.value) == sentence


NUMBERS = st.lists(st.integers(0, 99), max_size=5, unique=True).map(lambda found: tuple(sorted(found)))


@given(st.sampled_from(sorted(KINDS)), NUMBERS, NUMBERS, st.floats(0, 1))
def test_every_change_is_read_as_it_is_written(name, layers, heads, share):
    kind = KINDS[name]
    amount = None
    if kind.amount is not None:
        amount = kind.amount.low + share * (min(kind.amount.high, 50) - kind.amount.low)
        amount = round(amount) if kind.amount.whole else amount
    change = Change(name, layers, heads if kind.of_heads else (), amount)
    assert parse(change.text) == change


def test_a_sentence_names_them_all():
    changes = [Change("uniform", (3,)), Change("skip", (1,))]
    assert sentence(changes) == "what if: uniform attention in layer 3; the block of layer 1 skipped"
    assert sentence([]) == ""
    assert note(changes).endswith("This is an intervention on a model that was not trained with it.")


@pytest.mark.parametrize(
    ("text", "idle"), [("cb:strength=0", True), ("cb", False), ("temperature:t=1", True)]
)
def test_changes_that_change_nothing_are_known(text, idle):
    assert parse(text).idle == idle


def test_removed_heads_are_known():
    texts = ("uniform:layers=all", "head-removed:layers=1-2,heads=0+3", "head-removed:layers=5,heads=all")
    removed = [(layer, head) for layer in range(6) for head in range(4) if is_removed(texts, layer, head)]
    assert removed == [(1, 0), (1, 3), (2, 0), (2, 3), (5, 0), (5, 1), (5, 2), (5, 3)]
