"""Following attention weights from the softmax to the values, whatever a model does to them on the way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from viewer.backends.torch_mixes import SUMS
from viewer.backends.torch_origin import VIEWS, Origin

_DISTRIBUTION = 1e-3


@dataclass(eq=False)
class Softmaxed:
    """What a softmax gave; not attention before it meets values.

    Attributes
    ----------
    weights
        As the softmax gave them.
    origin
        Queries and keys, where the logits could be followed back to them.
    product
        Whether the logits stem from a product of two activations at all.
    module
        Where it was computed.
    met_values
        Whether it was used as attention.
    """

    weights: Tensor
    origin: Origin | None
    product: bool
    module: str
    met_values: bool = False


@dataclass(frozen=True, eq=False)
class Onward:
    """What softmaxed weights became.

    Attributes
    ----------
    roots
        The softmaxes it was made from.
    mixed
        Name of the first operation that changed the numbers; empty where only their shape changed.
    conflict
        As a clause, that two attentions were put together; empty where they were not.
    """

    roots: tuple[Softmaxed, ...]
    mixed: str = ""
    conflict: str = ""

    @property
    def product(self) -> bool:
        """Whether any of it is attention of queries to keys."""
        return any(root.product for root in self.roots)


def onward(name: str, known: Iterable[Onward], module: str) -> Onward:
    """Return what an operation makes of weights.

    Parameters
    ----------
    name
        Of the operation.
    known
        What is known of its inputs that stem from a softmax; at least one.
    module
        Where it happens.
    """
    first, *rest = known
    if name in VIEWS and not rest:
        return first
    roots = tuple(dict.fromkeys(root for one in (first, *rest) for root in one.roots))
    conflict = next((one.conflict for one in (first, *rest) if one.conflict), "")
    if len(roots) > len(first.roots) and name in SUMS:
        conflict = conflict or (
            f"the weights of two attentions are {SUMS[name]} in {module or 'the model'}, "
            "so neither map is what the model uses alone"
        )
    return Onward(roots, first.mixed or name, conflict)


def is_distribution(weights: Tensor) -> bool:
    """Return whether each row of (..., keys) is not negative and sums to 1."""
    sums = weights.sum(dim=-1, dtype=weights.dtype if weights.is_floating_point() else None)
    return bool((weights.amin() >= -_DISTRIBUTION) & ((sums - 1).abs().amax() <= _DISTRIBUTION))
