"""What the likeness view shows: how much alike the maps of layers are, or of the heads of one layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from viewer.state.selection import HeadRef
from viewer.state.words import source_words

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.layer import AttentionLayer
    from viewer.attention.likeness import LikenessMatrices, RecordLikeness
    from viewer.attention.record import AttentionRecord
    from viewer.attention.sweep import RecordMeasures
    from viewer.state.display import Centring, DisplayValue, Likened
    from viewer.state.documents import ImageDocument
    from viewer.state.selection import SelectionValue

LABELS: dict[Centring, str] = {
    "plain": "cosine of attention maps, plain",
    "centred": "cosine of attention maps, column means removed",
}
PROTOCOL = "per key column, mean over keys, prefix tokens included"
NOT_YET = "The maps are being compared…"
ALL_POSITIVE = "All-positive maps have a high cosine by themselves; without their column means they need not."


@dataclass(frozen=True, eq=False)
class Likeness:
    """A square of cosines, ready to paint.

    Attributes
    ----------
    values
        float64 (n, n); NaN where two can't be compared. None where there is nothing to show.
    of
        Whether rows and columns are layers, or the heads of one layer.
    refs
        For each row what it is: a layer with the compared head (or None), or a head.
    shown
        The row (and column) to emphasize, -1 for none.
    low
        Lower end of the colour scale, whose upper end is 1.
    colormap
        A cmap name.
    title, label
        What is shown, and the colour bar's label with the protocol's first word.
    maps
        Whose maps are compared: "mean of heads" or "head 2" of each layer, or of which layer the heads are.
    source
        Of which picture and model, for words that are copied.
    blank
        Why there is nothing to show; empty where there is.
    reasons
        For each row why it can't be compared with others, as a clause; empty where it can.
    """

    values: npt.NDArray[np.float64] | None
    of: Likened
    refs: tuple[HeadRef, ...]
    shown: int
    low: float
    colormap: str
    title: str
    label: str
    maps: str
    source: str
    blank: str
    reasons: tuple[str, ...]

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Numbers beside the colour bar, as (share of the bar, text)."""
        step = 0.5 if self.low < -0.3 else 0.25
        inner = [step * i for i in range(math.ceil(self.low / step), round(1 / step) + 1)]
        found = inner if inner[0] - self.low < step / 2 and inner[0] == self.low else [self.low, *inner[1:]]
        if self.low < 0 and 0.0 not in found:
            found.insert(1, 0.0)
        return tuple(((value - self.low) / (1 - self.low), f"{value:.6g}") for value in found)

    def name(self, place: int) -> str:
        """Return what a row is called: "layer 3", "head 2"."""
        layer, head = self.refs[place]
        return f"layer {layer}" if self.of == "layers" else f"head {head}"

    def pair_words(self, row: int, column: int) -> str:
        """Return the names of a pair and its number, or why there is none.

        "layers 3 and 7, mean of heads: 0.831", "layer 3, heads 0 and 2: 0.952".
        """
        one, other = sorted((row, column))
        numbers = [self.refs[at].layer if self.of == "layers" else self.refs[at].head for at in (one, other)]
        what = self.of.removesuffix("s")
        pair = f"{what} {numbers[0]}" if one == other else f"{what}s {numbers[0]} and {numbers[1]}"
        pair = f"{pair}, {self.maps}" if self.of == "layers" else f"{self.maps}, {pair}"
        if self.values is None:
            return pair
        value = self.values[row, column]
        if np.isfinite(value):
            return f"{pair}: {value:.3f}"
        why = self.reasons[one] or self.reasons[other] or "their tokens, heads or windows differ"
        return f"{pair}: not comparable, {why}"

    def told(self, row: int, column: int) -> str:
        """Return the same as sentences that can stand alone: with protocol, picture and model."""
        words = self.pair_words(row, column)
        return f"{words[0].upper()}{words[1:]} ({self.label}; {PROTOCOL}).\n{self.source}"


