"""What an exported figure asks for when it is opened again: model, picture, selection, display."""

from __future__ import annotations

import contextlib
import os.path
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar, get_args

from viewer.backends.what_if import Change, parse
from viewer.export.provenance import model_name, read_provenance
from viewer.images.sources import MODEL_SUFFIXES
from viewer.state.axes import is_known
from viewer.state.display import (
    Centring,
    DisplayValue,
    Likened,
    LikenedHeads,
    MapKind,
    Protocol,
    RolloutFusion,
    Scale,
    Theme,
    Unit,
)
from viewer.state.network_map import TRAINED, UNTRAINED
from viewer.state.preferences import section
from viewer.state.requests import ImageSize, ModelRequest, View
from viewer.state.selection import Direction, Fusion, HeadRef, Query, SelectionValue

_Choice = TypeVar("_Choice", bound=str)
_WHOLE = re.compile(r"\d+x\d+, whole\b")  # as `viewer.backends.inputs.describe` writes it
_CHOICES = {
    "protocol": get_args(Protocol),
    "unit": get_args(Unit),
    "scale": get_args(Scale),
    "theme": get_args(Theme),
    "fusion": get_args(Fusion),
    "direction": get_args(Direction),
    "map": get_args(MapKind),
    "rollout_fusion": get_args(RolloutFusion),
    "likeness": get_args(Centring),
    "likeness_of": get_args(Likened),
    "likeness_heads": get_args(LikenedHeads),
}


@dataclass(frozen=True)
class Restored:
    """What a figure asks for, every value checked for its type.

    Attributes
    ----------
    model
        To be opened as it was.
    model_sha256
        Of the model or checkpoint file then; empty if it had none.
    image
        Name of the picture, without its folder; empty for an array.
    image_sha256
        Of the picture's bytes then.
    selection
        Query, pins, head, fusion and direction; `viewer.state.scene.compose` leaves out what a record lacks.
    display
        Settings.
    view
        Which view the figure shows.
    folder
        Where the figure lies.
    what_if
        What was changed in the model.
    """

    model: ModelRequest
    model_sha256: str
    image: str
    image_sha256: str
    selection: SelectionValue
    display: DisplayValue
    view: View
    folder: Path
    what_if: tuple[Change, ...] = ()


def restore(path: str | Path) -> Restored | None:
    """Read what a figure asks for; None if it is not one of Patchreach's, or does not say which model."""
    facts = read_provenance(path)
    if facts is None:
        return None
    model, image = section(facts, "model"), section(facts, "image")
    name = _text(model, "name")
    if not name:
        return None
    view = facts.get("view")
    return Restored(
        model=ModelRequest(name, _text(model, "weights") or None, _size(facts, model)),
        model_sha256=_text(model, "sha256"),
        image=_text(image, "name"),
        image_sha256=_text(image, "sha256"),
        selection=_selection(section(facts, "selection")),
        display=_with_network(_display(section(facts, "display")), Path(path).absolute().parent),
        view=view if view in get_args(View) else "overlay",
        folder=Path(path).absolute().parent,
        what_if=tuple(_changes(facts.get("what_if"))),
    )


def _changes(raw: object) -> Iterator[Change]:
    for text in raw if isinstance(raw, list) else ():
        # One that a later version knows and this one does not is left out.
        with contextlib.suppress(ValueError):
            yield parse(str(text))


def _selection(raw: dict[str, Any]) -> SelectionValue:
    default = SelectionValue()
    pins = raw.get("pins")
    queries = [_query(pin) for pin in pins] if isinstance(pins, list) else []
    # What was only hovered when the figure was made is pinned, else it would vanish at the next mouse move.
    queries.append(_query(raw.get("query")))
    distinct = dict.fromkeys(query for query in reversed(queries) if query is not None)
    head = raw.get("head")
    return SelectionValue(
        pins=tuple(reversed(distinct)),
        head=HeadRef(_count(raw.get("layer")) or 0, _count(head)),
        fusion=_choice(raw, "fusion", default.fusion),
        direction=_choice(raw, "direction", default.direction),
    )


def _display(raw: dict[str, Any]) -> DisplayValue:
    default = DisplayValue()
    found: dict[str, Any] = {
        item.name: _choice(raw, item.name, getattr(default, item.name))
        for item in fields(default)
        if item.name in _CHOICES
    }
    opacity, colormap = raw.get("opacity"), raw.get("colormap")
    if isinstance(opacity, (int, float)) and 0 <= opacity <= 1:
        found["opacity"] = float(opacity)
    for number, most in (("ring", 1000), ("start_layer", 1000), ("map_class", 1_000_000)):
        count = _count(raw.get(number))
        if count is not None and count <= most:
            found[number] = count
    for switch in ("fade", "grid", "kinds"):
        if isinstance(raw.get(switch), bool):
            found[switch] = raw[switch]
    for axis in ("x_measure", "y_measure"):
        if is_known(raw.get(axis), with_layer=axis == "x_measure"):
            found[axis] = raw[axis]
    compare = raw.get("compare")
    if isinstance(compare, str) and len(compare) <= 200 and _names_network(compare):
        found["compare"] = compare
        weights, stage = raw.get("compare_weights"), raw.get("stage")
        if isinstance(weights, str) and len(weights) <= 200:
            found["compare_weights"] = Path(weights).name
        if isinstance(stage, str) and len(stage) <= 200:
            found["stage"] = stage
    if isinstance(colormap, str) and _is_colormap(colormap):
        found["colormap"] = colormap
    return replace(default, **found)


def _names_network(text: str) -> bool:
    """Return whether it is a name: a file is not found again without its folder, and figures name none."""
    return model_name(text) == text and Path(text).suffix.lower() not in MODEL_SUFFIXES


def _with_network(display: DisplayValue, folder: Path) -> DisplayValue:
    """Look for the checkpoint of a network that is compared with beside the figure."""
    beside = folder / display.compare_weights
    named = display.compare_weights not in ("", TRAINED, UNTRAINED)
    # Not pathlib's, which raises for a name that is too long: what a figure names may be anything.
    found = named and os.path.isfile(beside)  # noqa: PTH113
    return replace(display, compare_weights=str(beside)) if found else display


def _is_colormap(name: str) -> bool:
    from viewer.state.colormaps import COLORMAPS

    return name in COLORMAPS


def _query(raw: object) -> Query | None:
    if isinstance(raw, str) and raw:
        return raw
    if isinstance(raw, list) and len(raw) == 2:
        row, column = map(_count, raw)
        return None if row is None or column is None else (row, column)
    return None


def _size(facts: dict[str, Any], model: dict[str, Any]) -> ImageSize:
    # A size by itself would crop again what was left whole.
    if _WHOLE.match(_text(facts, "preprocessing")):
        return "whole"
    found = _query(model.get("input_size"))
    return found if isinstance(found, tuple) and min(found) > 0 and max(found) <= 1 << 16 else None


def _count(raw: object) -> int | None:
    return raw if type(raw) is int and raw >= 0 else None


def _choice(raw: dict[str, Any], name: str, default: _Choice) -> _Choice:
    value = raw.get(name)
    return value if value in _CHOICES[name] else default


def _text(raw: dict[str, Any], name: str) -> str:
    value = raw.get(name)
    return value if isinstance(value, str) else ""
