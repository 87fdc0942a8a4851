from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.state.records import document_of, mixed_record, random_record, record_of, weights_of
from viewer.state.attended import attended
from viewer.state.display import DisplayValue
from viewer.state.references import NO_CONVOLUTION, steps
from viewer.state.scatter import scatter
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
