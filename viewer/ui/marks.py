"""Small things that several panels paint."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QLineF, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QImage, QPainter, QPainterPath, QPen, QPixmap

from viewer.state.colormaps import LEVELS, lut
from viewer.state.palette import HATCH_INK, HATCH_STEP, HATCH_WIDTH, VEIL

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from viewer.state.palette import Palette

_LARGE = 12.0  # points; type larger than this is for a lecture hall


@lru_cache(maxsize=16)
def font(palette: Palette, scale: float = 1.0, bold: bool = False) -> QFont:
    """Return the theme's type, `scale` times its ordinary size."""
    found = QFont()
    found.setPointSizeF(palette.points * scale)
    found.setBold(bold)
    return found


@lru_cache(maxsize=64)
def unbroken(words: str) -> str:
    """Return words whose sizes, places and numbers with their unit are not parted where lines break."""
    words = re.sub(r"(\d) (?=px|patches|%|tokens|nats|rows|columns|×)", "\\1\u00a0", words)
    words = re.sub(
        r"(?<=×) (?=\d)|(?<=\d) of (?=\d+\s×)", lambda found: found[0].replace(" ", "\u00a0"), words
    )
    return re.sub(r"(?<=\(row) (?=\d)|(?<=column) (?=\d)|(?<=\d,) (?=\d)", "\u00a0", words)


def bar_numbers(palette: Palette) -> int:
    """Return how many numbers stand beside a colour bar: bars of one scale show the same ones."""
    return 3 if palette.points > _LARGE else 4


def frame(
    painter: QPainter, box: QRectF, colour: str, width: float, style: Qt.PenStyle = Qt.PenStyle.SolidLine
) -> None:
    """Outline a box; white underneath keeps the line visible on any picture.

    All four sides lie on whole device pixels, or they would differ in strength.
    """
    ratio = painter.device().devicePixelRatioF()
    pixels = max(round(width * ratio), 1)
    left, top, right, bottom = (round(side * ratio) for side in box.getCoords())
    # A line of an odd number of pixels lies on its pixel, an even one between two.
    odd = pixels % 2
    even_box = QRectF(left / ratio, top / ratio, (right - left - odd) / ratio, (bottom - top - odd) / ratio)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    halo = pixels + 2 * max(round(ratio), 1)
    for pen in (QPen(QColor("#ffffff"), halo / ratio), QPen(QColor(colour), pixels / ratio, style)):
        pen.setJoinStyle(Qt.PenJoinStyle.MiterJoin)
        painter.setPen(pen)
        painter.drawRect(even_box)


def hatch(
    painter: QPainter,
    boxes: Sequence[QRectF],
    palette: Palette,
    veil: float = 1.0,
    widest: float = math.inf,
) -> None:
    """Hatch boxes: what is out of a query's reach has no weight, not even 0.

    Parameters
    ----------
    painter
        What to paint with.
    boxes
        Where.
    palette
        Of the theme.
    veil
        Opacity of what is laid under the lines.
    widest
        Largest distance between lines in pixels, along the horizontal, where boxes are small.
    """
    path, ratio = QPainterPath(), painter.device().devicePixelRatioF()
    for box in boxes:
        # On whole device pixels, as scaled images have their pixels: no gap is left between them.
        left, top, right, bottom = (math.ceil(side * ratio - 0.5) / ratio for side in box.getCoords())
        path.addRect(QRectF(left, top, right - left, bottom - top))
    whole = path.boundingRect()
    em = palette.points * painter.device().logicalDpiY() / 72
    step = min(HATCH_STEP * em, widest)
    painter.save()
    painter.setClipPath(path, Qt.ClipOperation.IntersectClip)
    under = QColor(palette.panel)
    under.setAlphaF(veil)
    painter.fillRect(whole, under)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    ink = QColor(palette.text)
    ink.setAlphaF(HATCH_INK)
    painter.setPen(QPen(ink, HATCH_WIDTH * em))
    painter.drawLines(_diagonals(whole, step))
    painter.restore()


def hatch_where(
    painter: QPainter, where: npt.NDArray[np.bool_], patches: QRectF, within: QRectF, palette: Palette
) -> None:
    """Hatch some patches of a picture, veiled.

    Parameters
    ----------
    painter
        What to paint with.
    where
        bool (R, C), which patches.
    patches
        Where an image of R x C pixels would be painted: what is hatched are just its pixels, without a gap.
    within
        The picture, its corners on whole device pixels.
    palette
        Of the theme.
    """
    ratio = painter.device().devicePixelRatioF()
    size = (within.size() * ratio).toSize()
    mask = rgba_image(where[..., None] * np.full(4, 255, np.uint8))
    layer = QPixmap(size)
    layer.setDevicePixelRatio(ratio)
    layer.fill(Qt.GlobalColor.transparent)
    on_layer = QPainter(layer)
    on_layer.drawImage(patches.translated(-within.topLeft()), mask)
    on_layer.setCompositionMode(QPainter.CompositionMode.CompositionMode_SourceIn)
    on_layer.drawPixmap(0, 0, _hatching(size.width(), size.height(), ratio, palette))
    on_layer.end()
    painter.drawPixmap(within.topLeft(), layer)


@lru_cache(maxsize=2)
def _hatching(width: int, height: int, ratio: float, palette: Palette) -> QPixmap:
    """Return veil and lines for a whole picture, in device pixels."""
    pixmap = QPixmap(width, height)
    pixmap.setDevicePixelRatio(ratio)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    hatch(painter, [QRectF(0, 0, width / ratio, height / ratio)], palette, VEIL)
    painter.end()
    return pixmap


def _diagonals(box: QRectF, step: float) -> list[QLineF]:
    """Return lines from below to the right, of one raster, so that neighbouring boxes do not show a seam."""
    first = math.floor((box.left() + box.top()) / step)
    last = math.ceil((box.right() + box.bottom()) / step)
    return [
        QLineF(at * step - box.top(), box.top(), at * step - box.bottom(), box.bottom())
        for at in range(first, last + 1)
    ]


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
