from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import pyarrow.parquet
import pytest
import torch

from tests.export.scenes import VERIFIED, make_record
from tests.state.records import channel_record, mixed_record
from viewer.attention.layer import AttentionLayer
from viewer.attention.layout import TokenLayout
from viewer.attention.measures import MEASURES
from viewer.attention.record import AttentionRecord
from viewer.attention.scores import QueryKeyScores
from viewer.attention.sweep import measure_record
from viewer.errors import ExportError
from viewer.export import provenance, tables

UNIFORM_LN = math.log(197)


def record_of(*heads: torch.Tensor, grid: tuple[int, int] = (14, 14)) -> AttentionRecord:
    """A record of one layer whose logits are given for each head: (197,) for all queries alike."""
    layout = TokenLayout.regular(grid, (16.0, 16.0), ("cls",))
    keys = torch.stack(heads)[:, :, None]
    scores = QueryKeyScores(torch.ones_like(keys), keys, 1.0)
    layer = AttentionLayer(0, "blocks.0.attn", "self", scores, layout, layout, VERIFIED)
    return replace(make_record(1, 1), layers=(layer,))


def entry_of(record: AttentionRecord, protocol: str = "renormalized") -> dict:
    return tables.entry(record, measure_record(record), protocol)


UNIFORM = torch.zeros(197)
ON_CLS = torch.cat([torch.tensor([300.0]), torch.zeros(196)])  # nothing is left for patches in float32


def test_json_is_as_documented() -> None:
    found = json.loads(tables.encode([entry_of(record_of(UNIFORM))], "json"))
    assert isinstance(found, list)
    (one,) = found
    layers = one.pop("layers")
    assert one == {
        "image": "cat.jpg",
        "model": "vit_small_patch16_224",
        "backend": "torch",
        "device": "cpu",
        "input_size": [224, 224],
        "grid": [14, 14],
        "patch_px": [16.0, 16.0],
        "prefix_tokens": 1,
        "protocol": "renormalized",
        "uniform_distance_px": pytest.approx(116.4922, abs=1e-4),
        "verified": True,
        "what_if": None,
    }
    (layer,) = layers
    assert (layer["name"], layer["kind"], layer["heads"]) == ("blocks.0.attn", "self", 1)
    assert layer["mean_distance_px"] == [pytest.approx(116.4922, abs=1e-4)]
    assert layer["mean_distance_patches"] == [pytest.approx(7.28076, abs=1e-5)]
    assert layer["entropy_nats"] == [pytest.approx(UNIFORM_LN, abs=1e-5)]
    assert layer["prefix_mass"] == [pytest.approx(1 / 197, abs=1e-7)]
    assert layer["verified"] is True
    assert (layer["grid"], layer["key_grid"], layer["patch_px"]) == ([14, 14], [14, 14], [16.0, 16.0])
    assert (layer["groups"], layer["how"], layer["note"]) == (1, "query-key", "")
    assert layer["uniform_distance_px"] == one["uniform_distance_px"]


def test_json_and_csv_have_every_measure_with_its_spread_sinks_and_kind() -> None:
    entry = entry_of(record_of(UNIFORM, ON_CLS))
    layer = json.loads(tables.encode([entry], "json"))[0]["layers"][0]
    for measure in MEASURES:
        assert len(layer[measure.name]) == 2
        if measure.uniform is not None:
            assert layer["uniform"][measure.name] == pytest.approx(layer[measure.name][0], rel=1e-5, abs=1e-5)
    assert (layer["row_cosine"], layer["nmi"]) == (pytest.approx([1, 1]), pytest.approx([0, 0], abs=1e-5))
    assert layer["distance_px_quartiles"][1] == layer["hops_quartiles"][1] == [None] * 3
    first, median, third = layer["distance_px_quartiles"][0]
    assert 86.0189 < first < median < third < 161.0302
    assert layer["sinks"] == [[], [{"key": "cls", "attention": 1.0, "queries": 1.0}]]
    assert layer["head_kind"] == ["global", "sink"]
    assert layer["head_kind_reason"][1].endswith("attention on sink tokens 1.00 ≥ 0.3.")
    assert (layer["sink_above"], layer["dense_share"]) == (0.1, 0.5)
    assert layer["dense_above_nats"] == pytest.approx((UNIFORM_LN + 2.08138) / 2, abs=1e-5)
    uniform, on_cls = csv.DictReader(io.StringIO(tables.encode([entry], "csv").decode()))
    assert float(uniform["hops_median"]) == layer["hops_quartiles"][0][1]
    assert (on_cls["sinks"], on_cls["head_kind"], on_cls["mean_hops"]) == ("cls: 1.0000", "sink", "")
    assert uniform["sinks"] == ""
    assert "global" in tables.encode([entry], "table").decode().splitlines()[4]


