"""Remembering what operations do to places: models repeat the same blocks on the same places."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from torch import Tensor

from viewer.backends.position_call import Lost
from viewer.backends.position_math import shrink

# Larger companions, of pixels, are seldom made twice, and slow to compare.
_SMALL = 1 << 14


class Remembered:
    """Companions that were found before, in one pass.

    Companions with the same contents become one object, so that what was found for the first of many equal
    blocks is found again for the others.
    """

    def __init__(self) -> None:
        self._found: dict[Hashable, Sequence[Tensor | Lost | None]] = {}
        self._same: dict[Hashable, Tensor] = {}
        # Numbers of objects tell them apart only while they live.
        self._kept: list[Sequence[Tensor | Lost | None]] = []

    def get(self, key: Hashable) -> Sequence[Tensor | Lost | None] | None:
        """Return what was found for an operation, None where nothing was."""
        return self._found.get(key)

    def add(
        self, key: Hashable, known: Sequence[Tensor | None], found: Sequence[Tensor | Lost | None]
    ) -> None:
        """Remember what was found for an operation.

        Parameters
        ----------
        key
            What decides on it: the operation, its arguments but for tensors, the numbers of `known`.
        known
            Companions of its inputs.
        found
            Those of its results.
        """
        self._found[key] = found
        self._kept.append(known)

    def same(self, companion: Tensor | Lost | None) -> Tensor | Lost | None:
        """Return a companion that was found before if it is the same, else this one."""
        if not isinstance(companion, Tensor):
            return companion
        few = shrink(companion)
        if few.numel() > _SMALL:
            return companion
        key = (companion.shape, few.shape, few.resolve_conj().numpy().tobytes())
        return self._same.setdefault(key, companion)
