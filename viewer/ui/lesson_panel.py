"""The lesson's own panel: a step's headline and words beside the views, and the way on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, QSize, Qt, Signal
from PySide6.QtGui import QFont, QFontMetrics, QKeyEvent
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from viewer.state.lesson_steps import STEPS, TITLE
from viewer.state.lesson_table import table
from viewer.state.palette import palette as palette_of
from viewer.ui.lesson_table import LessonTable
from viewer.ui.marks import font, unbroken

if TYPE_CHECKING:
    from viewer.state.display import Display, DisplayValue
    from viewer.state.lesson import LessonValue
    from viewer.state.palette import Palette
    from viewer.state.scene import SceneValue

MOST_CONVOLUTIONS = 2  # they reach from corner to corner of the nine patches

_HEADLINE = 1.35  # of ordinary type
_WORDS = {True: 1.0, False: 1.25}  # of ordinary type, by whether that is large already
_LARGE = 12.0  # points
_WIDTH = {True: 390, False: 340}  # pixels


class KeepsSpace(QObject):
    """Lets a button be pressed with the space bar while it has the focus; elsewhere that pins the query."""

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Claim the space bar before it becomes a shortcut."""
        if event.type() != QEvent.Type.ShortcutOverride or not isinstance(event, QKeyEvent):
            return False
        if event.key() == Qt.Key.Key_Space:
            event.accept()
            return True
        return False


class Paragraphs(QWidget):
    """Words in paragraphs, with half a line between them."""

    def __init__(self) -> None:
        super().__init__()
        self._labels: list[QLabel] = []
        self._font = QFont()
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)

    def text(self) -> str:
        """Return what is said, paragraphs parted by empty lines."""
        return "\n\n".join(label.text() for label in self._labels if not label.isHidden())

    def say(self, paragraphs: tuple[str, ...]) -> None:
        """Show paragraphs in place of those before."""
        while len(self._labels) < len(paragraphs):
            label = QLabel()
            label.setWordWrap(True)
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            label.setFocusPolicy(Qt.FocusPolicy.NoFocus)
            label.setFont(self._font)
            self._labels.append(label)
            self._column.addWidget(label)
        for label in self._labels[len(paragraphs) :]:
            label.hide()
        for label, words in zip(self._labels, paragraphs, strict=False):
            label.setText(unbroken(words))
            label.show()

    def set_font(self, type_: QFont) -> None:
        """Take another type."""
        self._font = type_
        self._column.setSpacing(round(0.5 * QFontMetrics(type_).height()))
        for label in self._labels:
            label.setFont(type_)


