"""The measures of one picture as aligned text for a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_HEADINGS = ("layer", "name", "kind", "head", "distance px", "patches", "entropy nats", "prefix mass")
_HEADINGS += ("within 1 hop", "head kind", "")
_OWN = ("uniform px", "queries", "keys")  # after them where layers differ in what they can reach
_WORDS = {"name", "kind", "head kind", ""}  # columns that are set to the left


def text_table(found: dict[str, Any]) -> str:
    """Return model, picture and protocol, then one line per layer and head.

    Parameters
    ----------
    found
        As `viewer.export.tables.entry` makes it.
    """
    own = _OWN if found["uniform_distance_px"] is None else ()
    headings = (*_HEADINGS[:-1], *own, _HEADINGS[-1])
    lines = [headings, *_lines(found, bool(own))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    body = [
        "  ".join(
            cell.ljust(width) if heading in _WORDS else cell.rjust(width)
            for heading, cell, width in zip(headings, line, widths, strict=True)
        ).rstrip()
        for line in lines
    ]
    return "\n".join([*_preface(found), *body, ""])


def _lines(found: dict[str, Any], own: bool) -> Iterator[tuple[str, ...]]:
    for index, layer in enumerate(found["layers"]):
        grids = [f"{grid[0]} x {grid[1]}" if grid else "-" for grid in (layer["grid"], layer["key_grid"])]
        of_layer = (_digits(layer["uniform_distance_px"], 2), *grids) if own else ()
        for head in range(layer["heads"]):
            yield (
                str(index),
                layer["name"],
                layer["kind"],
                str(head),
                _digits(layer["mean_distance_px"][head], 2),
                _digits(layer["mean_distance_patches"][head], 3),
                _digits(layer["entropy_nats"][head], 4),
                _digits(layer["prefix_mass"][head], 4),
                _digits(layer["local_1"][head], 4),
                layer["head_kind"][head],
                *of_layer,
                "" if layer["verified"] else "not verified",
            )


def _preface(found: dict[str, Any]) -> list[str]:
    height, width = found["input_size"]
    prefix, protocol = found["prefix_tokens"], found["protocol"]
    uniform = found["uniform_distance_px"]
    reference = "uniform px: what uniform attention would reach in that layer"
    if uniform is not None:
        reference = f"uniform attention would reach {_digits(uniform, 2)} px"
    verified = "verified" if found["verified"] else "not verified"
    tokens = "1 prefix token" if prefix == 1 else f"{prefix} prefix tokens"
    return [
        found["image"] or "(an array)",
        f"{found['model']}, {found['backend']} on {found['device']}, input {height} x {width} px "
        f"(height x width), {_patches(found)}, {tokens}, {verified}",
        f"distances by protocol {protocol}; {reference}",
        *_what_if(found["what_if"]),
    ]


def _what_if(found: dict[str, Any] | None) -> Iterator[str]:
    """Yield what was changed, and what that did to the final features and the classes."""
    if found is None:
        return
    yield found["note"]
    if "features_cosine" in found:
        yield f"cosine of the final features before and after: {_digits(found['features_cosine'], 4)}"
        for row in found["classes"]:
            yield f"{row['class']}: {100 * row['before']:.2f} % before, {100 * row['after']:.2f} % after"


def _patches(found: dict[str, Any]) -> str:
    if found["grid"] is None:
        return "no patches"
    (rows, columns), (down, across) = found["grid"], found["patch_px"]
    return f"{rows} rows x {columns} columns of patches of {down:g} x {across:g} px"


def _digits(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
