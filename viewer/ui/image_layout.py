"""Where the image panel puts title, prefix tokens, picture, colour bar and inset."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF, QSizeF

from viewer.state.places import sides
from viewer.state.words import token_words

if TYPE_CHECKING:
    from PySide6.QtGui import QFontMetricsF

    from viewer.attention.layout import TokenLayout
    from viewer.state.overlay import Overlay

_WORST_TITLE = (
    "Layer 10 (attention pooling), mean of 16 heads: which patches attend to patch (row 10, column 10)"
)
_WORST_CAPTION = (
    "Model input 1000 × 1000 px, from the whole of the 3000 × 4000 px picture (height × width), padded to a "
    "square; 60 rows × 60 columns of patches, counted from 0; dashed: what 10 stacked 3x3 convolutions reach"
    "; 62 % of the attention on patches lies outside"
)
_SMALL = 0.8  # a small title's share of ordinary type
_WIDEST = 0.45  # of the width, that something beside the title may take
_NOTHING = QSizeF(0, 0)
_LOW = 20.0  # lines of type; a panel lower than this is a low one

Sides = tuple[float, float, float, float]


@dataclass(frozen=True)
class ImageLayout:
    """Boxes in the widget's own coordinates.

    Attributes
    ----------
    title
        Up to two lines of text.
    chips
        For each prefix token its name, text without the weight, and box.
    picture
        The picture, its corners on whole device pixels.
    bar
        Of the colour bar; numbers and label are to its right.
    label
        Box of the colour bar's label, which is painted turned by 90 degrees.
    inset
        Of the whole picture in small, padding around it included; None where its crop is unknown or there is
        no room.
    caption
        Up to two lines of smaller type below the picture.
    size
        Height and width of the picture in pixels of the model's input.
    """

    title: QRectF
    chips: tuple[tuple[str, str, QRectF], ...]
    picture: QRectF
    bar: QRectF
    label: QRectF
    inset: QRectF | None
    caption: QRectF
    size: tuple[int, int]

    def point_at(self, position: QPointF) -> tuple[float, float] | None:
        """Return the point (y, x) of the model's input under a position, None outside the picture."""
        if not self.picture.contains(position):
            return None
        y = (position.y() - self.picture.top()) / self.picture.height() * self.size[0]
        x = (position.x() - self.picture.left()) / self.picture.width() * self.size[1]
        return y, x

    def chip_at(self, position: QPointF) -> str | None:
        """Return the prefix token whose box is under a position."""
        return next((name for name, _, box in self.chips if box.contains(position)), None)

    def in_inset(self, extent: Sides, sides: Sides) -> QRectF:
        """Return where a part of the whole picture is painted in the inset.

        Parameters
        ----------
        extent
            `Overlay.extent`, which fills the inset.
        sides
            (left, top, right, bottom) of the part, in the same pixels.
        """
        factor = self.inset.width() / (extent[2] - extent[0])
        return QRectF(
            self.inset.left() + (sides[0] - extent[0]) * factor,
            self.inset.top() + (sides[1] - extent[1]) * factor,
            (sides[2] - sides[0]) * factor,
            (sides[3] - sides[1]) * factor,
        )

    def cells(self, patches: TokenLayout, box: tuple[float, float, float, float]) -> QRectF:
        """Return where the patches (top, left, bottom, right), ends exclusive, are painted.

        Where patches overlap, those at the border reach beyond the picture.
        """
        left, top, right, bottom = sides(patches, box)
        down, across = self.picture.height() / self.size[0], self.picture.width() / self.size[1]
        return QRectF(
            self.picture.left() + left * across,
            self.picture.top() + top * down,
            (right - left) * across,
            (bottom - top) * down,
        )


