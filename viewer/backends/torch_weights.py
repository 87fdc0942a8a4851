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
        As the softmax gave them; None where they are needed no more.
    origin
        Queries and keys, where the logits could be followed back to them.
    product
        Whether the logits stem from a product of two activations at all, normalized over its columns.
    module
        Where it was computed.
    site
        Which of the pass's fused attentions and softmaxes it is, counted from 0.
    met_values
        Whether it was multiplied with something.
    shown
        Whether it is part of weights that make a layer.
    """

    weights: Tensor | None
    origin: Origin | None
    product: bool
    module: str
    site: int
    met_values: bool = False
    shown: bool = False

    def close(self) -> None:
        """Count it as shown, and let go of the tensors; a model's weights together would fill the memory."""
        self.shown = True
        self.weights = self.origin = None


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
    # Heads of one softmax may be put together as well as two softmaxes.
    if rest and name in SUMS:
        conflict = conflict or (
            f"the weights of two attentions are {SUMS[name]} in {module or 'the model'}, "
            "so neither map is what the model uses alone"
        )
    return Onward(roots, first.mixed or name, conflict)


def no_attention(softmaxed: Iterable[Softmaxed]) -> list[str]:
    """Return sentences on the softmaxes that are no attention of queries to keys.

    Such are factorized and outlook attention, the mixing of states, gates, and classifiers.
    """
    others = [one for one in softmaxed if not (one.product or one.shown)]
    found = []
    for met, verbs, what in (
        (True, ("weighs values, but comes", "weigh values, but come"), "from no product of queries and keys"),
        (False, ("meets", "meet"), "no matrix product, as in gates and classifiers"),
    ):
        modules = [one.module for one in others if one.met_values == met]
        if modules:
            where = f" (the first in {modules[0]})" if modules[0] else ""
            count = "1 softmax" if len(modules) == 1 else f"{len(modules)} softmaxes"
            found.append(f"{count}{where} {verbs[len(modules) > 1]} {what}.")
    return found


def is_distribution(weights: Tensor) -> bool:
    """Return whether each row of (..., keys) is not negative and sums to 1."""
    sums = weights.sum(dim=-1, dtype=weights.dtype if weights.is_floating_point() else None)
    return bool((weights.amin() >= -_DISTRIBUTION) & ((sums - 1).abs().amax() <= _DISTRIBUTION))