def likeness(document: ImageDocument, selection: SelectionValue, display: DisplayValue) -> Likeness | None:
    """Describe the likeness; None until the document is measured, empty until its maps are compared."""
    record, measures = document.record, document.measures
    if record is None or measures is None:
        return None
    found = known(measures)
    shown = selection.shown
    head = shown.head if display.likeness_heads == "shown" else None
    layer = record.layers[shown.layer]
    of_layers = display.likeness_of == "layers"
    refs = (
        tuple(HeadRef(index, head) for index in range(len(record.layers)))
        if of_layers
        else tuple(HeadRef(shown.layer, index) for index in range(layer.heads))
    )
    values = None if found is None else _values(found, shown.layer, head, display)
    reasons = tuple(_reason(record.layers[ref.layer], head if of_layers else None) for ref in refs)
    blank = NOT_YET if found is None else _why_blank(record, values, display, shown)
    return Likeness(
        values=None if blank else values,
        of=display.likeness_of,
        refs=refs,
        shown=shown.layer if of_layers else (-1 if shown.head is None else shown.head),
        low=_low(values),
        colormap=display.colormap,
        title=_title(record, shown, head, of_layers),
        label=LABELS[display.likeness],
        maps=_maps(record, head) if of_layers else f"layer {shown.layer}",
        source=source_words(record, document.image.name),
        blank=blank,
        reasons=reasons,
    )


def _values(
    found: RecordLikeness, layer: int, head: int | None, display: DisplayValue
) -> npt.NDArray[np.float64]:
    matrices: LikenessMatrices = found.plain if display.likeness == "plain" else found.centred
    if display.likeness_of == "heads":
        return matrices.within[layer]
    return matrices.fused if head is None else matrices.heads[head]


def _reason(layer: AttentionLayer, head: int | None) -> str:
    if layer.kind == "pool":
        return f"in layer {layer.index} one learned query gathers all patches"
    if layer.kind == "channel":
        return f"in layer {layer.index} channels attend to channels"
    if head is not None and head >= layer.heads:
        return f"layer {layer.index} has no head {head}"
    return ""


def _why_blank(
    record: AttentionRecord, values: npt.NDArray[np.float64] | None, display: DisplayValue, shown: HeadRef
) -> str:
    if values is not None and np.isfinite(values).any():
        return ""
    if display.likeness_of == "heads":
        why = _reason(record.layers[shown.layer], None)
        return f"Nothing to compare: {why or 'its maps do not vary from query to query'}."
    return "Nothing to compare: in no layer do patches attend to patches in maps that vary."


def _title(record: AttentionRecord, shown: HeadRef, head: int | None, of_layers: bool) -> str:
    if not of_layers:
        return f"How alike the heads of layer {shown.layer} are"
    return f"How alike the layers are, {_maps(record, head)}"


def _maps(record: AttentionRecord, head: int | None) -> str:
    """Say which map of each layer is compared."""
    most = max(layer.heads for layer in record.layers)
    return "mean of heads" if head is None and most > 1 else f"head {head or 0}"


def _low(values: npt.NDArray[np.float64] | None) -> float:
    """Return the lower end of the colours: 0, or where cosines are negative a tenth below all of them."""
    there = np.empty(0) if values is None else values[np.isfinite(values)]
    least = float(there.min(initial=0.0))
    return max(math.floor(10 * least) / 10, -1.0)


# Not `lru_cache`, which would keep the measures alive.
_kept: WeakKeyDictionary[RecordMeasures, RecordLikeness] = WeakKeyDictionary()


def known(measures: RecordMeasures) -> RecordLikeness | None:
    """Return the likeness that was computed with some measures, None if it was not yet."""
    return _kept.get(measures)


def keep(measures: RecordMeasures, found: RecordLikeness) -> None:
    """Keep a likeness for as long as the measures are."""
    _kept[measures] = found
