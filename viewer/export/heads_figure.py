"""The heads panel as a figure: one small map for every layer and head."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from viewer.export.colour_bar import ColourBar
from viewer.export.typesetting import text_width
from viewer.state.colormaps import rgba
from viewer.state.places import UNREACHABLE

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.export.sheet import Box, Sheet, Style
    from viewer.state.heads import Heads

_WISHED = 42  # in `Style.room`, for all columns, or all rows, together
_CELL = (2.7, 6.3)  # the same of the smallest and the largest cell, where whole pixels a patch allow


@dataclass(frozen=True)
class HeadsPart:
    """Layers downwards, heads across, one colour bar.

    Attributes
    ----------
    heads
        What to draw.
    style
        Colours and type.
    """

    heads: Heads
    style: Style

    @cached_property
    def _patch(self) -> int:
        """Pixels at scale 1 of a patch's side: whole, so that all patches are equally large."""
        rows, columns = self.heads.grid
        layers, heads = self.heads.vmax.shape
        cell = min(max(_WISHED / max(heads, layers), _CELL[0]), _CELL[1])
        return max(1, round(cell * self.style.room / max(rows, columns)))

    @cached_property
    def _gap(self) -> int:
        """Patches between two cells; at least 3 pixels."""
        return max(-(-3 // self._patch), 1)

    @cached_property
    def _pitch(self) -> tuple[int, int]:
        """Pixels from one cell to the next, downwards and across."""
        return tuple((side + self._gap) * self._patch for side in self.heads.grid)

    @cached_property
    def _maps(self) -> tuple[int, int]:
        """Height and width in pixels of all cells together, without a gap at the end."""
        pitch, gap = self._pitch, self._gap * self._patch
        return tuple(count * step - gap for count, step in zip(self.heads.vmax.shape, pitch, strict=True))

    @cached_property
    def _bar(self) -> ColourBar | None:
        heads = self.heads
        if heads.maps is None:
            return None
        label, height = f"{heads.label}, {heads.scale_label}", max(self._maps[0], round(12 * self.style.em))
        if not heads.shared:
            ends = ((0.0, "0"), (1.0, "own max."))
            return ColourBar(heads.colormap, ends, label, height, self.style)
        end = float(heads.vmax.max())
        return ColourBar.of_range(heads.colormap, end, heads.largest, label, height, self.style)

    @cached_property
    def _margin(self) -> tuple[int, int]:
        """Pixels above (head numbers) and left (layer numbers) of the cells."""
        em = self.style.em
        widest = text_width(str(len(self.heads.heads) - 1), self.style.small)
        return round(2.7 * em), round(1.9 * em + widest)

    @cached_property
    def width(self) -> int:
        """Width in pixels at scale 1."""
        beside = 0 if self._bar is None else round(0.8 * self.style.em) + self._bar.width
        legend = text_width(UNREACHABLE, self.style.small) + 2.5 * self.style.em if self._hatched else 0
        return self._margin[1] + max(self._maps[1] + beside, round(legend))

    @cached_property
    def height(self) -> int:
        """Height in pixels at scale 1."""
        below = round(1.9 * self.style.em) if self._hatched else 0
        return self._margin[0] + max(self._maps[0], self._bar.height if self._bar else 0) + below

    @property
    def _hatched(self) -> bool:
        return self.heads.hatched and self.heads.maps is not None

    def atlas(self) -> npt.NDArray[np.uint8]:
        """Return all maps in one image, one pixel a patch, uint8 (H, W, 4).

        It is transparent between cells, and where a patch is out of the query's reach.
        """
        heads = self.heads
        (rows, columns), gap = heads.grid, self._gap
        layers, most = heads.vmax.shape
        cells = np.zeros((layers, rows + gap, most, columns + gap, 4), np.uint8)
        empty = [*bytes.fromhex(self.style.palette.empty[1:]), 255]
        for layer, count in enumerate(heads.heads):
            for head in range(count):
                cell = cells[layer, :rows, head, :columns]
                if heads.maps is None or heads.blank[layer]:
                    cell[:] = empty
                else:
                    cell[:] = rgba(heads.maps[layer, head], float(heads.vmax[layer, head]), heads.colormap)
        whole = cells.reshape(layers * (rows + gap), most * (columns + gap), 4)
        return whole[:-gap, :-gap]

    def draw(self, sheet: Sheet, left: int, top: int) -> None:
        """Draw it with its upper left corner there."""
        above, before = self._margin
        x, y = left + before, top + above
        height, width = self._maps
        self._draw_mat(sheet, x, y)
        if self._hatched:
            self._draw_hatching(sheet, x, y)
        sheet.image((x, y, width, height), self.atlas(), name="heads")
        self._draw_numbers(sheet, x, y)
        self._draw_shown(sheet, x, y)
        if self._bar is not None:
            self._bar.draw(sheet, x + width + round(0.8 * self.style.em), y)

    def _draw_mat(self, sheet: Sheet, x: int, y: int) -> None:
        """Fill what lies between the maps, where they would not stand apart from the ground by themselves."""
        palette, gap = self.style.palette, self._gap * self._patch
        if palette.mat == palette.ground:
            return
        for layer, count in enumerate(self.heads.heads):
            box = (x - gap, y + layer * self._pitch[0] - gap, count * self._pitch[1] + gap)
            sheet.fill((*box, self._pitch[0] + gap), palette.mat)

    def _draw_hatching(self, sheet: Sheet, x: int, y: int) -> None:
        """Hatch all cells under the maps, which are clear where a patch is out of reach; say what that is."""
        (down, across), em = self._pitch, self.style.em
        cells = [
            (x + head * across, y + layer * down, self._cell_width, self._cell_height)
            for layer, count in enumerate(self.heads.heads)
            for head in range(count)
        ]
        sheet.hatch(cells, under_images=True)
        middle = y + self.height - self._margin[0] - 0.6 * em
        swatch = (x, middle - 0.45 * em, 1.8 * em, 0.9 * em)
        sheet.hatch([swatch])
        sheet.frame(swatch, self.style.palette.faint, 0.6)
        sheet.text(x + 2.3 * em, middle, UNREACHABLE, self.style.small, v="center")

    def _draw_numbers(self, sheet: Sheet, x: int, y: int) -> None:
        em, small, faint = self.style.em, self.style.small, self.style.palette.faint
        height, width = self._maps
        layers, heads = self.heads.vmax.shape
        rows = every(layers, self._pitch[0], 1.3 * em)
        columns = every(heads, self._pitch[1], text_width(str(heads - 1), small) + 0.6 * em)
        for layer in range(0, layers, rows):
            middle = y + layer * self._pitch[0] + self._cell_height / 2
            ink = self._ink(layer == self.heads.shown.layer)
            sheet.text(x - 0.5 * em, middle, str(layer), small, h="right", v="center", **ink)
        for head in range(0, heads, columns):
            middle = x + head * self._pitch[1] + self._cell_width / 2
            ink = self._ink(head == self.heads.shown.head)
            sheet.text(middle, y - 0.8 * em, str(head), small, h="center", v="center", **ink)
        sheet.text(x + width / 2, y - 2.0 * em, "head", small, faint, h="center", v="center")
        edge = x - self._margin[1]
        sheet.text(edge, y + height / 2, "layer", small, faint, h="center", v="top", upwards=True)

    def _ink(self, shown: bool) -> dict[str, Any]:
        palette = self.style.palette
        return {"color": palette.accent if shown else palette.text, "bold": shown}

    @property
    def _cell_height(self) -> int:
        return self.heads.grid[0] * self._patch

    @property
    def _cell_width(self) -> int:
        return self.heads.grid[1] * self._patch

    def _draw_shown(self, sheet: Sheet, x: int, y: int) -> None:
        layer, head = self.heads.shown
        first, last = (0, self.heads.heads[layer] - 1) if head is None else (head, head)
        box: Box = (
            x + first * self._pitch[1] - 1,
            y + layer * self._pitch[0] - 1,
            (last - first) * self._pitch[1] + self._cell_width + 2,
            self._cell_height + 2,
        )
        sheet.frame(box, self.style.palette.accent, 2.0)


def every(count: int, pitch: int, needed: float) -> int:
    """Return 1, 2, 5, 10, ...: every how many-th number is written so that neighbours keep apart."""
    return next((step for step in (1, 2, 5, 10, 20, 50) if step * pitch >= needed), max(count, 1))
