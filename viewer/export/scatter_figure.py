"""The scatter as a figure: mean attention distance of every head against its layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from viewer.export.colour_bar import nice_ticks
from viewer.export.heads_figure import every
from viewer.export.typesetting import text_width, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from viewer.export.sheet import Sheet, Style
    from viewer.state.scatter import Scatter

_ROW = 1.7  # height of a legend row, in ems


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
        scatter = self.scatter
        values = [scatter.distance, scatter.convolution, [scatter.uniform]]
        if scatter.query_distance is not None:
            values += [scatter.query_distance, [scatter.uniform_query]]
        found = np.concatenate([np.asarray(v, np.float64) for v in values])
        found = found[np.isfinite(found)]
        return 1.06 * float(found.max()) if found.size and found.max() > 0 else 1.0

    @cached_property
    def _y_ticks(self) -> list[tuple[float, str]]:
        return nice_ticks(0.0, self._top_value)

    @cached_property
    def _y_label(self) -> list[str]:
        return wrap(self.scatter.y_label, self._plot_height, self.style.small)

    @cached_property
    def _before(self) -> int:
        """Pixels left of the frame, for numbers and label."""
        em = self.style.em
        numbers = max(text_width(text, self.style.small) for _, text in self._y_ticks)
        return round(numbers + 1.2 * em + 1.2 * em * len(self._y_label))

    @cached_property
    def _plot_height(self) -> int:
        return round(max(21 * self.style.em, min(0.5 * self.width, 340)))

    @cached_property
    def _legend(self) -> list[Entry]:
        scatter, palette = self.scatter, self.style.palette
        entries = [Entry("a head, mean over all patches", self._dots(palette.dot))]
        if scatter.query_distance is not None:
            entries.append(Entry(f"a head, {scatter.query_label} alone", self._rings(palette.query)))
        entries.append(Entry("shown", self._shown_marks))
        entries.append(Entry(scatter.uniform_label, self._uniform_marks(palette.uniform)))
        if scatter.uniform_query is not None:
            words = f"{scatter.uniform_label}, {scatter.query_label} alone"
            entries.append(Entry(words, self._uniform_marks(palette.query)))
        entries.append(Entry(scatter.convolution_label, self._convolution_marks))
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

    def _dots(self, color: str) -> dict[str, Any]:
        size = 0.5 * self.style.points
        return {
            "color": color,
            "linestyle": "none",
            "marker": "o",
            "markersize": size,
            "markeredgewidth": 0,
            "alpha": 0.8,
        }

    def _rings(self, color: str) -> dict[str, Any]:
        return {
            **self._dots(color),
            "markerfacecolor": "none",
            "markeredgecolor": color,
            "markeredgewidth": 1.1,
            "alpha": 1.0,
        }

    @property
    def _shown_marks(self) -> dict[str, Any]:
        accent = self.style.palette.accent
        return {**self._rings(accent), "markersize": 0.95 * self.style.points, "markeredgewidth": 1.8}

    def _uniform_marks(self, color: str) -> dict[str, Any]:
        return {"color": color, "linestyle": (0, (5, 3)), "linewidth": 1.3}

    @property
    def _convolution_marks(self) -> dict[str, Any]:
        color, size = self.style.palette.convolution, 0.3 * self.style.points
        return {"color": color, "linewidth": 1.3, "marker": "s", "markersize": size}

    def draw(self, sheet: Sheet, left: int, top: int) -> None:
        """Draw it with its upper left corner there."""
        em, small = self.style.em, self.style.small
        width = self.width - self._before
        x = left + self._before
        axes = sheet.plot((x, top, width, self._plot_height))
        self._set_axes(axes, width)
        self._plot(axes)
        bottom = top + self._plot_height
        sheet.text(x + width / 2, bottom + 2.3 * em, self.scatter.x_label, small, h="center", v="center")
        for i, line in enumerate(self._y_label):
            middle = top + self._plot_height / 2
            sheet.text(left + 1.2 * em * i, middle, line, small, h="center", v="top", upwards=True)
        self._draw_legend(sheet, x, bottom + 3.4 * em)

    def _set_axes(self, axes: Axes, width: float) -> None:
        layers = self.scatter.layers
        axes.set_xlim(-0.5, layers - 0.5)
        axes.set_ylim(0, self._top_value)
        needed = text_width(str(layers - 1), self.style.small) + 0.8 * self.style.em
        axes.set_xticks(range(0, layers, every(layers, width / layers, needed)))
        axes.set_yticks([value for value, _ in self._y_ticks], [text for _, text in self._y_ticks])
        axes.grid(axis="y", color=self.style.palette.faint, linewidth=0.5, alpha=0.3)
        axes.set_axisbelow(True)

    def _plot(self, axes: Axes) -> None:
        scatter, palette = self.scatter, self.style.palette
        axes.axhline(scatter.uniform, **self._uniform_marks(palette.uniform))
        axes.plot(range(len(scatter.convolution)), scatter.convolution, **self._convolution_marks)
        axes.plot(scatter.layer, scatter.distance, clip_on=False, **self._dots(palette.dot))
        if scatter.query_distance is not None:
            axes.axhline(scatter.uniform_query, **self._uniform_marks(palette.query))
            axes.plot(scatter.layer, scatter.query_distance, clip_on=False, **self._rings(palette.query))
        shown = scatter.layer == scatter.shown.layer
        if scatter.shown.head is not None:
            shown &= scatter.head == scatter.shown.head
        axes.plot(scatter.layer[shown], scatter.distance[shown], clip_on=False, **self._shown_marks)

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
