from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.state.records import (
    channel_record,
    document_of,
    mixed_record,
    random_record,
    record_of,
    weights_of,
)
from viewer.attention import measures
from viewer.attention.measures import MEASURES
from viewer.state.attended import attended
from viewer.state.axes import Axis, axis_of, is_known
from viewer.state.display import DisplayValue
from viewer.state.ranges import nice_range
from viewer.state.references import NO_CONVOLUTION, steps
from viewer.state.scatter import scatter, scatter_of
from viewer.state.selection import HeadRef, SelectionValue

WHOLE = HeadRef(0, None)


def describe(record, query=(2, 3), direction="from", head=WHOLE, **display):
    document = document_of(record)
    found = None if query is None else attended(document, query, direction)
    selection = SelectionValue(hovered=query, direction=direction, head=head)
    return scatter(document, found, selection, DisplayValue(**display))


def uniform_record(prefix=("cls",)):
    tokens = 196 + len(prefix)
    return record_of([torch.full((2, tokens, tokens), 1 / tokens)] * 13, (14, 14), prefix)


def test_none_until_the_heads_are_measured():
    document = document_of(random_record(), measured=False)
    assert scatter(document, None, SelectionValue(), DisplayValue()) is None


@pytest.mark.parametrize(
    ("protocol", "unit", "expected"),
    [("renormalized", "px", 116.4922), ("renormalized", "patches", 7.28076), ("original", "px", 115.9009)],
)
def test_uniform_heads_lie_on_the_uniform_line(protocol, unit, expected):
    shown = describe(uniform_record(), protocol=protocol, unit=unit)
    assert shown.reference("uniform").y == pytest.approx(expected, abs=1e-4)
    np.testing.assert_allclose(shown.y, expected, rtol=1e-5)
    np.testing.assert_allclose(shown.prefix_mass, 1 / 197, rtol=1e-5)
    np.testing.assert_allclose(shown.query_y, shown.reference("uniform query").y[0], rtol=1e-5)


def test_a_corner_query_has_a_uniform_line_of_its_own():
    corner = describe(uniform_record(()), query=(0, 0))
    assert corner.reference("uniform query").y == pytest.approx(161.0302, abs=1e-4)
    assert corner.reference("uniform").y == pytest.approx(116.4922, abs=1e-4)


def test_the_convolution_line_is_one_more_convolution_a_layer():
    # 71.7747 and 114.5947 are what MEASURES.md gives as 71.78 and 114.60.
    expected = [16.70, 28.83, 40.22, 51.15, 61.66, 71.78, 81.50, 90.61, 98.73, 105.56, 110.91, 114.60, 116.49]
    np.testing.assert_allclose(describe(uniform_record()).reference("convolution").y, expected, atol=0.006)


def test_one_dot_a_head_with_the_querys_own_distance():
    weights = [weights_of(2, 20), weights_of(3, 20, 1)]
    shown = describe(record_of(weights, (4, 5), ()), unit="patches")
    assert list(zip(shown.layer.tolist(), shown.head.tolist(), strict=True)) == [
        (0, 0), (0, 1), (1, 0), (1, 1), (1, 2),
    ]  # fmt: skip
    rows, columns = np.divmod(np.arange(20), 5)
    apart = np.hypot(rows - 2, columns - 3)
    np.testing.assert_allclose(shown.query_y[4], weights[1][2, 13].numpy() @ apart, rtol=1e-5)
    assert shown.query_label == "patch (2, 3)"


@pytest.mark.parametrize(("query", "direction"), [(None, "from"), ("cls", "from"), ((2, 3), "to")])
def test_no_dots_of_a_query_that_has_no_distance(query, direction):
    shown = describe(random_record(), query=query, direction=direction)
    assert shown.query_y is None
    assert shown.reference("uniform query") is None
    assert shown.query_label == ""


def test_pooling_layers_have_no_dots():
    record = record_of([weights_of(2, 20)], (4, 5), (), pooling=torch.full((1, 1, 20), 0.05))
    shown = describe(record)
    assert shown.layer.tolist() == [0, 0]
    assert shown.layers == 2