def test_original_protocol_gives_the_published_value() -> None:
    found = entry_of(record_of(UNIFORM), "original")
    assert found["protocol"] == "original"
    assert found["layers"][0]["mean_distance_px"] == [pytest.approx(115.9009, abs=1e-4)]


def test_what_is_not_defined_is_null_everywhere_and_counted() -> None:
    entry = entry_of(record_of(UNIFORM, ON_CLS))
    layer = json.loads(tables.encode([entry], "json"))[0]["layers"][0]
    assert layer["mean_distance_px"][1] is None
    assert layer["mean_distance_patches"][1] is None
    assert layer["prefix_mass"][1] == 1.0
    assert layer["undefined_queries"] == [0, 196]
    rows = list(csv.DictReader(io.StringIO(tables.encode([entry], "csv").decode())))
    assert [row["mean_distance_px"] == "" for row in rows] == [False, True]
    frame = pyarrow.parquet.read_table(io.BytesIO(tables.encode([entry], "parquet")))
    assert frame["mean_distance_px"].null_count == 1
    assert " - " in tables.encode([entry], "table").decode().splitlines()[-1]


def test_csv_has_a_row_per_image_layer_and_head() -> None:
    entries = [entry_of(make_record(3, 2, (4, 6), doubted=(1,), image=name)) for name in ("a,b.jpg", "é.png")]
    rows = list(csv.DictReader(io.StringIO(tables.encode(entries, "csv").decode())))
    places = [(row["image"], row["layer"], row["head"]) for row in rows]
    assert places == [(i, str(n), str(h)) for i in ("a,b.jpg", "é.png") for n in range(3) for h in range(2)]
    first = rows[0]
    assert list(first) == [column.name for column in tables.COLUMNS]
    assert (first["grid_rows"], first["grid_columns"]) == ("4", "6")
    assert (first["input_height_px"], first["input_width_px"]) == ("64", "96")
    assert (first["protocol"], first["verified"]) == ("renormalized", "false")
    assert [row["layer_verified"] for row in rows[:6]] == ["true", "true", "false", "false", "true", "true"]
    for row in rows:
        layer = entries[0]["layers"][int(row["layer"])]
        if row["image"] == "a,b.jpg":
            assert float(row["mean_distance_px"]) == layer["mean_distance_px"][int(row["head"])]


def test_parquet_holds_the_same_with_types_units_and_provenance() -> None:
    record = make_record(2, 2, (4, 4), doubted=(0,))
    entry = entry_of(record)
    facts = provenance.of_record(record)
    content = tables.encode([entry], "parquet", facts)
    frame = pyarrow.parquet.read_table(io.BytesIO(content))
    assert frame.to_pylist() == list(tables.rows([entry]))
    assert str(frame.schema.field("mean_distance_px").type) == "double"
    assert str(frame.schema.field("layer_verified").type) == "bool"
    assert b"in input pixels" in frame.schema.field("mean_distance_px").metadata[b"description"]
    assert json.loads(frame.schema.metadata[b"patchreach"]) == facts


def test_table_for_a_terminal_is_aligned_and_names_its_protocol() -> None:
    entry = entry_of(make_record(12, 2, (4, 4), doubted=(11,)), "original")
    lines = tables.encode([entry], "table").decode().splitlines()
    assert lines[0] == "cat.jpg"
    assert "4 rows x 4 columns of patches of 16 x 16 px, 1 prefix token, not verified" in lines[1]
    assert lines[2].startswith("distances by protocol original; uniform attention would reach ")
    heading, body = lines[3], lines[4:]
    assert len(body) == 24
    end = heading.index("distance px") + len("distance px")
    for line, (layer, head) in zip(body, [(n, h) for n in range(12) for h in range(2)], strict=True):
        value = entry["layers"][layer]["mean_distance_px"][head]
        assert line[:end].endswith(f" {value:.2f}")
        assert line.split()[:4] == [str(layer), f"blocks.{layer}.attn", "self", str(head)]
        assert line.endswith("not verified") == (layer == 11)


