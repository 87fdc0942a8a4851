"""How much alike the maps of layers are, or of the heads of one layer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QSignalBlocker, QSize
from PySide6.QtGui import QFontMetricsF
from PySide6.QtWidgets import QVBoxLayout, QWidget

from viewer.state.palette import palette as palette_of
from viewer.ui.choice_row import ChoiceRow
from viewer.ui.likeness_canvas import LikenessCanvas
from viewer.ui.marks import font
from viewer.ui.short_box import ShortBox

if TYPE_CHECKING:
    from viewer.state.display import Display, DisplayValue
    from viewer.state.likeness import Likeness
    from viewer.state.palette import Palette
    from viewer.state.selection import Selection

# Field of `DisplayValue`, what is chosen, and each value with its words and shorter ones.
_CHOICES = (
    (
        "likeness_of",
        "What is compared",
        (("layers", ("Layers",)), ("heads", ("Heads of the shown layer", "Heads of a layer", "Heads"))),
    ),
    (
        "likeness_heads",
        "Maps",
        (("fused", ("mean of heads", "mean")), ("shown", ("the shown head", "one head"))),
    ),
    (
        "likeness",
        "Cosine",
        (("plain", ("plain cosine", "plain")), ("centred", ("column means removed", "centred"))),
    ),
)
_LEAST_SQUARE = 100  # pixels


class LikenessPanel(QWidget):
    """Paints a `Likeness`; its header chooses what is compared, and how.

    Parameters
    ----------
    selection
        Told which layer or head is clicked on.
    display
        Told the choices.

    Attributes
    ----------
    header
        The controls, above the square or wherever they are put.
    """

    def __init__(self, selection: Selection, display: Display, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._selection, self._display = selection, display
        self._likeness: Likeness | None = None
        self.canvas = LikenessCanvas()
        self.boxes = {field: ShortBox(name, options) for field, name, options in _CHOICES}
        self.header = ChoiceRow(*self.boxes.values())
        for box in self.boxes.values():
            box.activated.connect(self._choose)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.header)
        column.addWidget(self.canvas, 1)
        self.canvas.chosen.connect(self._select)
        display.changed.connect(self._follow)
        self._follow(display.value)
        self.set_theme(palette_of(display.value.theme))

    def least_height(self) -> int:
        """Return the height at which the square can be read."""
        line = QFontMetricsF(font(palette_of(self._display.value.theme))).height()
        return int(_LEAST_SQUARE + 2.9 * line)

    def minimumSizeHint(self) -> QSize:
        """Return the least size at which the square can be read; what does not fit of the header is cut."""
        above = self.header.sizeHint().height() if self.header.parentWidget() is self else 0
        return QSize(200, above + self.least_height())

    def paint(self, likeness: Likeness | None) -> None:
        """Show a description, or nothing."""
        self._likeness = likeness
        self.canvas.tell(likeness)

    def set_theme(self, palette: Palette) -> None:
        """Take other colours and another type size."""
        self.canvas.set_theme(palette)
        self.updateGeometry()

    def _choose(self) -> None:
        chosen = {field: box.currentData() for field, box in self.boxes.items()}
        self._display.set(replace(self._display.value, **chosen))

    def _follow(self, value: DisplayValue) -> None:
        for field, box in self.boxes.items():
            with QSignalBlocker(box):
                box.setCurrentIndex(box.findData(getattr(value, field)))
        # Two heads are compared as they are.
        self.boxes["likeness_heads"].setVisible(value.likeness_of == "layers")

    def _select(self, row: int) -> None:
        """Select the layer of a row, with the head that is selected if it has it; or the head of a row."""
        if self._likeness is None:
            return
        ref = self._likeness.refs[row]
        if self._likeness.of == "layers":
            ref = ref._replace(head=self._selection.value.head.head)
        self._selection.select_head(ref)
