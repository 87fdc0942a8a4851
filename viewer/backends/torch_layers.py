"""From tapped attentions and traced places to the layers of a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from viewer.attention.grouped import GroupedScores
from viewer.attention.layer import AttentionLayer, LayerKind
from viewer.attention.layout import TokenLayout
from viewer.backends.one_grid import require_cover
from viewer.backends.position_math import shrink
from viewer.backends.positions import CHANNELS, PADDING, Lost, PositionTrace
from viewer.backends.torch_groups import Grouping, find_groups
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
        As in `torch_groups.Grouping`.
    """

    module: str
    kind: LayerKind
    query_layout: TokenLayout
    key_layout: TokenLayout
    groups: int = 1
    order: list[int] | None = None
    note: str = ""

    def layer(self, index: int, tapped: Tapped) -> AttentionLayer:
        """Join what one picture left behind."""
        scores = tapped.scores if self.order is None else tapped.scores.picked(self.order)
        return AttentionLayer(
            index,
            self.module,
            self.kind,
            scores if self.groups == 1 else GroupedScores(scores, self.groups),
            self.query_layout,
            self.key_layout,
            tapped.check.verdict(),
            self.note,
        )


def plan_layers(model: str, tapped: Sequence[Tapped], trace: PositionTrace) -> tuple[LayerPlan, ...]:
    """Find the token layouts of each tapped attention.

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
        If the tokens of some attention fill no grid or only part of the picture, or their places got lost.
    """
    known: dict[bytes, TokenLayout] = {}
    modules = _distinct([found.module or f"attention {index}" for index, found in enumerate(tapped)])
    return tuple(
        _plan(model, module, found, trace, known) for module, found in zip(modules, tapped, strict=True)
    )


def _plan(
    model: str, module: str, found: Tapped, trace: PositionTrace, known: dict[bytes, TokenLayout]
) -> LayerPlan:
    queries, keys, outputs = found.places
    if queries is CHANNELS or keys is CHANNELS:
        sides = (
            TokenLayout.from_positions(np.full((count, 2), np.nan, np.float32), _channels(count))
            for count in (found.scores.queries, found.scores.keys)
        )
        return LayerPlan(module, "channel", *sides, note=CHANNELS.reason)
    grouping = _grouped(queries, keys, outputs, found.scores.heads)
    if isinstance(grouping, Lost):
        raise LayoutError(model, f"in {module} {grouping.reason}")
    query_layout = _layout(model, module, grouping.queries, trace, known)
    key_layout = _layout(model, module, grouping.keys, trace, known, repeats=grouping.groups > 1)
    if not key_layout.placed:
        raise LayoutError(model, f"the keys of {module} have no place on the picture")
    for layout in (query_layout, key_layout):
        if layout.placed:
            require_cover(model, layout, trace.size)
    kind = "self" if query_layout.placed else "pool"
    return LayerPlan(module, kind, query_layout, key_layout, grouping.groups, grouping.order, found.note)


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


def _layout(
    model: str,
    module: str,
    places: Tensor,
    trace: PositionTrace,
    known: dict[bytes, TokenLayout],
    repeats: bool = False,
) -> TokenLayout:
    traced = places.resolve_conj().numpy()
    key = traced.tobytes() + bytes([repeats])
    if key not in known:
        # Sums over a patch leave float noise far below a thousandth of a pixel.
        positions = np.stack(
            [traced.real, np.where(np.isnan(traced.real), np.nan, traced.imag)], axis=1
        ).round(3)
        labels = traced.imag[np.isnan(traced.real)].astype(int).tolist()
        names = prefix_names([trace.parameter_name(label) for label in labels])
        try:
            known[key] = TokenLayout.from_positions(positions, names, repeats=repeats)
        except ValueError as error:
            raise LayoutError(model, f"in {module} {error}") from error
    return known[key]


def prefix_names(parameters: Sequence[str]) -> list[str]:
    """Name prefix tokens after the parameters they stem from: "cls", "dist", "reg1", "reg2", ..."""
    kinds = [_kind(parameter) for parameter in parameters]
    names = []
    for place, kind in enumerate(kinds):
        if kind == PADDING:
            names.append(kind)
        elif not kind:
            names.append(f"prefix{place}")
        elif kind in _NUMBERED or kinds.count(kind) > 1:
            names.append(f"{kind}{kinds[: place + 1].count(kind)}")
        else:
            names.append(kind)
    return names


def _kind(parameter: str) -> str:
    if parameter == PADDING:
        return parameter
    leaf = parameter.rpartition(".")[2]
    return next((kind for kind, leaves in _TOKEN_NAMES if leaf in leaves), "")
