"""Tapping every attention of a PyTorch model below the model's own code.

A dispatch mode sees each ATen operation of a forward pass. Attention shows up as one fused operation, or as
product, softmax, product; either way queries, keys, scale and bias are there for the taking, whatever
Python class computed them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from viewer.attention.scores import QueryKeyScores, WeightScores
from viewer.backends import torch_origin
from viewer.backends.tensor_map import TensorMap
from viewer.backends.torch_fastpath import UNPACKED
from viewer.backends.torch_mixes import Mixes
from viewer.backends.torch_ops import (
    FUSED,
    SOFTMAX,
    all_tensors,
    call_shape,
    named_arguments,
    op_name,
    tensors_in,
    writes,
)
from viewer.backends.torch_origin import VIEWS, Origin
from viewer.backends.torch_streams import Stream, Streams
from viewer.backends.torch_weights import Onward, Softmaxed, is_distribution, no_attention, onward
from viewer.backends.verdicts import Check, check, check_rows, spread_rows, tolerance, weights_error

if TYPE_CHECKING:
    from viewer.attention.layer import Scores
    from viewer.backends.positions import Lost, PositionTrace
    from viewer.backends.torch_names import ModuleNames

# Operations after which logits are still a product of queries and keys, though perhaps mixed over heads or
# a part of them.
_STILL_PRODUCT = VIEWS | frozenset(
    {
        *("add", "addmm", "clamp", "convolution", "div", "linear", "masked_fill", "mm", "mul", "rsub", "sub"),
        *("_native_batch_norm_legit_no_training", "native_batch_norm", "tanh", "where"),
        *("cat", "constant_pad_nd", "copy", "flip", "index", "index_select", "roll", "select", "slice"),
    }
)
# Weights that meet these are no longer on their way to values: a comparison, an index, a measure of them.
_ENDS = frozenset({"_local_scalar_dense", "argmax", "eq", "isfinite", "max", "mean", "sum", "topk"})
# Products with a matrix of weights, and which argument is projected.
_PROJECTIONS = {"addmm": 1, "mm": 0, "linear": 0}
_BEFORE_MIXING = "weights of the softmax, before the model mixes or scales them"


@dataclass(frozen=True, eq=False)
class Tapped:
    """One attention as it was tapped.

    Attributes
    ----------
    module
        Name of the module that computed it; empty where names were not asked for.
    scores
        Queries and keys, or the weights, of all groups and heads stacked.
    check
        Of the rebuilt output.
    places
        Where queries, keys and outputs sit, (stacked, tokens) or a `positions.Lost`, see
        `PositionTrace.tokens`; None where positions were not traced.
    note
        What a person should know of the weights, as a clause.
    site
        Which of the pass's fused attentions and softmaxes it is, counted from 0.
    stream
        The residual stream that its queries were made from; None where it is not known.
    """

    module: str
    scores: Scores
    check: Check
    places: tuple[Tensor | Lost, Tensor | Lost, Tensor | Lost] | None
    note: str = ""
    site: int = 0
    stream: Stream | None = None


class AttentionTap(TorchDispatchMode):
    """While entered, collects the attention of a forward pass in `layers`, in forward order.

    `mixes` notes where weights or outputs of several attentions are put together (looked for only where
    positions are followed); `signature` sums up which operations ran on what shapes, with what whole numbers.
    `census` counts all operations by name, `bilinear` products of features with features that are none of an
    attention (where positions are followed). `sites` counts fused attentions and softmaxes.

    Parameters
    ----------
    names
        Says which module runs; None leaves names empty.
    trace
        Follows token positions; None does not.
    on_layer
        Called after each attention with the number found so far; may raise to stop the pass.
    streams
        Notes the residual stream ahead of each attention; None does not.
    pictures
        How many make the batch, if it is one: their outputs are checked apart. 0: one picture.
    """

    def __init__(
        self,
        names: ModuleNames | None = None,
        trace: PositionTrace | None = None,
        on_layer: Callable[[int], None] = lambda found: None,
        streams: Streams | None = None,
        pictures: int = 0,
    ) -> None:
        super().__init__()
        self.layers: list[Tapped] = []
        self.census: Counter[str] = Counter()
        self.bilinear = 0
        self.mixes = Mixes()
        self.signature = 0
        self.sites = 0
        self._projected: tuple[Tensor, Tensor] | None = None
        self._names = names
        self._trace = trace
        self._on_layer = on_layer
        self._streams = streams
        self._pictures = pictures
        self._logits = TensorMap()
        self._softmaxed = TensorMap()
        self._roots: list[Softmaxed] = []

    @property
    def unmet(self) -> list[str]:
        """Modules with attention weights that never met any values, as far as could be followed."""
        return [root.module for root in self._roots if root.product and not root.met_values]

    @property
    def other(self) -> list[str]:
        """Sentences on softmaxes that are no attention of queries to keys."""
        return no_attention(self._roots)

    def bias_of(self, logits: Tensor) -> Tensor | None:
        """Return what was added to logits, (1 or stacked, N, M); None where nothing is known to have been."""
        origin = self._logits.get(logits)
        try:
            return None if origin is None else origin.assembled(logits.shape[:-2].numel())[3]
        except (ValueError, RuntimeError):  # shapes that do not belong together
            return None

    def weights_site(self, tensor: Tensor) -> int | None:
        """Return the site of the attention whose weights a tensor holds, mixed or not, or None."""
        if tensor not in self._softmaxed:
            return None
        return next((root.site for root in self._softmaxed[tensor].roots if root.product), None)

    def features(self, output: Tensor) -> Tensor | None:
        """Return what the last projection made a model's output from, (..., width): what a classifier sees.

        None where the output is no projection of anything.
        """
        if self._projected is None:
            return None
        features, projected = self._projected
        same = projected.data_ptr() == output.data_ptr() and projected.numel() == output.numel()
        return features if same else None

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
        shape = (call_shape(args), call_shape(kwargs.values()))
        self.signature = hash((self.signature, name, shape))
        if self._trace is not None:
            self._trace.follow(name, func, args, kwargs, result, shape)
        if self._streams is not None:
            self._streams.follow(name, func, args, kwargs, result)
        if name in _PROJECTIONS:
            self._projected = (args[_PROJECTIONS[name]], result)
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
        return result

    def _take_fused(self, given: dict[str, Any], result: object) -> None:
        query = given["query"]
        # Keys and values may be shared between groups, and by several heads.
        key, value = (
            side.expand(*query.shape[:-3], *side.shape[-3:]) for side in (given["key"], given["value"])
        )
        scale = given["scale"]
        scores = QueryKeyScores(
            query.reshape(-1, *query.shape[-2:]),
            key.reshape(-1, *key.shape[-2:]),
            query.shape[-1] ** -0.5 if scale is None else scale,
            fused_bias(given, (*query.shape[:-1], key.shape[-2])),
        )
        output = next(tensors_in(result))
        stacked = (side.reshape(-1, *side.shape[-2:]) for side in (value, output))
        checked = check(scores, *stacked, pictures=self._pictures)
        self.mixes.watch(output, "outputs")
        self._add(scores, checked, (given["query"], -2), (given["value"], -2), (output, -2), site=self.sites)
        self.sites += 1

    def _take_softmax(self, given: dict[str, Any], weights: Tensor) -> None:
        logits = given["self"]
        if logits.ndim < 2:
            return
        over_keys = given["dim"] % logits.ndim == logits.ndim - 1
        product = logits in self._logits
        if product and not over_keys and given["dim"] % logits.ndim == logits.ndim - 2:
            self.mixes.reasons.append(
                f"{self._module or 'an attention'} normalizes its weights over the queries, not over the keys"
            )
        product &= over_keys
        # Of other softmaxes the numbers are not needed, only what becomes of them.
        found = Softmaxed(
            weights if product else None, self._logits.get(logits), product, self._module, self.sites
        )
        self.sites += 1
        self._softmaxed[weights] = Onward((found,))
        self._roots.append(found)

    def _take_product(self, func: torch._ops.OpOverload, args: tuple, kwargs: dict, result: Tensor) -> None:
        given = named_arguments(func, args, kwargs)
        left, right = given.get("self"), given.get("mat2")
        if all(side in self._softmaxed and self._softmaxed[side].product for side in (left, right)):
            self.mixes.reasons.append(
                f"the weights of two attentions are multiplied in {self._module or 'the model'}, "
                "so neither map is what the model uses alone"
            )
        if op_name(func) == "bmm" and left in self._softmaxed:
            operands = ((left, -2), (right, -2), (result, -2))
            self._meet_values(self._softmaxed[left], left, right, result, operands)
        elif op_name(func) == "bmm" and right in self._softmaxed:
            operands = ((right, -1), (left, -1), (result, -1))
            self._meet_values(self._softmaxed[right], right.mT, left.mT, result.mT, operands)
        else:
            self._logits[result] = torch_origin.product_origin(func, args, kwargs)
            if self._trace is not None and self._trace.follows(left) and self._trace.follows(right):
                self.bilinear += 1

    def _meet_values(
        self,
        found: Onward,
        weights: Tensor,
        values: Tensor,
        output: Tensor,
        operands: tuple[tuple[Tensor, int], tuple[Tensor, int], tuple[Tensor, int]],
    ) -> None:
        """Note that weights (stacked, N, M) are multiplied with values (stacked, M, d): this is attention.

        `operands` are weights, values and output as the model has them, each with the dimension along which
        its tokens lie.
        """
        fresh = [root for root in found.roots if not root.met_values]
        for one in fresh:
            one.met_values = True
        root = next((one for one in fresh if one.product), None)
        if root is None:
            return
        queries, rebuilt = operands[0], None
        if not found.mixed and root.weights.numel() == weights.numel():
            (scores, rebuilt), note = _scores(root.origin, weights, self._pictures), ""
            if root.origin is not None:
                queries = (root.origin.queries, -2)
        elif is_distribution(weights):
            scores, note = WeightScores(weights), f"weights as the model uses them, after {found.mixed}"
        elif found.conflict or root.weights.numel() != weights.numel():
            self.mixes.reasons.append(
                found.conflict or f"{root.module or 'an attention'} changes its weights after the softmax"
            )
            return
        else:
            scores, note = WeightScores(root.weights.reshape(weights.shape)), _BEFORE_MIXING
        for one in fresh:
            one.close()
        if note == _BEFORE_MIXING:
            checked = check_rows(scores, output, self._pictures)
        else:
            checked = check(scores, values, output, rebuilt, self._pictures)
        self.mixes.watch(output, "outputs")
        self._add(scores, checked, queries, *operands[1:], note=note, site=root.site)

    def _follow(
        self, name: str, func: torch._ops.OpOverload, args: tuple, kwargs: dict, result: object
    ) -> None:
        """Hand on what is known of logits and weights to what an operation makes of them."""
        inputs = all_tensors((*args, *kwargs.values()) if kwargs else args)
        if not any(tensor in self._logits or tensor in self._softmaxed for tensor in inputs):
            return
        if name == "copy":
            del inputs[0]  # what was there before is gone
        output = next(tensors_in(result), None)
        logits = next((tensor for tensor in inputs if tensor in self._logits), None)
        known = [self._softmaxed[tensor] for tensor in inputs if tensor in self._softmaxed]
        origin = None
        if logits is not None and self._logits[logits] is not None:
            origin = torch_origin.step(self._logits[logits], logits, func, args, kwargs)
        if output is not None and writes(func):
            self._written(name, output)
        if logits is not None and output is not None:
            if origin is not None or name in _STILL_PRODUCT:
                self._logits[output] = origin
                if name == "copy" and output._base is not None:
                    self._logits[output._base] = None
        elif known and output is not None and name not in _ENDS and output.ndim >= 2:
            self._softmaxed[output] = onward(name, known, self._module)

    def _written(self, name: str, written: Tensor) -> None:
        """Note that an operation wrote into a tensor: all that shares its memory holds other numbers now."""
        memory = written.untyped_storage().data_ptr()
        for logits in list(self._logits):
            if logits.untyped_storage().data_ptr() == memory:
                self._logits[logits] = None
        for weights, found in list(self._softmaxed.items()):
            if weights.untyped_storage().data_ptr() == memory:
                self._softmaxed[weights] = replace(found, mixed=found.mixed or name)
        self._logits.pop(written, None)

    @property
    def _module(self) -> str:
        return self._names.current if self._names else ""

    def _add(
        self,
        scores: Scores,
        checked: Check,
        queries: tuple[Tensor, int],
        values: tuple[Tensor, int],
        output: tuple[Tensor, int],
        site: int,
        note: str = "",
    ) -> None:
        """Note a layer; queries, values in place of keys, and outputs come with their tokens' dimension."""
        places = None
        if self._trace is not None:
            places = tuple(self._trace.tokens(*side) for side in (queries, values, output))
        stream = None if self._streams is None else self._streams.entering(queries[0], len(self.layers))
        self.layers.append(Tapped(self._module, scores, checked, places, note, site, stream))
        self._on_layer(len(self.layers))


