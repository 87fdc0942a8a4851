"""The nine keys of the worked example: scores, exponentials and shares, and their brightness to change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QRectF, QSignalBlocker, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetrics, QKeyEvent, QPainter, QPen
from PySide6.QtWidgets import QAbstractButton, QGridLayout, QLabel, QSizePolicy, QSlider, QWidget

from viewer.state.lesson_table import HEADINGS
from viewer.ui.marks import font
from viewer.ui.toolbar import KeepsArrows

if TYPE_CHECKING:
    from PySide6.QtGui import QPaintEvent

    from viewer.state.lesson_table import Row, Table
    from viewer.state.palette import Palette

_STEPS = 100  # of a slider
_SWATCH = 1.35  # of the height of capitals and digits with their accents
_LARGE = 12.0  # points


class Swatch(QAbstractButton):
    """A patch in its brightness; a click makes it dark, or bright if it is dark.

    Parameters
    ----------
    number
        Of the patch.
    palette
        Colours and type size.
    """

    def __init__(self, number: int, palette: Palette) -> None:
        super().__init__()
        self._number, self._palette = number, palette
        self._brightness, self._asks = 0.0, False
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)

    @property
    def brightness(self) -> float:
        """Of the patch, 0 to 1."""
        return self._brightness

    def tell(self, brightness: float, asks: bool) -> None:
        """Show a brightness, and whether the patch is the query."""
        self._brightness, self._asks = brightness, asks
        self.setAccessibleName(f"Patch {self._number}, brightness {brightness:.2f}")
        self.update()

    def allow(self, change: bool) -> None:
        """Let it be clicked, or not."""
        self.setEnabled(change)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus if change else Qt.FocusPolicy.NoFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor if change else Qt.CursorShape.ArrowCursor)
        self.setToolTip("A click makes it dark, or bright if it is dark" if change else "")

    def sizeHint(self) -> QSize:
        """Return a square as high as a line of type and a little more."""
        side = round(_SWATCH * QFontMetrics(font(self._palette, _size(self._palette))).ascent())
        return QSize(side, side)

    def event(self, event: QEvent) -> bool:
        """Keep the space bar, which pins the query elsewhere."""
        if (
            event.type() == QEvent.Type.ShortcutOverride
            and isinstance(event, QKeyEvent)
            and event.key() == Qt.Key.Key_Space
        ):
            event.accept()
            return True
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the patch, framed as the query is on the picture."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        level = round(255 * self._brightness)
        width = 2.5 if self._asks else 1.0
        painter.setPen(QPen(QColor(self._palette.accent if self._asks else self._palette.faint), width))
        painter.setBrush(QColor(level, level, level))
        painter.drawRect(QRectF(self.rect()).adjusted(width, width, -width, -width))
        if self.hasFocus():
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(QColor(self._palette.query), 1.5, Qt.PenStyle.DotLine))
            painter.drawRect(QRectF(self.rect()).adjusted(1, 1, -1, -1))


class LessonTable(QWidget):
    """Paints a `Table`.

    Signals
    -------
    brightened
        A patch's number and its new brightness, 0 to 1.
    """

    brightened = Signal(int, float)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.swatches: list[Swatch] = []
        self.sliders: list[QSlider] = []
        self._texts: list[list[QLabel]] = []
        self._sums: list[QLabel] = []
        self._columns: tuple[str, ...] = ()
        self._palette: Palette | None = None
        self._keeps = KeepsArrows(self)
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setVerticalSpacing(1)
        self._grid.setHorizontalSpacing(8)

    def paint(self, table: Table | None) -> None:
        """Show a list, or nothing."""
        self.setVisible(table is not None)
        if table is None:
            return
        if table.columns != self._columns:
            self._build(table)
        for place, row in enumerate(table.rows):
            self._tell(place, row)
        for label, text in zip(self._sums, table.sums, strict=True):
            label.setText(text)

    def set_theme(self, palette: Palette) -> None:
        """Take other colours and another type size."""
        self._palette = palette
        self._columns = ()  # built anew with the next list

    def text(self, number: int) -> tuple[str, ...]:
        """Return what stands in the row of a patch."""
        return tuple(label.text() for label in self._texts[number])

    def _tell(self, place: int, row: Row) -> None:
        self.swatches[place].tell(row.brightness, row.asks)
        colours = self._palette
        for label, text in zip(self._texts[place], (row.name, *row.texts), strict=True):
            label.setText(text)
            label.setFont(font(colours, _size(colours), bold=row.asks))
            ink = colours.accent if row.asks else colours.text if row.reached else colours.faint
            if label.property("ink") != ink:  # a style sheet takes longer to be read than all else here
                label.setProperty("ink", ink)
                label.setStyleSheet(f"color: {ink};")
        if self.sliders:
            slider = self.sliders[place]
            with QSignalBlocker(slider):
                slider.setValue(round(_STEPS * row.brightness))

    def _build(self, table: Table) -> None:
        """Make the fields of these columns."""
        for widget in self.findChildren(QWidget, options=Qt.FindChildOption.FindDirectChildrenOnly):
            self._grid.removeWidget(widget)
            widget.hide()
            widget.deleteLater()
        self._columns = table.columns
        self.swatches, self.sliders, self._texts, self._sums = [], [], [], []
        change = "brightness" in table.columns
        for column, words in enumerate(("patch", *(HEADINGS[name] for name in table.columns))):
            self._put(_label(words, "faint"), 0, column + 1 if column else 0, span=1 if column else 2)
        for row in table.rows:
            self._build_row(row, table, change)
        below = len(table.rows) + 1
        self._put(_label("sum" if any(table.sums) else "", "faint"), below, 0, span=2)
        for column in range(len(table.columns)):
            self._sums.append(self._put(_label(""), below, column + 2))
            self._sums[-1].setFont(font(self._palette, _size(self._palette)))
        for column in range(2, 2 + len(table.columns)):
            self._grid.setColumnStretch(column, 1)

    def _build_row(self, row: Row, table: Table, change: bool) -> None:
        line = row.number + 1
        swatch = Swatch(row.number, self._palette)
        swatch.allow(change)
        swatch.clicked.connect(lambda: self._toggle(row.number))
        self.swatches.append(self._put(swatch, line, 0))
        texts = [self._put(_label(""), line, 1)]
        for column, name in enumerate(table.columns):
            label = _label("")
            if name == "brightness":
                self._put(self._slider(row.number), line, column + 2)
                label.setParent(self)
                label.hide()
            else:
                self._put(label, line, column + 2)
            texts.append(label)
        self._texts.append(texts)

    def _slider(self, number: int) -> QSlider:
        slider = QSlider(Qt.Orientation.Horizontal)
        slider.setRange(0, _STEPS)
        slider.setMinimumWidth(50)
        slider.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        slider.setAccessibleName(f"Brightness of patch {number}")
        slider.setToolTip(f"Brightness of patch {number}, from 0 (dark) to 1 (bright)")
        slider.installEventFilter(self._keeps)
        slider.valueChanged.connect(lambda value: self.brightened.emit(number, value / _STEPS))
        self.sliders.append(slider)
        return slider

    def _toggle(self, number: int) -> None:
        self.brightened.emit(number, 0.0 if self.swatches[number].brightness > 0.5 else 1.0)

    def _put(self, widget: QWidget, row: int, column: int, span: int = 1) -> QWidget:
        self._grid.addWidget(widget, row, column, 1, span)
        return widget


def _size(palette: Palette) -> float:
    """Return the size of type as a share of ordinary type: in large type the columns need the room."""
    return 0.85 if palette.points > _LARGE else 1.0


def _label(words: str, kind: str = "") -> QLabel:
    label = QLabel(words)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
    if kind:
        label.setProperty("kind", kind)
    return label
