"""The linked panels: picture over scatter, the heads beside them, the read-out below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QVBoxLayout, QWidget

from viewer.state.palette import palette
from viewer.ui.heads_panel import HeadsPanel
from viewer.ui.image_panel import ImagePanel
from viewer.ui.likeness_panel import LikenessPanel
from viewer.ui.map_bar import MapBar
from viewer.ui.readout_line import ReadoutLine
from viewer.ui.scatter_panel import ScatterPanel
from viewer.ui.splitter import Splitter
from viewer.ui.tabs import Panel, Tabs

if TYPE_CHECKING:
    from PySide6.QtGui import QResizeEvent

    from viewer.state.display import Display, DisplayValue
    from viewer.state.scene import SceneValue
    from viewer.state.selection import Selection

# Of the height, where there is plenty: for tabs, and for tabs in a lecture hall's type.
_LOWER_SHARES = (0.42, 0.5)
_LARGE = 12.0  # points; larger type is for a lecture hall
_HEADS_SHARES = (0.25, 0.55)  # of the width, at least and at most


class Views(QWidget):
    """Paints each moment of the scene, and divides the room by what there is to show."""

    def __init__(self, selection: Selection, display: Display, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.map_bar = MapBar(display)
        self.image = ImagePanel(selection, display, self.map_bar)
        self.heads = HeadsPanel(selection)
        self.scatter = ScatterPanel(selection, display)
        self.likeness = LikenessPanel(selection, display)
        self.tabs = Tabs()
        self.tabs.add(self.scatter, "Scatter", "A measure of every head against its layer")
        self.tabs.add(self.likeness, "Likeness", "How alike layers are, or the heads of one")
        self.readout = ReadoutLine()
        # A model has more layers than a row has heads, mostly: their maps get the whole height.
        self._column = Splitter("picture and scatter", Qt.Orientation.Vertical, self.image, self.tabs)
        self._row = Splitter("views and heads", Qt.Orientation.Horizontal, self._column, self.heads)
        self.splitters = (self._row, self._column)
        self._shape: object = None
        self._large = False
        self._value: SceneValue | None = None
        self._row.resized.connect(self._divide_row)
        self._column.resized.connect(self._divide_column)
        self.tabs.currentChanged.connect(self._paint_front)
        self.tabs.currentChanged.connect(self._divide_column)
        self.tabs.enlarge_asked.connect(self.enlarge)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self._row, 1)
        column.addWidget(self.readout)
        display.changed.connect(self._dress)
        self._dress(display.value)

    def paint(self, value: SceneValue) -> None:
        """Paint one moment."""
        self.image.paint(value.overlay)
        self.map_bar.paint(value)
        self.heads.paint(value.heads)
        self.readout.paint(value.readout, value.source)
        self._value = value
        self._paint_front()
        shape = None if value.heads is None else (value.heads.heads, value.heads.grid)
        if shape != self._shape:
            self._shape = shape
            self._divide_row()

    def _paint_front(self) -> None:
        """Paint the tab in front; others wait until they are looked at, or each hover would pay for them."""
        front = self.tabs.currentWidget()
        if self._value is not None and front is self.scatter:
            self.scatter.paint(self._value.scatter)
        elif self._value is not None and front is self.likeness:
            self.likeness.paint(self._value.likeness)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Let the read-out give way where there is little room."""
        super().resizeEvent(event)
        self.readout.fit_into(self.height())

    def enlarge(self) -> None:
        """Give the tabs the picture's room too, or give it back."""
        self._column.show_alone(None if self._column.has_alone else self.tabs)
        self._divide_column()

    def bring(self, panel: Panel) -> None:
        """Show the panel of a tab, below the picture."""
        if self._column.has_alone:
            self.enlarge()
        self.tabs.setCurrentWidget(panel)

    def _divide_row(self) -> None:
        """Give the heads the width that their maps fill."""
        width, height = self._row.width() - self._row.handleWidth(), self._row.height()
        low, high = (int(share * width) for share in _HEADS_SHARES)
        heads = min(max(self.heads.width_for(height), low), high)
        self._row.propose([width - heads, heads])

    def _divide_column(self) -> None:
        """Give the tab in front what it needs to be read."""
        height = self._column.height() - self._column.handleWidth()
        lower = max(self.tabs.least_height(), int(_LOWER_SHARES[self._large] * height))
        self._column.propose([height - lower, lower])

    def _dress(self, value: DisplayValue) -> None:
        colours = palette(value.theme)
        self._large = colours.points > _LARGE
        for panel in (self.image, self.heads, self.tabs, self.readout):
            panel.set_theme(colours)
        self.readout.fit_into(self.height())
        self._divide_row()
        self._divide_column()
