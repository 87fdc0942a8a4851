"""What the views ask of a model's token layouts: that all layers share one patch grid."""

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


def _words(layout: TokenLayout) -> str:
    return f"{layout.grid[0]} x {layout.grid[1]} patches"
