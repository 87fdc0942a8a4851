"""What stacked 3x3 convolutions could reach from the query, and what of a head's attention lies beyond."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from viewer.state.places import asked_layout, patch_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.layout import TokenLayout
    from viewer.attention.record import AttentionRecord
    from viewer.state.attended import Attended
    from viewer.state.display import DisplayValue, Protocol
    from viewer.state.selection import Query, SelectionValue

_SLACK = 1e-3  # of a patch: centres that lie on the ring are inside


def ring(patch: Query | None, hops: int, grid: tuple[int, int]) -> tuple[int, int, int, int] | None:
    """Return what convolutions reach, (top, left, bottom, right) in patches with ends exclusive, or None."""
    if hops <= 0 or not isinstance(patch, tuple):
        return None
    row, column = patch
    return (
        max(row - hops, 0),
        max(column - hops, 0),
        min(row + hops + 1, grid[0]),
        min(column + hops + 1, grid[1]),
    )


def reach_words(hops: int) -> str:
    """Return what is outlined: "3 stacked 3x3 convolutions reach"."""
    return "a 3x3 convolution reaches" if hops == 1 else f"{hops} stacked 3x3 convolutions reach"


def share_outside(
    record: AttentionRecord, found: Attended | None, selection: SelectionValue, display: DisplayValue
) -> float | None:
    """Return the share of the query's attention outside the ring, mean over the shown heads, 0 to 1.

    Of its attention on patches under the protocol "renormalized", of all its attention under "original". None
    where there is no ring, the views show who attends, or the shown layer has no map for this query.
    """
    shown, query = selection.shown, selection.query
    layer = record.layers[shown.layer]
    if found is None or found.direction == "to" or not isinstance(query, tuple) or display.ring <= 0:
        return None
    if found.blank[layer.index] or not (layer.query_layout.placed and layer.key_layout.placed):
        return None
    asked = asked_layout(record, layer, found.direction)
    patch = patch_of(asked, record.layout, query)
    inside = _inside(asked, layer.key_layout, patch, display.ring)
    heads = slice(None) if shown.head is None else slice(shown.head, shown.head + 1)
    rows = np.nan_to_num(found.layers[layer.index][heads]).astype(np.float64)
    placed = np.isfinite(layer.key_layout.positions).all(axis=1)
    whole = rows[:, placed].sum(axis=1) if display.protocol == "renormalized" else rows.sum(axis=1)
    beyond = rows[:, placed & ~inside].sum(axis=1)
    there = whole > 0
    return float((beyond[there] / whole[there]).mean()) if there.any() else None


def _inside(
    asked: TokenLayout, keys: TokenLayout, patch: tuple[int, int], hops: int
) -> npt.NDArray[np.bool_]:
    """Return which keys have their centre inside the ring, bool (keys,)."""
    far = np.abs(keys.positions - np.array(asked.centre(patch))) / np.array(asked.patch_px)
    return (far <= hops + 0.5 + _SLACK).all(axis=1)


def outside_words(share: float | None, protocol: Protocol, prefix: bool) -> str:
    """Return the share in words, with what it is a share of; empty where there is none.

    Parameters
    ----------
    share
        As `share_outside` gives it.
    protocol
        Of the distances.
    prefix
        Whether the layer has prefix tokens; without them both protocols say the same.
    """
    if share is None:
        return ""
    of = " on patches" if protocol == "renormalized" else ", prefix tokens counted in,"
    percent = f"{100 * share:.1f}" if share < 0.1 else f"{100 * share:.0f}"
    return f"{percent} % of the attention{of if prefix else ''} lies outside"
