"""What the scatter shows: a measure of every head against its layer, or two measures against each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from viewer.state.axes import DISTANCE, LAYER_AXIS, Axis, axis_of
from viewer.state.comparison import network_reference
from viewer.state.dots import dots_of, of_query, side_by_side, uniform_of_query
from viewer.state.effective_map import effective_reference
from viewer.state.kinds import kind_words
from viewer.state.network_map import network_levels
from viewer.state.references import BEFORE_LABEL, Reference
from viewer.state.selection import HeadRef
from viewer.state.words import query_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from viewer.attention.kinds import HeadKind
    from viewer.state.attended import Attended
    from viewer.state.display import DisplayValue
    from viewer.state.documents import ImageDocument
    from viewer.state.selection import SelectionValue

_FAINTEST = 0.15  # opacity of a dot whose head attends to prefix tokens only
UNUSED_LABEL = "head removed or skipped: not used"
NO_DISTANCE = "No distance to measure: in no layer do patches attend to patches"


@dataclass(frozen=True, eq=False)
class Scatter:
    """The scatter, ready to paint: one dot a head, none for layers without the measure.

    Attributes
    ----------
    layer, head
        int64 (dots,).
    x, y
        float64 (dots,), where the dot lies: the measures of either axis, mean over all patch queries; NaN
        where no query is defined. Where layers lie along x, their heads stand side by side.
    spread
        float64 (dots, 2), lower and upper end of an error bar along y; None without.
    query_x, query_y
        float64 (dots,), of the selected query alone; None while none is selected, for a prefix token (it has
        no place to measure from), while the views show who attends to the query, and for measures of the
        whole map.
    prefix_mass
        float64 (dots,), mean attention on prefix tokens, 0 to 1.
    unused
        bool (dots,), of heads that a what-if removes, or whose block it skips: they attend, for nothing.
    kinds
        Kind of each head with the numbers that decided it, where dots are to show it; else None.
    references
        Lines and points that the dots are read against.
    layers
        Number of layers, those without dots included.
    shown
        The head to emphasize.
    x_axis, y_axis
        What lies along them.
    title, query_label
        `query_label` is empty where `query_y` is None.
    blank
        Why there is not one dot, as a clause; empty where there are any.
    missing
        Why there is no line for convolutions, or no dots of the query, as clauses.
    """

    layer: npt.NDArray[np.int64]
    head: npt.NDArray[np.int64]
    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    spread: npt.NDArray[np.float64] | None
    query_x: npt.NDArray[np.float64] | None
    query_y: npt.NDArray[np.float64] | None
    prefix_mass: npt.NDArray[np.float64]
    unused: npt.NDArray[np.bool_]
    references: tuple[Reference, ...]
    layers: int
    shown: HeadRef
    x_axis: Axis
    y_axis: Axis
    title: str
    query_label: str = ""
    blank: str = ""
    missing: tuple[str, ...] = ()
    kinds: tuple[HeadKind, ...] | None = None

    @property
    def pales(self) -> bool:
        """Whether any head attends to prefix tokens, so that dots are of different strength."""
        return self.kinds is None and bool((self.prefix_mass > 0).any())

    @property
    def opacity(self) -> npt.NDArray[np.float64]:
        """How opaque each dot is, float64 (dots,): less the more of its attention goes to prefix tokens."""
        return np.maximum(1 - self.prefix_mass, _FAINTEST) if self.pales else np.ones(len(self.layer))

    @property
    def picked(self) -> npt.NDArray[np.bool_]:
        """Which dots are those of the shown head, bool (dots,)."""
        picked = self.layer == self.shown.layer
        return picked if self.shown.head is None else picked & (self.head == self.shown.head)

    def reference(self, kind: str) -> Reference | None:
        """Return the reference of a kind, None if there is none."""
        return next((reference for reference in self.references if reference.kind == kind), None)

    def head_words(self, place: int) -> str:
        """Return the name and numbers of one dot: "layer 3, head 2: 84.1 px, prefix 12 %".

        The prefix is left out where no head of the model attends to any.
        """
        unused = " (not used)" if self.unused[place] else ""
        name = f"layer {self.layer[place]}, head {self.head[place]}{unused}"
        if self.y_axis.name.startswith(DISTANCE) and self.x_axis.counts_layers:
            numbers = [self.y_axis.number(self.y[place])]
        else:
            numbers = [f"{self.y_axis.words} {self.y_axis.number(self.y[place])}"]
        if self.spread is not None:
            low, high = self.spread[place]
            numbers[0] += f" ({self.y_axis.number(low)} to {self.y_axis.number(high)})"
        if not self.x_axis.counts_layers:
            numbers.append(f"{self.x_axis.words} {self.x_axis.number(self.x[place])}")
        if self.pales and "prefix_mass" not in (self.x_axis.name, self.y_axis.name):
            numbers.append(f"prefix {100 * self.prefix_mass[place]:.0f} %")
        words = f"{name}: {', '.join(numbers)}"
        return words if self.kinds is None else f"{words}\n{kind_words(self.kinds[place])}"


def scatter_of(
    layer: Sequence[int],
    head: Sequence[int],
    values: npt.ArrayLike,
    y_axis: Axis,
    *,
    spread: npt.ArrayLike | None = None,
    x_values: npt.ArrayLike | None = None,
    x_axis: Axis = LAYER_AXIS,
    prefix_mass: npt.ArrayLike | None = None,
    references: tuple[Reference, ...] = (),
    layers: int | None = None,
    title: str | None = None,
) -> Scatter:
    """Make a scatter of plain numbers, of whatever they are means: a study has no record.

    Parameters
    ----------
    layer, head
        Of each dot.
    values
        (dots,) along y.
    y_axis, x_axis
        What lies along them, see `viewer.state.axes.axis_of`.
    spread
        (dots, 2), lower and upper end of the error bars.
    x_values
        (dots,) along x, where that is not the layers.
    prefix_mass
        (dots,), 0 to 1; dots are paler the more of it there is.
    references
        See `viewer.state.references`.
    layers
        How many there are, those without dots included; by default those that have some.
    title
        By default it says what is drawn.
    """
    layer, head = np.asarray(layer, np.int64), np.asarray(head, np.int64)
    x = side_by_side(layer, head) if x_values is None else np.asarray(x_values, np.float64)
    return Scatter(
        layer=layer,
        head=head,
        x=x,
        y=np.asarray(values, np.float64),
        spread=None if spread is None else np.asarray(spread, np.float64),
        query_x=None,
        query_y=None,
        prefix_mass=np.zeros(len(layer)) if prefix_mass is None else np.asarray(prefix_mass, np.float64),
        unused=np.zeros(len(layer), np.bool_),
        references=references,
        layers=int(layer.max(initial=-1)) + 1 if layers is None else layers,
        shown=HeadRef(-1, None),
        x_axis=x_axis,
        y_axis=y_axis,
        title=title_of(x_axis, y_axis) if title is None else title,
        blank="" if len(layer) else _why_blank(x_axis, y_axis),
    )


def title_of(x_axis: Axis, y_axis: Axis) -> str:
    """Return what a scatter shows, as a title."""
    if y_axis.name.startswith(DISTANCE) and x_axis.counts_layers:
        return "How far each head reaches"
    words = f"{y_axis.words[0].upper()}{y_axis.words[1:]}"
    return f"{words} of each head" if x_axis.counts_layers else f"{words} against {x_axis.words} of each head"


def scatter(
    document: ImageDocument, found: Attended | None, selection: SelectionValue, display: DisplayValue
) -> Scatter | None:
    """Describe the scatter; None until the document is measured."""
    record, measures = document.record, document.measures
    if record is None or measures is None:
        return None
    axes = (display.x_measure, display.y_measure)
    x_axis, y_axis = (axis_of(name, display.protocol, display.unit) for name in axes)
    dots = dots_of(record, measures, display)
    query_x, query_y, query_label = None, None, ""
    references, missing = dots.references, dots.missing
    network, why_none = network_reference(record, measures, display)
    effective, why_no_effective = network_levels(document, display)
    found_out = (network, effective, effective_reference(document, display))
    references = (*references, *(one for one in found_out if one is not None))
    missing = (*missing, *filter(None, (why_none, why_no_effective)))
    if document.before is not None:
        plain = dots_of(*document.before, display)
        references = (*references, Reference("before", plain.x, plain.y, BEFORE_LABEL, points=True))
    query = None if found is None or found.direction == "to" else found.query
    if isinstance(query, tuple) and len(dots.layer):
        query_x, query_y, why = of_query(record, dots, query)
        if query_y is None:
            missing = (*missing, why)
        else:
            query_label = query_words(query, brief=True, grid=None if record.one_grid else record.grid)
            references = (*references, *uniform_of_query(record, dots, query, display))
    return Scatter(
        layer=dots.layer,
        head=dots.head,
        x=dots.x,
        y=dots.y,
        spread=None,
        query_x=query_x,
        query_y=query_y,
        prefix_mass=dots.prefix_mass,
        unused=dots.unused,
        references=references,
        layers=len(record.layers),
        shown=selection.shown,
        x_axis=x_axis,
        y_axis=y_axis,
        title=title_of(x_axis, y_axis),
        query_label=query_label,
        blank="" if len(dots.layer) else _why_blank(x_axis, y_axis),
        missing=missing,
        kinds=dots.kinds,
    )


def _why_blank(x_axis: Axis, y_axis: Axis) -> str:
    if y_axis.name.startswith(DISTANCE) and x_axis.counts_layers:
        return NO_DISTANCE
    words = y_axis.words if x_axis.counts_layers else f"{y_axis.words} and {x_axis.words}"
    return f"Nothing to draw: {words} can't be measured in any layer of this model"
