"""A model that measures a batch of pictures at a time: what runs in other processes, here or elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from viewer.errors import PatchreachError
from viewer.study.decoding import Preparing, in_threads
from viewer.study.measuring import Batch, Measurer, Opening, probe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from viewer.attention.distance import Protocol
    from viewer.backends.model import Model
    from viewer.study.decoding import Decoded
    from viewer.study.entries import Entry

_DECODERS = 2  # threads


class Actor:
    """One model in a process of its own.

    Parameters
    ----------
    opening
        The model; opened when it is first needed.
    protocol
        Of the distances.
    threads
        Of PyTorch in this process.
    together
        Pictures that the model runs on at once, where it takes several.
    """

    def __init__(self, opening: Opening, protocol: Protocol, threads: int, together: int = 1) -> None:
        self._opening, self._protocol, self._threads = opening, protocol, threads
        self._together = together
        self._model: Model | None = None

    def probe(self) -> dict[str, Any] | str:
        """See `viewer.study.measuring.probe`; where the model can't be opened or studied, why, as a sentence.

        Errors do not travel: what they carry besides their text is lost between processes.
        """
        try:
            return probe(self._opened(), self._protocol, together=self._together)
        except PatchreachError as error:
            return str(error)

    def preparing(self) -> Preparing:
        """Return how the model, which was probed, wants its pictures."""
        return Preparing.of(self._opened())

    def results(self, entries: list[Entry], heads: tuple[int, ...]) -> Batch | str:
        """Return the results of some entries, in their order; a sentence where the model can't be opened."""
        try:
            preparing = self.preparing()
        except PatchreachError as error:
            return str(error)
        return self.measured(in_threads(entries, preparing, _DECODERS), heads)

    def measured(self, pictures: Iterable[Decoded], heads: tuple[int, ...]) -> Batch | str:
        """Return the results of pictures that are decoded already."""
        try:
            return Measurer(self._opened(), self._protocol, heads, self._together).batch(pictures)
        except PatchreachError as error:
            return str(error)

    def _opened(self) -> Model:
        import torch

        if self._model is None:
            torch.set_num_threads(self._threads)
            self._model = self._opening.open()
        return self._model
