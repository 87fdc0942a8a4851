"""The picture as the model saw it, under the attention of the selected head."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QEvent, QPoint, QPointF, QRect, QRectF, QSize, QSizeF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen, QPixmap, QRegion
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from viewer.state.colormaps import rgba
from viewer.state.overlay import overlay_colours
from viewer.state.palette import palette as palette_of
from viewer.state.scale import ticks
from viewer.state.words import weight_words
from viewer.ui.image_layout import ImageLayout, lay_out
from viewer.ui.marks import bar_image, bar_numbers, font, frame, hatch_where, rgba_image, unbroken
from viewer.ui.pictures import picture, reduced

if TYPE_CHECKING:
    from collections.abc import Iterable

    from PySide6.QtGui import QHelpEvent, QMouseEvent, QPaintEvent, QResizeEvent

    from viewer.state.display import Display
    from viewer.state.overlay import Overlay
    from viewer.state.palette import Palette
    from viewer.state.selection import Query, Selection


class ImagePanel(QWidget):
    """Paints an `Overlay`; the mouse hovers and pins queries.

    Parameters
    ----------
    selection
        Told what the mouse points at and clicks on.
    display
        Read for the theme at the start.
    corner
        Controls that stand in the upper left.
    """

    def __init__(self, selection: Selection, display: Display, corner: QWidget | None = None) -> None:
        super().__init__()
        self._corner = corner
        if corner is not None:
            corner.setParent(self)
        self._selection = selection
        self._palette = palette_of(display.value.theme)
        self._overlay: Overlay | None = None
        self._layout: ImageLayout | None = None
        self._photo: QPixmap | None = None
        self._small: QPixmap | None = None
        self.setMouseTracking(True)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setAccessibleName("Picture with attention")

    def sizeHint(self) -> QSize:
        """Return a comfortable size."""
        return QSize(620, 620)

    def minimumSizeHint(self) -> QSize:
        """Return the least size at which patches can be pointed at."""
        return QSize(240, 240)

    def paint(self, overlay: Overlay | None) -> None:
        """Show a description, or that there is nothing to show."""
        before = self._overlay
        self._overlay = overlay
        if overlay is None or before is None or _shape(overlay) != _shape(before):
            self._layout = self._small = None
        if overlay is None or before is None or overlay.seen is not before.seen:
            self._photo = None
        if overlay is None or before is None or overlay.whole is not before.whole:
            self._small = None
        whole = QRegion(self.rect())
        # The controls are not painted anew for each hover.
        self.update(whole if self._corner is None else whole - QRegion(self._corner.geometry()))

    def set_theme(self, palette: Palette) -> None:
        """Take other colours and another type size."""
        self._palette = palette
        self._layout = self._photo = self._small = None
        self.update()

    # -- the mouse ---------------------------------------------------------------------------------------

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Look at the query under the mouse; within a patch of the shown layer it stays what it was."""
        self._selection.hover(self._query_at(event.position(), [self._selection.value.hovered]))

    def leaveEvent(self, event: QEvent) -> None:
        """Look at nothing."""
        self._selection.hover(None)
        super().leaveEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Pin what is clicked, with Ctrl beside the other pins; a pin becomes active, the active one goes."""
        value = self._selection.value
        query = self._query_at(event.position(), [*reversed(value.pins), value.hovered])
        if event.button() != Qt.MouseButton.LeftButton or query is None:
            super().mousePressEvent(event)
        elif value.pins[-1:] == (query,):
            self._selection.unpin()
        elif query in value.pins or event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            self._selection.add_pin(query)
        else:
            self._selection.pin(query)

    def event(self, event: QEvent) -> bool:
        """Say of a pin under a resting mouse what a click does; give controls the room they need."""
        if event.type() == QEvent.Type.LayoutRequest:
            self._place_corner()
        if event.type() != QEvent.Type.ToolTip:
            return super().event(event)
        help_event: QHelpEvent = event
        pins = self._selection.value.pins
        query = self._query_at(QPointF(help_event.pos()), reversed(pins))
        if query is None or query not in pins:
            QToolTip.hideText()
        else:
            words = "Active pin: a click lets it go" if query == pins[-1] else "A click makes this pin active"
            QToolTip.showText(help_event.globalPos(), words, self)
        return True

    def _query_at(self, position: QPointF, among: Iterable[Query | None]) -> Query | None:
        """Return the query under a position; one of `among`, if the position is on the same patch."""
        if self._overlay is None:
            return None
        layout = self._laid_out(self._overlay)
        point = layout.point_at(position)
        return layout.chip_at(position) if point is None else self._overlay.query_at(*point, among)

    # -- painting ----------------------------------------------------------------------------------------

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Divide the panel anew."""
        self._layout = self._photo = self._small = None
        super().resizeEvent(event)
        self._place_corner()

    def _place_corner(self) -> None:
        if self._corner is not None:
            size = self._corner.sizeHint().boundedTo(self.size())
            if size != self._corner.size():
                self._layout = self._photo = self._small = None
                self.update()
            self._corner.setGeometry(QRect(QPoint(0, 0), size))

    def _laid_out(self, overlay: Overlay) -> ImageLayout:
        if self._layout is None:
            metrics = QFontMetricsF(font(self._palette))
            size, ratio = QSizeF(self.size()), self.devicePixelRatioF()
            corner = QSizeF(0, 0) if self._corner is None else QSizeF(self._corner.size())
            self._layout = lay_out(size, ratio, overlay, metrics, corner)
        return self._layout

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the description."""
        painter = QPainter(self)
        painter.fillRect(self.rect(), QColor(self._palette.ground))
        painter.setFont(font(self._palette))
        overlay = self._overlay
        if overlay is None:
            painter.setPen(QColor(self._palette.faint))
            painter.drawText(
                QRectF(self.rect()), Qt.AlignmentFlag.AlignCenter, "Nothing to show of this picture yet"
            )
            return
        layout = self._laid_out(overlay)
        self._paint_title(painter, overlay, layout)
        self._paint_chips(painter, overlay, layout)
        self._paint_picture(painter, overlay, layout)
        self._paint_marks(painter, overlay, layout)
        if overlay.values is not None:
            self._paint_bar(painter, overlay, layout)
        if layout.inset is not None:
            self._paint_inset(painter, overlay, layout)
        self._paint_caption(painter, overlay, layout)

    def _paint_title(self, painter: QPainter, overlay: Overlay, layout: ImageLayout) -> None:
        # Why there is no map stands on the picture, and there is more room there.
        words = unbroken(overlay.title.removesuffix(f", {overlay.blank}"))
        way = Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextWordWrap
        for scale in (1.0, 0.9, 0.8):
            fits = font(self._palette, scale, bold=True)
            needed = QFontMetricsF(fits).boundingRect(layout.title, way, words)
            if needed.height() <= layout.title.height() + 1:
                break
        painter.setFont(fits)
        painter.setPen(QColor(self._palette.text))
        painter.drawText(layout.title, way, words)
        painter.setFont(font(self._palette))

    def _paint_chips(self, painter: QPainter, overlay: Overlay, layout: ImageLayout) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        weights = dict(overlay.prefix)
        for name, text, box in layout.chips:
            marked = name == overlay.query or name in overlay.pins
            pen = QPen(QColor(self._palette.accent if marked else self._palette.faint), 2 if marked else 1)
            painter.setPen(pen)
            painter.setBrush(QColor(self._palette.panel))
            painter.drawRoundedRect(box.adjusted(1, 1, -1, -1), box.height() / 4, box.height() / 4)
            side = box.height() * 0.45
            swatch = QRectF(box.left() + side * 0.7, box.center().y() - side / 2, side, side)
            weight, number = weights[name], ""
            if math.isfinite(weight):
                colour = rgba(np.float32([weight]), overlay.vmax, overlay.colormap)[0]
                painter.setPen(QPen(QColor(self._palette.faint), 1))
                painter.setBrush(QColor(*colour[:3].tolist()))
                painter.drawRect(swatch)
                number = f" {weight_words(weight)}"
            painter.setPen(QColor(self._palette.text))
            words = box.adjusted(side * 2.2, 0, 0, 0)
            painter.drawText(words, Qt.AlignmentFlag.AlignVCenter, text + number)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)

    def _paint_picture(self, painter: QPainter, overlay: Overlay, layout: ImageLayout) -> None:
        ratio = self.devicePixelRatioF()
        if self._photo is None:
            size = (layout.picture.size() * ratio).toSize()
            self._photo = QPixmap.fromImage(picture(overlay.seen)).scaled(
                size,
                Qt.AspectRatioMode.IgnoreAspectRatio,
                Qt.TransformationMode.SmoothTransformation,
            )
            self._photo.setDevicePixelRatio(ratio)
        painter.drawPixmap(layout.picture.topLeft(), self._photo)
        if overlay.blank:
            self._paint_blank(painter, overlay.blank, layout)
        if overlay.values is None:
            return
        # Border patches may reach beyond the picture.
        painter.setClipRect(layout.picture)
        # Nearest neighbour: one even patch of colour for one weight.
        maps = layout.cells(overlay.answers, (0, 0, *overlay.values.shape))
        painter.drawImage(maps, rgba_image(overlay_colours(overlay, overlay.values)))
        if overlay.unreachable is not None:
            hatch_where(painter, overlay.unreachable, maps, layout.picture, self._palette)
        painter.setClipping(False)

    def _paint_blank(self, painter: QPainter, why: str, layout: ImageLayout) -> None:
        """Say on the picture why there is no map on it."""
        metrics, way = QFontMetricsF(painter.font()), Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
        words, line = f"No map: {why}", metrics.height()
        room = layout.picture.adjusted(2 * line, 2 * line, -2 * line, -2 * line)
        box = metrics.boundingRect(room, way, words).adjusted(-line, -0.5 * line, line, 0.5 * line)
        painter.fillRect(box, QColor(self._palette.panel))
        painter.setPen(QPen(QColor(self._palette.faint), 0))
        painter.drawRect(box)
        painter.setPen(QColor(self._palette.text))
        painter.drawText(box.adjusted(line / 2, 0, -line / 2, 0), way, words)

    def _paint_marks(self, painter: QPainter, overlay: Overlay, layout: ImageLayout) -> None:
        asked, (rows, columns) = overlay.asked, overlay.grid
        if overlay.show_grid and asked.placed:
            painter.setClipRect(layout.picture)
            painter.setPen(QPen(QColor(255, 255, 255, 110), 0))
            for row in range(rows + 1):
                cell = layout.cells(asked, (row, 0, row, columns))
                painter.drawLine(cell.topLeft(), cell.topRight())
            for column in range(columns + 1):
                cell = layout.cells(asked, (0, column, rows, column))
                painter.drawLine(cell.topLeft(), cell.bottomLeft())
            painter.setClipping(False)
        if overlay.blank:
            return  # there is nothing to read off within a frame, and it would cross the words
        for row, column in overlay.marked:
            box = layout.cells(overlay.answers, (row, column, row + 1, column + 1)) & layout.picture
            frame(painter, box, "#000000", 1.0)
        if overlay.ring is not None:
            ring = layout.cells(asked, overlay.ring) & layout.picture
            frame(painter, ring, self._palette.convolution, 2.0, Qt.PenStyle.DashLine)
        thin, thick = (1.0, Qt.PenStyle.DashLine), (2.0, Qt.PenStyle.SolidLine)
        marks = [(pin, thin) for pin in overlay.pins if pin != overlay.query]
        for query, (width, style) in [*marks, (overlay.query, thick)]:
            patch = overlay.patch(query)
            if patch is not None:
                row, column = patch
                box = layout.cells(asked, (row, column, row + 1, column + 1)) & layout.picture
                frame(painter, box, self._palette.accent, width, style)

    def _paint_bar(self, painter: QPainter, overlay: Overlay, layout: ImageLayout) -> None:
        bar, line = layout.bar, layout.label.width()
        painter.drawImage(bar, bar_image(overlay.colormap, upright=True))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(QColor(self._palette.faint), 0))
        painter.drawRect(bar)
        most = bar_numbers(self._palette)
        painter.setPen(QColor(self._palette.text))
        metrics, widest = QFontMetricsF(painter.font()), 0.0
        for share, text in ticks(overlay.vmax, overlay.highest, most):
            y = min(max(bar.bottom() - share * bar.height(), bar.top() + line / 2), bar.bottom() - line / 2)
            numbers = QRectF(bar.right() + line * 0.25, y - line / 2, bar.width() * 10, line)
            painter.drawText(numbers, Qt.AlignmentFlag.AlignVCenter, text)
            widest = max(widest, numbers.left() + metrics.horizontalAdvance(text))
        label = QRectF(layout.label)
        label.moveLeft(max(label.left(), widest + line * 0.2))
        words = f"{overlay.label}, {overlay.scale_label}"
        if metrics.horizontalAdvance(words) > label.height():
            words = overlay.label
        if metrics.horizontalAdvance(words) > label.height():
            # The title says on what.
            words = words.split(" on ")[0]
        self._paint_upright(painter, label, words)

    def _paint_upright(self, painter: QPainter, box: QRectF, text: str) -> None:
        """Write from the bottom of a box to its top, cut with an ellipsis where it is too long."""
        painter.save()
        painter.translate(box.left(), box.bottom())
        painter.rotate(-90)
        words = QFontMetricsF(painter.font()).elidedText(text, Qt.TextElideMode.ElideRight, box.height())
        painter.drawText(QRectF(0, 0, box.height(), box.width()), Qt.AlignmentFlag.AlignCenter, words)
        painter.restore()

    def _paint_inset(self, painter: QPainter, overlay: Overlay, layout: ImageLayout) -> None:
        height, width = overlay.whole.shape[:2]
        place = layout.in_inset(overlay.extent, (0, 0, width, height))
        if self._small is None:
            size = place.size().toSize().expandedTo(QSize(1, 1))
            self._small = reduced(overlay.whole, size, self.devicePixelRatioF())
        # What is not the picture's own is padding.
        painter.fillRect(layout.inset, QColor(self._palette.empty))
        painter.drawPixmap(place, self._small, QRectF(self._small.rect()))
        frame(painter, layout.in_inset(overlay.extent, overlay.box), self._palette.accent, 2.0)

    def _paint_caption(self, painter: QPainter, overlay: Overlay, layout: ImageLayout) -> None:
        words, way = unbroken(overlay.caption), Qt.AlignmentFlag.AlignTop | Qt.TextFlag.TextWordWrap
        for scale in (0.9, 0.8):
            fits = font(self._palette, scale)
            needed = QFontMetricsF(fits).boundingRect(layout.caption, way, words)
            if needed.height() <= layout.caption.height() + 1:
                break
        painter.setFont(fits)
        painter.setPen(QColor(self._palette.faint))
        # What does not fit ends with a whole line.
        line, room = QFontMetricsF(fits).lineSpacing(), QRectF(layout.caption)
        room.setHeight(int((room.height() + 1) / line) * line)
        painter.drawText(room, way, words)


def _shape(overlay: Overlay) -> tuple[object, ...]:
    """Return all of a description that decides where things are put."""
    names = tuple(name for name, _ in overlay.prefix)
    return overlay.seen.shape, overlay.whole.shape, overlay.box, names
