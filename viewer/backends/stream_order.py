"""Which token of the residual stream each query of an attention is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from viewer.backends.position_call import Lost

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from viewer.attention.layout import TokenLayout

_PADDING = "padding"


def stream_order(places: Tensor | Lost | None, layout: TokenLayout) -> npt.NDArray[np.int64] | str:
    """Return the token of the stream for each query, int64 (queries,); -1 where there is none.

    Parameters
    ----------
    places
        complex64 (tokens,) of the stream, as `positions.PositionTrace.tokens` has them, of all pictures of a
        batch one after the other; the first one counts.
    layout
        Of the layer's queries.

    Returns
    -------
    array or str
        Or why the tokens can't be told, as a clause.
    """
    if places is None:
        return "no normalization was found between the residual stream and its queries"
    if isinstance(places, Lost):
        return places.reason
    traced = places.resolve_conj().numpy()
    if len(traced) == layout.tokens and _same(traced, layout):
        return np.arange(layout.tokens)
    found = np.full(layout.tokens, -1, np.int64)
    known: dict[tuple[float, float], int] = {}
    there = np.flatnonzero(~np.isnan(traced.real))
    for index, place in zip(there.tolist(), _rounded(traced[there].real, traced[there].imag), strict=True):
        known.setdefault(place, index)
    placed = np.flatnonzero(layout.cells >= 0)
    for token, place in zip(placed.tolist(), _rounded(*layout.positions[placed].T), strict=True):
        found[token] = known.get(place, -1)
    if not (found[placed] >= 0).all():
        return "its queries are other tokens than those of the residual stream before it"
    names = np.array(layout.prefix_names)
    own = layout.prefix_tokens[names != _PADDING] if len(names) else layout.prefix_tokens
    nowhere = np.flatnonzero(np.isnan(traced.real))
    if len(nowhere) >= len(own):
        found[own] = nowhere[: len(own)]
    return found


def _same(traced: npt.NDArray[np.complex64], layout: TokenLayout) -> bool:
    y, x = layout.positions.T
    return bool(
        np.array_equal(np.isnan(traced.real), np.isnan(y))
        and np.allclose(traced.real, y, atol=0.01, equal_nan=True)
        and np.allclose(np.where(np.isnan(y), 0, traced.imag), np.nan_to_num(x), atol=0.01)
    )


def _rounded(y: npt.NDArray[np.float32], x: npt.NDArray[np.float32]) -> list[tuple[float, float]]:
    """Return places to a tenth of a pixel; Python's own rounding of each takes longer than a pass."""
    return list(zip(y.round(1).tolist(), x.round(1).tolist(), strict=True))