def fused_bias(given: dict[str, Any], shape: tuple[int, ...]) -> Tensor | None:
    """Return mask, bias and causality of a fused attention as one bias, broadcastable to the stacked logits.

    `shape` is that of the logits, (..., queries, keys).
    """
    bias = given.get("attn_mask", given.get("attn_bias"))
    if bias is not None:
        if bias.shape[:-2].numel() == 1:
            bias = bias.reshape(1, *bias.shape[-2:])
        else:
            bias = bias.expand(*shape[:-2], *bias.shape[-2:]).reshape(-1, *bias.shape[-2:])
        if bias.dtype == torch.bool:
            bias = torch.zeros(bias.shape, device=bias.device).masked_fill_(~bias, -torch.inf)
    if given.get("is_causal"):
        later = torch.ones(*shape[-2:], dtype=torch.bool, device=given["query"].device).triu_(1)
        causal = torch.zeros(*shape[-2:], device=later.device).masked_fill_(later, -torch.inf)
        bias = causal if bias is None else bias + causal
    return bias


def _scores(origin: Origin | None, weights: Tensor, pictures: int) -> tuple[Scores, Tensor | None]:
    """Return queries and keys where they make the real weights (heads, N, M), else the weights themselves.

    With queries and keys come the weights they give for the rows that are checked.
    """
    if origin is not None:
        try:
            queries, keys, scale, bias = origin.assembled(len(weights))
            scores = QueryKeyScores(queries, keys, scale, bias)
        except (ValueError, RuntimeError):  # shapes that do not belong together
            return WeightScores(weights), None
        if (scores.queries, scores.keys) == tuple(weights.shape[1:]):
            rebuilt = scores.weights(spread_rows(scores.queries, scores.heads // max(pictures, 1)))
            if bool(weights_error(rebuilt, weights, pictures) <= tolerance(weights.dtype)):
                return scores, rebuilt
    return WeightScores(weights), None
