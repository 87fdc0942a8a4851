"""From tapped attentions and traced places to the layers of a record."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from viewer.attention.grouped import GroupedScores
from viewer.attention.layer import AttentionLayer, LayerKind
from viewer.attention.layout import TokenLayout
from viewer.backends.cover import require_cover
from viewer.backends.position_math import shrink
from viewer.backends.positions import CHANNELS, STAND_INS, Lost, PositionTrace
from viewer.backends.stream_order import stream_order
from viewer.backends.token_groups import Grouping, find_groups
from viewer.backends.torch_tap import Tapped
from viewer.errors import LayoutError

# What the last part of a parameter's name makes of the tokens that stem from it.
_TOKEN_NAMES = (
    ("cls", ("cls_token", "class_token", "class_embedding", "cls")),
    ("dist", ("dist_token", "distillation_token")),
    ("reg", ("reg_token", "reg_tokens", "register_tokens", "registers", "storage_tokens")),
    ("latent", ("latent", "probe", "query", "q")),
)
_NUMBERED = ("reg",)


@dataclass(frozen=True, eq=False)
class LayerPlan:
    """What stays the same of a layer from one picture to the next: its module, and where its tokens sit.

    Attributes
    ----------
    module, kind, query_layout, key_layout, note
        As in `AttentionLayer`.
    groups, order
        As in `token_groups.Grouping`.
    stream
        int64 (queries,), see `stream_order.stream_order`; or why the residual stream is not known.
    """

    module: str
    kind: LayerKind
    query_layout: TokenLayout
    key_layout: TokenLayout
    groups: int = 1
    order: list[int] | None = None
    note: str = ""
    stream: npt.NDArray[np.int64] | str = ""

    def layer(self, index: int, tapped: Tapped) -> AttentionLayer:
        """Join what one picture left behind."""
        scores = tapped.scores if self.order is None else tapped.scores.picked(self.order)
        norms, why = self._norms(tapped)
        return AttentionLayer(
            index,
            self.module,
            self.kind,
            scores if self.groups == 1 else GroupedScores(scores, self.groups),
            self.query_layout,
            self.key_layout,
            tapped.check.verdict(),
            self.note,
            norms,
            why,
        )

    def _norms(self, tapped: Tapped) -> tuple[npt.NDArray[np.float32] | None, str]:
        """Return the norms of the queries' tokens in the residual stream, or why they are not known."""
        if isinstance(self.stream, str):
            return None, self.stream
        if tapped.stream is None:
            return None, "the residual stream was not read in this run"
        norms = np.asarray(tapped.stream.norms.cpu(), np.float32)
        return np.where(self.stream >= 0, norms[self.stream], np.float32(np.nan)), ""


@dataclass(frozen=True, eq=False)
class Planned:
    """What stays the same of all attentions of a model from one picture to the next.

    Attributes
    ----------
    layers
        One for each attention that is tapped; None where it is left out.
    notes
        Sentences: what is left out, and why.
    streams
        For each attention that is tapped the normalization ahead of it, as `Stream` counts them.
    """

    layers: tuple[LayerPlan | None, ...]
    notes: tuple[str, ...] = ()
    streams: tuple[int | None, ...] = ()

    def joined(self, tapped: Sequence[Tapped]) -> tuple[AttentionLayer, ...]:
        """Join what one picture left behind, numbering what is kept."""
        kept = [(plan, found) for plan, found in zip(self.layers, tapped, strict=True) if plan is not None]
        return tuple(plan.layer(index, found) for index, (plan, found) in enumerate(kept))


