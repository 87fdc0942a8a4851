"""The values every right implementation gives, through the real measure code."""

from __future__ import annotations

import numpy as np
import pytest

from tests.attention.builders import map_as_query_keys, map_as_weights, measures_of, window_map
from viewer.attention.distance import convolution_distances, uniform_distance, uniform_query_distance
from viewer.attention.layout import TokenLayout
from viewer.attention.measures import MEASURES, measure_named

PLAIN = TokenLayout.regular((14, 14), (16, 16))
PREFIXES = ("cls", "reg1", "reg2", "reg3", "reg4")

# input/patch, grid, patch, renormalized, without self, {prefix tokens: original}, smallest and largest query
UNIFORM = [
    ((14, 14), 16, 116.4922, 117.0896, {1: 115.9009, 2: 115.3155, 5: 113.5944}, 86.0189, 161.0302),
    ((16, 16), 14, 116.5651, 117.0222, {1: 116.1115}, 85.9464, 162.3288),
    ((7, 7), 32, 115.5029, 117.9092, {1: 113.1928}, 84.8799, 150.6005),
    ((24, 24), 16, 200.0480, 200.3959, {1: 199.7013}, 147.1071, 283.4675),
    ((37, 37), 14, 269.9919, 270.1892, {1: 269.7948, 5: 269.0094}, 198.1278, 387.3013),
    ((14, 20), 16, 142.7213, 143.2328, {1: 142.2134}, 105.3154, 199.7906),
]
UNIFORM_IDS = ["224/16", "224/14", "224/32", "384/16", "518/14", "224x320/16"]
# Half a unit of the last digit that is given.
FOUR_DIGITS = {"rtol": 0, "atol": 6e-5}


def as_record(found: float, expected: float) -> bool:
    """Float32 sums keep about seven digits."""
    return found == pytest.approx(expected, rel=2e-6, abs=6e-5)


@pytest.fixture(params=[map_as_weights, map_as_query_keys], ids=["weights", "query-key"])
def scores_of(request):
    """Either way a record can hold an attention matrix."""
    return request.param


@pytest.mark.parametrize(
    ("grid", "patch", "renormalized", "without_self", "original", "smallest", "largest"),
    UNIFORM,
    ids=UNIFORM_IDS,
)
class TestUniformTable:
    def test_measured(self, scores_of, grid, patch, renormalized, without_self, original, smallest, largest):
        layout = TokenLayout.regular(grid, (patch, patch))
        patches = grid[0] * grid[1]
        measured = measures_of(scores_of(np.full((patches, patches), 1 / patches)), layout)
        assert as_record(measured.distance("renormalized")[0], renormalized)
        assert as_record(measured.distance("original")[0], renormalized)
        assert as_record(measured.distance("renormalized", "patches")[0] * patch, renormalized)
        queries = measured.query_distance("renormalized")
        assert as_record(queries.min(), smallest)
        assert as_record(queries.max(), largest)

    def test_measured_without_self(
        self, scores_of, grid, patch, renormalized, without_self, original, smallest, largest
    ):
        patches = grid[0] * grid[1]
        others = (1 - np.eye(patches)) / (patches - 1)
        measured = measures_of(scores_of(others), TokenLayout.regular(grid, (patch, patch)))
        assert as_record(measured.distance("renormalized")[0], without_self)

    def test_measured_with_prefix_tokens(
        self, scores_of, grid, patch, renormalized, without_self, original, smallest, largest
    ):
        for prefix, expected in original.items():
            layout = TokenLayout.regular(grid, (patch, patch), PREFIXES[:prefix])
            measured = measures_of(
                scores_of(np.full((layout.tokens, layout.tokens), 1 / layout.tokens)), layout
            )
            assert as_record(measured.distance("original")[0], expected)
            assert as_record(measured.distance("renormalized")[0], renormalized)
            assert measured.mean_prefix_mass()[0] == pytest.approx(prefix / layout.tokens, rel=1e-6)

    def test_reference(self, grid, patch, renormalized, without_self, original, smallest, largest):
        layout = TokenLayout.regular(grid, (patch, patch))
        np.testing.assert_allclose(uniform_distance(layout), renormalized, **FOUR_DIGITS)
        np.testing.assert_allclose(uniform_distance(layout, include_self=False), without_self, **FOUR_DIGITS)
        queries = uniform_query_distance(layout)
        np.testing.assert_allclose([queries.min(), queries.max()], [smallest, largest], **FOUR_DIGITS)
        for prefix, expected in original.items():
            with_prefix = TokenLayout.regular(grid, (patch, patch), PREFIXES[:prefix])
            np.testing.assert_allclose(uniform_distance(with_prefix, "original"), expected, **FOUR_DIGITS)
            np.testing.assert_allclose(uniform_distance(with_prefix), renormalized, **FOUR_DIGITS)