def test_names_no_terminal_can_show_are_spelled_out() -> None:
    entry = entry_of(make_record(1, 1, (2, 2), image="a\x1b[2J\nb\udcff.jpg"))
    for format in ("table", "csv", "json", "parquet"):
        assert tables.encode([entry], format)
    assert entry["image"] == "a\\x1b[2J\\x0ab\\udcff.jpg"


def test_format_comes_from_the_suffix() -> None:
    assert [tables.format_of(f"x{s}") for s in (".csv", ".JSON", ".parquet", ".txt")] == [
        "csv",
        "json",
        "parquet",
        "table",
    ]
    with pytest.raises(ExportError, match=r"x\.xlsx: \.xlsx is not .* \.csv, \.json, \.parquet, \.txt\."):
        tables.format_of("x.xlsx")


def test_every_row_has_the_reference_of_its_protocol() -> None:
    entries = [entry_of(record_of(UNIFORM), protocol) for protocol in ("renormalized", "original")]
    rows = list(csv.DictReader(io.StringIO(tables.encode(entries, "csv").decode())))
    expected = [pytest.approx(116.4922, abs=1e-4), pytest.approx(115.9009, abs=1e-4)]
    assert [float(row["uniform_distance_px"]) for row in rows] == expected
    frame = pyarrow.parquet.read_table(io.BytesIO(tables.encode(entries, "parquet")))
    assert frame["uniform_distance_px"].to_pylist() == expected
    assert frame["mean_distance_px"].to_pylist() == expected


def test_layers_that_differ_have_their_own_grid_and_reference() -> None:
    record = mixed_record()
    entry = entry_of(record)
    layers = json.loads(tables.encode([entry], "json"))[0]["layers"]
    assert [layer["grid"] for layer in layers] == [[8, 8], [8, 8], [8, 8], [4, 4], None, [4, 4]]
    assert [layer["key_grid"] for layer in layers] == [[8, 8], [8, 8], [2, 2], [4, 4], None, [4, 4]]
    assert [layer["groups"] for layer in layers] == [4, 4, 1, 1, 1, 1]
    assert layers[4]["patch_px"] is layers[4]["uniform_distance_px"] is layers[4]["prefix_mass"][0] is None
    assert layers[4]["mean_distance_px"] == [None]
    # A window of 4 x 4 patches of 16 px: the mean of |a - b| over all pairs of its places.
    places = np.stack(np.meshgrid(range(4), range(4)), axis=-1).reshape(-1, 2) * 16.0
    apart = np.linalg.norm(places[:, None] - places[None], axis=-1).mean()
    assert layers[0]["uniform_distance_px"] == pytest.approx(apart)
    assert layers[1]["uniform_distance_px"] < layers[0]["uniform_distance_px"]
    assert entry["uniform_distance_px"] is None
    rows = list(csv.DictReader(io.StringIO(tables.encode([entry], "csv").decode())))
    assert {row["uniform_distance_px"] for row in rows if row["layer"] == "0"} == {
        str(layers[0]["uniform_distance_px"])
    }
    assert [rows[4][name] for name in ("query_rows", "query_columns", "key_rows", "key_columns")] == list(
        "8822"
    )
    lines = tables.encode([entry], "table").decode().splitlines()
    assert "uniform px" in lines[3]
    assert lines[4].rstrip().endswith(f"{apart:.2f}    8 x 8  8 x 8")
    assert tables.encode([entry], "parquet")


def test_a_model_without_patches_has_no_grid_anywhere() -> None:
    entry = entry_of(channel_record())
    assert entry["grid"] is None and entry["patch_px"] is None
    row = next(tables.rows([entry]))
    assert [row[key] for key in ("grid_rows", "grid_columns", "patch_height_px", "patch_width_px")] == [
        None
    ] * 4
    for format in ("csv", "json", "parquet"):
        assert tables.encode([entry], format, {})
    said = tables.encode([entry], "table", {}).decode()
    assert "input 128 x 128 px (height x width), no patches, 0 prefix tokens" in said
