"""How far each head reaches: distance against layer, one dot a head."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QSignalBlocker, QSize, Qt
from PySide6.QtGui import QFontMetricsF
from PySide6.QtWidgets import QBoxLayout, QComboBox, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from viewer.state.palette import palette as palette_of
from viewer.state.scatter import CONVOLUTION_LABEL, UNIFORM_LABEL
from viewer.ui.marks import font
from viewer.ui.scatter_plot import ScatterPlot

if TYPE_CHECKING:
    from PySide6.QtGui import QResizeEvent

    from viewer.state.display import Display, DisplayValue
    from viewer.state.palette import Palette
    from viewer.state.scatter import Scatter
    from viewer.state.selection import HeadRef, Selection

_UNITS = ("px", "patches")
_PROTOCOLS = (("renormalized", "renormalized over patches"), ("original", "original protocol"))


class ScatterPanel(QWidget):
    """Paints a `Scatter`; its header is a sentence whose ends choose unit and protocol.

    Parameters
    ----------
    selection
        Told which head the mouse points at and clicks on.
    display
        Told the chosen unit and protocol.
    """

    def __init__(self, selection: Selection, display: Display, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._selection = selection
        self._display = display
        palette = palette_of(display.value.theme)
        self._words = QLabel("Mean attention distance in")
        self.unit = QComboBox()
        self.unit.setAccessibleName("Unit of the attention distance")
        for unit in _UNITS:
            self.unit.addItem(unit, unit)
        self.protocol = QComboBox()
        self.protocol.setAccessibleName("Protocol of the attention distance")
        for name, words in _PROTOCOLS:
            self.protocol.addItem(words, name)
        self._legend = QLabel()
        self._legend.setTextFormat(Qt.TextFormat.RichText)
        self._legend.setWordWrap(True)
        self._legend.setAlignment(Qt.AlignmentFlag.AlignTop)
        self._entries: list[str] = []
        self._body = QBoxLayout(QBoxLayout.Direction.TopToBottom)
        self.plot = ScatterPlot(palette)
        self._arrange()
        self.unit.activated.connect(self._choose)
        self.protocol.activated.connect(self._choose)
        self.plot.pointed.connect(self._point)
        self.plot.chosen.connect(self._select)
        display.changed.connect(self._follow)
        self._follow(display.value)
        self.setAccessibleName("How far each head reaches")
        self.set_theme(palette)

    def _arrange(self) -> None:
        header = QHBoxLayout()
        header.setContentsMargins(4, 2, 4, 2)
        for part in (self._words, self.unit, self.protocol):
            header.addWidget(part)
        header.addStretch(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        column.addLayout(header)
        column.addLayout(self._body, 1)
        self._body.setSpacing(2)
        self._body.addWidget(self._legend)
        self._body.addWidget(self.plot, 1)

    def sizeHint(self) -> QSize:
        """Return a comfortable size."""
        return QSize(720, 260)

    def paint(self, scatter: Scatter | None) -> None:
        """Show a description, or nothing."""
        self.plot.tell(scatter)

    def set_theme(self, palette: Palette) -> None:
        """Take other colours and another type size."""
        for part in (self._words, self.unit, self.protocol, self._legend):
            part.setFont(font(palette))
        self._words.setStyleSheet(f"color: {palette.text};")
        self._legend.setStyleSheet(f"color: {palette.text}; padding: 0 4px;")
        marks = (
            (palette.dot, "●", "head (paler: more of it on prefix tokens)"),
            (palette.query, "◇", "head, this query alone"),
            (palette.uniform, "– –", UNIFORM_LABEL),
            (palette.query, "· · ·", "uniform, this query alone"),
            (palette.convolution, "– · –", CONVOLUTION_LABEL),
        )
        # Unbreakable inside an entry: lines break between entries only (after a dash, without the joiners).
        self._entries = [
            f'<b style="color:{colour}">{_unbroken(mark)}</b>&nbsp;{_unbroken(words)}'
            for colour, mark, words in marks
        ]
        self.plot.set_theme(palette)
        self._place_legend()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Find the place for the legend anew."""
        super().resizeEvent(event)
        self._place_legend()

    def _place_legend(self) -> None:
        """Put the legend beside the plot in a wide panel, above it in a narrow one that is high enough."""
        metrics = QFontMetricsF(self._legend.font())
        line, longest = (
            metrics.height(),
            metrics.horizontalAdvance("– · – ") + metrics.horizontalAdvance(CONVOLUTION_LABEL),
        )
        beside = self.width() > 2.2 * longest
        self._body.setDirection(
            QBoxLayout.Direction.RightToLeft if beside else QBoxLayout.Direction.TopToBottom
        )
        self._legend.setText(("<br>" if beside else " &nbsp; ").join(self._entries))
        self._legend.setFixedWidth(int(longest + 2 * line) if beside else self.width())
        self._legend.setVisible(beside or self.height() > 18 * line)

    def _choose(self) -> None:
        value = replace(
            self._display.value, unit=self.unit.currentData(), protocol=self.protocol.currentData()
        )
        self._display.set(value)

    def _follow(self, value: DisplayValue) -> None:
        for box, chosen in ((self.unit, value.unit), (self.protocol, value.protocol)):
            with QSignalBlocker(box):
                box.setCurrentIndex(box.findData(chosen))

    def _point(self, head: HeadRef | None) -> None:
        self._selection.hover_head(head)

    def _select(self, head: HeadRef) -> None:
        self._selection.select_head(head)


def _unbroken(words: str) -> str:
    return words.replace("–", "–&#8288;").replace(" ", "&nbsp;")