def plan_layers(model: str, tapped: Sequence[Tapped], trace: PositionTrace) -> Planned:
    """Find the token layouts of each tapped attention.

    Where places got lost, heads and windows can't be told apart, so such a layer is left out and noted. Where
    places are known but fill no grid, the layer is kept without them, and says why.

    Parameters
    ----------
    model
        What to call the model in errors.
    tapped
        Of a pass that `trace` followed.
    trace
        Names the parameters that prefix tokens stem from.

    Raises
    ------
    LayoutError
        If no layer has places, and none is of channels; with the reason of the first.
    """
    modules = _distinct([found.module or f"attention {index}" for index, found in enumerate(tapped)])
    layouts = _Layouts(trace)
    plans = _plans(modules, tapped, layouts)
    left_out = {
        module: plan.reason for module, plan in zip(modules, plans, strict=True) if isinstance(plan, Lost)
    }
    kept = [plan for plan in plans if isinstance(plan, LayerPlan)]
    if not any(plan.kind == "channel" or plan.key_layout.placed for plan in kept):
        reasons = [f"in {module} {reason}" for module, reason in left_out.items()]
        reasons += [f"in {plan.module} {plan.note}" for plan in kept]
        raise LayoutError(model, reasons[0])
    layers = tuple(
        replace(plan, stream=_stream(plan, found)) if isinstance(plan, LayerPlan) else None
        for plan, found in zip(plans, tapped, strict=True)
    )
    streams = tuple(None if found.stream is None else found.stream.normalization for found in tapped)
    return Planned(layers, tuple(_left_out(left_out)), streams)


def _left_out(reasons: dict[str, str]) -> Iterator[str]:
    """Yield a sentence for each reason for which some modules are not shown."""
    for reason in dict.fromkeys(reasons.values()):
        modules = [module for module, why in reasons.items() if why == reason]
        more = f" and {len(modules) - 1} more are" if len(modules) > 1 else " is"
        yield f"The attention of {modules[0]}{more} left out: {reason}."


def _plans(modules: Sequence[str], tapped: Sequence[Tapped], layouts: _Layouts) -> list[LayerPlan | Lost]:
    """Plan each layer, those with the same places once."""
    known: dict[tuple, LayerPlan | Lost] = {}
    plans: list[LayerPlan | Lost] = []
    for module, found in zip(modules, tapped, strict=True):
        scores = found.scores
        key = (*map(id, found.places), scores.heads, scores.queries, scores.keys, found.note)
        if key not in known:
            known[key] = _plan(module, found, layouts)
        plan = known[key]
        plans.append(replace(plan, module=module) if isinstance(plan, LayerPlan) else plan)
    return plans


def _plan(module: str, found: Tapped, layouts: _Layouts) -> LayerPlan | Lost:
    queries, keys, outputs = found.places
    if queries is CHANNELS or keys is CHANNELS:
        sides = (
            TokenLayout.from_positions(np.full((count, 2), np.nan, np.float32), _channels(count))
            for count in (found.scores.queries, found.scores.keys)
        )
        return LayerPlan(module, "channel", *sides, note=CHANNELS.reason)
    grouping = _grouped(queries, keys, outputs, found.scores.heads)
    if isinstance(grouping, Lost):
        return grouping
    if bool(grouping.keys.real.isnan().all()):
        return Lost("its keys have no place on the picture")
    if not _told_apart(grouping):
        return Lost("several of its keys sit at the same place on the picture")
    try:
        query_layout = layouts.of(grouping.queries)
        key_layout = layouts.of(grouping.keys, repeats=grouping.groups > 1)
    except ValueError as error:
        sides = (layouts.without_places(side) for side in (grouping.queries, grouping.keys))
        note = "; ".join(filter(None, (f"its tokens have no patches on the picture: {error}", found.note)))
        return LayerPlan(module, "self", *sides, grouping.groups, grouping.order, note)
    kind = "self" if query_layout.placed else "pool"
    return LayerPlan(module, kind, query_layout, key_layout, grouping.groups, grouping.order, found.note)


def _stream(plan: LayerPlan, found: Tapped) -> npt.NDArray[np.int64] | str:
    """Return which token of the residual stream each query is, or why that is not known."""
    if plan.kind == "channel":
        return "channels attend to channels here"
    if plan.kind == "pool":
        return "its query is learned, and no token of the residual stream"
    if not plan.query_layout.placed:
        return "its tokens have no patches on the picture"
    return stream_order(None if found.stream is None else found.stream.places, plan.query_layout)


