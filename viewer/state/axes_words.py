"""What is said of the shown head beside its distance: the measures along the scatter's axes, and its kind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from viewer.attention.kinds import head_kinds
from viewer.attention.measured import mean_of_numbers
from viewer.state.axes import LAYER, measure_of, number
from viewer.state.kinds import counted, kind_words
from viewer.state.references import uniform_level

if TYPE_CHECKING:
    from viewer.attention.layer import AttentionLayer
    from viewer.attention.measures import Measure
    from viewer.attention.sweep import LayerMeasures
    from viewer.state.display import Protocol, Unit

DENSITY = ("entropy_nats", "normalized_entropy", "effective_tokens")
"""Measures that tell whether attention is dense or sparse."""
# The read-out says these of every head.
_SAID = ("mean_distance_px", "mean_distance_patches", "entropy_nats", "effective_tokens", "prefix_mass")


# Not `lru_cache`, which would keep a layer, and with it a whole record, alive.
_kept: WeakKeyDictionary[LayerMeasures, dict[tuple[object, ...], str]] = WeakKeyDictionary()


def axes_words(
    layer: AttentionLayer,
    measured: LayerMeasures,
    head: int | None,
    names: tuple[str, ...],
    protocol: Protocol,
    unit: Unit,
    kinds: bool,
) -> str:
    """Return sentences on one head, or on the mean of all of a layer; kept while the measures are.

    Parameters
    ----------
    layer, measured
        The shown layer and its measures.
    head
        The shown head, None for all.
    names
        Along the axes of the scatter.
    protocol, unit
        As in `viewer.state.display.DisplayValue`.
    kinds
        Whether to say what kind the head is, with the numbers that decided it; of all heads, how many are of
        each kind.
    """
    of_layer = _kept.setdefault(measured, {})
    key = (head, names, protocol, unit, kinds)
    if key not in of_layer:
        wanted = [measure_of(name, unit) for name in dict.fromkeys(names) if name != LAYER]
        said = [_of_measure(layer, measured, head, measure, protocol) for measure in wanted]
        said.append(_kinds(layer, measured, head) if kinds else "")
        of_layer[key] = " ".join(filter(None, said))
    return of_layer[key]


def _of_measure(
    layer: AttentionLayer, measured: LayerMeasures, head: int | None, measure: Measure, protocol: Protocol
) -> str:
    """Return a measure with its number beside uniform attention's; nothing where it is said."""
    pick = slice(None) if head is None else slice(head, head + 1)
    value = mean_of_numbers(measure.of_heads(measured, protocol)[pick])
    if measure.name in _SAID or math.isnan(value):
        return ""
    words = f"{measure.words[0].upper()}{measure.words[1:]}: {number(value, measure.unit)}"
    level = uniform_level(layer, measure, protocol)
    beside = "" if math.isnan(level) else f" (uniform attention: {number(level, measure.unit)})"
    return f"{words}{beside}."


def _kinds(layer: AttentionLayer, measured: LayerMeasures, head: int | None) -> str:
    kinds = head_kinds(layer, measured)
    if head is not None:
        return f"Kind: {kind_words(kinds[head])}"
    listed = ", ".join(f"{count} {mark.kind}" for mark, count in counted(kinds))
    dense = density_words(layer, measured)
    return f"Kinds: {listed}{f'; {dense}' if dense else ''}."


def density_words(layer: AttentionLayer, measured: LayerMeasures) -> str:
    """Return how many heads of a layer are dense: "4 of 6 heads nearer to uniform than to a 3x3 window"."""
    # It needs torch, which a window without a model does not load.
    from viewer.attention.density import nearer_to_uniform

    dense = nearer_to_uniform(layer, measured)
    if dense is None:
        return ""
    return f"{int(dense.sum())} of {len(dense)} heads nearer to uniform attention than to a 3x3 window"


def density_listing(rows: Sequence[tuple[AttentionLayer, LayerMeasures]]) -> str:
    """Return the same of several layers, by their entropy, as one line; empty where none can be compared."""
    from viewer.attention.density import nearer_to_uniform

    found = [(layer.index, nearer_to_uniform(layer, measured)) for layer, measured in rows]
    counts = [f"{index}: {int(dense.sum())}/{len(dense)}" for index, dense in found if dense is not None]
    if not counts:
        return ""
    return f"Heads nearer to uniform attention than to a 3x3 window, by layer: {', '.join(counts)}"
