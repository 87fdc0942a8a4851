"""The table of measures: every row gives a number a head, within its ends, and meets its own reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.attention.builders import (
    layer_of,
    map_as_query_keys,
    map_as_weights,
    measures_of,
    random_scores,
    window_map,
)
from viewer.attention.layout import TokenLayout
from viewer.attention.measures import MEASURES, measure_named
from viewer.attention.scores import QueryKeyScores

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


@pytest.mark.parametrize(
    ("attention", "cosine", "information"),
    [
        pytest.param(np.full((196, 196), 1 / 196), 1.0, 0.0, id="uniform"),
        pytest.param(np.eye(196), 0.0, 1.0, id="identity"),
        pytest.param(window_map((14, 14), 1), 0.03722, 0.60460, id="3x3 window"),
    ],
)
@pytest.mark.parametrize("scores_of", [map_as_weights, map_as_query_keys])
def test_query_irrelevance(scores_of, attention, cosine, information):
    measured = measures_of(scores_of(attention), TokenLayout.regular((14, 14), (16, 16)))
    assert measured.row_cosine[0] == pytest.approx(cosine, abs=1e-5)
    assert measured.nmi[0] == pytest.approx(information, abs=1e-5)


def test_names_are_unique_and_an_unknown_one_lists_them_all():
    assert len({measure.name for measure in MEASURES}) == len(MEASURES)
    assert measure_named("entropy_nats").unit == "nats"
    with pytest.raises(LookupError, match=r"No measure is called 'size'; there are mean_distance_px, "):
        measure_named("size")
