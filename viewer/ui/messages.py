"""Where the window says what went wrong: a few lines over its foot, never a dialog in the way."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QScrollArea,
    QSizePolicy,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

# Beyond this the oldest goes: a folder of broken files must not fill the memory with labels.
_MOST = 50
_SHARE_OF_WINDOW = 3
_LEAST = 60
_PASSING_MS = 6000


class Message(QFrame):
    """One sentence, with its details where there are any.

    Parameters
    ----------
    text
        What a person reads.
    details
        A traceback or the like; shown on demand.
    """

    dismissed = Signal()
    resized = Signal()

    def __init__(self, text: str, details: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "message")
        self.text, self.details = text, details
        label = QLabel(text)
        label.setWordWrap(True)
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Minimum)
        policy.setHeightForWidth(True)
        label.setSizePolicy(policy)
        # Its own hint is for a narrow label, on more lines than the window needs.
        label.setMinimumHeight(1)
        line = QHBoxLayout()
        line.addWidget(label, 1)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(8, 3, 4, 3)
        whole.addLayout(line)
        if details:
            self._add_details(line, whole)
        line.addWidget(_button("✕", "Dismiss this message", self.dismissed.emit))

    def _add_details(self, line: QHBoxLayout, whole: QVBoxLayout) -> None:
        shown = QPlainTextEdit(self.details)
        shown.setReadOnly(True)
        shown.setMaximumHeight(160)
        shown.hide()
        whole.addWidget(shown)
        line.addWidget(_button("Details", "Show what happened", lambda: self._toggle(shown)))
        line.addWidget(_button("Copy details", "Copy them for a bug report", self.copy_details))

    def _toggle(self, shown: QPlainTextEdit) -> None:
        shown.setVisible(shown.isHidden())
        self.resized.emit()

    def copy_details(self) -> None:
        """Put text and details on the clipboard."""
        QGuiApplication.clipboard().setText(f"{self.text}\n\n{self.details}")


class Messages(QScrollArea):
    """The messages that are shown, latest first; gone from sight while there are none.

    They lie over the foot of another widget, so that what a person looks at stays where it is.

    Parameters
    ----------
    over
        The widget whose foot they cover.
    """

    def __init__(self, over: QWidget) -> None:
        super().__init__(over)
        over.installEventFilter(self)
        self.setAccessibleName("Messages")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        inside = QWidget()
        self._list = QVBoxLayout(inside)
        self._list.setContentsMargins(4, 4, 4, 4)
        self._list.setSpacing(3)
        self._list.addStretch(1)
        self.setWidget(inside)
        self._shown: list[Message] = []
        self._whole_lines = 0
        self.hide()

    def cover(self, height: int) -> None:
        """Be at least so high, not to cut the words below in two."""
        self._whole_lines = height

    @property
    def texts(self) -> tuple[str, ...]:
        """What is said now, latest first."""
        return tuple(message.text for message in self._shown)

    def say(self, text: str, details: str = "", passing: bool = False) -> None:
        """Show a message; the same sentence is not said twice, and a `passing` one goes by itself."""
        for message in [message for message in self._shown if message.text == text]:
            self._remove(message)
        message = Message(text, details)
        message.dismissed.connect(lambda: self._remove(message))
        message.resized.connect(self._fit)
        self._shown.insert(0, message)
        self._list.insertWidget(0, message)
        # A layout reckons only with what is shown, and shows it only later.
        message.show()
        if passing:
            QTimer.singleShot(_PASSING_MS, message, message.dismissed.emit)
        for old in self._shown[_MOST:]:
            self._remove(old)
        self._fit()

    def clear(self) -> None:
        """Dismiss everything."""
        for message in list(self._shown):
            self._remove(message)

    def _remove(self, message: Message) -> None:
        if message in self._shown:
            self._shown.remove(message)
            self._list.removeWidget(message)
            message.deleteLater()
            self._fit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Stay at the foot of what lies below."""
        if watched is not self.parentWidget():
            return super().eventFilter(watched, event)
        if event.type() == QEvent.Type.Resize:
            self._fit()
        return False

    def _fit(self) -> None:
        """Be as tall as the messages, within reason; the others are scrolled to."""
        self.setVisible(bool(self._shown))
        if not self._shown:
            return
        room = self.parentWidget().size()
        # At the final width first: lines break by it.
        self.resize(room.width(), max(self.height(), _LEAST))
        self._list.activate()
        needed = max(self._list.totalHeightForWidth(room.width()), self._whole_lines)
        height = min(needed, max(room.height() // _SHARE_OF_WINDOW, _LEAST))
        policies = Qt.ScrollBarPolicy
        self.setVerticalScrollBarPolicy(
            policies.ScrollBarAsNeeded if needed > height else policies.ScrollBarAlwaysOff
        )
        self.setGeometry(0, room.height() - height, room.width(), height)
        self.raise_()
        self.verticalScrollBar().setValue(0)


def _button(text: str, tip: str, clicked: object) -> QToolButton:
    button = QToolButton()
    button.setText(text)
    button.setToolTip(tip)
    button.setAccessibleName(tip)
    button.setAutoRaise(True)
    button.clicked.connect(clicked)
    return button
