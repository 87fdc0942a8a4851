"""Content against position: how much of a head's attention stays the same, whatever the picture shows.

Over many pictures, the variance of a head's weights (over pictures, queries and keys) has a part that
position alone explains: the variance of the mean map of all pictures. The rest depends on content.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from viewer.attention.query import one_thread

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.layer import AttentionLayer
    from viewer.attention.record import AttentionRecord

_QUERIES = 64
# Sums kept for a layer, 2 MB: large layers are looked at from fewer queries.
_KEPT = 1 << 18
_FEWEST = 8


@dataclass(frozen=True, eq=False)
class _LayerSums:
    """Sums over pictures of one layer's weights from some queries to all keys they may look at.

    Attributes
    ----------
    weights
        float64 (heads, queries, keys of a group).
    squares
        float64 (heads,), of squared weights.
    counted
        bool (queries, keys of a group): patches (all keys where none has a place) within reach.
    """

    weights: npt.NDArray[np.float64]
    squares: npt.NDArray[np.float64]
    counted: npt.NDArray[np.bool_]

    def __add__(self, other: _LayerSums) -> _LayerSums:
        if self.counted.shape != other.counted.shape or (self.counted != other.counted).any():
            raise ValueError("the pictures' patches differ, so their attention has no mean")
        if len(self.squares) != len(other.squares):
            raise ValueError(f"{len(self.squares)} and {len(other.squares)} heads have no mean")
        return _LayerSums(self.weights + other.weights, self.squares + other.squares, self.counted)

    def share(self, pictures: int) -> npt.NDArray[np.float64]:
        """Return the variance of the mean map over the whole variance, float64 (heads,)."""
        pairs = max(int(self.counted.sum()), 1)
        mean_map = self.weights / pictures
        level = mean_map.sum(axis=(1, 2)) / pairs
        fixed = np.square(mean_map - level[:, None, None], where=self.counted, out=np.zeros_like(mean_map))
        position = fixed.sum(axis=(1, 2)) / pairs
        # What differs from picture to picture, summed up apart: where there is little of it, digits remain.
        content = (self.squares / pictures - np.square(mean_map).sum(axis=(1, 2))) / pairs
        whole = position + np.maximum(content, 0.0)
        varies = whole > _NO_VARIANCE * level**2
        return np.divide(position, whole, out=np.full(len(whole), np.nan), where=varies)


# Weights are float32: what varies by less than a thousandth of their level varies by rounding.
_NO_VARIANCE = 1e-6


class PositionShare:
    """Sums over pictures, mergeable in any order; they take as much memory for one picture as for thousands.

    Up to 64 evenly spread patch queries stand for all, fewer in layers with many heads and keys. Pictures
    must have the same size, so that the same queries mean the same places.

    Examples
    --------
    >>> sums = PositionShare()
    >>> for record in records:
    ...     sums.add(record)
    >>> sums.share()[0]  # of the first layer's heads
    """

    def __init__(self) -> None:
        self.pictures = 0
        self._layers: tuple[_LayerSums, ...] = ()

    def add(self, record: AttentionRecord, pictures: int = 1) -> None:
        """Add what one picture left, or several side by side.

        Parameters
        ----------
        record
            Of one picture, or of several, whose heads follow one another in each layer.
        pictures
            How many.

        Raises
        ------
        ValueError
            If its layers have other heads or patches than those before.
        """
        with one_thread():
            self._join(pictures, tuple(_sums_of(layer, pictures) for layer in record.layers))

    def merge(self, other: PositionShare) -> None:
        """Add what was summed up elsewhere.

        Raises
        ------
        ValueError
            If its layers have other heads or patches.
        """
        self._join(other.pictures, other._layers)

    def _join(self, pictures: int, layers: tuple[_LayerSums, ...]) -> None:
        if self.pictures and pictures:
            if len(self._layers) != len(layers):
                raise ValueError(f"{len(self._layers)} and {len(layers)} layers have no mean")
            layers = tuple(mine + more for mine, more in zip(self._layers, layers, strict=True))
        self._layers = layers if pictures else self._layers
        self.pictures += pictures

    def share(self) -> tuple[npt.NDArray[np.float64], ...]:
        """Return, for each layer, the share that position explains of each head's variance, float64 (heads,).

        1: the same map for every picture. For maps that have nothing in common it falls to one part in as
        many as there are pictures, so it says little of a few. NaN with fewer than two pictures, and where
        weights do not vary at all.
        """
        if self.pictures < 2:
            return tuple(np.full(len(layer.squares), np.nan) for layer in self._layers)
        return tuple(layer.share(self.pictures) for layer in self._layers)

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return all sums under names, as `numpy.savez` takes them."""
        found: dict[str, npt.NDArray[np.generic]] = {"pictures": np.array(self.pictures)}
        for index, layer in enumerate(self._layers):
            found[f"weights_{index}"] = layer.weights
            found[f"squares_{index}"] = layer.squares
            found[f"counted_{index}"] = layer.counted
        return found

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[np.generic]]) -> PositionShare:
        """Return sums that were saved."""
        found = cls()
        found.pictures = int(arrays["pictures"])
        count = sum(name.startswith("weights_") for name in arrays)
        found._layers = tuple(
            _LayerSums(arrays[f"weights_{at}"], arrays[f"squares_{at}"], arrays[f"counted_{at}"])
            for at in range(count)
        )
        return found


def _sums_of(layer: AttentionLayer, pictures: int) -> _LayerSums:
    queries = _spread_queries(layer, layer.heads // pictures)
    weights = layer.scores.weights(queries).cpu().numpy().astype(np.float64)
    counted = np.ones(weights.shape[1:], bool)
    if layer.key_layout.placed:
        of_groups = (layer.key_layout.cells >= 0).reshape(layer.scores.groups, -1)
        counted &= of_groups[np.array(queries) // layer.scores.stacked.queries]
    reach = layer.scores.reach(queries)
    if reach is not None:
        counted &= reach.cpu().numpy()
    weights *= counted
    weights = weights.reshape(pictures, -1, *weights.shape[1:])
    return _LayerSums(weights.sum(axis=0), np.square(weights).sum(axis=(0, 2, 3)), counted)


def _spread_queries(layer: AttentionLayer, heads: int) -> list[int]:
    """Return tokens of evenly spread patches (of all queries, where none has a place)."""
    layout = layer.query_layout
    room = _KEPT // (heads * layer.scores.stacked.keys)
    most = min(_QUERIES, max(room, _FEWEST))
    if not layout.placed:
        return _spread(layer.scores.queries, most).tolist()
    high, wide = layout.grid
    rows = _spread(high, max(1, round((most * high / wide) ** 0.5)))
    columns = _spread(wide, max(1, most // len(rows)))
    return layout.patch_tokens.reshape(high, wide)[np.ix_(rows, columns)].ravel().tolist()


def _spread(count: int, most: int) -> npt.NDArray[np.int64]:
    """Return up to so many places, in the middles of equal parts."""
    parts = min(count, most)
    return ((np.arange(parts) + 0.5) * count / parts).astype(np.int64)
