"""The measures as tables: for a terminal, for a spreadsheet (CSV), for programs (JSON, Parquet)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np

from viewer.attention.uniform import uniform_layer_distance
from viewer.backends.what_if import note, parse
from viewer.errors import ExportError
from viewer.export import provenance
from viewer.export.head_columns import HEAD_COLUMNS, LAYER_COLUMNS, Column, of_head, of_layer
from viewer.export.plain import plain
from viewer.export.text_table import text_table

if TYPE_CHECKING:
    from viewer.attention.layer import AttentionLayer
    from viewer.attention.measured import LayerMeasures, RecordMeasures
    from viewer.attention.record import AttentionRecord
    from viewer.state.display import Protocol

TableFormat = Literal["table", "csv", "json", "parquet"]
TABLE_FORMATS: tuple[str, ...] = get_args(TableFormat)
_SUFFIXES: dict[str, TableFormat] = {".csv": "csv", ".json": "json", ".parquet": "parquet", ".txt": "table"}


COLUMNS = (
    Column("image", "string", "path or name of the picture"),
    Column("model", "string", "name or path of the model"),
    Column("what_if", "string", "what was changed in the model while it ran; empty for the model as it is"),
    Column("backend", "string", "torch or onnx"),
    Column("device", "string", "where the model ran"),
    Column("input_height_px", "int64", "height of the model's input in pixels"),
    Column("input_width_px", "int64", "width of the model's input in pixels"),
    Column(
        "grid_rows",
        "int64",
        "rows of the patch grid; of the finest, where layers differ; empty without patches",
    ),
    Column("grid_columns", "int64", "columns of that grid"),
    Column("patch_height_px", "double", "height of a patch in input pixels"),
    Column("patch_width_px", "double", "width of a patch in input pixels"),
    Column("prefix_tokens", "int64", "number of class, distillation and register tokens"),
    Column(
        "protocol",
        "string",
        "of the distances: renormalized (over patches) or original (prefix keys count 0)",
    ),
    Column(
        "uniform_distance_px",
        "double",
        "what uniform attention over all that this layer's queries can reach gives, in input pixels",
    ),
    Column("verified", "bool", "whether every layer of the record is verified"),
    Column("layer", "int64", "number of the attention operation in forward order, from 0"),
    Column("name", "string", "module or graph node of the layer"),
    Column(
        "kind",
        "string",
        "self: patches attend to patches; pool: a learned query gathers all tokens; channel: channels attend",
    ),
    Column("layer_verified", "bool", "whether this layer is verified"),
    Column("how", "string", "query-key: weights made from queries and keys; weights: as the model gave them"),
    Column("note", "string", "what to know of the layer's weights; mostly empty"),
    Column("groups", "int64", "in how many windows or groups the layer's tokens attend; 1 for all together"),
    Column("query_rows", "int64", "rows of the grid of this layer's queries; empty without a place"),
    Column("query_columns", "int64", "columns of that grid"),
    Column("key_rows", "int64", "rows of the grid of this layer's keys; empty without a place"),
    Column("key_columns", "int64", "columns of that grid"),
    Column("query_height_px", "double", "height of a query's patch in input pixels"),
    Column("query_width_px", "double", "width of a query's patch in input pixels"),
    Column("heads", "int64", "number of heads of the layer"),
    Column("head", "int64", "number of the head, from 0"),
    *HEAD_COLUMNS,
    *LAYER_COLUMNS,
)

_PER_LAYER = ("name", "kind", "how", "note", "groups", "uniform_distance_px", "heads")
_PER_LAYER += tuple(column.name for column in LAYER_COLUMNS)
_PAIRS_OF_ALL = (
    (("grid_rows", "grid_columns"), "grid"),
    (("patch_height_px", "patch_width_px"), "patch_px"),
)
_PAIRS = (
    (("query_rows", "query_columns"), "grid"),
    (("key_rows", "key_columns"), "key_grid"),
    (("query_height_px", "query_width_px"), "patch_px"),
)


def entry(record: AttentionRecord, measures: RecordMeasures, protocol: Protocol) -> dict[str, Any]:
    """Return the measures of one picture, ready for JSON; what is not defined is None.

    Parameters
    ----------
    record
        Of any backend.
    measures
        Of that record.
    protocol
        Of the distances.
    """
    found = record.provenance
    layers = [
        _layer(layer, measured, protocol)
        for layer, measured in zip(record.layers, measures.layers, strict=True)
    ]
    references = {layer["uniform_distance_px"] for layer in layers} - {None}
    return {
        "image": plain(found.image),
        "model": plain(found.model),
        "backend": found.backend,
        "device": found.device,
        "input_size": list(record.input_size),
        "grid": list(record.grid) if record.layout.placed else None,
        "patch_px": list(record.patch_px) if record.layout.placed else None,
        "prefix_tokens": record.prefix_tokens,
        "protocol": protocol,
        # Where layers differ, each has its own.
        "uniform_distance_px": references.pop() if len(references) == 1 else None,
        "verified": record.verified,
        "what_if": {"changes": list(record.what_if), "note": note(map(parse, record.what_if))}
        if record.what_if
        else None,
        "layers": layers,
    }


def _layer(layer: AttentionLayer, measured: LayerMeasures, protocol: Protocol) -> dict[str, Any]:
    queries, keys = layer.query_layout, layer.key_layout
    reference = uniform_layer_distance(layer, protocol)
    reference = reference[np.isfinite(reference)]
    return {
        "name": plain(layer.name),
        "kind": layer.kind,
        "verified": layer.verdict.verified,
        "how": layer.scores.how,
        "note": plain(layer.note),
        "groups": layer.scores.groups,
        "grid": list(queries.grid) if queries.placed else None,
        "key_grid": list(keys.grid) if keys.placed else None,
        "patch_px": list(queries.patch_px) if queries.placed else None,
        "uniform_distance_px": float(reference.mean()) if len(reference) else None,
        "heads": layer.heads,
        **of_layer(layer, measured, protocol),
    }


def rows(entries: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield one row per image, layer and head, with the keys of `COLUMNS`."""
    for found in entries:
        common = {key: found[key] for key in ("image", "model", "backend", "device", "prefix_tokens")}
        common |= {key: found[key] for key in ("protocol", "verified")}
        common["what_if"] = " ".join(found["what_if"]["changes"]) if found["what_if"] else ""
        common |= dict(zip(("input_height_px", "input_width_px"), found["input_size"], strict=True))
        for names, key in _PAIRS_OF_ALL:
            common |= dict(zip(names, found[key] or (None, None), strict=True))
        for index, layer in enumerate(found["layers"]):
            shared = common | {"layer": index, "layer_verified": layer["verified"]}
            shared |= {key: layer[key] for key in _PER_LAYER}
            for names, key in _PAIRS:
                shared |= dict(zip(names, layer[key] or (None, None), strict=True))
            for head in range(layer["heads"]):
                row = shared | {"head": head} | of_head(layer, head)
                yield {column.name: row[column.name] for column in COLUMNS}