def lay_out(
    size: QSizeF, ratio: float, overlay: Overlay, metrics: QFontMetricsF, corner: QSizeF = _NOTHING
) -> ImageLayout:
    """Divide the panel.

    Parameters
    ----------
    size
        Of the panel.
    ratio
        Device pixels per logical pixel.
    overlay
        What is to be painted; only its shapes and names matter.
    metrics
        Of the theme's ordinary type.
    corner
        Size of what stands in the upper left: the title is beside it, or below where room is short.
    """
    line, em = metrics.height(), metrics.averageCharWidth()
    margin = round(0.8 * em)
    width = max(size.width() - 2 * margin, 10.0)
    title_width = metrics.horizontalAdvance(_WORST_TITLE) * 1.08  # bold is wider
    # Where there is little room, the picture has it: the title's type shrinks, and the caption goes.
    low = size.height() < _LOW * line
    above, aside = (0.0, corner.width()) if corner.width() <= _WIDEST * width else (corner.height(), 0.0)
    broken = title_width * (_SMALL if low else 1) > width - aside
    lines = 1.0 if not broken else 2 * _SMALL + 0.1 if low else 2.0
    title_height = max(line * lines, corner.height() if aside else 0.0)
    title = QRectF(margin + aside, margin / 2 + above, width - aside, title_height)
    chips, chips_bottom = _chips(overlay, metrics, QRectF(margin, title.bottom(), width, line))
    beside = metrics.horizontalAdvance("≥ 0.05") + 2.2 * line + margin
    top = chips_bottom + margin / 2
    # As many lines as the longest caption needs, or the picture would change its size with a switch.
    # The caption's type is smaller, but its lines break before they are full.
    caption_lines = min(math.ceil(metrics.horizontalAdvance(_WORST_CAPTION) * 0.95 / width), 3)
    caption_height = 0 if low else 0.95 * line * caption_lines
    room = QRectF(margin, top, width - beside - margin, size.height() - top - caption_height - margin)
    picture = _fit(room, overlay.seen.shape, ratio)
    known = overlay.box is not None
    place = _inset(picture, beside, size.width(), overlay.extent, em) if known else None
    bar_bottom = picture.bottom() if place is None else place.top() - line
    bar = QRectF(picture.right() + margin, picture.top(), line * 0.9, bar_bottom - picture.top())
    label = QRectF(bar.left() + beside - line - margin, bar.top(), line, bar.height())
    caption = QRectF(margin, room.bottom() + margin / 2, width, caption_height)
    return ImageLayout(title, chips, picture, bar, label, place, caption, overlay.seen.shape[:2])


def _fit(room: QRectF, shape: tuple[int, ...], ratio: float) -> QRectF:
    """Return the largest box of the picture's proportions in the middle of a room, on whole device pixels."""
    factor = min(max(room.width(), 8) / shape[1], max(room.height(), 8) / shape[0])
    width, height = (max(int(side * factor * ratio), 1) / ratio for side in (shape[1], shape[0]))
    left = int((room.left() + max(room.width() - width, 0) / 2) * ratio) / ratio
    top = int((room.top() + max(room.height() - height, 0) / 2) * ratio) / ratio
    return QRectF(left, top, width, height)


def _inset(picture: QRectF, beside: float, panel: float, extent: Sides, em: float) -> QRectF | None:
    """Return a box in the lower right, beside the picture; None where it would leave the bar no room."""
    across, down = extent[2] - extent[0], extent[3] - extent[1]
    left = picture.right() + 0.8 * em
    room = min(panel - left - 0.8 * em, max(beside, 24 * em), picture.width() * 0.5)
    factor = min(room / across, picture.height() * 0.3 / down)
    width, height = across * factor, down * factor
    if picture.height() - height < 16 * em or min(width, height) < 3 * em:
        return None
    return QRectF(left, picture.bottom() - height, width, height)


def _chips(
    overlay: Overlay, metrics: QFontMetricsF, row: QRectF
) -> tuple[tuple[tuple[str, str, QRectF], ...], float]:
    """Put one box for each prefix token on as many rows as they need; returns them and where they end."""
    if not overlay.prefix:
        return (), row.bottom()
    em, gap = metrics.averageCharWidth(), metrics.averageCharWidth()
    height = row.height() * 1.25
    found, x, y = [], row.left(), row.top() + 2
    long = sum(metrics.horizontalAdvance(token_words(name)) + 14 * em for name, _ in overlay.prefix)
    for name, _ in overlay.prefix:
        text = token_words(name) if long <= row.width() else name
        width = metrics.horizontalAdvance(f"{text} < 0.0001") + 3.2 * em
        if x > row.left() and x + width > row.right():
            x, y = row.left(), y + height + 2
        found.append((name, text, QRectF(x, y, width, height)))
        x += width + gap
    return tuple(found), y + height
