"""From tapped attentions and traced places to the layers of a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from viewer.attention.layer import AttentionLayer, LayerKind
from viewer.attention.layout import TokenLayout
from viewer.backends.one_grid import require_cover, require_one_grid
from viewer.backends.positions import Lost, PositionTrace
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
    """What stays the same of a layer from one picture to the next: its module, and where its tokens sit."""

    module: str
    kind: LayerKind
    query_layout: TokenLayout
    key_layout: TokenLayout

    def layer(self, index: int, tapped: Tapped) -> AttentionLayer:
        """Join what one picture left behind."""
        verdict = tapped.check.verdict()
        return AttentionLayer(
            index, self.module, self.kind, tapped.scores, self.query_layout, self.key_layout, verdict
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
        If the tokens of some attention fill no grid, another than the rest or only part of the picture, or
        their places got lost.
    """
    known: dict[bytes, TokenLayout] = {}
    modules = _distinct([found.module or f"attention {index}" for index, found in enumerate(tapped)])
    plans = []
    for module, found in zip(modules, tapped, strict=True):
        queries, keys = (_layout(model, module, places, trace, known) for places in found.places)
        if keys.grid == (0, 0):
            raise LayoutError(model, f"the keys of {module} have no place on the picture")
        require_cover(model, keys, trace.size)
        plans.append(LayerPlan(module, "self" if queries.grid != (0, 0) else "pool", queries, keys))
    require_one_grid(model, ((plan.module, plan.query_layout, plan.key_layout) for plan in plans))
    return tuple(plans)


def _distinct(names: list[str]) -> list[str]:
    """Tell apart the attentions of a module that attends more than once."""
    return [
        f"{name}:{names[:place].count(name)}" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    ]


def _layout(
    model: str, module: str, places: Tensor | Lost, trace: PositionTrace, known: dict[bytes, TokenLayout]
) -> TokenLayout:
    if isinstance(places, Lost):
        raise LayoutError(model, f"in {module} {places.reason}")
    traced = places.numpy()
    key = traced.tobytes()
    if key not in known:
        # Sums over a patch leave float noise far below a thousandth of a pixel.
        positions = np.stack(
            [traced.real, np.where(np.isnan(traced.real), np.nan, traced.imag)], axis=1
        ).round(3)
        labels = traced.imag[np.isnan(traced.real)].astype(int).tolist()
        names = prefix_names([trace.parameter_name(label) for label in labels])
        try:
            known[key] = TokenLayout.from_positions(positions, names)
        except ValueError as error:
            raise LayoutError(model, f"in {module} {error}") from error
    return known[key]


def prefix_names(parameters: Sequence[str]) -> list[str]:
    """Name prefix tokens after the parameters they stem from: "cls", "dist", "reg1", "reg2", ..."""
    kinds = [_kind(parameter) for parameter in parameters]
    names = []
    for place, kind in enumerate(kinds):
        if not kind:
            names.append(f"prefix{place}")
        elif kind in _NUMBERED or kinds.count(kind) > 1:
            names.append(f"{kind}{kinds[: place + 1].count(kind)}")
        else:
            names.append(kind)
    return names


def _kind(parameter: str) -> str:
    leaf = parameter.rpartition(".")[2]
    return next((kind for kind, leaves in _TOKEN_NAMES if leaf in leaves), "")