def _told_apart(grouping: Grouping) -> bool:
    """Return whether each key of a group has a place of its own, so that windows are not taken for heads."""
    keys = torch.view_as_real(grouping.keys.resolve_conj()).view(grouping.groups, -1, 2)
    return all(
        len(np.unique(places.round(), axis=0)) == len(places)
        for places in (group[~group.isnan().any(dim=1)].numpy() for group in keys)
    )


def _channels(count: int) -> list[str]:
    return [f"channel{index}" for index in range(count)]


def _grouped(
    queries: Tensor | Lost, keys: Tensor | Lost, outputs: Tensor | Lost, stacked: int
) -> Grouping | Lost:
    """Tell the groups of a layer; a query sits where its output goes if it is shared between groups."""
    for side in (queries, keys):
        if isinstance(side, Lost):
            return side
    # Keys may serve several heads, which then lie side by side.
    keys = keys.repeat_interleave(stacked // len(keys), dim=0) if len(keys) < stacked else keys
    grouping = find_groups(queries, keys)
    if (
        isinstance(grouping, Grouping)
        and grouping.groups > 1
        and isinstance(outputs, Tensor)
        and len(shrink(queries, (0,))) == 1
        and not bool(queries.real.isnan().all())
    ):
        return find_groups(outputs, keys)
    return grouping


def _distinct(names: list[str]) -> list[str]:
    """Tell apart the attentions of a module that attends more than once."""
    return [
        f"{name}:{names[:place].count(name)}" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    ]


class _Layouts:
    """Makes token layouts, the same one for the same places."""

    def __init__(self, trace: PositionTrace) -> None:
        self._trace = trace
        self._known: dict[tuple[bytes, bool], TokenLayout] = {}

    def of(self, places: Tensor, repeats: bool = False) -> TokenLayout:
        """Return the layout of tokens at some places, see `TokenLayout.from_positions`.

        Raises
        ------
        ValueError
            If they fill no grid, or only part of the picture.
        """
        traced = places.resolve_conj().numpy()
        key = (traced.tobytes(), repeats)
        if key not in self._known:
            # Sums over a patch leave float noise far below a thousandth of a pixel.
            positions = np.stack(
                [traced.real, np.where(np.isnan(traced.real), np.nan, traced.imag)], axis=1
            ).round(3)
            labels = traced.imag[np.isnan(traced.real)].astype(int).tolist()
            names = prefix_names([self._trace.parameter_name(label) for label in labels])
            size = self._trace.size
            layout = TokenLayout.from_positions(positions, names, repeats=repeats, size=size)
            require_cover(layout, size)
            self._known[key] = layout
        return self._known[key]

    def without_places(self, places: Tensor) -> TokenLayout:
        """Return a layout of as many tokens, none of them a patch."""
        names = [f"token{index}" for index in range(len(places))]
        return TokenLayout.from_positions(np.full((len(places), 2), np.nan, np.float32), names)


def prefix_names(parameters: Sequence[str]) -> list[str]:
    """Name prefix tokens after the parameters they stem from: "cls", "dist", "reg1", "reg2", ..."""
    kinds = [_kind(parameter) for parameter in parameters]
    names = []
    for place, kind in enumerate(kinds):
        if kind in STAND_INS.values():
            names.append(kind)
        elif not kind:
            names.append(f"prefix{place}")
        elif kind in _NUMBERED or kinds.count(kind) > 1:
            names.append(f"{kind}{kinds[: place + 1].count(kind)}")
        else:
            names.append(kind)
    return names


def _kind(parameter: str) -> str:
    if parameter in STAND_INS.values():
        return parameter
    # CrossViT numbers its branches: cls_token_0.
    leaf = re.sub(r"_\d+$", "", parameter.rpartition(".")[2])
    return next((kind for kind, leaves in _TOKEN_NAMES if leaf in leaves), "")
