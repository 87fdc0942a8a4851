"""What tables say of each head: every measure, its spread over queries, its sinks and its kind."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from viewer.attention.density import dense_share, density_reference
from viewer.attention.kinds import head_kinds
from viewer.attention.measured import SINK_QUERIES, number_or_none, sink_threshold
from viewer.attention.measures import MEASURES, Measure, measure_named, quartiles
from viewer.attention.norms import HIGH_NORM, patch_norms
from viewer.attention.sinks import Sink, sinks_of
from viewer.export.plain import plain

if TYPE_CHECKING:
    from viewer.attention.layer import AttentionLayer
    from viewer.attention.measured import LayerMeasures
    from viewer.state.display import Protocol


class Column(NamedTuple):
    """A column of the CSV and Parquet tables: its name, Arrow type, and what it holds, with its unit."""

    name: str
    type: str
    meaning: str


_FIRST = (
    Column("mean_distance_px", "double", "mean attention distance over patch queries, in input pixels"),
    Column("mean_distance_patches", "double", "the same in patches of this layer's queries"),
    Column("entropy_nats", "double", "mean row entropy over all keys, prefix keys included, in nats"),
    Column("prefix_mass", "double", "mean attention on prefix keys and on padding, 0 to 1"),
    Column(
        "undefined_queries", "int64", "queries without any attention on patches; renormalized leaves them out"
    ),
)
_QUARTERS = ("q1", "median", "q3")
# JSON's key of the three, and the measure they belong to.
_SPREAD = {"distance_px_quartiles": "mean_distance_px", "hops_quartiles": "mean_hops"}


def _measure_column(measure: Measure) -> Column:
    unit = f", in {measure.unit}" if measure.unit else ", 0 to 1"
    about = f" ({measure.source})" if measure.source else ""
    protocol = ", by the protocol" if measure.by_protocol else ""
    return Column(measure.name, "double", f"{measure.words}{unit}{protocol}{about}")


def _spread_columns() -> Iterable[Column]:
    words = dict(zip(_QUARTERS, ("first quartile", "median", "third quartile"), strict=True))
    for key, name in _SPREAD.items():
        measure = measure_named(name)
        for quarter in _QUARTERS:
            meaning = f"{words[quarter]} over queries of the {measure.words}, in {measure.unit}"
            yield Column(f"{key.removesuffix('_quartiles')}_{quarter}", "double", meaning)


_MORE = tuple(
    _measure_column(measure) for measure in MEASURES if measure.name not in {column.name for column in _FIRST}
)
HEAD_COLUMNS = (
    *_FIRST,
    *_MORE,
    *_spread_columns(),
    Column(
        "sinks",
        "string",
        f"keys that draw more than sink_above from over {SINK_QUERIES:g} of the queries, with the mean "
        "attention on each; a patch is row,column of the keys' grid, from 0",
    ),
    Column(
        "head_kind",
        "string",
        "sink, local, positional, global or content, by the first rule it meets; undefined without patches",
    ),
    Column("head_kind_reason", "string", "the numbers that decided, each beside its limit"),
)
LAYER_COLUMNS = (
    Column("sink_above", "double", "the attention from which a query feeds a sink, 0 to 1"),
    Column("dense_share", "double", "share of the layer's heads with an entropy above dense_above_nats"),
    Column(
        "dense_above_nats",
        "double",
        "halfway between the entropies of uniform attention and of a 3x3 window, in nats",
    ),
    Column("median_norm", "double", "norm of the median patch in the residual stream entering the layer"),
    Column("largest_norm", "double", "norm of the longest patch there"),
    Column(
        "high_norm_patches", "int64", f"how many are more than {HIGH_NORM:g} times the median patch's norm"
    ),
)


def of_layer(layer: AttentionLayer, measured: LayerMeasures, protocol: Protocol) -> dict[str, Any]:
    """Return what there is to say of a layer's heads, ready for JSON: lists of a value a head, and limits."""
    kinds = head_kinds(layer, measured)
    found: dict[str, Any] = {
        measure.name: _numbers(measure.of_heads(measured, protocol)) for measure in MEASURES
    }
    if not layer.key_layout.placed:
        # Keys of which none has a place are no prefix tokens.
        found["prefix_mass"] = [None] * layer.heads
    found["undefined_queries"] = [int(count) for count in measured.undefined_rows()]
    for key, name in _SPREAD.items():
        found[key] = [_numbers(head) for head in quartiles(measure_named(name), measured, protocol)]
    found["sinks"] = [[_sink(one) for one in of_head] for of_head in sinks_of(layer, measured)]
    found["head_kind"] = [kind.kind for kind in kinds]
    found["head_kind_reason"] = [kind.reason for kind in kinds]
    reference = density_reference(layer)
    found["sink_above"] = sink_threshold(measured.keys) if measured.keys > 1 else None
    found["dense_share"] = number_or_none(dense_share(layer, measured))
    found["dense_above_nats"] = number_or_none(
        reference.limit if reference.uniform > reference.local else math.nan
    )
    found |= _norms(layer)
    found["uniform"] = {
        measure.name: number_or_none(measure.uniform(layer, protocol))
        for measure in MEASURES
        if measure.uniform
    }
    return found


def _norms(layer: AttentionLayer) -> dict[str, Any]:
    """Return what there is to say of the residual stream that enters a layer; None where it is not known."""
    norms = patch_norms(layer)
    if norms is None:
        return dict.fromkeys(("median_norm", "largest_norm", "high_norm_patches", "high_norm_at"))
    return {
        "median_norm": norms.median,
        "largest_norm": norms.largest,
        "high_norm_patches": len(norms.high),
        "high_norm_at": [list(patch) for patch in norms.high],
    }


def of_head(layer: dict[str, Any], head: int) -> dict[str, Any]:
    """Return a row's part, with the names of `HEAD_COLUMNS`, from what `of_layer` gave."""
    single = {column.name for column in HEAD_COLUMNS} & layer.keys()
    found = {name: layer[name][head] for name in single}
    for key in _SPREAD:
        names = (f"{key.removesuffix('_quartiles')}_{quarter}" for quarter in _QUARTERS)
        found |= dict(zip(names, layer[key][head], strict=True))
    found["sinks"] = "; ".join(
        f"{_place(one['key'])}: {one['attention']:.4f}" for one in layer["sinks"][head]
    )
    return found


def _sink(sink: Sink) -> dict[str, Any]:
    key = plain(sink.key) if isinstance(sink.key, str) else sink.key
    return {
        "key": list(key) if isinstance(key, tuple) else key,
        "attention": sink.received,
        "queries": sink.fed,
    }


def _place(key: str | list[int] | int) -> str:
    return ",".join(map(str, key)) if isinstance(key, list) else str(key)


def _numbers(values: Iterable[float]) -> list[float | None]:
    return [number_or_none(value) for value in values]