def encode(
    entries: Sequence[dict[str, Any]], format: TableFormat, facts: dict[str, Any] | None = None
) -> bytes:
    """Return a table as a file's bytes; text is UTF-8.

    Parameters
    ----------
    entries
        As `entry` makes them.
    format
        See `TABLE_FORMATS`.
    facts
        Provenance (`viewer.export.provenance.of_record`) for formats that have a place for it: Parquet.
    """
    if format == "json":
        return (json.dumps(entries, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
    if format == "csv":
        return _csv(entries)
    if format == "parquet":
        return _parquet(entries, facts or {})
    return "\n".join(text_table(found) for found in entries).encode()


def format_of(path: str | Path) -> TableFormat:
    """Return the format that a file's suffix stands for.

    Raises
    ------
    ExportError
        If it is none of the formats there are.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _SUFFIXES:
        found = f"{suffix} is not" if suffix else "a name without a suffix is not"
        raise ExportError(f"{path}: {found} a kind of table there is; choose one of {', '.join(_SUFFIXES)}.")
    return cast("TableFormat", _SUFFIXES[suffix])


def _csv(entries: Sequence[dict[str, Any]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [column.name for column in COLUMNS], lineterminator="\n")
    writer.writeheader()
    for row in rows(entries):
        writer.writerow({k: str(v).lower() if isinstance(v, bool) else v for k, v in row.items()})
    return text.getvalue().encode()


def _parquet(entries: Sequence[dict[str, Any]], facts: dict[str, Any]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    types = {"string": pyarrow.string(), "int64": pyarrow.int64(), "double": pyarrow.float64()}
    types["bool"] = pyarrow.bool_()
    schema = pyarrow.schema(
        [pyarrow.field(c.name, types[c.type], metadata={"description": c.meaning}) for c in COLUMNS],
        metadata={provenance.KEY: provenance.to_text(facts)},
    )
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows(entries)), schema), file)
    return file.getvalue()
