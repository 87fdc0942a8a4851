"""The linked panels, side by side: picture, heads, scatter, read-out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QSplitter, QVBoxLayout, QWidget

from viewer.state.palette import palette
from viewer.ui.heads_panel import HeadsPanel
from viewer.ui.image_panel import ImagePanel
from viewer.ui.readout_line import ReadoutLine
from viewer.ui.scatter_panel import ScatterPanel

if TYPE_CHECKING:
    from viewer.state.display import Display, DisplayValue
    from viewer.state.scene import SceneValue
    from viewer.state.selection import Selection


class Views(QWidget):
    """Paints each moment of the scene."""

    def __init__(self, selection: Selection, display: Display, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.image = ImagePanel(selection, display)
        self.heads = HeadsPanel(selection)
        self.scatter = ScatterPanel(selection, display)
        self.readout = ReadoutLine()
        above = _splitter("picture and heads", Qt.Orientation.Horizontal, [self.image, self.heads], [5, 4])
        below = _splitter("views and scatter", Qt.Orientation.Vertical, [above, self.scatter], [5, 2])
        self.splitters = (above, below)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(below, 1)
        column.addWidget(self.readout)
        display.changed.connect(self._dress)
        self._dress(display.value)

    def paint(self, value: SceneValue) -> None:
        """Paint one moment."""
        self.image.paint(value.overlay)
        self.heads.paint(value.heads)
        self.scatter.paint(value.scatter)
        self.readout.paint(value.readout)

    def _dress(self, value: DisplayValue) -> None:
        colours = palette(value.theme)
        for panel in (self.image, self.heads, self.scatter, self.readout):
            panel.set_theme(colours)


def _splitter(name: str, orientation: Qt.Orientation, parts: list[QWidget], stretch: list[int]) -> QSplitter:
    splitter = QSplitter(orientation)
    splitter.setObjectName(name)
    splitter.setChildrenCollapsible(False)
    for part, factor in zip(parts, stretch, strict=True):
        splitter.addWidget(part)
        splitter.setStretchFactor(splitter.count() - 1, factor)
    # Without sizes a splitter gives each part what it would like, and the scatter would be a strip.
    splitter.setSizes([1000 * factor for factor in stretch])
    return splitter
