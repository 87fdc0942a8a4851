"""The finding in words, and the report and the scatter that a summary makes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.study.test_store import facts
from viewer.study.finding import reach, sentences
from viewer.study.heads import heads
from viewer.study.plot import scatter
from viewer.study.report import report, told
from viewer.study.settings import Settings
from viewer.study.store import Store
from viewer.study.summary import Summary, encode, read

MEASURES = [
    *("mean_distance_px", "mean_distance_patches", "local_1", "prefix_mass"),
    *("sink_mass", "offset_share", "normalized_entropy"),
]


def summary_of(shares, protocol="renormalized"):
    """A summary of heads whose distances are these shares of uniform attention's 100 px, for each layer."""
    layers = [
        {
            "name": f"l{at}",
            "kind": "self",
            "heads": len(of),
            "uniform": {"mean_distance_px": 100.0, "local_1": 0.1},
        }
        for at, of in enumerate(shares)
    ]
    settings = Settings(
        facts(
            measures=MEASURES,
            layers=layers,
            protocol=protocol,
            convolution={"mean_distance_px": [10.0 * (at + 1) for at in range(len(layers))]},
        )
    )
    distance = 100 * np.concatenate([np.array(of, float) for of in shares])
    mean = np.full((len(distance), len(MEASURES)), 0.25)
    mean[:, 0], mean[:, 1] = distance, distance / 16
    sd = mean / 10
    quarters = np.stack([mean - 1, mean, mean + 1])
    count = np.where(np.isfinite(mean), 9, 0)
    return Summary(settings, 9, count, mean, sd, sd / 3, quarters)


def test_layers_that_mix_near_and_far_heads_are_named():
    found = summary_of([(0.2, 0.3), (0.2, 0.9), (0.3, 0.85), (0.1, 0.95), (0.9, 0.6), (0.6, 0.7), (0.4, 0.9)])
    rule, *said = sentences(found)
    assert "near if its mean attention distance is below 0.5 of what uniform attention gives" in rule
    assert "far if it is above 0.8" in rule
    assert said == [
        "Layers 1 to 3 and 6 mix near and far heads.",
        "Layer 4 has far but no near heads.",
        "Layer 0 has near but no far heads.",
        "Layer 5 has neither.",
        "The widest spread is in layer 3: its heads reach from 0.10 to 0.95 of uniform attention's distance.",
    ]


def test_layers_without_a_distance_are_left_out_and_said():
    found = summary_of([(np.nan, np.nan), (0.2, 0.9)])
    assert [one.layer for one in reach(found)] == [1]
    assert "| 0 | 2 | no distance |" in report(found, heads(found, None), "set", [], 0)
    none = summary_of([(np.nan,)])
    assert sentences(none) == ["No layer has both a distance and a reference to compare it with."]


def test_every_row_of_the_report_has_the_same_columns():
    found = summary_of([(0.2, 0.9), (np.nan, np.nan), (0.4,)])
    failed = [(f"{n}.png", "is a | pipe\nand a line") for n in range(30)]
    text = report(found, heads(found, None), "set", failed, 3)
    for block in text.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({row.count("|") for row in rows}) <= 1, block
    assert "and 10 more, see [failed.csv](failed.csv)" in text
    assert "is a / pipe and a line" in text
    assert "in 3 pictures not every layer was verified" in text
    assert "9 of `set`; 30 failed" in text


def test_the_scatter_has_a_bar_of_one_deviation_and_the_references():
    found = scatter(summary_of([(0.2, 0.9), (np.nan, np.nan), (0.4, 0.5)]))
    assert found.title == "How far each head reaches, over 9 pictures"
    np.testing.assert_array_equal(found.layer, [0, 0, 2, 2])
    np.testing.assert_allclose(found.y, [20, 90, 40, 50])
    np.testing.assert_allclose(found.spread, [[18, 22], [81, 99], [36, 44], [45, 55]])
    np.testing.assert_allclose(found.reference("convolution").y, [10, 20, 30])
    assert set(found.reference("uniform").y) == {100}
    assert found.y_axis.label == "mean attention distance (px), renormalized over patches"


def test_bars_stay_within_what_a_measure_can_be():
    found = summary_of([(0.2, 0.9)])
    found.mean[:, 3], found.sd[:, 3] = (0.05, 0.97), (0.1, 0.1)
    np.testing.assert_allclose(scatter(found, "prefix_mass").spread, [[0, 0.15], [0.87, 1]])
    with pytest.raises(LookupError, match="The study has no nmi"):
        scatter(found, "nmi")


def test_kinds_are_decided_by_the_means_and_only_under_their_protocol():
    found = summary_of([(0.2, 0.9)])
    found.mean[0, MEASURES.index("local_1")] = 0.6
    local, other = heads(found, None)
    assert local.kind.kind == "local"
    assert "attention within 1 hop 0.60 ≥ 0.5" in local.kind.reason
    assert other.kind.kind == "content"
    assert np.isnan(local.position)
    assert [one.kind for one in heads(summary_of([(0.2, 0.9)], "original"), None)] == [None, None]


def test_a_summary_is_read_as_it_was_written(tmp_path):
    found = summary_of([(0.2, np.nan), (0.4, 0.5)])
    (tmp_path / "summary.parquet").write_bytes(encode(found))
    again = read(Store(tmp_path, found.settings))
    for key in ("count", "mean", "sd", "se", "quartiles"):
        np.testing.assert_array_equal(getattr(again, key), getattr(found, key))
    assert again.images == 9


def test_a_figure_says_model_pictures_protocol_and_what_bars_are():
    found = summary_of([(0.2, 0.9)])
    assert told(found) == [
        "net",
        "9 pictures at 64 × 64 px",
        "distances: renormalized over patches",
        "bars: ± 1 standard deviation over the pictures",
    ]
    whole = replace(found, settings=Settings({**found.settings.facts, "input_size": None}), images=1)
    assert told(whole)[1] == "1 picture, each whole"
