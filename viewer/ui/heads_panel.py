"""All layers and heads at once: one small map each, for the query that is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, QSizeF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPen, QPixmap
from PySide6.QtWidgets import QFrame, QScrollArea, QSizePolicy, QToolTip, QVBoxLayout, QWidget

from viewer.state.palette import palette as palette_of
from viewer.state.selection import HeadRef
from viewer.ui.atlas import GAP, AtlasLayout, atlas
from viewer.ui.heads_legend import HeadsLegend
from viewer.ui.marks import font, hatch, unbroken

if TYPE_CHECKING:
    from PySide6.QtGui import QHelpEvent, QImage, QMouseEvent, QPaintEvent, QResizeEvent

    from viewer.state.heads import Heads
    from viewer.state.palette import Palette
    from viewer.state.selection import Selection

_LEAST_CELL = 10.0  # pixels; below that maps say nothing, and scrolling is better
_WORST_TITLE = "Every head: which patches attend to patch (row 10, column 10)"
_TITLE_LETTERS = 22  # room for the title on three lines


class HeadsPanel(QWidget):
    """Paints a `Heads`: title, the maps (scrolled where they do not fit), and their colour bar.

    Parameters
    ----------
    selection
        Told which head the mouse points at and clicks on.
    """

    def __init__(self, selection: Selection, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._title = _Title()
        self.canvas = AtlasCanvas(selection)
        self._legend = HeadsLegend()
        self._scroll = QScrollArea()
        self._scroll.setFrameShape(QFrame.Shape.NoFrame)
        self._scroll.setWidgetResizable(True)
        self._scroll.setWidget(self.canvas)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        for part, stretch in ((self._title, 0), (self._scroll, 1), (self._legend, 0)):
            column.addWidget(part, stretch)
        self.setAccessibleName("Attention of every head")
        self.set_theme(palette_of("light"))

    def sizeHint(self) -> QSize:
        """Return a comfortable size."""
        return QSize(460, 720)

    def paint(self, heads: Heads | None) -> None:
        """Show a description, or nothing."""
        before = self.canvas.shown
        self._title.tell("" if heads is None else heads.title)
        self.canvas.tell(heads)
        self._legend.tell(heads)
        # What the mouse points at must not move away from under it.
        if self.canvas.shown not in (before, self.canvas.pointed):
            self._reveal()

    def width_for(self, height: int) -> int:
        """Return the width at which the maps fill a height."""
        others = self._title.height() + self._legend.height()
        return self.canvas.width_for(height - others)

    def _reveal(self) -> None:
        """Scroll to what is shown, where not all can be seen."""
        layout, shown = self.canvas.layout_of_cells(), self.canvas.shown
        if layout is None or shown is None:
            return
        box, (down, across) = layout.box(shown), layout.pitch
        centre = box.center().toPoint() if shown.head is not None else box.topLeft().toPoint()
        self._scroll.ensureVisible(centre.x(), centre.y(), int(across), int(down))

    def set_theme(self, palette: Palette) -> None:
        """Take other colours and another type size."""
        self.setStyleSheet(f"HeadsPanel, QScrollArea {{ background: {palette.ground}; }}")
        for part in (self._title, self.canvas, self._legend):
            part.set_theme(palette)


class AtlasCanvas(QWidget):
    """The maps with their layer and head numbers.

    Attributes
    ----------
    pointed
        The head under the mouse.
    """

    def __init__(self, selection: Selection) -> None:
        super().__init__()
        self._selection = selection
        self._palette = palette_of("light")
        self._heads: Heads | None = None
        self.pointed: HeadRef | None = None
        self._image: QImage | None = None
        self._layout: AtlasLayout | None = None
        self._bare: QPixmap | None = None
        self._ground: tuple[HeadRef, QPixmap] | None = None
        self.setMouseTracking(True)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def tell(self, heads: Heads | None) -> None:
        """Take another description."""
        before = self._heads
        self._heads = heads
        if heads is None or before is None or _cells(heads) != _cells(before):
            self._forget_layout()
        elif _colours(heads) != _colours(before):
            self._image = None
        self.update()

    def set_theme(self, palette: Palette) -> None:
        """Take other colours and another type size."""
        self._palette = palette
        self._forget_layout()
        self.update()

    def layout_of_cells(self) -> AtlasLayout | None:
        """Return where the cells are; None while there are none."""
        if self._layout is None and self._heads is not None:
            scroll = self.parentWidget()
            room = QSizeF(self.size() if scroll is None else scroll.size())
            self._layout = AtlasLayout.of(
                room, self.devicePixelRatioF(), self._heads, self._margin(), _LEAST_CELL
            )
            # Beyond what can be seen, the scroll area gives the canvas the room it asks for.
            needed = self._layout.maps.bottomRight()
            self.setMinimumSize(int(needed.x()), int(needed.y()))
        return self._layout

    @property
    def shown(self) -> HeadRef | None:
        """The head that is outlined."""
        return None if self._heads is None else self._heads.shown

    def width_for(self, height: float) -> int:
        """Return the width that the maps need if they are as large as the height allows."""
        if self._heads is None:
            return 0
        (above, before), (rows, columns) = self._margin(), self._heads.grid
        layers, most = self._heads.vmax.shape
        cell = max((height - above) / layers - GAP, _LEAST_CELL)
        words = QFontMetricsF(font(self._palette, bold=True)).averageCharWidth() * _TITLE_LETTERS
        return int(max(before + most * (cell * columns / rows + GAP) + GAP, words))

    def _margin(self) -> tuple[float, float]:
        """Return the pixels above and to the left of the first cell."""
        metrics = QFontMetricsF(font(self._palette))
        return 2.2 * metrics.height(), metrics.horizontalAdvance("00") + 1.6 * metrics.height()

    def _forget_layout(self) -> None:
        self._layout = self._image = self._bare = self._ground = None

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Find the size of the cells anew."""
        self._forget_layout()
        super().resizeEvent(event)

    # -- the mouse ---------------------------------------------------------------------------------------

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Look at the head under the mouse."""
        self.pointed = self._head_at(event.position())
        self._selection.hover_head(self.pointed)

    def leaveEvent(self, event: QEvent) -> None:
        """Look at the selected head again."""
        self.pointed = None
        self._selection.hover_head(None)
        super().leaveEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Select the head under the mouse; on a layer's number the whole layer."""
        head = self._head_at(event.position())
        if event.button() == Qt.MouseButton.LeftButton and head is not None:
            self._selection.select_head(head)
        else:
            super().mousePressEvent(event)

    def _head_at(self, position: QPointF) -> HeadRef | None:
        layout = self.layout_of_cells()
        return None if layout is None else layout.head_at(position)

    def event(self, event: QEvent) -> bool:
        """Name the head under a resting mouse, with the module it belongs to."""
        if event.type() != QEvent.Type.ToolTip:
            return super().event(event)
        help_event: QHelpEvent = event
        head = self._head_at(QPointF(help_event.pos()))
        if head is None or self._heads is None:
            QToolTip.hideText()
        else:
            which = "all heads" if head.head is None else f"head {head.head}"
            words = f"layer {head.layer}, {which} ({self._heads.layer_names[head.layer]})"
            grids, why = self._heads.layer_grids[head.layer], self._heads.blank[head.layer]
            words += f"\n{grids}" if grids else ""
            words += f"\nno map: {why}" if why else ""
            QToolTip.showText(help_event.globalPos(), words, self)
        return True

    # -- painting ----------------------------------------------------------------------------------------

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the maps, their numbers and what is shown of them."""
        painter = QPainter(self)
        layout = self.layout_of_cells()
        if layout is None or self._heads is None:
            painter.fillRect(event.rect(), QColor(self._palette.ground))
            return
        if self._image is None:
            self._image = atlas(self._heads, layout, self._palette.empty)
        painter.drawPixmap(0, 0, self._numbered(layout, self._heads.shown))
        painter.drawImage(layout.maps, self._image)
        shown = layout.box(self._heads.shown)
        painter.setPen(QPen(QColor(self._palette.accent), 2.0))
        painter.drawRect(shown.adjusted(-1, -1, 1, 1))

    def _numbered(self, layout: AtlasLayout, shown: HeadRef) -> QPixmap:
        """Return a ground with the numbers on it, the shown head's marked; kept while the mouse moves."""
        if self._ground is None or self._ground[0] != shown:
            if self._bare is None:
                self._bare = self._bare_ground(layout)
            pixmap = self._bare.copy()
            painter = QPainter(pixmap)
            self._paint_numbers(painter, layout, shown)
            painter.end()
            self._ground = (shown, pixmap)
        return self._ground[1]

    def _bare_ground(self, layout: AtlasLayout) -> QPixmap:
        """Return what lies under maps and numbers."""
        ratio = self.devicePixelRatioF()
        pixmap = QPixmap((QSizeF(self.size()) * ratio).toSize())
        pixmap.setDevicePixelRatio(ratio)
        pixmap.fill(QColor(self._palette.ground))
        painter = QPainter(pixmap)
        for layer in range(len(layout.heads)):
            row = layout.box(HeadRef(layer, None))
            painter.fillRect(row.adjusted(-GAP, -GAP, GAP, GAP), QColor(self._palette.mat))
        if self._heads is not None and self._heads.hatched:
            # The maps are clear where a patch is out of reach.
            cells = [layout.box(head) for head in layout.every_head()]
            hatch(painter, cells, self._palette, widest=max(cells[0].width() / 6, 4.0))
        painter.end()
        return pixmap

    def _paint_numbers(self, painter: QPainter, layout: AtlasLayout, shown: HeadRef) -> None:
        painter.setFont(font(self._palette))
        metrics = QFontMetricsF(painter.font())
        line, (height, width) = metrics.height(), layout.pitch
        cell_height, cell_width = (side * layout.factor for side in layout.cell)
        for layer in _numbers(len(layout.heads), _every(height, 0.9 * line), shown.layer):
            self._ink(painter, layer == shown.layer)
            middle = layout.top + layer * height + cell_height / 2
            box = QRectF(0, middle - line / 2, layout.left - 0.4 * line, line)
            painter.drawText(box, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, str(layer))
        for head in _numbers(max(layout.heads), _every(width, metrics.horizontalAdvance("000")), shown.head):
            self._ink(painter, head == shown.head)
            box = QRectF(layout.left + head * width, layout.top - 1.1 * line, cell_width, line)
            painter.drawText(box.adjusted(-line, 0, line, 0), Qt.AlignmentFlag.AlignCenter, str(head))
        painter.setFont(font(self._palette))
        painter.setPen(QColor(self._palette.faint))
        across = QRectF(layout.left, 0, min(layout.maps.width(), self.width() - layout.left), line)
        painter.drawText(across, Qt.AlignmentFlag.AlignCenter, "head")
        painter.save()
        painter.translate(layout.left - self._margin()[1], layout.top + layout.maps.height())
        painter.rotate(-90)
        painter.drawText(QRectF(0, 0, layout.maps.height(), line), Qt.AlignmentFlag.AlignCenter, "layer")
        painter.restore()

    def _ink(self, painter: QPainter, shown: bool) -> None:
        painter.setFont(font(self._palette, bold=shown))
        painter.setPen(QColor(self._palette.accent if shown else self._palette.text))


