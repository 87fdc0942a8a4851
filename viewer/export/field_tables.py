"""Receptive fields of a network's layers as tables: for a terminal, a spreadsheet (CSV), programs (JSON)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from viewer.backends.network_fields import STAGE
from viewer.export.plain import plain
from viewer.state.words import PROTOCOLS

if TYPE_CHECKING:
    from viewer.backends.effective_field import EffectiveField
    from viewer.backends.network_fields import FieldLayer, NetworkFields
    from viewer.state.comparison import Level

FieldFormat = Literal["table", "csv", "json"]
_LISTED = 8  # heads in a cell of the terminal's table
FIELD_FORMATS: tuple[str, ...] = get_args(FieldFormat)

_GATED = (
    "Marked *: units also depend on the whole picture, through a gate or statistics that are the same at "
    "every place; the field does not count them."
)
_PAIRS = ("kernel", "stride", "dilation", "jump_px", "field_px", "start_px")
_MEASURED = "effective_sigma_px"
_NOT_COMPARED = {"as_attention_px": None, "shorter_heads": None}


def encode(entry: dict[str, Any], format: FieldFormat) -> str:
    """Write what `entry` returns in a format."""
    if format == "json":
        return json.dumps(entry, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return _csv(entry) if format == "csv" else _table(entry)


def entry(
    fields: NetworkFields, effective: Sequence[EffectiveField] = (), weights: str = ""
) -> dict[str, Any]:
    """Return fields ready for JSON; pairs are (height, width).

    Parameters
    ----------
    fields
        What the network's layers can see.
    effective
        What some of them really see.
    weights
        What weights that was found with.
    """
    found = {one.layer: one for one in effective}
    first = next(iter(effective), None)
    return {
        "model": plain(fields.name),
        "backend": fields.backend,
        "end": plain(fields.end),
        "beside": None,
        "effective": None
        if first is None
        else {"images": first.images, "input_size": list(first.map.shape), "weights": plain(weights)},
        "layers": [
            *(_layer(layer, found.get(layer.name)) for layer in fields.layers),
            *(_block(one) for one in effective if one.layer not in {layer.name for layer in fields.layers}),
        ],
    }


def beside(found: dict[str, Any], levels: Sequence[Level], model: str, image: str, protocol: str) -> None:
    """Add to what `entry` returned how far stages reach beside the heads of a model, and which reach less.

    Parameters
    ----------
    found
        Its stages get more columns.
    levels
        Of the same stages, see `viewer.state.comparison.levels`.
    model, image
        Whose heads, on which picture.
    protocol
        Of the heads' distances.
    """
    found["beside"] = {"model": plain(model), "image": plain(image), "protocol": protocol}
    stages = (layer for layer in found["layers"] if layer["kind"] == STAGE)
    for stage, level in zip(stages, levels, strict=True):
        stage["as_attention_px"] = level.distance
        stage["shorter_heads"] = [list(head) for head in level.shorter]


def _layer(layer: FieldLayer, effective: EffectiveField | None) -> dict[str, Any]:
    pairs = (layer.kernel, layer.stride, layer.dilation, layer.jump, layer.field, layer.start)
    row: dict[str, Any] = {"name": plain(layer.name), "kind": layer.kind, **_NOT_COMPARED}
    row.update((name, None if pair is None else list(pair)) for name, pair in zip(_PAIRS, pairs, strict=True))
    return {**row, "gated": layer.gated, **_of_effective(effective)}


def _block(effective: EffectiveField) -> dict[str, Any]:
    """Return the row of a block that attends: it could see the whole picture."""
    row: dict[str, Any] = {"name": plain(effective.layer), "kind": "block", **dict.fromkeys(_PAIRS)}
    return {**row, **_NOT_COMPARED, "gated": False, **_of_effective(effective)}


def _of_effective(found: EffectiveField | None) -> dict[str, Any]:
    sigma = None if found is None else list(found.deviation)
    return {
        "effective_size_px": None if found is None else found.size,
        "effective_distance_px": None if found is None else found.mean_distance,
        _MEASURED: sigma,
    }


def _csv(found: dict[str, Any]) -> str:
    columns = ["model", "backend", "layer", "name", "kind"]
    columns += [f"{name}_{side}" for name in (*_PAIRS, _MEASURED) for side in ("height", "width")]
    columns += ["gated", "effective_size_px", "effective_distance_px", "effective_images", "weights"]
    columns += ["as_attention_px", "shorter", "shorter_heads"]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    effective = found["effective"] or {}
    for index, layer in enumerate(found["layers"]):
        row = {"model": found["model"], "backend": found["backend"], "layer": index, **layer}
        row["gated"] = str(layer["gated"]).lower()
        for name in (*_PAIRS, _MEASURED):
            for place, side in enumerate(("height", "width")):
                values = layer[name]
                # Windows over one axis alone have no second side.
                row[f"{name}_{side}"] = values[place] if values and place < len(values) else None
        row["effective_images"], row["weights"] = effective.get("images"), effective.get("weights")
        shorter = layer["shorter_heads"]
        if shorter is not None:
            row["shorter"] = len(shorter)
            row["shorter_heads"] = " ".join(f"{number}/{head}" for number, head in shorter)
        writer.writerow(row)
    return text.getvalue()


_HEADINGS = ("layer", "kind", "kernel", "stride", "dilation", "jump px", "field px")
_EFFECTIVE = ("effective size px", "effective distance px")
_BESIDE = ("as attention px", "shorter heads")


def _table(found: dict[str, Any]) -> str:
    effective = found["effective"]
    beside_ = found["beside"]
    headings = (*_HEADINGS, *(_EFFECTIVE if effective else ()), *(_BESIDE if beside_ else ()))
    # A stage of a single layer is that layer.
    names = {layer["name"] for layer in found["layers"] if layer["kind"] != STAGE}
    shown = [
        layer for layer in found["layers"] if layer["kind"] != STAGE or beside_ or layer["name"] not in names
    ]
    lines = [headings, *(_line(layer, bool(effective), bool(beside_)) for layer in shown)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    body = [
        "  ".join(
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    notes = [f"{found['model']}: theoretical receptive fields, read from the {found['backend']} graph"]
    if effective:
        height, width = effective["input_size"]
        pictures = "1 picture" if effective["images"] == 1 else f"{effective['images']} pictures"
        told = f"mean over {pictures}, weights: {effective['weights']}"
        notes.append(f"effective fields at {height} x {width} px, {told}")
    if beside_:
        notes.append(
            f"as attention: even attention over the field, beside the heads of {beside_['model']} on "
            f"{beside_['image']} ({PROTOCOLS[beside_['protocol']]}); shorter heads as layer/head"
        )
    if any(layer["gated"] for layer in found["layers"]):
        notes.append(_GATED)
    if found["end"]:
        notes.append(found["end"])
    return "\n".join([*notes, "", *body, ""])


def _line(layer: dict[str, Any], effective: bool, compared: bool) -> tuple[str, ...]:
    stage = layer["kind"] == STAGE
    name = f"= end of {layer['name']}" if stage else layer["name"]
    pairs = [_pair(layer[key]) for key in _PAIRS[:-1]]
    pairs[-1] += "*" if layer["gated"] else ""
    numbers = [layer["effective_size_px"], layer["effective_distance_px"]] if effective else []
    cells = ["" if value is None else f"{value:.1f}" for value in numbers]
    if compared:
        reach, shorter = layer["as_attention_px"], layer["shorter_heads"]
        cells.append("" if reach is None else f"{reach:.1f}")
        cells.append("" if shorter is None else _heads(shorter))
    return (name, layer["kind"], *pairs, *cells)


def _heads(shorter: Sequence[Sequence[int]]) -> str:
    """Return how many heads are shorter, and the first of them: "7: 0/3 1/0 ..."."""
    listed = " ".join(f"{layer}/{head}" for layer, head in shorter[:_LISTED])
    more = " …" if len(shorter) > _LISTED else ""
    return f"{len(shorter)}: {listed}{more}" if shorter else "0"


def _pair(values: Sequence[float] | None) -> str:
    if not values:
        return ""
    texts = [f"{value:g}" for value in values]
    return texts[0] if len(set(texts)) == 1 else "x".join(texts)
