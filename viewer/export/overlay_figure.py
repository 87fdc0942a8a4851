"""The image panel as a figure: the picture as the model saw it, under the attention of the selected head."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from viewer.export.colour_bar import ColourBar
from viewer.export.inset import Inset
from viewer.export.typesetting import text_width, wrap
from viewer.state.colormaps import rgba
from viewer.state.overlay import overlay_colours
from viewer.state.palette import VEIL
from viewer.state.places import rectangles, sides
from viewer.state.words import token_words, weight_words

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.attention.layout import TokenLayout
    from viewer.export.sheet import Box, Sheet, Style
    from viewer.state.overlay import Overlay
    from viewer.state.selection import Query

_WISHED = 34  # in `Style.room`; small pictures are enlarged by whole factors until they come near it
_LOWEST_BAR = 6  # ems; below, not even the single words of a label fit
_LARGEST = 900


@dataclass(frozen=True)
class OverlayPart:
    """Picture, overlay, marks, colour bar, the whole picture in small and the weights of prefix tokens.

    Attributes
    ----------
    overlay
        What to draw.
    style
        Colours and type.
    room
        Width and height in pixels that picture, bar and captions may fill; None for their usual size.
    patch
        Height of a patch in pixels at scale 1, whatever room there is; None for the usual one.
    """

    overlay: Overlay
    style: Style
    room: tuple[int, int] | None = None
    patch: int | None = None

    @cached_property
    def factor(self) -> float:
        """Pixels of the figure at scale 1 for each pixel of the picture; whole unless the picture is huge."""
        if self.patch is not None:
            return self.patch / self.overlay.asked.patch_px[0]
        longest = max(self.overlay.seen.shape[:2])
        usual = max(1, round(_WISHED * self.style.room / longest))
        if longest > _LARGEST:
            usual = 1 / -(-longest // _LARGEST)
        fixed = self.room is None or not self.overlay.asked.placed
        return usual if fixed else self._filling(usual, self.room)

    def _filling(self, usual: float, room: tuple[int, int]) -> float:
        """Return the largest factor above the usual with which all fits and patches have whole pixels."""
        patch = self.overlay.asked.patch_px[0]
        for pixels in range(int(room[1] / self.overlay.grid[0]), round(usual * patch), -1):
            part = replace(self, room=None, patch=pixels)
            if part.width <= room[0] and part.height <= room[1]:
                return pixels / patch
        return usual

    @cached_property
    def _picture(self) -> tuple[int, int]:
        height, width = self.overlay.seen.shape[:2]
        return round(width * self.factor), round(height * self.factor)

    @cached_property
    def _bar(self) -> ColourBar | None:
        overlay = self.overlay
        if overlay.values is None:
            return None
        label = f"{overlay.label}, {overlay.scale_label}"
        below = 0.0 if self._inset is None else self._inset.height + self.style.em
        height = max(round(self._picture[1] - below), round(_LOWEST_BAR * self.style.em))
        return ColourBar.of_range(overlay.colormap, overlay.vmax, overlay.highest, label, height, self.style)

    @cached_property
    def _inset(self) -> Inset | None:
        return Inset.beside(self.overlay, self._picture, self.style)

    @property
    def _prefix(self) -> list[tuple[str, float]]:
        """Prefix tokens of the shown layer; pooling may have others than the rest of the model."""
        return [(name, weight) for name, weight in self.overlay.prefix if math.isfinite(weight)]

    @cached_property
    def _prefix_rows(self) -> list[list[tuple[float, str, str]]]:
        """Rows of (x, text, name), as many on a row as fit below the picture."""
        if self._bar is None:
            return []
        em, rows, x = self.style.em, [], self.width
        for name, weight in self._prefix:
            text = f"{token_words(name)} {weight_words(weight)}"
            needed = 1.3 * em + text_width(text, self.style.small)
            if x + needed > self.width:
                rows.append([])
                x = 0.0
            rows[-1].append((x, text, name))
            x += needed + 1.5 * em
        return rows

    @cached_property
    def width(self) -> int:
        """Width in pixels at scale 1."""
        beside = [part.width for part in (self._bar, self._inset) if part is not None]
        return self._picture[0] + (round(0.8 * self.style.em + max(beside)) if beside else 0)

    @cached_property
    def height(self) -> int:
        """Height in pixels at scale 1."""
        rows = 1.7 * len(self._prefix_rows) + 1.3 * len(self._caption) + 0.4
        return self._above + round(rows * self.style.em)

    @cached_property
    def _above(self) -> int:
        """Height of picture and colour bar."""
        return max(self._picture[1], self._bar.height if self._bar else 0)

    @cached_property
    def _caption(self) -> list[str]:
        return wrap(self.overlay.caption, self.width, self.style.small)

    def draw(self, sheet: Sheet, left: int, top: int) -> None:
        """Draw it with its upper left corner there."""
        overlay = self.overlay
        width, height = self._picture
        sheet.image((left, top, width, height), overlay.seen, smooth=True, name="picture")
        if overlay.values is not None:
            self._draw_values(sheet, left, top, overlay.values)
        if overlay.show_grid and overlay.asked.placed:
            self._draw_grid(sheet, left, top)
        if overlay.blank:
            self._draw_blank(sheet, left, top)
        else:
            self._draw_marks(sheet, left, top)
        beside = left + width + round(0.8 * self.style.em)
        if self._inset is not None:
            self._inset.draw(sheet, beside, top + height - self._inset.height)
        if self._bar is not None:
            self._bar.draw(sheet, beside, top)
            self._draw_prefix(sheet, left, top + self._above)
        y = top + self._above + (1.7 * len(self._prefix_rows) + 0.4) * self.style.em
        for i, line in enumerate(self._caption):
            below = y + 1.3 * self.style.em * i
            sheet.text(left, below, line, self.style.small, self.style.palette.faint)

    def _cells(
        self, left: int, top: int, patches: TokenLayout, cells: tuple[float, float, float, float]
    ) -> Box:
        """Return the box of patches (top, left, bottom, right), ends exclusive."""
        x0, y0, x1, y1 = sides(patches, cells)
        factor = self.factor
        return left + x0 * factor, top + y0 * factor, (x1 - x0) * factor, (y1 - y0) * factor

    def _inside(
        self, left: int, top: int, patches: TokenLayout, cells: tuple[float, float, float, float]
    ) -> Box:
        """Return the same, cut off at the picture's border."""
        x, y, width, height = self._cells(left, top, patches, cells)
        across, down = self._picture
        start, above = max(x, left), max(y, top)
        return start, above, min(x + width, left + across) - start, min(y + height, top + down) - above

    def _draw_values(self, sheet: Sheet, left: int, top: int, values: npt.NDArray[np.float32]) -> None:
        overlay = self.overlay
        # One pixel a patch, its opacity in the image itself: SVG and PDF readers all keep that.
        colours = overlay_colours(overlay, values)
        all_ = (0, 0, *values.shape)
        box = self._cells(left, top, overlay.answers, all_)
        beyond = any(abs(a - b) > 0.5 for a, b in zip(box, (left, top, *self._picture), strict=True))
        clip = (left, top, *self._picture) if beyond else None
        sheet.image(box, colours, name="attention", clip=clip)
        if overlay.unreachable is not None:
            cells = rectangles(overlay.unreachable)
            sheet.hatch([self._inside(left, top, overlay.answers, cell) for cell in cells], VEIL)

    def _draw_blank(self, sheet: Sheet, left: int, top: int) -> None:
        """Say on the picture why there is no map on it."""
        em, palette, (width, height) = self.style.em, self.style.palette, self._picture
        lines = wrap(f"No map: {self.overlay.blank}", width - 4 * em, self.style.points)
        longest = max(text_width(line, self.style.points) for line in lines)
        middle, above = left + width / 2, top + height / 2 - 0.7 * em * len(lines)
        box = (middle - longest / 2 - em, above - 0.5 * em, longest + 2 * em, (1.4 * len(lines) + 0.6) * em)
        sheet.frame(box, palette.faint, 0.6, fill=palette.panel)
        for i, line in enumerate(lines):
            sheet.text(middle, above + (1.4 * i + 0.6) * em, line, h="center", v="center")

    def _draw_grid(self, sheet: Sheet, left: int, top: int) -> None:
        asked, (rows, columns) = self.overlay.asked, self.overlay.grid
        x, y, width, height = self._inside(left, top, asked, (0, 0, rows, columns))
        line = {"linewidth": 0.6, "alpha": 110 / 255}
        for row in range(rows + 1):
            level = self._cells(left, top, asked, (row, 0, row, 0))[1]
            if y - 0.5 <= level <= y + height + 0.5:
                sheet.line([x, x + width], [level, level], "#ffffff", **line)
        for column in range(columns + 1):
            across = self._cells(left, top, asked, (0, column, 0, column))[0]
            if x - 0.5 <= across <= x + width + 0.5:
                sheet.line([across, across], [y, y + height], "#ffffff", **line)

    def _draw_marks(self, sheet: Sheet, left: int, top: int) -> None:
        palette = self.style.palette
        for row, column in self.overlay.marked:
            box = self._inside(left, top, self.overlay.answers, (row, column, row + 1, column + 1))
            sheet.frame(box, "#ffffff", 2.4)
            sheet.frame(box, "#000000", 1.0)
        if self.overlay.ring is not None:
            ring = self._inside(left, top, self.overlay.asked, self.overlay.ring)
            sheet.frame(ring, "#ffffff", 3.0)
            sheet.frame(ring, palette.convolution, 1.8, dashed=True)
        for pin in self.overlay.pins:
            if pin != self.overlay.query:
                self._outline(sheet, left, top, pin, 1.2, dashed=True)
        if self.overlay.query is not None:
            self._outline(sheet, left, top, self.overlay.query, 2.0)

    def _outline(
        self, sheet: Sheet, left: int, top: int, query: Query, width: float, dashed: bool = False
    ) -> None:
        patch = self.overlay.patch(query)
        if patch is None:
            return
        row, column = patch
        box = self._inside(left, top, self.overlay.asked, (row, column, row + 1, column + 1))
        # White under the accent keeps the outline visible on any picture.
        sheet.frame(box, "#ffffff", width + 1.6)
        sheet.frame(box, self.style.palette.accent, width, dashed=dashed)

    def _draw_prefix(self, sheet: Sheet, left: int, top: int) -> None:
        em, overlay, palette = self.style.em, self.overlay, self.style.palette
        weights = dict(self._prefix)
        for i, row in enumerate(self._prefix_rows):
            middle = top + (1.7 * i + 1.1) * em
            for x, text, name in row:
                colour = rgba(np.array([weights[name]], np.float32), overlay.vmax, overlay.colormap)[0, :3]
                box = (left + x, middle - 0.45 * em, 0.9 * em, 0.9 * em)
                marked = name == overlay.query or name in overlay.pins
                edge, width = (palette.accent, 1.8) if marked else (palette.faint, 0.6)
                sheet.frame(box, edge, width, fill=f"#{bytes(colour).hex()}")
                sheet.text(left + x + 1.3 * em, middle, text, self.style.small, v="center")
