"""The likeness of layers and heads as a table: CSV, JSON or Parquet, one row for each pair."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from viewer.attention.measured import number_or_none
from viewer.errors import ExportError
from viewer.export import provenance
from viewer.export.plain import plain

if TYPE_CHECKING:
    from viewer.attention.likeness import LikenessMatrices, RecordLikeness
    from viewer.attention.record import AttentionRecord

COLUMNS = (
    ("image", "string", "name of the picture"),
    ("model", "string", "name of the model"),
    ("between", "string", "layers: one head's map in two layers; heads: two heads of one layer"),
    ("layer", "int64", "number of the layer, from 0"),
    ("other_layer", "int64", "the layer it is compared with"),
    ("head", "int64", "number of the head, from 0; empty for the mean over heads"),
    ("other_head", "int64", "the head it is compared with; empty for the mean over heads"),
    ("cosine", "double", "mean over key columns of the cosine of both maps, prefix tokens included"),
    ("centred_cosine", "double", "the same after the mean over queries was taken off every column"),
)
"""Name, Arrow type and meaning of each column."""


def rows(record: AttentionRecord, found: RecordLikeness) -> Iterator[dict[str, Any]]:
    """Yield a row for each pair that can be compared, each pair once."""
    common = {
        "image": plain(provenance.file_name(record.provenance.image)),
        "model": plain(provenance.model_name(record.provenance.model)),
    }
    for between, pair, plain_cosine, centred in _pairs(found.plain, found.centred):
        names = ("layer", "other_layer", "head", "other_head")
        numbers = {"cosine": number_or_none(plain_cosine), "centred_cosine": number_or_none(centred)}
        yield {**common, "between": between, **dict(zip(names, pair, strict=True)), **numbers}


Pair = tuple[int, int, int | None, int | None]


def _pairs(straight: LikenessMatrices, centred: LikenessMatrices) -> Iterator[tuple[str, Pair, float, float]]:
    """Yield what is compared, layers and heads of both, and both cosines."""
    heads: list[int | None] = [None, *range(len(straight.heads))]
    for head in heads:
        one, other = (kind.fused if head is None else kind.heads[head] for kind in (straight, centred))
        for i, j in zip(*np.triu_indices(len(one), 1), strict=True):
            if math.isfinite(one[i, j]):
                yield "layers", (int(i), int(j), head, head), one[i, j], other[i, j]
    for layer, (one, other) in enumerate(zip(straight.within, centred.within, strict=True)):
        for i, j in zip(*np.triu_indices(len(one), 1), strict=True):
            if math.isfinite(one[i, j]):
                yield "heads", (layer, layer, int(i), int(j)), one[i, j], other[i, j]


def encode(record: AttentionRecord, found: RecordLikeness, format: str) -> bytes:
    """Return the table as a file's bytes.

    Parameters
    ----------
    record
        Of any backend.
    found
        Of that record.
    format
        "csv", "json" or "parquet".

    Raises
    ------
    ExportError
        If it is none of these.
    """
    if format == "json":
        return (json.dumps(list(rows(record, found)), indent=1, ensure_ascii=False) + "\n").encode()
    if format == "csv":
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, [name for name, _, _ in COLUMNS], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows(record, found))
        return text.getvalue().encode()
    if format == "parquet":
        return _parquet(record, found)
    raise ExportError(f"A table of likeness is CSV, JSON or Parquet, not {format}.")


def _parquet(record: AttentionRecord, found: RecordLikeness) -> bytes:
    import pyarrow
    import pyarrow.parquet

    types = {"string": pyarrow.string(), "int64": pyarrow.int64(), "double": pyarrow.float64()}
    schema = pyarrow.schema(
        [pyarrow.field(name, types[kind], metadata={"description": means}) for name, kind, means in COLUMNS],
        metadata={provenance.KEY: provenance.to_text(provenance.of_record(record))},
    )
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows(record, found)), schema), file)
    return file.getvalue()
