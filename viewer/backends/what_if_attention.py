"""Changing attention below a model's code: what the tap sees is the changed attention.

`AttentionChanges` is entered after the tap, so each operation comes here first. Fused attention and softmaxes
that a change concerns are computed from changed logits, and removed heads from values of zero; the tap sees
these operations and nothing of the ones they stand for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from viewer.backends.torch_fastpath import UNPACKED
from viewer.backends.torch_ops import FUSED, SOFTMAX, named_arguments, op_name
from viewer.backends.torch_tap import fused_bias
from viewer.errors import InputError

if TYPE_CHECKING:
    from viewer.attention.layout import TokenLayout
    from viewer.backends.layer_plans import LayerPlan
    from viewer.backends.torch_tap import AttentionTap
    from viewer.backends.what_if import Change

# Models forbid keys by adding -inf, or a number like -100 that no learned bias comes near.
_FORBIDDEN = -50.0
_SAME = 1e-3  # of a hop


@dataclass(frozen=True)
class Place:
    """Where a layer is in a forward pass.

    Attributes
    ----------
    site
        Which of all fused attentions and softmaxes of the pass, counted from 0.
    stacked
        Groups times heads.
    plan
        Its module and token layouts.
    """

    site: int
    stacked: int
    plan: LayerPlan

    @property
    def heads(self) -> int:
        """Number of heads."""
        return self.stacked // self.plan.groups

    def spread(self, per_group: Tensor) -> Tensor:
        """Bring (groups, heads, ...) into the order of the stacked products, (stacked, ...)."""
        ordered = per_group.flatten(0, 1)
        if self.plan.order is None:
            return ordered
        found = torch.empty_like(ordered)
        found[self.plan.order] = ordered
        return found


@dataclass(frozen=True, eq=False)
class SiteChange:
    """What becomes of one attention.

    Attributes
    ----------
    factor
        float32 (stacked, 1, 1), on the logits: 1 / temperature, 0 for uniform attention; None for no change.
    reach
        bool (1 or stacked, N, M), the keys that stay within reach; None for no change.
    keep
        float32 (stacked, 1, 1), on the values: 0 for a removed head; None for no change.
    """

    factor: Tensor | None = None
    reach: Tensor | None = None
    keep: Tensor | None = None

    @property
    def of_logits(self) -> bool:
        """Whether the logits change."""
        return self.factor is not None or self.reach is not None

    def shifted(self, logits: Tensor, forbidden: Tensor | None) -> Tensor:
        """Return changed logits, or a changed bias, (1 or stacked, N, M).

        Parameters
        ----------
        logits
            As the model has them.
        forbidden
            bool, keys that the model masks; they stay so.
        """
        if not self.of_logits:
            return logits
        hidden = forbidden
        if self.factor is not None:
            if forbidden is not None:
                hidden = forbidden & (self.factor != 1)
                # Minus infinity times zero is no number.
                logits = logits.masked_fill(hidden, 0.0)
            logits = logits * self.factor.to(logits.dtype)
        if self.reach is not None:
            hidden = ~self.reach if hidden is None else hidden | ~self.reach
        return logits if hidden is None else logits.masked_fill(hidden, -torch.inf)


class AttentionChanges(TorchDispatchMode):
    """While entered (after the tap), computes attention with changes.

    Parameters
    ----------
    tap
        Numbers the attentions and follows weights to their values.
    sites
        What becomes of which.
    """

    def __init__(self, tap: AttentionTap, sites: Mapping[int, SiteChange]) -> None:
        super().__init__()
        self._tap, self._sites = tap, sites

    def __torch_dispatch__(
        self, func: torch._ops.OpOverload, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        """Run an operation, changed where a change concerns it."""
        kwargs, name = kwargs or {}, op_name(func)
        if name in UNPACKED:
            with self:
                return UNPACKED[name](named_arguments(func, args, kwargs))
        if name in FUSED:
            change = self._sites.get(self._tap.sites)
            if change is not None:
                return _fused(func, named_arguments(func, args, kwargs), change)
        elif name in SOFTMAX and args[0].ndim >= 2:
            change = self._sites.get(self._tap.sites)
            if change is not None and change.of_logits:
                return func(self._changed(args[0], change), *args[1:], **kwargs)
        elif name == "bmm":
            args = self._with_values(*args)
        return func(*args, **kwargs)

    def _changed(self, logits: Tensor, change: SiteChange) -> Tensor:
        bias = self._tap.bias_of(logits)
        flat = logits.reshape(-1, *logits.shape[-2:])
        forbidden = _forbidden(flat if bias is None else bias, known=bias is not None)
        return change.shifted(flat, forbidden).reshape(logits.shape)

    def _with_values(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """Return the operands of a product, removed heads without values."""
        for weights, values, first in ((left, right, True), (right, left, False)):
            change = self._sites.get(self._tap.weights_site(weights))
            if change is not None and change.keep is not None:
                values = values * change.keep.to(values.dtype)
                return (weights, values) if first else (values, weights)
        return left, right


def _forbidden(bias: Tensor, known: bool) -> Tensor | None:
    """Return which keys a bias masks; of logits with an unknown bias only minus infinity is sure to mask."""
    if known:
        return bias <= bias.amax(dim=-1, keepdim=True) + _FORBIDDEN
    hidden = bias == -torch.inf
    return hidden if bool(hidden.any()) else None


def _fused(func: torch._ops.OpOverload, given: dict[str, Any], change: SiteChange) -> object:
    """Compute a fused attention with a change; what it gives beside the output is left empty."""
    query = given["query"]
    key, value = (side.expand(*query.shape[:-3], *side.shape[-3:]) for side in (given["key"], given["value"]))
    count = query.shape[:-2].numel()
    shape = (*query.shape[:-1], key.shape[-2])
    queries, keys, values = (
        # Keys may serve several heads, which then lie side by side.
        side.repeat_interleave(query.shape[-3] // side.shape[-3], dim=-3).reshape(count, *side.shape[-2:])
        for side in (query, key, value)
    )
    bias = fused_bias(given, shape)
    if change.factor is not None:
        queries = queries * change.factor.to(queries.dtype)
    if bias is not None:
        bias = change.shifted(bias, _forbidden(bias, known=True))
    elif change.reach is not None:
        zeros = torch.zeros(change.reach.shape, dtype=queries.dtype, device=queries.device)
        bias = zeros.masked_fill_(~change.reach, -torch.inf)
    if change.keep is not None:
        values = values * change.keep.to(values.dtype)
    output = functional.scaled_dot_product_attention(
        queries[None],
        keys[None],
        values[None],
        None if bias is None else bias.to(queries.dtype)[None],
        scale=given["scale"],
    ).reshape(*query.shape[:-1], value.shape[-1])
    rest = [output.new_empty(0) if "Tensor" in str(one.type) else 0 for one in func._schema.returns[1:]]
    return (output, *rest) if rest else output


def site_changes(
    model: str, changes: Sequence[Change], places: Sequence[Place], device: torch.device
) -> dict[int, SiteChange]:
    """Work out what becomes of each attention; those that stay as they are do not appear.

    Parameters
    ----------
    model
        What to call the model in errors.
    changes
        Those of blocks are passed over.
    places
        One for each layer.
    device
        Where the model runs.

    Raises
    ------
    InputError
        If a layer or head does not exist, or a change can't be made to a layer that was named.
    """
    for change in changes:
        _check(model, change, places)
    found = {}
    for index, place in enumerate(places):
        here = [change for change in changes if change.touches(index)]
        change = SiteChange(_factor(here, place), _reach(here, place, index), _keep(here, place))
        if change.of_logits or change.keep is not None:
            found[place.site] = SiteChange(
                *(
                    None if part is None else part.to(device)
                    for part in (change.factor, change.reach, change.keep)
                )
            )
    return found


def _check(model: str, change: Change, places: Sequence[Place]) -> None:
    if change.layers and change.layers[-1] >= len(places):
        raise InputError(
            f"What if: there is no layer {change.layers[-1]} in {model}; it has {len(places)}, from 0 on."
        )
    for index, place in enumerate(places):
        if change.touches(index) and change.heads and change.heads[-1] >= place.heads:
            raise InputError(
                f"What if: there is no head {change.heads[-1]} in layer {index} of {model}; it has "
                f"{place.heads}, from 0 on."
            )


def _of_heads(change: Change, place: Place) -> Tensor:
    """Return which of the stacked products a change is made to, bool (stacked, 1, 1)."""
    heads = torch.zeros(place.heads, dtype=torch.bool)
    heads[list(change.heads) or slice(None)] = True
    return place.spread(heads.expand(place.plan.groups, -1)).view(-1, 1, 1)


def _factor(changes: Sequence[Change], place: Place) -> Tensor | None:
    factor = torch.ones(place.stacked, 1, 1)
    for change in changes:
        if change.kind in ("temperature", "uniform"):
            number = 0.0 if change.kind == "uniform" else 1 / change.amount
            factor = torch.where(_of_heads(change, place), factor * number, factor)
    return None if bool((factor == 1).all()) else factor


def _keep(changes: Sequence[Change], place: Place) -> Tensor | None:
    removed = [_of_heads(change, place) for change in changes if change.kind == "head-removed"]
    return (~torch.stack(removed).any(dim=0)).float() if removed else None


def _reach(changes: Sequence[Change], place: Place, index: int) -> Tensor | None:
    """Return which keys stay within reach; None where all do."""
    reach: Tensor | None = None
    for change in changes:
        if change.kind != "local":
            continue
        if not (place.plan.query_layout.placed and place.plan.key_layout.placed):
            if change.layers:
                raise InputError(
                    f"What if: hops can't be counted in layer {index} ({place.plan.module}), as its "
                    f"{'keys' if place.plan.query_layout.placed else 'queries'} have no place on the picture."
                )
            continue  # of all layers those are meant that have hops
        hops = _hops(place)
        near = ~(hops > change.amount + _SAME)  # a prefix token has no hops, and stays within reach
        if bool(near.all()):
            continue
        if not bool(near.any(dim=-1).all()):
            nearest = math.ceil(float(hops.nan_to_num(0.0).amin(dim=-1).amax()) - _SAME)
            within = "1 hop" if change.amount == 1 else f"{change.amount:g} hops"
            raise InputError(
                f"What if: within {within} some queries of layer {index} "
                f"({place.plan.module}) reach no key at all; allow {nearest} or more."
            )
        near = near[:, None]
        if change.heads:
            mine = torch.zeros(place.heads, dtype=torch.bool)
            mine[list(change.heads)] = True
            near = near | ~mine.view(1, -1, 1, 1)
        reach = near if reach is None else reach & near
    if reach is None:
        return None
    if reach.shape[:2] == (1, 1):
        return reach[0]
    return place.spread(reach.expand(place.plan.groups, place.heads, *reach.shape[2:]))


def _hops(place: Place) -> Tensor:
    """Return Chebyshev hops between queries and keys of each group, float32 (groups, N, M).

    Steps are those of the queries' grid; NaN to and from tokens without a place.
    """
    queries, keys = (
        torch.from_numpy(_rows_columns(side, place.plan.query_layout)).view(place.plan.groups, -1, 2)
        for side in (place.plan.query_layout, place.plan.key_layout)
    )
    return (queries[:, :, None] - keys[:, None]).abs().amax(dim=-1)


def _rows_columns(layout: TokenLayout, steps: TokenLayout) -> np.ndarray:
    """Return where tokens sit in rows and columns of a grid, float32 (tokens, 2); NaN without a place."""
    rows, columns = np.divmod(layout.cells, max(layout.grid[1], 1))
    centres = np.stack([rows, columns], axis=1) * layout.patch_px + layout.origin
    centres[layout.cells < 0] = np.nan
    return ((centres - steps.origin) / steps.patch_px).astype(np.float32)
