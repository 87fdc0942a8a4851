"""What is known of some tensors, for as long as each of them lives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar
from weakref import ref

from torch import Tensor

Value = TypeVar("Value")


class TensorMap(Generic[Value]):
    """A dictionary by tensors, each itself and no equal one, that keeps none of them alive.

    As PyTorch's own one, but an order of magnitude faster: it is asked many times for each operation of a
    pass, and each is over in some microseconds.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, tuple[ref[Tensor], Value]] = {}

    def __contains__(self, tensor: object) -> bool:
        return id(tensor) in self._entries

    def __getitem__(self, tensor: Tensor) -> Value:
        return self._entries[id(tensor)][1]

    def __setitem__(self, tensor: Tensor, value: Value) -> None:
        number = id(tensor)
        known = self._entries.get(number)
        if known is not None:
            self._entries[number] = (known[0], value)
            return

        def forget(gone: ref[Tensor], number: int = number, entries: dict = self._entries) -> None:
            # Another tensor may have got the number of one that is gone.
            if number in entries and entries[number][0] is gone:
                del entries[number]

        self._entries[number] = (ref(tensor, forget), value)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Tensor]:
        return (tensor for tensor, _ in self.items())

    def get(self, tensor: object, default: Value | None = None) -> Value | None:
        """Return what is known of a tensor, a default where nothing is."""
        known = self._entries.get(id(tensor))
        return default if known is None else known[1]

    def pop(self, tensor: Tensor, default: Value | None = None) -> Value | None:
        """Forget a tensor; return what was known of it."""
        known = self._entries.pop(id(tensor), None)
        return default if known is None else known[1]

    def update(self, pairs: Iterable[tuple[Tensor, Value]]) -> None:
        """Take over what is known of several tensors."""
        for tensor, value in pairs:
            self[tensor] = value

    def items(self) -> Iterator[tuple[Tensor, Value]]:
        """Yield tensors that still live, with what is known of each."""
        for reference, value in list(self._entries.values()):
            tensor = reference()
            if tensor is not None:
                # A tensor that only C++ held on to is Python's again.
                if hasattr(tensor, "_fix_weakref"):
                    tensor._fix_weakref()
                yield tensor, value