def test_uniform_in_patches():
    assert uniform_distance(PLAIN, unit="patches") == pytest.approx(7.28076, abs=6e-6)
    measured = measures_of(map_as_weights(np.full((196, 196), 1 / 196)), PLAIN)
    assert measured.distance("renormalized", "patches")[0] == pytest.approx(7.28076, abs=1e-5)


def to_one_patch(row: int, column: int) -> np.ndarray:
    attention = np.zeros((196, 196))
    attention[:, row * 14 + column] = 1
    return attention


def to_farthest() -> np.ndarray:
    rows, columns = np.divmod(np.arange(196), 14)
    return np.eye(196)[np.hypot(rows[:, None] - rows, columns[:, None] - columns).argmax(axis=1)]


@pytest.mark.parametrize(
    ("attention", "expected"),
    [
        pytest.param(np.eye(196), 0.0, id="identity"),
        pytest.param(to_one_patch(0, 0), 161.0302, id="one corner"),
        pytest.param(to_one_patch(7, 7), 86.0189, id="patch (7, 7)"),
        pytest.param(window_map((14, 14), 1), 16.6981, id="3x3 window"),
        pytest.param(window_map((14, 14), 2), 28.8312, id="5x5 window"),
        pytest.param(window_map((14, 14), 3), 40.2244, id="7x7 window"),
        pytest.param(to_farthest(), 228.5276, id="farthest"),
        pytest.param((np.eye(196) + 1 / 196) / 2, 58.2461, id="context broadcasting"),
    ],
)
def test_exact_maps(scores_of, attention, expected):
    measured = measures_of(scores_of(attention), PLAIN)
    assert as_record(measured.distance("renormalized")[0], expected)
    assert as_record(measured.distance("original")[0], expected)
    assert measured.mean_prefix_mass()[0] == 0
    assert measured.undefined_rows()[0] == 0


@pytest.mark.parametrize(("patch", "expected"), [(4, 14.438), (8, 28.876), (16, 57.751), (32, 115.503)])
def test_uniform_in_one_seven_by_seven_window(scores_of, patch, expected):
    layout = TokenLayout.regular((7, 7), (patch, patch))
    measured = measures_of(scores_of(np.full((49, 49), 1 / 49)), layout)
    assert measured.distance("renormalized")[0] == pytest.approx(expected, abs=6e-4)


@pytest.mark.parametrize(
    ("attention", "entropy", "normalized", "effective"),
    [
        pytest.param(np.full((196, 196), 1 / 196), 5.27811, 1.0, 196.0, id="uniform"),
        pytest.param(window_map((14, 14), 1), 2.08138, 0.39434, 8.0155, id="3x3 window"),
        pytest.param(
            (np.eye(196) + 1 / 196) / 2, 3.31618, 0.62829, np.exp(3.31618), id="context broadcasting"
        ),
        pytest.param(np.eye(196), 0.0, 0.0, 1.0, id="identity"),
    ],
)
def test_density(scores_of, attention, entropy, normalized, effective):
    measured = measures_of(scores_of(attention), PLAIN)
    assert measured.mean_entropy()[0] == pytest.approx(entropy, abs=1e-5)
    assert measured.normalized_entropy()[0] == pytest.approx(normalized, abs=6e-6)
    assert measured.effective_tokens()[0] == pytest.approx(effective, rel=1e-5)


