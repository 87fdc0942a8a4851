from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from tests.export.scenes import make_document, make_record, make_scene
from tests.export.svg import Svg
from tests.state.records import document_of, mixed_record
from viewer.attention.likeness import measure_likeness
from viewer.errors import ExportError
from viewer.export.figure import draw
from viewer.export.likeness_table import COLUMNS
from viewer.export.requested import write
from viewer.export.restore import restore
from viewer.state.colormaps import lut
from viewer.state.display import DisplayValue
from viewer.state.likeness import keep, known
from viewer.state.requests import FigureRequest, TableRequest


@pytest.fixture(scope="module")
def compared():
    document = make_document(make_record())
    keep(document.measures, measure_likeness(document.record, document.measures))
    return document


def svg_of(document, **display) -> Svg:
    scene = make_scene(document, display=DisplayValue(**display))
    return Svg(draw(scene, FigureRequest("likeness"), "svg"))


def test_the_square_holds_the_cosines_row_by_row(compared) -> None:
    found = svg_of(compared).image("likeness")[..., :3].astype(int)
    values = known(compared.measures).plain.fused
    expected = lut("viridis")[np.minimum((values * 256).astype(int), 255)][..., :3]
    side = len(found) // 4
    np.testing.assert_array_equal(found[side // 2 :: side, side // 2 :: side], expected)


@pytest.mark.parametrize(
    ("display", "title", "label"),
    [
        ({}, "How alike the layers are, mean of heads", "plain"),
        ({"likeness_heads": "shown"}, "How alike the layers are, head 1", "plain"),
        (
            {"likeness_of": "heads", "likeness": "centred"},
            "How alike the heads of layer 2 are",
            "column means removed",
        ),
    ],
)
def test_title_numbers_and_protocol_are_said(compared, display, title, label) -> None:
    words = " ".join(svg_of(compared, **display).texts)
    said = ("cosine of attention maps", "mean over keys", "All-positive maps", "cat.jpg")
    for part in (title, label, *said):
        assert part in words


@pytest.mark.parametrize("theme", ["light", "dark", "talk"])
def test_no_words_lie_on_others_or_beyond_the_page(compared, theme) -> None:
    svg = svg_of(compared, theme=theme, likeness="centred")
    boxes = svg.text_boxes()
    for i, (text, (left, top, right, bottom)) in enumerate(boxes):
        assert left >= 0 and top >= 0 and right <= svg.width + 1 and bottom <= svg.height + 1, text
        for other, box in boxes[i + 1 :]:
            apart = right <= box[0] + 1 or box[2] <= left + 1 or bottom <= box[1] + 1 or box[3] <= top + 1
            assert apart, (text, other)


def test_it_is_compared_for_the_export_if_nobody_has_looked_at_it(tmp_path: Path) -> None:
    document = make_document(make_record(layers=3))
    scene = make_scene(document)
    with pytest.raises(ExportError, match="being compared"):
        draw(scene, FigureRequest("likeness"))
    path = write(scene, FigureRequest("likeness", tmp_path / "fig.png", scale=1))
    assert known(document.measures) is not None
    assert restore(path).view == "likeness"


def test_the_choices_are_taken_again_from_the_figure(compared, tmp_path: Path) -> None:
    chosen = DisplayValue(
        x_measure="mean_distance",
        y_measure="entropy_nats",
        kinds=True,
        likeness="centred",
        likeness_of="heads",
        likeness_heads="shown",
    )
    path = write(make_scene(compared, display=chosen), FigureRequest("scatter", tmp_path / "fig.svg"))
    assert restore(path).display == chosen


def test_a_measure_that_is_not_known_falls_back(compared, tmp_path: Path) -> None:
    path = write(make_scene(compared), FigureRequest("scatter", tmp_path / "fig.svg"))
    text = path.read_text(encoding="utf-8").replace('"mean_distance"', '"median_distance"')
    path.write_text(text, encoding="utf-8")
    assert restore(path).display.y_measure == "mean_distance"


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
def test_the_table_has_every_pair_once(compared, tmp_path: Path, suffix: str) -> None:
    path = write(make_scene(compared), TableRequest(tmp_path / f"pairs{suffix}", "likeness"))
    if suffix == ".parquet":
        rows = pyarrow.parquet.read_table(io.BytesIO(path.read_bytes())).to_pylist()
    elif suffix == ".json":
        rows = json.loads(path.read_text())
    else:
        head, *lines = path.read_text().splitlines()
        assert head.split(",") == [name for name, _, _ in COLUMNS]
        assert len(lines) == 4 * 6 + 4 * 3
        return
    found = known(compared.measures)
    layers = [row for row in rows if row["between"] == "layers"]
    assert len(layers) == 4 * 6  # six pairs of four layers, of three heads and of their mean
    for row in layers:
        pair, head = (row["layer"], row["other_layer"]), row["head"]
        kind = found.plain.fused if head is None else found.plain.heads[head]
        assert row["cosine"] == kind[pair]
    heads = [row for row in rows if row["between"] == "heads"]
    assert len(heads) == 4 * 3
    for row in heads:
        assert row["layer"] == row["other_layer"]
        within = found.centred.within[row["layer"]]
        assert row["centred_cosine"] == within[row["head"], row["other_head"]]


def test_pairs_that_can_not_be_compared_are_not_in_the_table(tmp_path: Path) -> None:
    document = document_of(mixed_record())
    scene = make_scene(document, query=(2, 5), head=(0, None))
    rows = json.loads(write(scene, TableRequest(tmp_path / "pairs.json", "likeness")).read_text())
    assert {row["between"] for row in rows} == {"heads"}
    svg = Svg(draw(make_scene(document, query=(2, 5), head=(0, None)), FigureRequest("likeness"), "svg"))
    assert any(element.get("id") == "not reachable" for element in svg.root.iter())


def test_error_bars_are_lines_of_the_figure(compared) -> None:
    scene = make_scene(compared)
    y = scene.scatter.y
    spread = np.stack([y - 5, y + 9], axis=1)
    plain = Svg(draw(scene, FigureRequest("scatter"), "svg"))
    barred = Svg(
        draw(replace(scene, scatter=replace(scene.scatter, spread=spread)), FigureRequest("scatter"), "svg")
    )
    assert len(barred.paths()) >= len(plain.paths()) + 12
    assert "spread over the pictures" in barred.texts


def test_kinds_have_their_shapes_and_counts(compared) -> None:
    scene = make_scene(compared, display=DisplayValue(kinds=True))
    svg = Svg(draw(scene, FigureRequest("scatter"), "svg"))
    counts = [text for text in svg.texts if text.endswith(" heads")]
    assert sum(int(text.split(": ")[1].split()[0]) for text in counts) == 12
    assert not any("paler" in text for text in svg.texts)
