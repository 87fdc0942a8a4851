"""Small things that several panels paint."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QFont, QImage, QPainter, QPen

from viewer.state.colormaps import LEVELS, lut

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from viewer.state.palette import Palette


@lru_cache(maxsize=16)
def font(palette: Palette, scale: float = 1.0, bold: bool = False) -> QFont:
    """Return the theme's type, `scale` times its ordinary size."""
    found = QFont()
    found.setPointSizeF(palette.points * scale)
    found.setBold(bold)
    return found


def frame(
    painter: QPainter, box: QRectF, colour: str, width: float, style: Qt.PenStyle = Qt.PenStyle.SolidLine
) -> None:
    """Outline a box; white underneath keeps the line visible on any picture."""
    painter.setBrush(Qt.BrushStyle.NoBrush)
    for pen in (QPen(QColor("#ffffff"), width + 1.6), QPen(QColor(colour), width, style)):
        pen.setJoinStyle(Qt.PenJoinStyle.MiterJoin)
        painter.setPen(pen)
        painter.drawRect(box)


def rgba_image(colours: npt.NDArray[np.uint8]) -> QImage:
    """Return an image of its own memory from uint8 (H, W, 4), in the format that Qt paints fastest."""
    height, width = colours.shape[:2]
    image = QImage(colours.tobytes(), width, height, 4 * width, QImage.Format.Format_RGBA8888)
    return image.convertToFormat(QImage.Format.Format_ARGB32_Premultiplied)


@lru_cache(maxsize=8)
def bar_image(colormap: str, upright: bool) -> QImage:
    """Return the colours of a bar, low at the bottom (upright) or at the left."""
    colours = lut(colormap)
    bar = colours[::-1].reshape(LEVELS, 1, 4) if upright else colours.reshape(1, LEVELS, 4)
    return rgba_image(bar)