def test_density_counts_prefix_keys(scores_of):
    layout = TokenLayout.regular((14, 14), (16, 16), ["cls"])
    measured = measures_of(scores_of(np.full((197, 197), 1 / 197)), layout)
    assert measured.keys == 197
    assert measured.mean_entropy()[0] == pytest.approx(5.28320, abs=1e-5)
    assert measured.normalized_entropy()[0] == pytest.approx(1.0, abs=1e-6)


def test_context_broadcasting_by_the_measures(scores_of):
    attention = (np.eye(196) + 1 / 196) / 2
    measured = measures_of(scores_of(attention), PLAIN)
    found = {m.name: float(m.of_heads(measured, "renormalized")[0]) for m in MEASURES}
    assert found["mean_distance_px"] == pytest.approx(58.2461, abs=6e-5)
    assert found["entropy_nats"] == pytest.approx(3.31618, abs=6e-6)
    assert found["normalized_entropy"] == pytest.approx(0.62829, abs=6e-6)
    assert found["prefix_mass"] == found["sink_mass"] == 0


@pytest.mark.parametrize(
    ("attention", "cosine", "information"),
    [
        pytest.param(np.full((196, 196), 1 / 196), 1.0, 0.0, id="uniform"),
        pytest.param(np.eye(196), 0.0, 1.0, id="identity"),
        pytest.param(window_map((14, 14), 1), 0.03722, 0.60460, id="3x3 window"),
    ],
)
def test_query_irrelevance(scores_of, attention, cosine, information):
    measured = measures_of(scores_of(attention), PLAIN)
    assert measured.row_cosine[0] == pytest.approx(cosine, abs=6e-6)
    assert measured.nmi[0] == pytest.approx(information, abs=6e-6)


def test_hops_of_uniform_attention_and_of_windows(scores_of):
    uniform = measures_of(scores_of(np.full((196, 196), 1 / 196)), PLAIN)
    expected = uniform_distance(PLAIN, unit="patches", metric="chebyshev")
    assert measure_named("mean_hops").of_heads(uniform, "renormalized")[0] == pytest.approx(
        expected, rel=2e-6
    )
    for hops in (1, 2, 3):
        window = measures_of(scores_of(window_map((14, 14), hops)), PLAIN)
        shares = [measure_named(f"local_{k}").of_heads(window, "renormalized")[0] for k in (1, 2, 3)]
        assert shares[hops - 1 :] == pytest.approx([1.0] * (4 - hops))
        inside = [(window_map((14, 14), hops) * (window_map((14, 14), k) > 0)).sum() / 196 for k in (1, 2, 3)]
        assert shares == pytest.approx(inside, rel=2e-6)


# To more digits than usual, from the plain double sum over all pairs of patches.
REACH = [16.69807, 28.83125, 40.22435, 51.14686, 61.65766, 71.77466, 81.50345]
REACH += [90.61442, 98.72765, 105.56289, 110.90731, 114.59467, 116.49223]
AVERAGED = [16.70, 22.25, 27.03, 30.82, 34.12, 37.03, 39.67, 42.08, 44.31, 46.38, 48.33, 50.16, 51.89]


def test_uniform_over_the_reach_of_stacked_convolutions(scores_of):
    np.testing.assert_allclose(convolution_distances(PLAIN, 13), REACH, rtol=0, atol=6e-6)
    for hops, expected in enumerate(REACH, start=1):
        measured = measures_of(scores_of(window_map((14, 14), hops)), PLAIN)
        assert measured.distance("renormalized")[0] == pytest.approx(expected, rel=2e-6)


def test_corner_to_corner_takes_thirteen_convolutions():
    found = convolution_distances(PLAIN, 14)
    assert found[11] < found[12] == found[13] == uniform_distance(PLAIN)


def test_composed_averaging(scores_of):
    once = window_map((14, 14), 1)
    attention = np.eye(196)
    for expected in AVERAGED:
        attention = attention @ once
        measured = measures_of(scores_of(attention), PLAIN)
        assert measured.distance("renormalized")[0] == pytest.approx(expected, abs=6e-3)
