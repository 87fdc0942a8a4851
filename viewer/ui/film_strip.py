"""The film strip: every open picture with its state; a click shows it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QGridLayout,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QSizePolicy,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from viewer.state.words import pixels_words
from viewer.ui.elided import ElidedLabel
from viewer.ui.pictures import reduced

if TYPE_CHECKING:
    from viewer.state.documents import Documents, ImageDocument

_THUMBNAIL = QSize(72, 54)
_BESIDE = 46  # pixels beside a thumbnail: margins and the button that closes
_LARGE = 12.0  # points; larger type is for a lecture hall
_STATUS = {
    "waiting": "waiting",
    "running": "running…",
    "measuring": "measuring…",
    "done": "",
    "resting": "click to see",
    "failed": "",
}


class _Frame(QWidget):
    """One picture of the strip."""

    closed = Signal()

    def __init__(self, document: ImageDocument) -> None:
        super().__init__()
        self._thumbnail = QLabel()
        self._thumbnail.setFixedWidth(_THUMBNAIL.width())
        self._thumbnail.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._thumbnail.setPixmap(reduced(document.image.pixels, _THUMBNAIL, self.devicePixelRatioF()))
        self._name, self._state = ElidedLabel(), ElidedLabel()
        for label in (self._name, self._state):  # a long name widens no strip
            label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self._state.setProperty("kind", "faint")
        close = QToolButton()
        close.setText("✕")
        close.setAutoRaise(True)
        close.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        close.setToolTip(f"Close {document.image.name}")
        close.setAccessibleName(f"Close {document.image.name}")
        close.clicked.connect(self.closed)
        self._words = QWidget()
        words = QVBoxLayout(self._words)
        words.setContentsMargins(0, 0, 0, 0)
        words.setSpacing(0)
        words.addStretch(1)
        words.addWidget(self._name)
        words.addWidget(self._state)
        words.addStretch(1)
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(8, 4, 2, 4)
        self._grid.setSpacing(4)
        self._grid.setColumnStretch(1, 1)
        self._grid.addWidget(self._thumbnail, 0, 0)
        self._grid.addWidget(self._words, 0, 1)
        self._grid.addWidget(close, 0, 2, Qt.AlignmentFlag.AlignTop)
        self._telling = ""
        self.tell(document, "")

    def set_narrow(self, narrow: bool) -> None:
        """Put the words below the thumbnail, or beside it."""
        self._grid.removeWidget(self._words)
        self._grid.addWidget(self._words, *((1, 0, 1, 3) if narrow else (0, 1)))
        # There is room for two lines; what is no news gives way.
        self._state.setHidden(narrow and not self._telling)

    def tell(self, document: ImageDocument, folder: str) -> None:
        """Say how far the work on the picture is, and its folder where another has the same name."""
        self._name.say(document.image.name)
        notes = document.image.notes
        classes = _classes(document)
        best = classes[0] if classes else _size(document)
        where = f"in {folder}" if folder else ""
        self._telling = document.problem or _STATUS[document.status] or where
        state = self._telling or "; ".join(notes) or best
        kind = "bad" if document.problem else "faint"
        if self._state.property("kind") != kind:
            self._state.setProperty("kind", kind)
            self._state.style().polish(self._state)
        self._state.say(state)
        about = [str(document.image.path or document.image.name), _size(document), document.problem, *notes]
        lines = [*about, *(["The model's best classes:", *classes] if classes else [])]
        self.setToolTip("\n".join(line for line in lines if line))


class FilmStrip(QListWidget):
    """The pictures that are open, a view of `Documents`.

    Signals
    -------
    close_asked
        A picture is to be closed; carries its key.
    retry_asked
        A failed picture was double-clicked: its work is to be tried again.
    """

    close_asked = Signal(int)
    retry_asked = Signal(int)

    def __init__(self, documents: Documents, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._documents = documents
        self._items: dict[int, QListWidgetItem] = {}
        self.setObjectName("strip")
        self.setAccessibleName("Open pictures")
        self.setToolTip(
            "Drop pictures anywhere on the window. Delete closes one, double-click tries a failed one again."
        )
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollMode(QListWidget.ScrollMode.ScrollPerPixel)
        self.setMinimumWidth(_THUMBNAIL.width() + _BESIDE)
        documents.changed.connect(self._tell)
        documents.current_changed.connect(self._mark)
        self.currentItemChanged.connect(self._show)
        self.itemDoubleClicked.connect(lambda item: self.retry_asked.emit(_key(item)))

    def sizeHint(self) -> QSize:
        """Return a comfortable size."""
        return QSize(self.width_for(self.font().pointSizeF()), 400)

    def width_for(self, points: float) -> int:
        """Return a width that leaves the views most of the window; in large type thumbnail and name only."""
        return _THUMBNAIL.width() + _BESIDE + (0 if points > _LARGE else round(10 * points))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put names where there is room for them."""
        super().resizeEvent(event)
        self._fit(self._items)

    def _fit(self, keys: Iterable[int]) -> None:
        """Put the words below the thumbnails in a narrow strip, and give pictures their height."""
        room = self.viewport().width() - _THUMBNAIL.width() - _BESIDE
        narrow = room < 8 * self.fontMetrics().averageCharWidth()
        for item in [self._items[key] for key in keys]:
            frame = self.itemWidget(item)
            frame.set_narrow(narrow)
            frame.layout().activate()
            item.setSizeHint(QSize(100, max(frame.sizeHint().height(), _THUMBNAIL.height() + 10)))

    def close_current(self) -> None:
        """Ask for the marked picture to be closed."""
        if self.currentItem() is not None:
            self.close_asked.emit(_key(self.currentItem()))

    def _tell(self, key: int) -> None:
        document = self._documents.get(key)
        shown = [other for other in self._documents.all if other.key in self._items]
        if document is None:
            self._remove(key)
        elif key in self._items:
            shown = [document]
        else:
            self._add(document)
            # A name that came may change what others are called; so may one that went.
            shown = [other for other in (*shown, document) if other.image.name == document.image.name]
        for other in shown:
            self.itemWidget(self._items[other.key]).tell(other, self._folder(other))
        self._fit([other.key for other in shown])

    def _folder(self, document: ImageDocument) -> str:
        """Return what tells a picture from others of the same name; empty where there are none."""
        name, path = document.image.name, document.image.path
        alike = [other for other in self._documents.all if other.image.name == name]
        return path.parent.name if path is not None and len(alike) > 1 else ""

    def _add(self, document: ImageDocument) -> None:
        frame = _Frame(document)
        frame.closed.connect(lambda: self.close_asked.emit(document.key))
        item = QListWidgetItem()
        item.setData(Qt.ItemDataRole.UserRole, document.key)
        item.setData(Qt.ItemDataRole.AccessibleTextRole, document.image.name)
        self.blockSignals(True)
        self.addItem(item)
        self.setItemWidget(item, frame)
        self.blockSignals(False)
        # Only now: a scroll bar that appears has all frames laid out anew.
        self._items[document.key] = item

    def _remove(self, key: int) -> None:
        item = self._items.pop(key, None)
        if item is not None:
            # The list would mark and show a neighbour; which one is current is state's to say.
            self.blockSignals(True)
            self.takeItem(self.row(item))
            self.blockSignals(False)

    def _mark(self, document: ImageDocument | None) -> None:
        item = self._items.get(document.key) if document else None
        if item is not None and item is not self.currentItem():
            self.blockSignals(True)
            self.setCurrentItem(item)
            self.blockSignals(False)
            self.scrollToItem(item)

    def _show(self, item: QListWidgetItem | None) -> None:
        if item is not None:
            self._documents.show(_key(item))


def _key(item: QListWidgetItem) -> int:
    return item.data(Qt.ItemDataRole.UserRole)


def _size(document: ImageDocument) -> str:
    return pixels_words(document.image.pixels.shape[:2])


def _classes(document: ImageDocument) -> list[str]:
    """Return the model's best classes in words, best first; none where it is no classifier."""
    if document.record is None or document.record.prediction is None:
        return []
    found = document.record.prediction
    return [
        f"{label} {_percent(share)}" for label, share in zip(found.labels, found.probabilities, strict=True)
    ]


def _percent(share: float) -> str:
    """Return a probability; of a small one, which an unsure model's best class may have, two digits more."""
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2f} %"
