"""One dot a head: a measure against the layer, or two measures against each other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QSignalBlocker, QSize, Qt
from PySide6.QtGui import QFontMetricsF
from PySide6.QtWidgets import QBoxLayout, QCheckBox, QLabel, QVBoxLayout, QWidget

from viewer.state.axes import LAYER, axis_of, choices, forms, plain_name
from viewer.state.kinds import counted
from viewer.state.palette import palette as palette_of
from viewer.state.references import CONVOLUTION_LABEL
from viewer.state.scatter import UNUSED_LABEL
from viewer.state.words import query_words
from viewer.ui.choice_row import ChoiceRow
from viewer.ui.marks import font
from viewer.ui.scatter_plot import ScatterPlot
from viewer.ui.short_box import ShortBox

if TYPE_CHECKING:
    from PySide6.QtGui import QResizeEvent

    from viewer.state.display import Display, DisplayValue
    from viewer.state.palette import Palette
    from viewer.state.scatter import Scatter
    from viewer.state.selection import HeadRef, Selection

_UNITS = {"px": ("px",), "patches": ("patches",)}
# Each kind of reference with its mark in the legend, and what it is called where there is little room.
_REFERENCES = (
    ("uniform", "– –", "uniform"),
    ("convolution", "– · –", "convolutions"),
    ("network", "—", "stages of a network"),
    ("network effective", "· · ·", "their effective fields"),
    ("effective", "+", "effective field"),
    ("uniform query", "· · ·", "uniform, this query"),
    ("before", "○", "before the change"),
)
_PROTOCOLS = {
    "renormalized": ("renormalized over patches", "renormalized", "renorm."),
    "original": ("original protocol", "original", "orig."),
}


class ScatterPanel(QWidget):
    """Paints a `Scatter`; its header is a sentence that chooses measures, unit and protocol.

    Parameters
    ----------
    selection
        Told which head the mouse points at and clicks on.
    display
        Told the chosen measures, unit and protocol.

    Attributes
    ----------
    header
        The controls, above the plot or wherever they are put.
    """

    def __init__(self, selection: Selection, display: Display, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._selection = selection
        self._display = display
        palette = palette_of(display.value.theme)
        self.y = _measures("What lies along the vertical axis", choices())
        self.x = _measures("What lies along the horizontal axis", ((LAYER, LAYER), *choices()))
        self.kinds = QCheckBox("kinds")
        self.kinds.setToolTip("Give each dot the colour and shape of its head's kind")
        self.unit = ShortBox("Unit of the attention distance", _UNITS.items())
        self.protocol = ShortBox("Protocol of the attention distance", _PROTOCOLS.items())
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
        for box in (self.y, self.x, self.unit, self.protocol):
            box.activated.connect(self._choose)
        self.kinds.clicked.connect(self._choose)
        self.plot.pointed.connect(self._point)
        self.plot.chosen.connect(self._select)
        display.changed.connect(self._follow)
        self._follow(display.value)
        self.setAccessibleName("How far each head reaches")
        self.set_theme(palette)

    def _arrange(self) -> None:
        self.header = ChoiceRow(self.y, "against", self.x, self.unit, self.protocol, self.kinds)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        column.addWidget(self.header)
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
        return QSize(18 * line, self._above() + self.plot.least_height() + self._body.spacing())

    def least_height(self) -> int:
        """Return the height at which one line of legend and the plot can be read."""
        line = 0 if self._beside else QFontMetricsF(self._legend.font()).height()
        return int(1.2 * line) + self.plot.least_height() + 3 * self._body.spacing()

    def _above(self) -> int:
        """Return the height of the header, if it has not been put elsewhere."""
        return self.header.sizeHint().height() if self.header.parentWidget() is self else 0

    def paint(self, scatter: Scatter | None) -> None:
        """Show a description, or nothing."""
        self._scatter = scatter
        self.plot.tell(scatter)
        self._tell_legend()

    def set_theme(self, palette: Palette) -> None:
        """Take other colours and another type size."""
        self._palette = palette
        self._legend.setFont(font(palette))
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
        longest = metrics.horizontalAdvance(f"– · – {CONVOLUTION_LABEL}") + 2 * line
        self._beside = self.width() > 2.6 * longest
        self._body.setDirection(
            QBoxLayout.Direction.RightToLeft if self._beside else QBoxLayout.Direction.BottomToTop
        )
        self._legend.setWordWrap(self._beside)
        self._legend.setFixedWidth(int(longest) if self._beside else self.width())
        self._legend.setMinimumHeight(0 if self._beside else int(1.1 * line))
        self._legend.setVisible(self._beside or self.height() >= self._above() + self.least_height())
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
        told = [reference.told for reference in self._scatter.references] if self._scatter else []
        lines = [f"{mark} {long}" for _, mark, _, long in entries]
        self._legend.setToolTip("\n".join([*lines, *filter(None, told)]))

    def _entries(self) -> tuple[tuple[str, str, str, str], ...]:
        """Return colour, mark, short and long words of each thing that is drawn."""
        scatter, colours = self._scatter, self._palette
        if scatter is None:
            return ()
        if scatter.blank:
            return ((colours.text, "", "nothing to draw", scatter.blank),)
        pales = " (paler: more of it on prefix tokens)" if scatter.pales else ""
        found = [(colours.dot, "●", "head", f"head{pales}")]
        if scatter.kinds is not None:
            found = [
                (mark.colour(colours), mark.sign, f"{mark.kind} {count}", f"{mark.kind}: {count} heads")
                for mark, count in counted(scatter.kinds)
            ]
        if scatter.unused.any():
            found.append((colours.dot, "⊗", "not used", UNUSED_LABEL))
        if scatter.spread is not None:
            found.append((colours.dot, "│", "spread", "spread over the pictures"))
        if scatter.query_y is not None:
            found.append((colours.query, "◇", "this query", "head, this query alone"))
        for kind, mark, brief in _REFERENCES:
            reference = scatter.reference(kind)
            if reference is not None:
                sign = "+" if reference.points and kind != "before" else mark
                found.append((reference.colour(colours), sign, brief, reference.label))
        why = [*scatter.missing, *self._no_query()]
        return (*found, *((colours.text, "", words, words) for words in why))

    def _no_query(self) -> tuple[str, ...]:
        """Say why the selected query has no dots where that is for want of a place."""
        selected = self._selection.value
        if isinstance(selected.query, str) and selected.direction == "from":
            return (f"{query_words(selected.query)} has no place, so no dots of its own",)
        return ()

    def _choose(self) -> None:
        chosen = {
            "x_measure": self.x.currentData(),
            "y_measure": self.y.currentData(),
            "unit": self.unit.currentData(),
            "protocol": self.protocol.currentData(),
            "kinds": self.kinds.isChecked(),
        }
        self._display.set(replace(self._display.value, **chosen))

    def _follow(self, value: DisplayValue) -> None:
        chosen = (
            (self.x, plain_name(value.x_measure)),
            (self.y, plain_name(value.y_measure)),
            (self.unit, value.unit),
            (self.protocol, value.protocol),
        )
        for box, data in chosen:
            with QSignalBlocker(box):
                box.setCurrentIndex(box.findData(data))
        self.kinds.setChecked(value.kinds)
        axes = [axis_of(name, value.protocol, value.unit) for name in (value.x_measure, value.y_measure)]
        # Only what has a part in the measures that are shown can be chosen.
        self.unit.setVisible(any(axis.unit in _UNITS for axis in axes))
        self.protocol.setVisible(any(axis.by_protocol for axis in axes))

    def _point(self, head: HeadRef | None) -> None:
        self._selection.hover_head(head)

    def _select(self, head: HeadRef) -> None:
        self._selection.select_head(head)


def _measures(name: str, options: tuple[tuple[str, str], ...]) -> ShortBox:
    return ShortBox(name, [(value, tuple(map(_capital, forms(value, words)))) for value, words in options])


def _capital(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}"


def _unbroken(words: str) -> str:
    return words.replace("–", "–&#8288;").replace(" ", "&nbsp;")
