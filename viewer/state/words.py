"""The names that titles, labels and the read-out share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from viewer.backends.what_if import is_removed, parse, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from viewer.attention.layer import AttentionLayer
    from viewer.attention.record import AttentionRecord
    from viewer.state.display import Protocol
    from viewer.state.selection import Direction, Fusion, HeadRef, Query

_MODELS = {"sample": "DINOv2 ViT-S/14 (sample)", "worked-example": "worked 3 × 3 example"}
_TOKENS = {"cls": "class token", "dist": "distillation token", "mean": "mean token"}
_KINDS = {"pool": " (attention pooling)", "channel": " (channel attention)"}

PROTOCOLS: dict[Protocol, str] = {
    "renormalized": "renormalized over patches",
    "original": "original protocol, prefix tokens count as 0",
}
"""What each protocol of the attention distance is called beside a number."""


def model_words(model: str, weights: str | None = None) -> str:
    """Return what a model is called: "DINOv2 ViT-S/14 (sample)", "net.onnx", "vit_b with own.pth".

    Parameters
    ----------
    model, weights
        Name or path, and path of a checkpoint, as they are opened.
    """
    name = _MODELS.get(model) or Path(model).name or model
    return f"{name} with {Path(weights).name}" if weights else name


def source_words(record: AttentionRecord, picture: str) -> str:
    """Return what numbers are of, for words that leave the window: picture, model, and what was changed.

    "Picture: cat.jpg, input 224 × 224 px. Model: vit_b with own.pth. What if: head 2 of layer 3 removed."

    Parameters
    ----------
    record
        What the model made of the picture.
    picture
        What the picture is called.
    """
    facts = record.provenance
    found = [
        f"Picture: {picture}, input {size_words(record.input_size)}.",
        f"Model: {model_words(facts.model, facts.weights)}.",
    ]
    changed = sentence(map(parse, record.what_if))
    if changed:
        found.append(f"{changed[0].upper()}{changed[1:]}.")
    return " ".join(found)


def size_words(size: tuple[float, ...]) -> str:
    """Return a size with the order said unless it is square: "224 × 336 px (height × width)"."""
    return f"{pixels_words(size)}{'' if size[0] == size[1] else ' (height × width)'}"


def pixels_words(size: tuple[float, ...]) -> str:
    """Return a size in pixels, height first, where the order has been said: "224 × 336 px"."""
    return f"{size[0]:.0f} × {size[1]:.0f} px"


def grid_words(grid: tuple[int, int]) -> str:
    """Return what a patch grid is called: "14 rows × 21 columns"."""
    return f"{grid[0]} rows × {grid[1]} columns"


def token_words(name: str) -> str:
    """Return what a prefix token is called: "class token", "register 1", "token prefix0"."""
    register = re.fullmatch(r"reg(\d+)", name)
    return f"register {register[1]}" if register else _TOKENS.get(name, f"token {name}")


def titled(record: AttentionRecord, title: str) -> str:
    """Return a title, marked where the record is of a changed model: "What if · Layer 3, head 2"."""
    return f"What if · {title}" if record.what_if else title


def query_words(query: Query, brief: bool = False, grid: tuple[int, int] | None = None) -> str:
    """Return what a query is called: "patch (row 4, column 5)", in brief "patch (4, 5)".

    Parameters
    ----------
    query
        A patch, or a prefix token.
    brief
        Whether there is little room.
    grid
        Of the patch, to be named where a model has several: "patch (row 4, column 5 of 14 × 14)".
    """
    if isinstance(query, str):
        return f"the {_TOKENS[query]}" if query in _TOKENS else token_words(query)
    row, column = query
    place = f"{row}, {column}" if brief else f"row {row}, column {column}"
    return f"patch ({place})" if grid is None else f"patch ({place} of {grid[0]} × {grid[1]})"


def prefix_words(names: Sequence[str]) -> str:
    """Return what a model's prefix tokens are called together: "the class token and 4 registers"."""
    registers = [name for name in names if re.fullmatch(r"reg\d+", name)]
    parts = [query_words(name) for name in names if name not in registers and name != "padding"]
    if registers:
        parts.append(f"{len(registers)} registers" if len(registers) > 1 else "the register")
    if "padding" in names:
        parts.append("padding")
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def head_words(record: AttentionRecord, shown: HeadRef, fusion: Fusion) -> str:
    """Return what is shown: "Layer 3, head 2" or "Layer 3, mean of 6 heads".

    A head that a what-if removes still has its attention, and is told from heads that are used.
    """
    layer = record.layers[shown.layer]
    kind = _KINDS.get(layer.kind, "")
    if shown.head is not None:
        removed = " (output removed, not used)" if is_removed(record.what_if, *shown) else ""
        return f"Layer {shown.layer}{kind}, head {shown.head}{removed}"
    if layer.heads == 1:
        return f"Layer {shown.layer}{kind}, its one head"
    return f"Layer {shown.layer}{kind}, {fusion} of {layer.heads} heads"


def asked_words(query: Query, direction: Direction, grid: tuple[int, int] | None = None) -> str:
    """Return what a map answers: "what patch (row 4, column 5) attends to"; `grid` as in `query_words`."""
    if direction == "to":
        return f"which patches attend to {query_words(query, grid=grid)}"
    return f"what {query_words(query, grid=grid)} attends to"


def pooling_words(layer: AttentionLayer) -> str:
    """Return what a layer of attention pooling answers, which has a query of its own."""
    names = layer.query_layout.prefix_names
    known = [query_words(name) for name in names if name in _TOKENS]
    return f"what {known[0] if len(names) == 1 and known else 'the pooling query'} attends to"


def bar_words(query: Query, direction: Direction, grid: tuple[int, int] | None = None) -> str:
    """Return the label of the colour bar; `grid` as in `query_words`."""
    words = "attention weight"
    return words if direction == "from" else f"{words} on {query_words(query, brief=True, grid=grid)}"


def weight_words(weight: float) -> str:
    """Return an attention weight as it is written beside a token: "0.12", or "< 0.0001"."""
    return "< 0.0001" if 0 < weight < 5e-5 else f"{weight:.2g}"
