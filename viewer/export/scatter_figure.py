"""The scatter as a figure: a measure of every head against its layer or another measure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator

from viewer.export.heads_figure import every
from viewer.export.legend import Entry, LegendPart
from viewer.export.typesetting import DPI, font, text_width, wrap, wrap_clauses
from viewer.state.kinds import counted, mark_of
from viewer.state.ranges import nice_range
from viewer.state.scatter import UNUSED_LABEL

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from viewer.export.sheet import Sheet, Style
    from viewer.state.kinds import KindMark
    from viewer.state.ranges import Along
    from viewer.state.references import Reference
    from viewer.state.scatter import Scatter
    from viewer.state.selection import HeadRef

_USUAL, _LEAST = 47, 27  # width by itself, and of the plot in it at least, in `Style.room`
_NOTE = 0.85  # of small type: words beside levels

# As in the window's scatter.
_LINES: dict[str, dict[str, Any]] = {
    "uniform": {"linestyle": (0, (4, 2)), "linewidth": 1.2},
    "uniform query": {"linestyle": (0, (1, 2)), "linewidth": 1.0},
    "convolution": {"linestyle": (0, (4, 2, 1, 2)), "linewidth": 1.2},
    "network": {"linestyle": "-", "linewidth": 0.8},
    "network effective": {"linestyle": (0, (1, 1.5)), "linewidth": 1.2},
    "effective": {"linestyle": "-", "linewidth": 1.2},
}


# Over the dot of a head that is not used, and with the dot as it stands in the legend.
_CROSS = Path([(-1, -1), (1, 1), (-1, 1), (1, -1)], [Path.MOVETO, Path.LINETO] * 2)
_CROSSED = Path.make_compound_path(_CROSS, Path.circle(radius=0.67))


@dataclass(frozen=True)
class ScatterPart:
    """A dot a head, reference lines and a legend.

    Attributes
    ----------
    scatter
        What to draw.
    style
        Colours and type.
    width
        In pixels at scale 1, everything included.
    named
        Heads that words beside it name, to be ringed as the shown one is.
    """

    scatter: Scatter
    style: Style
    width: int
    named: tuple[HeadRef, ...] = ()

    @classmethod
    def alone(cls, scatter: Scatter, style: Style) -> ScatterPart:
        """Make one of the usual width, wider where words beside levels would leave the plot too little."""
        part = cls(scatter, style, round(_USUAL * style.room))
        least = part._before + part._after + round(_LEAST * style.room)
        return replace(part, width=max(part.width, least))

    @cached_property
    def _y_ticks(self) -> list[tuple[float, str]]:
        return self._ticks("y", 6)

    def _ticks(self, along: Along, most: int) -> list[tuple[float, str]]:
        """Return plain numbers within an axis' range, as (value, text)."""
        if self.scatter.blank:
            return []
        low, high = nice_range(self.scatter, along)
        values = MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        slack = 1e-6 * (high - low)
        return [(float(v), f"{v:.6g}") for v in values if low - slack <= v <= high + slack]

    @cached_property
    def _y_label(self) -> list[str]:
        return wrap_clauses(self.scatter.y_axis.label, self._plot_height, self.style.small)

    @cached_property
    def _before(self) -> int:
        """Pixels left of the frame, for numbers and label."""
        em = self.style.em
        numbers = max((text_width(text, self.style.small) for _, text in self._y_ticks), default=0)
        return round(numbers + 1.2 * em + 1.2 * em * len(self._y_label))

    @cached_property
    def _after(self) -> int:
        """Pixels right of the frame, for words beside levels."""
        words = [text for reference in self.scatter.references for _, text in reference.notes]
        widest = max((text_width(text, _NOTE * self.style.small) for text in words), default=0)
        return round(widest + (self._gap + 0.4) * self.style.em) if words else 0

    @property
    def _gap(self) -> float:
        """Ems from the frame to words beside levels: more where lines have to lead to them."""
        moved = any(place != level for (level, _), place in self._apart.items())
        return 1.4 if moved else 0.4

    @cached_property
    def _span(self) -> float:
        low, high = nice_range(self.scatter, "y")
        return high - low

    @cached_property
    def _apart(self) -> dict[tuple[float, str], float]:
        """Where the words beside each level stand: moved apart where they would lie on one another."""
        high = nice_range(self.scatter, "y")[1]
        pixels = 1.2 * _NOTE * self.style.em * self.style.small / self.style.points
        line = pixels * self._span / self._plot_height
        places, free = {}, -np.inf
        for level, words in sorted(note for one in self.scatter.references for note in one.notes):
            places[level, words] = max(level, free)
            free = places[level, words] + line
        free = high
        for note in reversed(places):
            places[note] = min(places[note], free)
            free = places[note] - line
        return places

    @cached_property
    def _plot_height(self) -> int:
        return round(max(21 * self.style.room, min(0.5 * self.width, 340)))

    @property
    def _plot_width(self) -> int:
        return self.width - self._before - self._after

    @cached_property
    def _x_label(self) -> list[str]:
        return wrap_clauses(self.scatter.x_axis.label, self._plot_width, self.style.small)

    @property
    def _below(self) -> int:
        """Pixels below the frame that numbers and label take."""
        return round((3.4 + 1.2 * (len(self._x_label) - 1)) * self.style.em)

    @cached_property
    def _legend(self) -> LegendPart:
        return LegendPart(tuple(self._entries()), self.style, self.width - self._before)

    def _entries(self) -> list[Entry]:
        scatter, palette = self.scatter, self.style.palette
        if scatter.blank:
            return []
        pales = ", paler the more it attends to prefix tokens" if scatter.pales else ""
        entries = [
            *([] if scatter.kinds is not None else [Entry(f"a head{pales}", self._head_marks())]),
            Entry("named in the text" if self.named else "shown", self._shown_marks),
        ]
        kinds = () if scatter.kinds is None else counted(scatter.kinds)
        entries[:0] = [Entry(f"{mark.kind}: {n} heads", self._head_marks(kind=mark)) for mark, n in kinds]
        if scatter.shown.layer < 0:
            del entries[-1]
        if scatter.unused.any():
            entries.append(Entry(UNUSED_LABEL, self._crossed_marks))
        if scatter.spread is not None:
            entries.append(Entry("spread over the pictures", {"color": palette.dot, "linewidth": 0.8}))
        for reference in scatter.references:
            words = reference.label
            if reference.kind == "uniform query":
                words = words.replace("this query", f"{scatter.query_label} only")
            entries.append(Entry(words, self._reference_marks(reference)))
        if scatter.query_y is not None:
            words = f"the same head, for {scatter.query_label} only"
            entries.append(Entry(words, self._query_marks))
        return entries

    def _reference_marks(self, reference: Reference) -> dict[str, Any]:
        colour = reference.colour(self.style.palette)
        if reference.kind == "before":
            return _mark("o", 0.56 * self.style.points, colour, 0.8)
        if reference.points:
            return _mark("+", 1.3 * self.style.points, colour, 1.5)
        return {"color": colour, **_LINES[reference.kind]}

    @cached_property
    def height(self) -> int:
        """Height in pixels at scale 1."""
        return self._plot_height + self._below + self._legend.height

    def _head_marks(self, opacity: float = 1.0, kind: KindMark | None = None) -> dict[str, Any]:
        """Return a dot's marks; sizes and lines are those of the window."""
        palette, points = self.style.palette, self.style.points
        if kind is not None:
            colour = kind.colour(palette)
            return _mark(kind.marker, 0.67 * points, colour, 0.8, (colour, opacity))
        return _mark("o", 0.56 * points, palette.dot, 0.8, (palette.dot, opacity))

    @property
    def _crossed_marks(self) -> dict[str, Any]:
        return _mark(_CROSSED, 0.84 * self.style.points, self.style.palette.dot, 0.8)

    @property
    def _query_marks(self) -> dict[str, Any]:
        return _mark("D", 0.38 * self.style.points, self.style.palette.query, 0.8)

    @property
    def _shown_marks(self) -> dict[str, Any]:
        return _mark("o", 0.95 * self.style.points, self.style.palette.accent, 1.5)

    def draw(self, sheet: Sheet, left: int, top: int) -> None:
        """Draw it with its upper left corner there."""
        em, small, width = self.style.em, self.style.small, self._plot_width
        x = left + self._before
        axes = sheet.plot((x, top, width, self._plot_height))
        self._set_axes(axes, width)
        self._plot(axes)
        bottom = top + self._plot_height
        if self.scatter.blank:
            self._say_why_blank(axes, width)
        for i, line in enumerate(self._x_label):
            sheet.text(x + width / 2, bottom + (2.3 + 1.2 * i) * em, line, small, h="center", v="center")
        for i, line in enumerate(self._y_label):
            middle = top + self._plot_height / 2
            sheet.text(left + 1.2 * em * i, middle, line, small, h="center", v="top", upwards=True)
        self._legend.draw(sheet, x, bottom + self._below)

    def _say_why_blank(self, axes: Axes, width: float) -> None:
        """Say in the middle of the plot why it has no dots."""
        lines = wrap(self.scatter.blank, width - 2 * self.style.em, self.style.points)
        axes.text(
            *(0.5, 0.5, "\n".join(lines)),
            transform=axes.transAxes,
            color=self.style.palette.text,
            fontproperties=font(self.style.points),
            horizontalalignment="center",
            verticalalignment="center",
        )

    def _set_axes(self, axes: Axes, width: float) -> None:
        scatter, small = self.scatter, self.style.small
        axes.set_xlim(*nice_range(scatter, "x"))
        axes.set_ylim(*nice_range(scatter, "y"))
        if scatter.x_axis.counts_layers:
            needed = text_width(str(scatter.layers - 1), small) + 0.8 * self.style.em
            axes.set_xticks(range(0, scatter.layers, every(scatter.layers, width / scatter.layers, needed)))
        else:
            ticks = self._ticks("x", 8)
            axes.set_xticks([value for value, _ in ticks], [text for _, text in ticks])
        axes.set_yticks([value for value, _ in self._y_ticks], [text for _, text in self._y_ticks])
        lines = "y" if scatter.x_axis.counts_layers else "both"
        axes.grid(axis=lines, color=self.style.palette.faint, linewidth=0.5, alpha=0.3)
        # Its own type, which on a slide is not that of the sheet.
        axes.tick_params(labelsize=small)
        axes.set_axisbelow(True)

    def _plot(self, axes: Axes) -> None:
        scatter = self.scatter
        for reference in scatter.references:
            self._plot_reference(axes, reference)
        if scatter.spread is not None:
            for x, ends in zip(scatter.x, scatter.spread, strict=True):
                axes.plot([x, x], ends, color=self.style.palette.dot, linewidth=0.8)
        for place, opacity in enumerate(np.where(scatter.unused, 0.0, scatter.opacity).tolist()):
            kind = None if scatter.kinds is None else mark_of(scatter.kinds[place])
            marks = self._head_marks(opacity, kind)
            axes.plot([scatter.x[place]], [scatter.y[place]], clip_on=False, **marks)
            if scatter.unused[place]:
                cross = _mark(_CROSS, 0.84 * self.style.points, marks["color"], 0.8)
                axes.plot([scatter.x[place]], [scatter.y[place]], clip_on=False, **cross)
        if scatter.query_y is not None:
            axes.plot(scatter.query_x, scatter.query_y, clip_on=False, **self._query_marks)
        picked = scatter.picked
        for layer, head in self.named:
            picked = picked | ((scatter.layer == layer) & (scatter.head == head))
        axes.plot(scatter.x[picked], scatter.y[picked], clip_on=False, **self._shown_marks)

    def _plot_reference(self, axes: Axes, reference: Reference) -> None:
        """Draw a line or points; what goes on without end goes to the border."""
        ends = (nice_range(self.scatter, along) for along in ("x", "y"))
        places = (np.clip(v, *limits) for v, limits in zip((reference.x, reference.y), ends, strict=True))
        axes.plot(*places, **self._reference_marks(reference))
        right = nice_range(self.scatter, "x")[1]
        for level, words in reference.notes:
            aside = self._apart[level, words] - level
            axes.annotate(
                words,
                (right, level),
                xytext=(self._gap * self.style.points, aside * self._plot_height / self._span * 72 / DPI),
                textcoords="offset points",
                # Where they were moved away from their level, a thin line leads there.
                arrowprops=self._leader(reference) if abs(aside) > 1e-3 * self._span else None,
                color=reference.colour(self.style.palette),
                fontproperties=font(_NOTE * self.style.small),
                horizontalalignment="left",
                verticalalignment="center",
            )

    def _leader(self, reference: Reference) -> dict[str, Any]:
        colour = reference.colour(self.style.palette)
        ends = {"shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)}
        return {"arrowstyle": "-", "color": colour, "linewidth": 0.5, **ends}


def _mark(
    shape: str | Path, size: float, color: str, edge: float, fill: str | tuple[str, float] = "none"
) -> dict[str, Any]:
    """Return Matplotlib's properties of points without a line; a fill may have an opacity."""
    return {
        "color": color,
        "linestyle": "none",
        "marker": shape,
        "markersize": size,
        "markerfacecolor": fill,
        "markeredgecolor": color,
        "markeredgewidth": edge,
    }