@pytest.mark.parametrize(
    ("display", "words"),
    [
        ({}, "mean attention distance (px), renormalized over patches"),
        (
            {"protocol": "original", "unit": "patches"},
            "mean attention distance (patches), original protocol, prefix tokens count as 0",
        ),
    ],
)
def test_the_axis_names_unit_and_protocol(display, words):
    assert describe(random_record(), **display).y_axis.label == words


def test_the_dots_are_read_once_for_all_hovers():
    document = document_of(random_record())
    first, second = (
        scatter(document, attended(document, query, "from"), SelectionValue(hovered=query), DisplayValue())
        for query in ((0, 0), (1, 1))
    )
    assert first.y is second.y
    assert not np.array_equal(first.query_y, second.query_y)
    other = scatter(replace(document, measures=document_of(random_record()).measures), None,
                    SelectionValue(), DisplayValue())  # fmt: skip
    assert other.y is not first.y


def test_layers_are_measured_against_what_they_can_reach():
    record = mixed_record()
    shown = describe(record, query=(2, 5))
    assert shown.layer.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 3, 5, 5, 5]
    uniform = shown.reference("uniform")
    np.testing.assert_array_equal(uniform.x[[0, -1]], [-0.6, 5.6])
    levels = dict(zip((uniform.x[0::3] + 0.5).round().astype(int), uniform.y[0::3], strict=True))
    assert list(levels) == [0, 1, 2, 3, 5]
    assert levels[1] < levels[0] < levels[3]
    assert levels[3] == pytest.approx(levels[5])
    document = document_of(record)
    for dot, (layer, head) in enumerate(zip(shown.layer, shown.head, strict=True)):
        rows, columns = record.layers[layer].query_layout.grid
        step = 8 // rows
        place = (2 // step) * columns + 5 // step
        own = document.measures.layers[layer].query_distance("renormalized")[head, place]
        assert shown.query_y[dot] == own
    assert shown.query_label == "patch (2, 5 of 8 × 8)"
    assert shown.reference("convolution") is None
    assert shown.missing == (NO_CONVOLUTION,)


def test_a_level_for_each_layer_is_drawn_as_one_line_where_layers_agree():
    shown = describe(random_record())
    x, y = steps(np.array([2.0, 2.0, 3.0, np.nan, 3.0]))
    np.testing.assert_array_equal(x, [-0.6, 1.5, np.nan, 1.5, 2.5, np.nan, 3.5, 4.6])
    np.testing.assert_array_equal(y, [2, 2, np.nan, 3, 3, np.nan, 3, 3])
    np.testing.assert_allclose(shown.reference("uniform").x, [-0.6, 2.6])
    assert [len(part) for part in steps(np.full(3, np.nan))] == [0, 0]


@pytest.mark.parametrize(
    "measure", [m for m in MEASURES if not m.name.startswith("mean_distance")], ids=lambda m: m.name
)
def test_every_measure_lies_along_either_axis(measure):
    record = random_record(sharp=3.0)
    document = document_of(record)
    up = describe(record, y_measure=measure.name)
    expected = np.concatenate([measure.of_heads(m, "renormalized") for m in document.measures.layers])
    np.testing.assert_allclose(up.y, expected, rtol=1e-6)
    assert up.y_axis.label.startswith(measure.words) and measure.unit in up.y_axis.label
    across = describe(record, x_measure=measure.name, y_measure="mean_distance", unit="patches")
    np.testing.assert_allclose(across.x, expected, rtol=1e-6)
    assert across.y_axis.name == "mean_distance_patches"
    if measure.of_queries is None:
        assert up.query_y is None and any("one query has none" in why for why in up.missing)
    else:
        own = [measure.of_queries(m, "renormalized")[:, 2 * 5 + 3] for m in document.measures.layers]
        np.testing.assert_allclose(up.query_y, np.concatenate(own), rtol=1e-6)
        np.testing.assert_allclose(across.query_x, np.concatenate(own), rtol=1e-6)


@pytest.mark.parametrize(
    "name", ["mean_distance", "mean_hops", "entropy_nats", "local_1", "nmi", "row_cosine"]
)
def test_uniform_heads_lie_on_the_reference_of_every_measure(name):
    shown = describe(uniform_record(), y_measure=name)
    levels = shown.reference("uniform").y
    np.testing.assert_allclose(shown.y, levels[0], rtol=1e-4, atol=1e-5)


def test_hops_have_a_line_for_convolutions_and_entropy_has_none():
    hops = describe(uniform_record(), y_measure="mean_hops").reference("convolution").y
    # 3x3 windows on 14 x 14, cut off at the border: 8 neighbours inside, 5 at an edge, 3 in a corner.
    assert hops[0] == pytest.approx((144 * 8 / 9 + 48 * 5 / 6 + 4 * 3 / 4) / 196)
    assert (np.diff(hops) > 0).all()
    entropy = describe(uniform_record(), y_measure="entropy_nats")
    assert entropy.reference("convolution") is None and entropy.missing == ()


def test_two_measures_meet_uniform_attention_in_a_point():
    shown = describe(uniform_record(()), x_measure="mean_distance", y_measure="entropy_nats", query=(0, 0))
    point, own = shown.reference("uniform"), shown.reference("uniform query")
    assert point.points and own.points
    np.testing.assert_allclose([point.x[0], point.y[0]], [116.4922, 5.27811], atol=1e-4)
    np.testing.assert_allclose([own.x[0], own.y[0]], [161.0302, 5.27811], atol=1e-4)
    assert shown.reference("convolution") is None
    assert shown.title == "Entropy against mean attention distance of each head"
    assert shown.head_words(0) == "layer 0, head 0: entropy 5.28 nats, mean attention distance 116.5 px"


def test_where_one_axis_has_no_reference_the_other_is_a_line_across(monkeypatch):
    lacking = [replace(m, uniform=None) if m.name == "entropy_nats" else m for m in MEASURES]
    monkeypatch.setattr(measures, "MEASURES", tuple(lacking))
    shown = describe(uniform_record(()), x_measure="mean_distance", y_measure="entropy_nats")
    line = shown.reference("uniform")
    assert not line.points
    np.testing.assert_allclose(line.x, 116.4922, atol=1e-4)
    assert line.y.tolist() == [-np.inf, np.inf]
    assert np.isfinite(nice_range(shown, "y")).all()


def test_pooling_layers_have_dots_where_they_have_the_measure():
    record = record_of([weights_of(2, 20)], (4, 5), (), pooling=torch.full((1, 1, 20), 0.05))
    shown = describe(record, y_measure="entropy_nats")
    assert shown.layer.tolist() == [0, 0, 1]
    assert shown.y[2] == pytest.approx(np.log(20))
    assert np.isnan(shown.query_y).tolist() == [False, False, True]


def test_nothing_but_channels_has_no_dots_and_says_so():
    shown = describe(channel_record(), query=None, y_measure="nmi")
    assert len(shown.layer) == 0
    assert shown.blank.startswith("Nothing to draw: mutual information")


def test_a_scatter_of_plain_numbers_has_error_bars_and_room_for_them():
    axis = axis_of("mean_distance", "renormalized", "px")
    ends = np.array([[10.0, 30.0], [20.0, 260.0], [5.0, 8.0]])
    shown = scatter_of([0, 0, 1], [0, 1, 0], [20.0, 90.0, 7.0], axis, spread=ends, layers=3)
    assert shown.layers == 3 and shown.title == "How far each head reaches"
    assert shown.head_words(1) == "layer 0, head 1: 90.0 px (20.0 px to 260.0 px)"
    assert nice_range(shown, "y") == (0, 300)
    assert nice_range(shown, "x") == (-0.6, 2.6)
    np.testing.assert_array_equal(shown.x.round(), [0, 0, 1])
    assert not shown.picked.any()
    assert scatter_of([], [], [], axis).blank


def test_shares_end_at_one_and_negative_numbers_have_room():
    def ends(values, axis):
        return nice_range(scatter_of([0] * len(values), range(len(values)), values, axis), "y")

    share = axis_of("normalized_entropy", "renormalized", "px")
    assert ends([0.2, 0.98], share) == (0, 1)
    assert ends([0.2, 0.61], share) == (0, 0.65)
    assert ends([-3.0, 8.0], Axis("difference", "difference")) == (-3.5, 8.5)


def test_a_wrong_name_lists_all_there_are():
    with pytest.raises(LookupError, match="entropy_nats"):
        axis_of("entropie", "renormalized", "px")
    assert is_known("mean_distance") and is_known("nmi") and is_known("layer", with_layer=True)
    assert not is_known("layer") and not is_known(3) and not is_known("entropie")
