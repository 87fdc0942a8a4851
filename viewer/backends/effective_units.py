"""Which unit of a layer's output lies in the middle of the picture, for maps and for tokens."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor, nn

from viewer.backends.effective_field import FindUnit, Unit
from viewer.backends.fields import Seen
from viewer.backends.receptive_field import module_fields

if TYPE_CHECKING:
    from collections.abc import Iterable

    from viewer.attention.layer import AttentionLayer
    from viewer.attention.layout import TokenLayout


def units_of_maps(model: nn.Module, size: tuple[int, int], names: Iterable[str]) -> dict[str, FindUnit]:
    """Return how the middle units of convolutional layers are found.

    Parameters
    ----------
    model, size
        As for `viewer.backends.receptive_field.receptive_fields`.
    names
        Of modules; those whose output is no map any more are left out.
    """
    found = module_fields(model, size, names)
    return {name: partial(_of_map, seen) for name, seen in found.items() if _is_map(seen)}


def _is_map(seen: Seen) -> bool:
    return all(seen.axes.count((axis,)) == 1 for axis in (0, 1))


def _of_map(seen: Seen, output: Tensor) -> Unit | None:
    dims = [seen.axes.index((axis,)) for axis in (0, 1)]
    index: list[int | slice] = [slice(None)] * output.ndim
    centre = []
    for axis, dim in enumerate(dims):
        place = output.shape[dim] // 2
        index[dim] = place
        centre.append((seen.low[axis] + seen.high[axis]) / 2 + place * seen.jump[axis])
    return Unit(tuple(index), (centre[0], centre[1]))


def units_of_blocks(layers: Iterable[AttentionLayer]) -> dict[str, FindUnit]:
    """Return how the middle units of the blocks that attention layers belong to are found.

    The residual stream behind the block is asked, at the patch in the middle of the layer's grid.
    """
    asked = [layer for layer in layers if layer.name and layer.query_layout.placed]
    return {block_of(layer.name): partial(middle_token, layer.query_layout) for layer in asked}


def block_of(name: str) -> str:
    """Return the block that an attention is a part of: up to the last number in its module's name.

    ``"blocks.3.attn"`` is of "blocks.3", ``"encoder.layer.0.attention.attention"`` of "encoder.layer.0".
    """
    parts = name.split(".")[:-1]
    numbered = [place for place, part in enumerate(parts) if re.search(r"\d$", part)]
    return ".".join(parts[: numbered[-1] + 1] if numbered else parts) or name


def middle_token(layout: TokenLayout, output: Tensor) -> Unit | None:
    """Return the unit of the middle patch in tokens, or in a map of them; None for another layout."""
    rows, columns = layout.grid
    row, column = rows // 2, columns // 2
    centre = layout.centre((row, column))
    shape = tuple(output.shape)
    if output.ndim == 4 and shape[1:3] == layout.grid:
        return Unit((slice(None), row, column), centre)
    if output.ndim == 4 and shape[2:] == layout.grid:
        return Unit((slice(None), slice(None), row, column), centre)
    if output.ndim == 3 and shape[1] == layout.tokens:
        ordered = len(layout.patch_tokens) == rows * columns and not len(layout.prefix_tokens)
        place = row * columns + column
        # Windows order tokens for their attention only; the stream between blocks goes row by row.
        return Unit((slice(None), place if ordered else int(layout.patch_tokens[place])), centre)
    return None
