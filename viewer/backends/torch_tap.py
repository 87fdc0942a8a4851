"""Tapping every attention of a PyTorch model below the model's own code.

A dispatch mode sees each ATen operation of a forward pass. Attention shows up as one fused operation, or as
product, softmax, product; either way queries, keys, scale and bias are there for the taking, whatever
Python class computed them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from viewer.attention.scores import QueryKeyScores, WeightScores
from viewer.backends import torch_origin
from viewer.backends.torch_fastpath import UNPACKED
from viewer.backends.torch_mixes import Mixes
from viewer.backends.torch_ops import FUSED, SOFTMAX, call_shape, named_arguments, op_name, tensors_in
from viewer.backends.torch_origin import VIEWS, Origin
from viewer.backends.torch_verdict import Check, check, tolerance, weights_error

if TYPE_CHECKING:
    from viewer.attention.layer import Scores
    from viewer.backends.positions import PositionTrace
    from viewer.backends.torch_names import ModuleNames


class GroupedAttention(Exception):
    """Tokens attend within groups (windows), which this tap does not take apart."""

    def __init__(self, module: str, groups: int) -> None:
        self.module = module
        super().__init__(f"{module or 'an attention'} attends within {groups} separate groups of tokens")


@dataclass(frozen=True, eq=False)
class Tapped:
    """One attention as it was tapped.

    Attributes
    ----------
    module
        Name of the module that computed it; empty where names were not asked for.
    scores
        Queries and keys, or the weights.
    check
        Of the rebuilt output.
    places
        What the position trace says of queries and keys, (tokens,) complex or a `positions.Lost`; None where
        positions were not traced.
    """

    module: str
    scores: Scores
    check: Check
    places: tuple | None


@dataclass(eq=False)
class _Softmaxed:
    """Weights on their way to the values; not attention before they meet them."""

    origin: Origin | None
    weights: Tensor
    counted_for: str | None  # the module in `AttentionTap.unmet`
    met_values: bool = False


class AttentionTap(TorchDispatchMode):
    """While entered, collects the attention of a forward pass in `layers`, in forward order.

    `mixes` notes where weights or outputs of several attentions are put together (looked for only where
    positions are followed); `signature` sums up which operations ran on what shapes, with what whole numbers.
    `census` counts all operations by name; `unmet` counts, by module, softmaxes that look like attention but
    whose weights were changed before they met any values.

    Parameters
    ----------
    names
        Says which module runs; None leaves names empty.
    trace
        Follows token positions; None does not.
    on_layer
        Called after each attention with the number found so far; may raise to stop the pass.
    """

    def __init__(
        self,
        names: ModuleNames | None = None,
        trace: PositionTrace | None = None,
        on_layer: Callable[[int], None] = lambda found: None,
    ) -> None:
        super().__init__()
        self.layers: list[Tapped] = []
        self.census: Counter[str] = Counter()
        self.unmet: Counter[str] = Counter()
        self.mixes = Mixes()
        self.signature = 0
        self._names = names
        self._trace = trace
        self._on_layer = on_layer
        self._logits: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._softmaxed: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def __torch_dispatch__(
        self, func: torch._ops.OpOverload, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        """Run an operation and note what it tells of attention."""
        kwargs = kwargs or {}
        name = op_name(func)
        if name in UNPACKED:
            with self:
                return UNPACKED[name](named_arguments(func, args, kwargs))
        result = func(*args, **kwargs)
        self.census[name] += 1
        self.signature = hash((self.signature, name, call_shape(args), call_shape(kwargs)))
        if name in FUSED:
            self._take_fused(named_arguments(func, args, kwargs), result)
        elif name in SOFTMAX:
            self._take_softmax(named_arguments(func, args, kwargs), result)
        elif name in ("bmm", "baddbmm"):
            self._take_product(func, args, kwargs, result)
        elif self._logits or self._softmaxed:
            self._follow(name, func, args, kwargs, result)
        if self._trace is not None:
            self.mixes.follow(name, args, result, self._module)
            self._trace.follow(name, func, args, kwargs, result)
        return result

    def _take_fused(self, given: dict[str, Any], result: object) -> None:
        query, key, value = given["query"], given["key"], given["value"]
        self._refuse_groups(query.shape[:-3])
        scale = given["scale"]
        scores = QueryKeyScores(
            query.reshape(query.shape[-3:]),
            key.reshape(key.shape[-3:]),
            query.shape[-1] ** -0.5 if scale is None else scale,
            _fused_bias(given, query.shape[-2], key.shape[-2]),
        )
        output = next(tensors_in(result))
        checked = check(scores, value.reshape(value.shape[-3:]), output.reshape(output.shape[-3:]))
        self.mixes.watch(output, "outputs")
        self._add(scores, checked, (query, -2), (value, -2))

    def _take_softmax(self, given: dict[str, Any], weights: Tensor) -> None:
        logits = given["self"]
        if logits.ndim >= 3 and given["dim"] % logits.ndim == logits.ndim - 2 and logits in self._logits:
            self.mixes.reasons.append(
                f"{self._module or 'an attention'} normalizes its weights over the queries, not over the keys"
            )
        if logits.ndim >= 2 and given["dim"] % logits.ndim == logits.ndim - 1:
            # Rows of weights for each head: attention, unless it never meets any values.
            likely = weights.ndim >= 3 and weights.shape[-2] > 1
            found = _Softmaxed(self._logits.get(logits), weights, self._module if likely else None)
            self._softmaxed[weights] = found
            self.mixes.watch(weights, "weights")
            if likely:
                self.unmet[self._module] += 1

    def _take_product(self, func: torch._ops.OpOverload, args: tuple, kwargs: dict, result: Tensor) -> None:
        given = named_arguments(func, args, kwargs)
        left, right = given.get("self"), given.get("mat2")
        if all(side in self._softmaxed and self._softmaxed[side].origin for side in (left, right)):
            self.mixes.reasons.append(
                f"the weights of two attentions are multiplied in {self._module or 'the model'}, "
                "so neither map is what the model uses alone"
            )
        if op_name(func) == "bmm" and left in self._softmaxed:
            self._meet_values(self._softmaxed[left], left, right, result, (left, right, -2))
        elif op_name(func) == "bmm" and right in self._softmaxed:
            self._meet_values(self._softmaxed[right], right.mT, left.mT, result.mT, (right, left, -1))
        else:
            self._logits[result] = torch_origin.product_origin(func, args, kwargs)

    def _meet_values(
        self,
        found: _Softmaxed,
        weights: Tensor,
        values: Tensor,
        output: Tensor,
        operands: tuple[Tensor, Tensor, int],
    ) -> None:
        """Note that weights (heads, N, M) are multiplied with values (heads, M, d): this is attention.

        `operands` are the two as the model has them, and the dimension along which their tokens lie.
        """
        if found.met_values or found.weights.numel() != weights.numel():
            return
        found.met_values = True
        if found.counted_for is not None:
            self.unmet[found.counted_for] -= 1
        self._refuse_groups(found.weights.shape[:-3])
        scores = _scores(found.origin, weights)
        self.mixes.watch(output, "outputs")
        left, right, dim = operands
        # Weights keep their query's place, so they serve where the queries themselves can't be had.
        queries = (left, dim) if found.origin is None else (found.origin.queries, -2)
        self._add(scores, check(scores, values, output), queries, (right, dim))

    def _follow(
        self, name: str, func: torch._ops.OpOverload, args: tuple, kwargs: dict, result: object
    ) -> None:
        """Hand on what is known of logits and weights to what an operation makes of them."""
        for tensor in tensors_in((*args, *kwargs.values())):
            if tensor in self._logits:
                origin = torch_origin.step(self._logits[tensor], tensor, func, args, kwargs)
                if func._schema.is_mutable:
                    del self._logits[tensor]
                if origin is not None:
                    self._logits[next(tensors_in(result))] = origin
                return
            if tensor in self._softmaxed and name in VIEWS:
                self._softmaxed[next(tensors_in(result))] = self._softmaxed[tensor]
                return

    def _refuse_groups(self, leading: torch.Size) -> None:
        if leading.numel() != 1:
            raise GroupedAttention(self._module, leading.numel())

    @property
    def _module(self) -> str:
        return self._names.current if self._names else ""

    def _add(
        self, scores: Scores, checked: Check, queries: tuple[Tensor, int], values: tuple[Tensor, int]
    ) -> None:
        """Note a layer; queries, and values in place of keys, come with the dimension of their tokens."""
        places = None
        if self._trace is not None:
            places = (self._trace.tokens(*queries), self._trace.tokens(*values))
        self.layers.append(Tapped(self._module, scores, checked, places))
        self._on_layer(len(self.layers))


def _fused_bias(given: dict[str, Any], queries: int, keys: int) -> Tensor | None:
    """Return mask, bias and causality of a fused attention as one bias, broadcastable to the logits."""
    bias = given.get("attn_mask", given.get("attn_bias"))
    if bias is not None:
        bias = bias.reshape(bias.shape[-3:])
        if bias.dtype == torch.bool:
            bias = torch.zeros(bias.shape, device=bias.device).masked_fill_(~bias, -torch.inf)
    if given.get("is_causal"):
        later = torch.ones(queries, keys, dtype=torch.bool, device=given["query"].device).triu_(1)
        causal = torch.zeros(queries, keys, device=later.device).masked_fill_(later, -torch.inf)
        bias = causal if bias is None else bias + causal
    return bias


def _scores(origin: Origin | None, weights: Tensor) -> Scores:
    """Return queries and keys where they make the real weights (heads, N, M), else the weights themselves."""
    if origin is not None:
        try:
            queries, keys, scale, bias = origin.assembled(len(weights))
            scores = QueryKeyScores(queries, keys, scale, bias)
        except (ValueError, RuntimeError):  # shapes that do not belong together
            return WeightScores(weights)
        if (scores.queries, scores.keys) == tuple(weights.shape[1:]) and bool(
            weights_error(scores, weights) <= tolerance(weights.dtype)
        ):
            return scores
    return WeightScores(weights)
