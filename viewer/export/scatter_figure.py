"""The scatter as a figure: mean attention distance of every head against its layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from viewer.export.heads_figure import every
from viewer.export.typesetting import font, text_width, wrap, wrap_clauses

if TYPE_CHECKING:
    import numpy.typing as npt
    from matplotlib.axes import Axes

    from viewer.export.sheet import Sheet, Style
    from viewer.state.scatter import Scatter

_ROW = 1.7  # height of a legend row, in ems

# As in the window's scatter.
_SPREAD = 0.62  # share of a layer's column over which its heads stand
_FAINTEST = 0.15  # opacity of a dot whose head attends to prefix tokens only
_UNIFORM = {"linestyle": (0, (4, 2)), "linewidth": 1.2}
_UNIFORM_QUERY = {"linestyle": (0, (1, 2)), "linewidth": 1.0}
_CONVOLUTION = {"linestyle": (0, (4, 2, 1, 2)), "linewidth": 1.2}


@dataclass(frozen=True)
class Entry:
    """A row of the legend: Matplotlib's line properties of the mark, and its words."""

    text: str
    marks: dict[str, Any]


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
    """

    scatter: Scatter
    style: Style
    width: int

    @cached_property
    def _top_value(self) -> float:
        """Upper end of the distance axis, by the window's rule: a plain number just above all there is."""
        scatter = self.scatter
        values = [scatter.distance, scatter.convolution, scatter.uniform]
        if scatter.query_distance is not None:
            values += [scatter.query_distance, scatter.uniform_query]
        found = np.concatenate([np.asarray(v, np.float64) for v in values])
        found = found[np.isfinite(found)]
        needed = 1.06 * float(found.max(initial=0)) or 1.0
        step = 10.0 ** math.floor(math.log10(needed)) / 2
        return math.ceil(needed / step) * step

    @cached_property
    def _y_ticks(self) -> list[tuple[float, str]]:
        if self.scatter.blank:
            return []
        values = MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]).tick_values(0, self._top_value)
        return [(float(v), f"{v:.6g}") for v in values if 0 <= v <= self._top_value * (1 + 1e-6)]

    @cached_property
    def _y_label(self) -> list[str]:
        return wrap_clauses(self.scatter.y_label, self._plot_height, self.style.small)

    @cached_property
    def _before(self) -> int:
        """Pixels left of the frame, for numbers and label."""
        em = self.style.em
        numbers = max((text_width(text, self.style.small) for _, text in self._y_ticks), default=0)
        return round(numbers + 1.2 * em + 1.2 * em * len(self._y_label))

    @cached_property
    def _plot_height(self) -> int:
        return round(max(21 * self.style.em, min(0.5 * self.width, 340)))

    @cached_property
    def _legend(self) -> list[Entry]:
        scatter, palette = self.scatter, self.style.palette
        if scatter.blank:
            return []
        pales = ", paler the more it attends to prefix tokens" if scatter.pales else ""
        entries = [
            Entry(f"a head{pales}", self._head_marks()),
            Entry("shown", self._shown_marks),
            Entry(scatter.uniform_label, {"color": palette.uniform, **_UNIFORM}),
        ]
        if len(scatter.convolution):
            entries.append(Entry(scatter.convolution_label, {"color": palette.convolution, **_CONVOLUTION}))
        if scatter.query_distance is not None:
            words = f"the same head, for {scatter.query_label} only"
            entries.append(Entry(words, self._query_marks))
            words = f"{scatter.uniform_label}, for {scatter.query_label} only"
            entries.append(Entry(words, {"color": palette.query, **_UNIFORM_QUERY}))
        return entries

    @cached_property
    def _legend_rows(self) -> list[list[tuple[float, Entry]]]:
        em, rows, x = self.style.em, [], float(self.width)
        for entry in self._legend:
            needed = 2.4 * em + text_width(entry.text, self.style.small)
            if x + needed > self.width - self._before:
                rows.append([])
                x = 0.0
            rows[-1].append((x, entry))
            x += needed + 1.5 * em
        return rows

    @cached_property
    def height(self) -> int:
        """Height in pixels at scale 1."""
        return self._plot_height + round(self.style.em * (3.4 + _ROW * len(self._legend_rows)))

    def _head_marks(self, opacity: float = 1.0) -> dict[str, Any]:
        """Return a dot's marks; sizes and lines are those of the window."""
        dot = self.style.palette.dot
        return _mark("o", 0.56 * self.style.points, dot, 0.8, (dot, opacity))

    @property
    def _query_marks(self) -> dict[str, Any]:
        return _mark("D", 0.38 * self.style.points, self.style.palette.query, 0.8)

    @property
    def _shown_marks(self) -> dict[str, Any]:
        return _mark("o", 0.95 * self.style.points, self.style.palette.accent, 1.5)

    def draw(self, sheet: Sheet, left: int, top: int) -> None:
        """Draw it with its upper left corner there."""
        em, small = self.style.em, self.style.small
        width = self.width - self._before
        x = left + self._before
        axes = sheet.plot((x, top, width, self._plot_height))
        self._set_axes(axes, width)
        self._plot(axes)
        bottom = top + self._plot_height
        if self.scatter.blank:
            self._say_why_blank(axes, width)
        sheet.text(x + width / 2, bottom + 2.3 * em, self.scatter.x_label, small, h="center", v="center")
        for i, line in enumerate(self._y_label):
            middle = top + self._plot_height / 2
            sheet.text(left + 1.2 * em * i, middle, line, small, h="center", v="top", upwards=True)
        self._draw_legend(sheet, x, bottom + 3.4 * em)

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
        layers = self.scatter.layers
        axes.set_xlim(-0.6, layers - 0.4)
        axes.set_ylim(0, self._top_value)
        needed = text_width(str(layers - 1), self.style.small) + 0.8 * self.style.em
        axes.set_xticks(range(0, layers, every(layers, width / layers, needed)))
        axes.set_yticks([value for value, _ in self._y_ticks], [text for _, text in self._y_ticks])
        axes.grid(axis="y", color=self.style.palette.faint, linewidth=0.5, alpha=0.3)
        axes.set_axisbelow(True)

    @property
    def _x(self) -> npt.NDArray[np.float64]:
        """Place of each dot: the heads of a layer stand side by side in its column."""
        scatter = self.scatter
        most = int(scatter.head.max(initial=0)) + 1
        return scatter.layer + ((scatter.head + 0.5) / most - 0.5) * _SPREAD

    def _plot(self, axes: Axes) -> None:
        scatter, palette, x = self.scatter, self.style.palette, self._x
        axes.plot(*scatter.steps(scatter.uniform), color=palette.uniform, **_UNIFORM)
        axes.plot(
            range(len(scatter.convolution)), scatter.convolution, color=palette.convolution, **_CONVOLUTION
        )
        for across, distance, mass in zip(x, scatter.distance, scatter.prefix_mass, strict=True):
            marks = self._head_marks(max(1 - float(mass), _FAINTEST))
            axes.plot([across], [distance], clip_on=False, **marks)
        if scatter.query_distance is not None:
            axes.plot(*scatter.steps(scatter.uniform_query), color=palette.query, **_UNIFORM_QUERY)
            axes.plot(x, scatter.query_distance, clip_on=False, **self._query_marks)
        shown = scatter.layer == scatter.shown.layer
        if scatter.shown.head is not None:
            shown &= scatter.head == scatter.shown.head
        axes.plot(x[shown], scatter.distance[shown], clip_on=False, **self._shown_marks)

    def _draw_legend(self, sheet: Sheet, left: float, top: float) -> None:
        em = self.style.em
        for i, row in enumerate(self._legend_rows):
            middle = top + (_ROW * i + 0.7) * em
            for x, entry in row:
                start = left + x
                dots = entry.marks.get("linestyle") == "none"
                ends = [start + 0.9 * em] if dots else [start, start + 1.8 * em]
                sheet.line(ends, [middle] * len(ends), **entry.marks)
                sheet.text(start + 2.4 * em, middle, entry.text, self.style.small, v="center")


def _mark(
    shape: str, size: float, color: str, edge: float, fill: str | tuple[str, float] = "none"
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