class _Title(QWidget):
    """What the maps answer, on a few lines; its height does not depend on the query."""

    def __init__(self) -> None:
        super().__init__()
        self._palette = palette_of("light")
        self._text = ""
        self._font = font(self._palette, bold=True)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)

    def tell(self, text: str) -> None:
        text = unbroken(text)
        if text != self._text:
            self._text = text
            self.update()

    def set_theme(self, palette: Palette) -> None:
        self._palette = palette
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._fit()
        super().resizeEvent(event)

    def _fit(self) -> None:
        """Take as many lines as the longest title needs, in smaller type if they would be many."""
        room = QRectF(0, 0, max(self.width() - 8, 50), 10_000)
        for scale in (1.0, 0.9, 0.8):
            self._font = font(self._palette, scale, bold=True)
            metrics = QFontMetricsF(self._font)
            needed = metrics.boundingRect(room, Qt.TextFlag.TextWordWrap, _WORST_TITLE).height()
            if needed <= 3.1 * metrics.height():
                break
        self.setFixedHeight(int(needed + 0.5 * metrics.height()))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), QColor(self._palette.ground))
        painter.setFont(self._font)
        painter.setPen(QColor(self._palette.text))
        box = QRectF(self.rect()).adjusted(4, 0, -4, 0)
        painter.drawText(box, Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextWordWrap, self._text)


def _colours(heads: Heads) -> tuple[object, ...]:
    """Return all of a description that decides the colours; arrays count as one while they are the same."""
    return id(heads.maps), id(heads.vmax), heads.colormap


def _cells(heads: Heads) -> tuple[object, ...]:
    """Return all of a description that decides where cells are, and what lies under them."""
    return heads.grid, heads.heads, heads.hatched


def _numbers(count: int, step: int, shown: int | None) -> list[int]:
    """Return each `step`-th number; the shown one always, in place of those that would touch it."""
    regular = range(0, count, step)
    if shown is None or not 0 <= shown < count:
        return list(regular)
    return sorted({shown, *(number for number in regular if abs(number - shown) >= step)})


def _every(pitch: float, needed: float) -> int:
    """Return 1, 2, 5, ...: each how many-th number fits beside the next."""
    return next((step for step in (1, 2, 5, 10) if step * pitch >= needed), 20)
