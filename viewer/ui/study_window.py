"""One study in a window of its own: the scatter with error bars, how far it is, and the finding in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLabel, QProgressBar, QPushButton, QVBoxLayout, QWidget

from viewer.attention.measures import measure_named
from viewer.state.axes import LAYER
from viewer.state.palette import palette as palette_of
from viewer.state.words import PROTOCOLS, model_words
from viewer.study.finding import sentences
from viewer.study.names import FAILED
from viewer.study.plot import BARS, pictures, scatter
from viewer.ui.scatter_plot import ScatterPlot

if TYPE_CHECKING:
    from PySide6.QtGui import QCloseEvent

    from viewer.state.display import Theme
    from viewer.study.summary import Summary

_LEAST_WIDTH = 520
_SIZE = QSize(880, 620)
_REFERENCES = {"uniform": "– –", "convolution": "– · –"}


class StudyWindow(QWidget):
    """Shows one study, running, stopped or finished.

    Parameters
    ----------
    name
        What the pictures' folder or archive is called.
    theme
        Of the main window.

    Signals
    -------
    stop_asked, resume_asked, folder_asked
        What its buttons ask for.
    closed
        It is about to close.
    """

    stop_asked = Signal()
    resume_asked = Signal()
    folder_asked = Signal()
    closed = Signal()

    def __init__(self, name: str, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent, Qt.WindowType.Window)
        self.setWindowTitle(f"Study of {name}")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._summary: Summary | None = None
        self._palette = palette_of(theme)
        self.facts, self.legend, self.said = (_words() for _ in range(3))
        self.y, self.x = (
            _box("What lies along the vertical axis"),
            _box("What lies along the horizontal axis"),
        )
        self.plot = ScatterPlot(self._palette)
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.stop, self.resume, self.folder = (
            QPushButton(text) for text in ("Stop", "Go on", "Show the folder")
        )
        for button, signal in (
            (self.stop, self.stop_asked),
            (self.resume, self.resume_asked),
            (self.folder, self.folder_asked),
        ):
            button.clicked.connect(lambda _=False, signal=signal: signal.emit())
        for box in (self.y, self.x):
            box.activated.connect(self._paint)
        self._lay_out()
        self.set_theme(theme)
        self.begin("Waiting")

    def _lay_out(self) -> None:
        axes, below, column = QHBoxLayout(), QHBoxLayout(), QVBoxLayout(self)
        for part in (self.y, QLabel("against"), self.x):
            axes.addWidget(part)
        axes.addStretch(1)
        below.addWidget(self.bar, 1)
        below.addStretch()
        for button in (self.stop, self.resume, self.folder):
            below.addWidget(button)
        column.addWidget(self.facts)
        column.addLayout(axes)
        column.addWidget(self.plot, 1)
        column.addWidget(self.legend)
        column.addWidget(self.said)
        column.addLayout(below)
        self.setMinimumWidth(_LEAST_WIDTH)

    def sizeHint(self) -> QSize:
        """Return a comfortable size."""
        return _SIZE

    def event(self, event: QEvent) -> bool:
        """Ask for the height that words need at this width; a layout does not ask a window for it."""
        done = super().event(event)
        if event.type() in (QEvent.Type.LayoutRequest, QEvent.Type.Resize):
            self.setMinimumHeight(self.layout().totalMinimumHeightForWidth(self.width()))
        return done

    def closeEvent(self, event: QCloseEvent) -> None:
        """Tell that it is about to close."""
        self.closed.emit()
        super().closeEvent(event)

    # What there is to show

    def begin(self, doing: str) -> None:
        """Show that the study is being worked on."""
        self._offer(running=True)
        self.tell(doing, -1.0)

    def tell(self, doing: str, share: float) -> None:
        """Show what is being done, and the share done, -1 where it is not known."""
        self.said.setText(doing)
        self.bar.setRange(0, 1000 if share >= 0 else 0)
        self.bar.setValue(round(1000 * share))

    def end(self, text: str, unfinished: bool) -> None:
        """Show that nothing is being done: the finding, or why it ended, and whether it can go on."""
        self._offer(running=False, unfinished=unfinished)
        self.said.setText(text)

    def finish(self, summary: Summary) -> None:
        """Show a finished study and its finding."""
        self.show_summary(summary)
        self.end(" ".join(sentences(summary)), unfinished=False)

    def show_summary(self, summary: Summary) -> None:
        """Show means and spreads, of a study that may still run."""
        if self._summary is None:
            self._fill(summary)
        self._summary = summary
        facts = summary.settings.facts
        model = model_words(facts["model"]["name"], facts["model"]["weights"])
        protocol = PROTOCOLS[summary.settings.protocol]
        self.facts.setText(f"{model}  ·  {_counted(summary)}  ·  distances: {protocol}  ·  {BARS}")
        self._paint()

    def set_theme(self, theme: Theme) -> None:
        """Take other colours and another type size."""
        self._palette = palette_of(theme)
        self.plot.set_theme(self._palette)
        self.plot.setMinimumHeight(self.plot.least_height())
        self._paint()

    def _offer(self, running: bool, unfinished: bool = False) -> None:
        self.stop.setVisible(running)
        self.bar.setVisible(running)
        self.resume.setVisible(unfinished)

    def _fill(self, summary: Summary) -> None:
        for name in summary.settings.measures:
            measure = measure_named(name)
            words = f"{measure.words} ({measure.unit})" if measure.unit else measure.words
            for box in (self.y, self.x):
                box.addItem(f"{words[0].upper()}{words[1:]}", name)
        self.x.insertItem(0, "Layer", LAYER)
        self.x.setCurrentIndex(0)

    def _paint(self) -> None:
        if self._summary is None or not self._summary.images:
            self.plot.tell(None)
            self.legend.setText("")
            return
        found = scatter(self._summary, self.y.currentData(), self.x.currentData())
        self.plot.tell(found)
        marks = [
            (self._palette.dot, "●", "head" + (" (paler: more on prefix tokens)" if found.pales else ""))
        ]
        for kind, mark in _REFERENCES.items():
            reference = found.reference(kind)
            if reference is not None:
                colour = self._palette.uniform if kind == "uniform" else self._palette.convolution
                marks.append((colour, "+" if reference.points else mark, reference.label))
        self.legend.setText(
            " &nbsp; ".join(
                f'<span style="color: {colour}">{mark}</span> {text}' for colour, mark, text in marks
            )
        )


def _counted(summary: Summary) -> str:
    """Return how many pictures were measured, and how many left out; those a finished study has listed."""
    if not summary.failed:
        return pictures(summary.images)
    listed = f" ({FAILED} tells why)" if summary.quartiles is not None else ""
    return f"{pictures(summary.images)}, {summary.failed} left out{listed}"


def _words() -> QLabel:
    label = QLabel()
    label.setWordWrap(True)
    label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return label


def _box(name: str) -> QComboBox:
    box = QComboBox()
    box.setAccessibleName(name)
    box.setToolTip(name)
    box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
    return box