class LessonPanel(QWidget):
    """Says a step of the lesson.

    Signals
    -------
    back_asked, next_asked, close_asked, export_asked, again_asked
        The buttons; `again_asked` is for what could not be loaded.
    brightened
        A patch's number and its new brightness.
    convolutions_asked
        How many stacked convolutions are to be outlined.
    """

    back_asked = Signal()
    next_asked = Signal()
    close_asked = Signal()
    export_asked = Signal()
    again_asked = Signal()
    brightened = Signal(int, float)
    convolutions_asked = Signal(int)

    def __init__(self, display: Display, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._value: LessonValue | None = None
        self._scene: SceneValue | None = None
        self._ring = 0
        self._keeps = KeepsSpace(self)
        self._palette = palette_of(display.value.theme)
        self.counter, self.headline, self.hint, self.words = QLabel(), QLabel(), QLabel(), Paragraphs()
        self.table = LessonTable()
        self.table.brightened.connect(self.brightened)
        self.fewer = self._button("−", "One convolution less (Shift+R)", self._fewer)
        self.more = self._button("+", "One convolution more (R)", self._more)
        self.count = QLabel()
        self.again = self._button("Try again", "Try once more to open the sample model", self.again_asked)
        self.back = self._button("◀ Back", "The step before (Page Up)", self.back_asked)
        self.forward = self._button("Next ▶", "The next step (Page Down)", self.next_asked)
        self.export = self._button(
            "Export…", "Export this step… as a figure for a slide, 16:9", self.export_asked
        )
        self._lay_out()
        self.set_theme(self._palette)
        display.changed.connect(self._dress)

    def sizeHint(self) -> QSize:
        """Return a width for short lines, and any height."""
        return QSize(_WIDTH[self._palette.points > _LARGE], 500)

    # What is shown

    def tell(self, value: LessonValue, scene: SceneValue) -> None:
        """Show a step, or why it can't be shown."""
        self._value = value
        self.counter.setText(f"{TITLE}  {value.index + 1} of {len(STEPS)}")
        self.headline.setText(value.step.title)
        self.back.setEnabled(value.index > 0)
        self.forward.setEnabled(value.index + 1 < len(STEPS))
        self.export.setEnabled(value.ready)
        self.hint.setText(value.step.hint)
        self.hint.setVisible(value.ready)
        self.again.setVisible(bool(value.problem))
        self._convolutions.setVisible(value.ready and "hops" in value.step.columns)
        if value.ready:
            self.words.say(value.step.words(scene))
        elif value.problem:
            self.words.say(
                (f"This step needs the sample model, which can't be had now. {value.problem}", _NINE)
            )
        else:
            self.words.say((_WAIT[value.step.stage],))
        self.paint(scene)

    def paint(self, scene: SceneValue) -> None:
        """Follow a moment: what is said and listed of the nine patches depends on the query."""
        value, self._scene = self._value, scene
        if value is None or not value.ready:
            self.table.paint(None)
            return
        if value.step.stage == "nine patches":
            self.words.say(value.step.words(scene))
        self.table.paint(table(scene, value.step))
        ring = scene.display.ring
        self._ring = ring
        self.count.setText(f"{ring} {'convolution' if ring == 1 else 'convolutions'}")
        self.fewer.setEnabled(ring > 0)
        self.more.setEnabled(ring < MOST_CONVOLUTIONS)

    def set_theme(self, palette: Palette) -> None:
        """Take other colours and another type size."""
        self._palette = palette
        large = palette.points > _LARGE
        for button in (self.fewer, self.more):
            button.setFixedWidth(round(3 * palette.points))
        self.headline.setFont(font(palette, 1.15 if large else _HEADLINE, bold=True))
        self.words.set_font(font(palette, _WORDS[large]))
        self.table.set_theme(palette)
        self.setMinimumWidth(_WIDTH[large])
        self.updateGeometry()

    def _dress(self, display: DisplayValue) -> None:
        if palette_of(display.theme) is not self._palette:
            self.set_theme(palette_of(display.theme))
            if self._scene is not None:
                self.paint(self._scene)

    # What is pressed

    def _fewer(self) -> None:
        self._ask_convolutions(-1)

    def _more(self) -> None:
        self._ask_convolutions(1)

    def _ask_convolutions(self, by: int) -> None:
        self.convolutions_asked.emit(min(max(self._ring + by, 0), MOST_CONVOLUTIONS))

    # How it is put together

    def _lay_out(self) -> None:
        self.counter.setProperty("kind", "faint")
        for label in (self.headline, self.hint):
            label.setWordWrap(True)
            label.setTextFormat(Qt.TextFormat.PlainText)
        self.hint.setProperty("kind", "faint")
        close = QToolButton()
        close.setText("✕")
        close.setAutoRaise(True)
        close.setToolTip("Close the lesson and go back to what was open")
        close.setAccessibleName("Close the lesson")
        close.clicked.connect(self.close_asked)
        self.close_button = close
        whole = QVBoxLayout(self)
        whole.setContentsMargins(10, 4, 6, 8)
        whole.addLayout(_row(self.counter, None, close))
        whole.addWidget(self.headline)
        whole.addWidget(self._scrolled(), 1)
        whole.addLayout(_row(self.back, self.forward, self.export))

    def _scrolled(self) -> QScrollArea:
        """Return words and list, which are scrolled where the window is low."""
        self._convolutions = QWidget()
        self._convolutions.setLayout(_row(self.fewer, self.count, self.more, None))
        inside = QWidget()
        column = QVBoxLayout(inside)
        column.setContentsMargins(0, 0, 6, 0)
        for part in (self.words, self.again, self._convolutions, self.table, self.hint):
            column.addWidget(part)
        column.addStretch(1)
        area = QScrollArea()
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setWidgetResizable(True)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        area.setWidget(inside)
        return area

    def _button(self, text: str, tip: str, pressed: object) -> QPushButton:
        button = QPushButton(text)
        button.setToolTip(tip)
        button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        button.installEventFilter(self._keeps)
        button.clicked.connect(pressed)
        return button


_WAIT = {
    "nine patches": "The nine patches are being worked on…",
    "sample": "The sample model is being opened and looks at the photograph…",
}
_NINE = "The first four steps need no model."


def _row(*parts: QWidget | None) -> QHBoxLayout:
    """Return parts beside one another; None takes the room that is left."""
    row = QHBoxLayout()
    row.setContentsMargins(0, 0, 0, 0)
    for part in parts:
        if part is None:
            row.addStretch(1)
        else:
            row.addWidget(part)
    return row
