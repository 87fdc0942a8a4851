"""The table of measures: every row gives a number a head, within its ends, and meets its own reference."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from tests.attention.builders import layer_of, map_as_weights, measures_of, random_scores, record_of
from tests.state.records import mixed_record
from viewer.attention.layout import TokenLayout
from viewer.attention.measures import MEASURES, measure_named, quartiles
from viewer.attention.scores import QueryKeyScores
from viewer.attention.sweep import measure_record

LAYOUT = TokenLayout.regular((4, 5), (16, 8), ["cls"])
PROTOCOLS = ("renormalized", "original")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.name)
def test_every_head_gets_a_number_within_the_ends(measure, protocol):
    found = measures_of(random_scores(1, 3, LAYOUT.tokens), LAYOUT)
    heads = measure.of_heads(found, protocol)
    assert heads.dtype == np.float64
    assert heads.shape == (3,)
    high = np.inf if measure.high is None else measure.high
    assert np.all((heads >= measure.low) & (heads <= high))
    if measure.of_queries is not None:
        queries = measure.of_queries(found, protocol)
        assert queries.shape == (3, 20)
        assert np.all((queries >= measure.low - 1e-6) & (queries <= high + 1e-6))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "measure", [m for m in MEASURES if m.uniform is not None], ids=lambda measure: measure.name
)
def test_uniform_attention_meets_the_reference(measure, protocol):
    scores = QueryKeyScores(torch.zeros(2, LAYOUT.tokens, 4), torch.zeros(2, LAYOUT.tokens, 4), 1.0)
    found = measure.of_heads(measures_of(scores, LAYOUT), protocol)
    np.testing.assert_allclose(
        found, measure.uniform(layer_of(scores, LAYOUT), protocol), rtol=1e-5, atol=1e-6
    )


def test_quartiles_are_over_queries_where_a_measure_is_defined():
    layout = TokenLayout.regular((2, 2), (16, 16), ["cls"])
    attention = np.full((5, 5), 0.2)
    attention[1] = [1, 0, 0, 0, 0]
    attention[2] = [0, 0, 1, 0, 0]
    found = measures_of(map_as_weights(attention), layout)
    distance = measure_named("mean_distance_px")
    uniform = (16 + 16 + 16 * 2**0.5) / 4
    expected = np.quantile([0, uniform, uniform], (0.25, 0.5, 0.75))
    np.testing.assert_allclose(quartiles(distance, found, "renormalized")[0], expected, rtol=1e-6)
    spread = np.quantile([0, 0, 0.8 * uniform, 0.8 * uniform], (0.25, 0.5, 0.75))
    np.testing.assert_allclose(quartiles(distance, found, "original")[0], spread, rtol=1e-6)
    assert np.isnan(quartiles(measure_named("nmi"), found, "renormalized")).all()


@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.name)
def test_layers_that_lack_places_have_no_number_or_a_true_one(measure):
    record = mixed_record()
    for layer, measured in zip(record.layers, measure_record(record).layers, strict=True):
        found = measure.of_heads(measured, "renormalized")
        assert found.shape == (layer.heads,)
        quarters = quartiles(measure, measured, "renormalized")
        assert quarters.shape == (layer.heads, 3)
        if measure.uniform is not None and np.isfinite(found).any():
            assert np.isfinite(measure.uniform(layer, "renormalized"))
        if layer.kind == "channel" and measure.unit in ("px", "patches", "hops"):
            assert np.isnan(found).all()


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_uniform_attention_meets_the_reference_in_every_kind_of_layer(at, protocol):
    layer = mixed_record().layers[at]
    flat = copy.deepcopy(layer)
    flat.scores.stacked.query_vectors.zero_()
    if flat.scores.stacked.bias is not None:
        flat.scores.stacked.bias[flat.scores.stacked.bias > -50] = 0
    measured = measure_record(record_of(flat)).layers[0]
    for measure in MEASURES:
        if measure.uniform is not None:
            found = measure.of_heads(measured, protocol)
            expected = np.full(layer.heads, measure.uniform(layer, protocol))
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=measure.name)


def test_names_are_unique_and_an_unknown_one_lists_them_all():
    assert len({measure.name for measure in MEASURES}) == len(MEASURES)
    assert measure_named("entropy_nats").unit == "nats"
    with pytest.raises(LookupError, match=r"No measure is called 'size'; there are mean_distance_px, "):
        measure_named("size")
