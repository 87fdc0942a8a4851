"""What is asked of token layouts: a grid all over the picture, and of ONNX graphs one for all layers."""

from __future__ import annotations

from collections.abc import Iterable

from viewer.attention.layout import TokenLayout
from viewer.errors import LayoutError


def require_one_grid(model: str, layers: Iterable[tuple[str, TokenLayout, TokenLayout]]) -> None:
    """Refuse a model whose grid changes from layer to layer, or from queries to keys.

    A query of one grid is no query of another, so its maps would be wrong or missing without a word.

    Parameters
    ----------
    model
        What to call the model in the error.
    layers
        Name, query layout and key layout of each. A side without places (a pooling query) asks for nothing.

    Raises
    ------
    LayoutError
        Naming the first layer that differs and its grid.
    """
    first: TokenLayout | None = None
    for name, queries, keys in layers:
        for side, layout in (("queries", queries), ("keys", keys)):
            if layout.grid == (0, 0):
                continue
            first = first or layout
            if (layout.grid, layout.patch_px) != (first.grid, first.patch_px):
                raise LayoutError(
                    model,
                    f"the {side} of {name} sit on a grid of {_words(layout)}, others on {_words(first)}; "
                    "only models with one grid throughout can be shown",
                )


def require_cover(layout: TokenLayout, size: tuple[int, int]) -> None:
    """Refuse a grid that does not span the picture: its places were averaged with others on the way.

    Parameters
    ----------
    layout
        Of queries or keys; without places it asks for nothing.
    size
        Height and width of the input in pixels.

    Raises
    ------
    ValueError
        If the patches leave out, or stand out over, more than one patch along an axis; a clause.
    """
    for count, step, side in zip(layout.grid, layout.patch_px, size, strict=True):
        if layout.placed and abs(count * step - side) > step:
            raise ValueError(
                f"{_words(layout)} of {layout.patch_px[0]:g} x {layout.patch_px[1]:g} px do not cover "
                f"a picture of {size[0]} x {size[1]} px"
            )


def _words(layout: TokenLayout) -> str:
    return f"{layout.grid[0]} x {layout.grid[1]} patches"
