"""Which patch of a layer lies where, and which query of the record stands for it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from viewer.state.words import query_words

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from viewer.attention.layer import AttentionLayer
    from viewer.attention.layout import TokenLayout
    from viewer.attention.record import AttentionRecord
    from viewer.state.selection import Direction, Query

_EMPTY_GRID = (14, 14)
UNREACHABLE = "not reachable (other window or masked)"
"""What hatching means, in a legend."""


def asked_layout(record: AttentionRecord, layer: AttentionLayer, direction: Direction) -> TokenLayout:
    """Return the layout whose patches are asked: the layer's queries, or its keys in direction "to".

    The record's where that side of the layer has no places (attention pooling).
    """
    layout = layer.query_layout if direction == "from" else layer.key_layout
    return layout if layout.placed else record.layout


def answering_layout(layer: AttentionLayer, direction: Direction) -> TokenLayout:
    """Return the layout of the tokens that weights are of: the layer's keys, or its queries."""
    return layer.key_layout if direction == "from" else layer.query_layout


def sides(layout: TokenLayout, cells: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    """Return where patches (top, left, bottom, right), ends exclusive, lie: (left, top, right, bottom) in px.

    Patches are tiles around their true centres, so those at the border may reach beyond the picture.
    """
    top, left, bottom, right = cells
    (down, across), (y, x) = layout.patch_px, layout.origin
    return (
        x + (left - 0.5) * across,
        y + (top - 0.5) * down,
        x + (right - 0.5) * across,
        y + (bottom - 0.5) * down,
    )


def patch_of(layout: TokenLayout, places: TokenLayout, query: tuple[int, int]) -> tuple[int, int]:
    """Return the patch (row, column) of a layer's layout that lies under a query on the record's grid.

    Parameters
    ----------
    layout, places
        The layer's, and the record's.
    query
        Row and column on the grid of `places`.
    """
    return query if layout.same_patches(places) else layout.patch_at(*places.centre(query))


def query_of(
    layout: TokenLayout, places: TokenLayout, patch: tuple[int, int], among: Iterable[Query | None] = ()
) -> tuple[int, int]:
    """Return a query on the record's grid that stands for a patch of a layer's layout.

    It is the first of `among` that lies on that patch, so that what is selected stays selected; else the one
    nearest to the patch's centre.
    """
    for query in among:
        if isinstance(query, tuple) and patch_of(layout, places, query) == patch:
            return query
    return patch if layout.same_patches(places) else places.patch_at(*layout.centre(patch))


def stepped(
    layout: TokenLayout, places: TokenLayout, query: Query | None, down: int, right: int
) -> tuple[int, int]:
    """Return the query some patches of a layer's layout away, stopping at the border.

    From nowhere, or from a prefix token, it starts at the centre.
    """
    rows, columns = layout.grid
    if not isinstance(query, tuple):
        return query_of(layout, places, (rows // 2, columns // 2))
    row, column = patch_of(layout, places, query)
    there = (min(max(row + down, 0), rows - 1), min(max(column + right, 0), columns - 1))
    return query_of(layout, places, there, [query])


class Spread(NamedTuple):
    """How the weights of a layer come onto grids.

    Attributes
    ----------
    tokens
        int64 (n, R * C), the tokens that each patch of the layer is: more than one where windows overlap.
    under
        int64 (R * C of the record,), the patch of the layer under each patch of the record; None where both
        have the same patches.
    """

    tokens: npt.NDArray[np.int64]
    under: npt.NDArray[np.int64] | None

    def on_patches(self, weights: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return weights (heads, tokens) of each patch, (heads, R * C), of the token that can be reached."""
        found = [np.take(weights, tokens, axis=1) for tokens in self.tokens]
        return found[0] if len(found) == 1 else np.fmax.reduce(found)


@lru_cache(maxsize=4)
def spreads(layouts: tuple[TokenLayout, ...], places: TokenLayout) -> tuple[Spread | None, ...]:
    """Return how weights on each layout come onto the record's grid; None for one without places."""
    return tuple(_spread(layout, places) if layout.placed else None for layout in layouts)


def _spread(layout: TokenLayout, places: TokenLayout) -> Spread:
    under = None if layout.same_patches(places) else layout.patches_under(places)
    placed = np.flatnonzero(layout.cells >= 0)
    if len(placed) == len(layout.patch_tokens):
        return Spread(layout.patch_tokens[None], under)
    order = placed[np.argsort(layout.cells[placed], kind="stable")]
    count = np.bincount(layout.cells[placed])
    first = np.cumsum(count) - count
    # A patch of fewer tokens names its last one again.
    rounds = [order[first + np.minimum(i, count - 1)] for i in range(count.max())]
    return Spread(np.stack(rounds), under)


def rectangles(where: npt.NDArray[np.bool_]) -> list[tuple[int, int, int, int]]:
    """Return boxes (top, left, bottom, right), ends exclusive, that together cover just what is true."""
    found: list[tuple[int, int, int, int]] = []
    open_: dict[tuple[int, int], int] = {}
    for row in range(len(where) + 1):
        line = where[row] if row < len(where) else np.zeros(where.shape[1], bool)
        edges = np.flatnonzero(np.diff(line, prepend=False, append=False)).tolist()
        runs = set(zip(edges[::2], edges[1::2], strict=True))
        found += [(open_.pop(run), run[0], row, run[1]) for run in open_.keys() - runs]
        open_.update(dict.fromkeys(runs - open_.keys(), row))
    return found


def why_blank(layer: AttentionLayer, query: Query | None, direction: Direction) -> str:
    """Return why a layer has no map for a query (or for any, if it is None), as a clause; else nothing."""
    if layer.kind == "channel":
        return "channels attend to channels here, and they have no place on the picture"
    asked = layer.query_layout if direction == "from" else layer.key_layout
    if layer.kind == "pool" and direction == "to":
        return "a learned query gathers all patches here, so no patch attends to another"
    if not answering_layout(layer, direction).placed:
        return layer.note or "its tokens have no known place on the picture"
    if layer.scores.queries == 1 and direction == "from":
        return ""
    if isinstance(query, str) and query not in asked.prefix_names:
        return f"this layer does not have {query_words(query)}"
    if isinstance(query, tuple) and not asked.placed:
        return layer.note or "only learned queries attend here, no patch does"
    return ""


def map_grid(record: AttentionRecord) -> tuple[int, int]:
    """Return rows and columns of every map; usual ones where no layer has patches (channels alone)."""
    return record.grid if record.layout.placed else _EMPTY_GRID
