"""How far each head reaches: distance against layer, one dot a head."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QSignalBlocker, QSize, Qt
from PySide6.QtGui import QFontMetricsF
from PySide6.QtWidgets import QBoxLayout, QComboBox, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from viewer.state.palette import palette as palette_of
from viewer.state.scatter import CONVOLUTION_LABEL, NO_CONVOLUTION, UNIFORM_LABEL
from viewer.state.words import query_words
from viewer.ui.marks import font
from viewer.ui.scatter_plot import LEAST_PLOT, ScatterPlot

if TYPE_CHECKING:
    from PySide6.QtGui import QResizeEvent

    from viewer.state.display import Display, DisplayValue
    from viewer.state.palette import Palette
    from viewer.state.scatter import Scatter
    from viewer.state.selection import HeadRef, Selection

_HEADER = ("Mean attention distance in", "Distance in")
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
        self._words = QLabel(_HEADER[0])
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
        self._scatter: Scatter | None = None
        self._palette, self._beside = palette, False
        self._told: object = None
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
        self._header = header = QHBoxLayout()
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

    def minimumSizeHint(self) -> QSize:
        """Return the least size at which the plot can be read; what does not fit of the header is cut."""
        line = self._legend.fontMetrics().height()
        return QSize(18 * line, self._header.sizeHint().height() + LEAST_PLOT + self._body.spacing())

    def least_height(self) -> int:
        """Return the height at which header, one line of legend and plot can be read."""
        line = QFontMetricsF(self._legend.font()).height()
        return int(self._header.sizeHint().height() + 1.2 * line) + LEAST_PLOT + 3 * self._body.spacing()

    def paint(self, scatter: Scatter | None) -> None:
        """Show a description, or nothing."""
        self._scatter = scatter
        self.plot.tell(scatter)
        self._tell_legend()

    def set_theme(self, palette: Palette) -> None:
        """Take other colours and another type size."""
        self._palette = palette
        for part in (self._words, self.unit, self.protocol, self._legend):
            part.setFont(font(palette))
        self._words.setStyleSheet(f"color: {palette.text};")
        self._legend.setStyleSheet(f"color: {palette.text}; padding: 0 4px;")
        self.plot.set_theme(palette)
        self._place_legend()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Find the place for the legend anew."""
        super().resizeEvent(event)
        self._place_legend()

    def _place_legend(self) -> None:
        """Put the legend beside the plot in a wide panel, else on one line below it; the plot comes first."""
        metrics = QFontMetricsF(self._legend.font())
        line = metrics.height()
        boxes = self.unit.sizeHint().width() + self.protocol.sizeHint().width() + 2 * line
        long = metrics.horizontalAdvance(_HEADER[0]) + boxes <= self.width()
        self._words.setText(_HEADER[0 if long else 1])
        longest = metrics.horizontalAdvance(f"– · – {CONVOLUTION_LABEL}") + 2 * line
        self._beside = self.width() > 2.6 * longest
        self._body.setDirection(
            QBoxLayout.Direction.RightToLeft if self._beside else QBoxLayout.Direction.BottomToTop
        )
        self._legend.setWordWrap(self._beside)
        self._legend.setFixedWidth(int(longest) if self._beside else self.width())
        self._legend.setMinimumHeight(0 if self._beside else int(1.1 * line))
        self._legend.setVisible(self._beside or self.height() >= self.least_height())
        self._told = None
        self._tell_legend()

    def _tell_legend(self) -> None:
        """List what is drawn, in fewer words where there is one line only."""
        entries = self._entries()
        told = (entries, self._beside)
        if told == self._told:
            return
        self._told = told
        place = 1 if self._beside else 0
        metrics, room = QFontMetricsF(self._legend.font()), self.width()
        shown: list[str] = []
        for colour, mark, *words in entries:
            room -= metrics.horizontalAdvance(f"{mark} {words[0]}  ") if not self._beside else 0
            if room < 0:
                break
            # Unbreakable inside an entry: lines break between entries only.
            sign = f'<b style="color:{colour}">{_unbroken(mark)}</b>&nbsp;' if mark else ""
            shown.append(sign + (_unbroken(words[place]) if mark else words[place]))
        self._legend.setText(("<br>" if self._beside else " &nbsp; ").join(shown))
        self._legend.setToolTip("\n".join(f"{mark} {long}" for _, mark, _, long in entries))

    def _entries(self) -> tuple[tuple[str, str, str, str], ...]:
        """Return colour, mark, short and long words of each thing that is drawn."""
        if self._scatter is None:
            return ()
        colours = self._palette
        if self._scatter.blank:
            return ((colours.text, "", "no distance to measure", self._scatter.blank),)
        pales = " (paler: more of it on prefix tokens)" if self._scatter.pales else ""
        dot = (colours.dot, "●", "head", f"head{pales}")
        uniform = (colours.uniform, "– –", "uniform", UNIFORM_LABEL)
        convolution = (colours.convolution, "– · –", "convolutions", CONVOLUTION_LABEL)
        if not len(self._scatter.convolution):
            convolution = (colours.text, "", NO_CONVOLUTION, NO_CONVOLUTION)
        if self._scatter.query_distance is not None:
            own = (colours.query, "◇", "this query", "head, this query alone")
            own_uniform = (colours.query, "· · ·", "uniform, this query", "uniform, this query alone")
            return dot, own, uniform, convolution, own_uniform
        selected = self._selection.value
        if isinstance(selected.query, str) and selected.direction == "from":
            why = f"{query_words(selected.query)} has no place, so no distance of its own"
            return dot, uniform, convolution, (colours.text, "", why, why)
        return dot, uniform, convolution

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
