"""One image of the small maps of every layer and head."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QPointF, QRectF, QSizeF
from PySide6.QtGui import QColor, QImage

from viewer.state.colormaps import levels, lut
from viewer.state.selection import HeadRef

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.state.heads import Heads

_LARGEST_CELL = 320.0  # pixels; a map of one head alone need not fill a wall
GAP = 3.0  # pixels between cells, at least
_EQUAL = 0.92  # least share of its possible size that a map keeps for patches of equal size


@dataclass(frozen=True)
class AtlasLayout:
    """Where each cell is painted, in pixels of the canvas.

    Attributes
    ----------
    left, top
        Of the first cell; numbers are written before and above it.
    heads
        Number of heads of each layer.
    cell
        Rows and columns of a cell in the atlas image.
    shrink
        How many patches, down and across, one pixel of the atlas image stands for.
    gap
        Pixels of the atlas image between cells.
    factor
        Canvas pixels to a pixel of the atlas image.
    """

    left: float
    top: float
    heads: tuple[int, ...]
    cell: tuple[int, int]
    shrink: int
    gap: int
    factor: float

    @classmethod
    def of(
        cls, room: QSizeF, ratio: float, heads: Heads, margin: tuple[float, float], least: float
    ) -> AtlasLayout:
        """Make cells as large as the room allows, but not smaller than can be read.

        Parameters
        ----------
        room
            Size of what can be seen without scrolling.
        ratio
            Device pixels per logical pixel.
        heads
            What is to be painted.
        margin
            Pixels above and to the left of the first cell.
        least
            Least length in pixels of a cell's longer side.
        """
        rows, columns = heads.grid
        layers, most = heads.vmax.shape
        patch = min(
            ((room.height() - margin[0]) / layers - GAP) / rows,
            ((room.width() - margin[1]) / most - GAP) / columns,
        )
        patch = min(max(patch, least / max(heads.grid)), _LARGEST_CELL / max(heads.grid))
        shrink = max(1, math.ceil(1 / (patch * ratio)))
        cell = (-(-rows // shrink), -(-columns // shrink))
        gap = max(1, math.ceil(GAP / (patch * shrink)))
        # The gap grew to whole pixels of the image: all becomes a little smaller for it.
        factor = min(
            (room.height() - margin[0]) / (layers * (cell[0] + gap)),
            (room.width() - margin[1]) / (most * (cell[1] + gap)),
        )
        factor = min(max(factor, least / max(cell)), _LARGEST_CELL / max(cell))
        equal = math.floor(factor * ratio) / ratio
        if equal >= _EQUAL * factor:
            # Patches of equal size, where that costs little room.
            factor = equal
        spare = room.width() - margin[1] - most * (cell[1] + gap) * factor
        return cls(margin[1] + max(spare / 2, 0.0), margin[0], heads.heads, cell, shrink, gap, factor)

    @property
    def pitch(self) -> tuple[float, float]:
        """Pixels from one cell to the next, down and across."""
        return (self.cell[0] + self.gap) * self.factor, (self.cell[1] + self.gap) * self.factor

    @property
    def maps(self) -> QRectF:
        """Where the atlas image is painted."""
        height, width = self.pitch
        return QRectF(self.left, self.top, width * max(self.heads), height * len(self.heads))

    def box(self, head: HeadRef) -> QRectF:
        """Return where a head, or with head None a layer's row, is painted."""
        first = head.head or 0
        last = self.heads[head.layer] - 1 if head.head is None else first
        height, width = self.pitch
        return QRectF(
            self.left + first * width,
            self.top + head.layer * height,
            (last - first) * width + self.cell[1] * self.factor,
            self.cell[0] * self.factor,
        )

    def every_head(self) -> list[HeadRef]:
        """Return all heads there are."""
        return [HeadRef(layer, head) for layer, count in enumerate(self.heads) for head in range(count)]

    def head_at(self, position: QPointF) -> HeadRef | None:
        """Return the head under a position; before the cells the whole layer; None elsewhere."""
        height, width = self.pitch
        layer = int((position.y() - self.top) // height)
        if not 0 <= layer < len(self.heads) or position.x() < 0:
            return None
        if position.x() < self.left:
            return HeadRef(layer, None)
        head = int((position.x() - self.left) // width)
        return HeadRef(layer, head) if head < self.heads[layer] else None


def atlas(heads: Heads, layout: AtlasLayout, empty: str) -> QImage:
    """Return the image of all maps, to be painted at `AtlasLayout.maps`.

    It is transparent between cells, and where a patch is out of the query's reach.

    A pixel is the colour of one patch's weight, or of the largest weight of the patches it stands for, so
    that a single hot patch stays visible where the screen is too coarse for all.

    Parameters
    ----------
    heads
        What to paint; without maps all cells are `empty`.
    layout
        Where.
    empty
        Colour ("#rrggbb") of a cell without data.
    """
    count, most = heads.vmax.shape
    height, width = layout.cell
    canvas = np.zeros((count, height + layout.gap, most, width + layout.gap), np.uint32)
    cells = canvas[:, :height, :, :width]
    blank = np.uint32(QColor(empty).rgba())
    if heads.maps is None:
        cells[:] = blank
    else:
        maps = _shrunk(heads.maps, layout.shrink)
        place = levels(maps, heads.vmax[:, :, None, None])
        cells[:] = _table(heads.colormap)[place.transpose(0, 2, 1, 3)]
        gone = np.isnan(maps)
        if gone.any():
            np.copyto(cells.transpose(0, 2, 1, 3), 0, where=gone)
        for layer, why in enumerate(heads.blank):
            if why:
                cells[layer] = blank
    for layer, there in enumerate(heads.heads):
        cells[layer, :, there:] = 0
    rows, columns = canvas.shape[0] * canvas.shape[1], canvas.shape[2] * canvas.shape[3]
    # All is either opaque or clear, and so premultiplied already.
    format_ = QImage.Format.Format_ARGB32_Premultiplied
    return QImage(canvas.tobytes(), columns, rows, 4 * columns, format_).copy()


def _table(colormap: str) -> npt.NDArray[np.uint32]:
    """Return a colour table as Qt's 0xAARRGGBB."""
    red, green, blue, alpha = lut(colormap).astype(np.uint32).T
    return (alpha << 24) | (red << 16) | (green << 8) | blue


def _shrunk(maps: npt.NDArray[np.float32], shrink: int) -> npt.NDArray[np.float32]:
    """Return the largest weight of each `shrink` x `shrink` block of patches."""
    if shrink == 1:
        return maps
    # Of a block that is partly out of reach, what can be reached counts.
    largest = np.fmax if np.isnan(maps).any() else np.maximum
    for axis in (2, 3):
        maps = largest.reduceat(maps, np.arange(0, maps.shape[axis], shrink), axis=axis)
    return maps
