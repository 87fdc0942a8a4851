"""Kinds of heads: made maps that are plainly of one kind, and the numbers that each verdict shows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.attention.builders import layer_of, map_as_weights, random_scores, record_of, window_map
from tests.state.records import mixed_record
from viewer.attention.density import dense_share, density_reference, nearer_to_uniform
from viewer.attention.even import even_measures
from viewer.attention.kinds import NUMBERS, RULES, HeadKind, head_kinds, kind_of
from viewer.attention.layout import TokenLayout
from viewer.attention.sweep import measure_record

GRID = (14, 14)
PLAIN = TokenLayout.regular(GRID, (16, 16))
ROWS, COLUMNS = np.divmod(np.arange(196), 14)


def kind(attention: np.ndarray, layout: TokenLayout = PLAIN) -> HeadKind:
    layer = layer_of(map_as_weights(attention), layout)
    return head_kinds(layer, measure_record(record_of(layer)).layers[0])[0]


def at_offset(down: int, across: int) -> np.ndarray:
    """Every query looks so far away where the picture goes on there, else evenly."""
    there = (ROWS[:, None] + down == ROWS) & (COLUMNS[:, None] + across == COLUMNS)
    found = np.where(there.any(axis=1, keepdims=True), there, 1.0)
    return found / found.sum(axis=1, keepdims=True)


def on_one_patch(row: int, column: int, share: float) -> np.ndarray:
    attention = np.full((196, 196), (1 - share) / 196)
    attention[:, row * 14 + column] += share
    return attention


def by_content() -> np.ndarray:
    """Bright patches, spread at random, look at bright ones and dark at dark."""
    bright = np.random.default_rng(0).random(196) < 0.5
    alike = (bright[:, None] == bright).astype(float)
    return alike / alike.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("attention", "expected", "said"),
    [
        pytest.param(
            window_map(GRID, 1),
            "local",
            "Does what a convolution could: attention within 1 hop 1.00 ≥ 0.5, "
            "the same relative to uniform 24.01 ≥ 2.",
            id="3x3 window",
        ),
        pytest.param(np.eye(196), "local", "attention within 1 hop 1.00 ≥ 0.5", id="identity"),
        pytest.param(
            at_offset(3, -2), "positional", "variance explained by the offset 1.00 ≥ 0.5", id="an offset"
        ),
        pytest.param(
            on_one_patch(2, 3, 0.4),
            "sink",
            "Most queries look at the same few keys: attention on sink tokens 0.40 ≥ 0.3.",
            id="one patch",
        ),
        pytest.param(
            np.full((196, 196), 1 / 196),
            "global",
            "Looks evenly over all there is: normalized entropy 1.00 ≥ 0.9, "
            "distance relative to uniform 1.00 ≥ 0.8.",
            id="uniform",
        ),
    ],
)
def test_plain_cases(attention, expected, said):
    found = kind(attention)
    assert found.kind == expected
    assert said in found.reason


def test_what_no_rule_names_is_content_and_shows_every_number():
    attention = by_content()
    attention = np.where(np.random.default_rng(1).random((196, 196)) < 0.2, attention, 0)
    found = kind(attention / attention.sum(axis=1, keepdims=True))
    assert found.kind == "content"
    assert [one.limit.measure for one in found.numbers] == list(NUMBERS)
    for one in found.numbers:
        assert str(one) in found.reason
        assert f"{one.limit.least:g}" in str(one)


def test_a_sink_comes_before_all_else():
    layout = TokenLayout.regular(GRID, (16, 16), ["cls"])
    attention = np.zeros((197, 197))
    attention[:, 0] = 0.5
    attention[1:, 1:] = 0.5 * window_map(GRID, 1)
    attention[0, 0] = 1
    found = kind(attention, layout)
    assert found.kind == "sink"
    assert [one.value for one in found.numbers] == [pytest.approx(0.5)]


def test_the_number_that_decided_is_told_apart_from_its_limit():
    numbers = dict.fromkeys(NUMBERS, 0.0)
    assert "0.29997 < 0.3" in kind_of({**numbers, "sink_mass": 0.29997}).reason
    assert "0.30 ≥ 0.3" in kind_of({**numbers, "sink_mass": 0.3}).reason
    assert kind_of(numbers).kind == "content"
    assert kind_of(numbers).reason.startswith("None of the other rules applies: ")


def test_each_rule_names_its_source_and_asks_for_measures_there_are():
    assert [rule.kind for rule in RULES] == ["sink", "local", "positional", "global"]
    assert all(rule.source and rule.limits for rule in RULES)


def test_layers_without_patches_have_no_kind():
    record = mixed_record()
    kinds = [
        {one.kind for one in head_kinds(layer, measured)}
        for layer, measured in zip(record.layers, measure_record(record).layers, strict=True)
    ]
    assert kinds[4] == {"undefined"}
    assert all("undefined" not in found for at, found in enumerate(kinds) if at != 4)
    assert head_kinds(record.layers[4], measure_record(record).layers[4])[0].reason == (
        "No attention goes from patches to patches."
    )


def test_pooled_keys_are_judged_by_what_is_defined():
    record = mixed_record()
    found = head_kinds(record.layers[2], measure_record(record).layers[2])[0]
    assert "variance explained by the offset is not defined" in found.reason
    assert math.isnan(next(one.value for one in found.numbers if one.limit.measure == "offset_share"))


def test_small_windows_are_not_local_by_themselves():
    layout = TokenLayout.regular((2, 2), (16, 16))
    assert kind(np.full((4, 4), 0.25), layout).kind == "global"


def test_density_is_told_by_the_nearer_of_two_references():
    layer = layer_of(random_scores(0, 1, 196), PLAIN)
    reference = density_reference(layer)
    assert reference.uniform == pytest.approx(5.27811, abs=1e-5)
    assert reference.local == pytest.approx(2.08138, abs=1e-5)
    assert reference.limit == pytest.approx((5.27811 + 2.08138) / 2, abs=1e-5)
    for hops, dense in ((1, False), (2, False), (4, True), (13, True)):
        layer = layer_of(map_as_weights(window_map(GRID, hops)), PLAIN)
        measured = measure_record(record_of(layer)).layers[0]
        assert list(nearer_to_uniform(layer, measured)) == [dense]
        assert dense_share(layer, measured) == float(dense)


def test_the_references_of_density_are_those_of_what_queries_can_reach():
    record = mixed_record()
    measures = measure_record(record).layers
    whole, masked, pooled, _, channels, last = map(density_reference, record.layers)
    assert whole.uniform == pytest.approx(math.log(16))
    assert masked.uniform < whole.uniform
    assert masked.local < whole.local < whole.uniform
    assert pooled.uniform == pytest.approx(math.log(4))
    assert last.uniform == pytest.approx(math.log(19))
    assert math.isnan(channels.local)
    assert nearer_to_uniform(record.layers[4], measures[4]) is None
    assert math.isnan(dense_share(record.layers[4], measures[4]))


def test_references_are_found_once_for_layers_alike_and_for_each_mask_alone():
    record = mixed_record()
    windows = record.layers[0]
    assert even_measures(windows) is even_measures(replace(windows, index=7))
    assert even_measures(windows) is not even_measures(windows, window=True)
    masked = record.layers[1]
    assert even_measures(masked) is even_measures(masked)
    assert even_measures(masked) is not even_measures(replace(masked, index=7))
