"""What a rule for places knows of an operation, and what it gives back (see `positions`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from viewer.backends.position_math import unplaced
from viewer.backends.torch_ops import named_arguments, op_name


class Call(NamedTuple):
    """One operation and what is known of its inputs.

    Attributes
    ----------
    func, args, kwargs
        The operation as it was called.
    outputs
        The tensors it returned.
    companion
        Returns a tensor's companion, None where it stems from parameters alone.
    label
        Returns the number of the parameter a tensor stems from.
    age
        Returns a number that is larger the later a tensor was made.
    size
        Height and width of the picture.
    """

    func: torch._ops.OpOverload
    args: tuple
    kwargs: dict
    outputs: list[Tensor]
    companion: Callable[[Tensor], Tensor | None]
    label: Callable[[Tensor], int]
    age: Callable[[Tensor], int]
    size: tuple[int, int]

    @property
    def name(self) -> str:
        """Name of the operation."""
        return op_name(self.func)

    def given(self) -> dict[str, Any]:
        """Return the arguments by name."""
        return named_arguments(self.func, self.args, self.kwargs)

    def full(self, tensor: Tensor) -> Tensor:
        """Return a tensor's companion, one without places where it has none."""
        companion = self.companion(tensor)
        return unplaced(tensor.shape, self.label(tensor)) if companion is None else companion


@dataclass(frozen=True)
class Lost:
    """Where an element sits is not known any more.

    Attributes
    ----------
    reason
        Why, as a clause.
    """

    reason: str


Companions = Sequence["Tensor | Lost | None"]
Rule = Callable[[Call], Companions]


def stopped(name: str) -> Lost:
    """Return that an operation is one whose effect on places is not known."""
    return Lost(f"the trace of positions stopped at the operation {name!r}")
