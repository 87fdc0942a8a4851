"""What the middle of the window shows while there is nothing to explore yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from viewer.ui.pictures import reduced

if TYPE_CHECKING:
    from viewer.state.documents import ImageDocument


class Welcome(QFrame):
    """Nothing is open: says what to drop, and offers the sample."""

    images_asked = Signal()
    model_asked = Signal()
    sample_asked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "drop")
        headline = _words("Drop a picture here", "headline")
        self._about = _words("", "")
        self.tell_model("")
        hint = _words(
            "Pictures: JPEG, PNG, WebP, AVIF, HEIC, TIFF, GIF, BMP, a folder of them, or paste one.\n"
            "Models: an .onnx, .pt2 or TorchScript file, a transformers folder, the name of a timm or\n"
            "torchvision model, or a checkpoint (.safetensors, .pth).",
            "faint",
        )
        column = QVBoxLayout(self)
        column.addStretch(2)
        for words in (headline, self._about):
            column.addWidget(words)
        column.addSpacing(12)
        column.addLayout(self._buttons())
        column.addSpacing(12)
        column.addWidget(hint)
        column.addStretch(3)

    def _buttons(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.addStretch(1)
        for text, tip, signal in (
            ("Open pictures…", "Ctrl+O", self.images_asked),
            ("Open a model…", "Ctrl+M", self.model_asked),
            ("Try the sample", "A trained DINOv2 ViT-S/14 and a photograph", self.sample_asked),
        ):
            button = QPushButton(text)
            button.setToolTip(tip)
            button.clicked.connect(signal)
            row.addWidget(button)
        row.addStretch(1)
        return row

    def set_over(self, over: bool) -> None:
        """Show that something to drop is over the window."""
        self.setProperty("over", over)
        self.style().polish(self)

    def tell_model(self, name: str) -> None:
        """Say what a dropped picture will be shown to."""
        self._about.setText(
            f"{name} is open: drop a picture to see what each of its heads attends to."
            if name
            else "and see what every head of a Vision Transformer attends to in it, and how far.\n"
            "With no model open, the sample model (DINOv2 ViT-S/14) looks at it."
        )


class Pending(QWidget):
    """A picture is open, and the model has not looked at it yet: shows the picture and what is going on."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._document: ImageDocument | None = None
        self._picture = QLabel()
        self._picture.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._picture.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Ignored)
        self._words = _words("", "")
        column = QVBoxLayout(self)
        column.addWidget(self._picture, 1)
        column.addWidget(self._words)

    def tell(self, document: ImageDocument, doing: str) -> None:
        """Show a picture; `doing` is said under it unless it has a problem."""
        another = self._document is None or self._document.image is not document.image
        self._document = document
        self._words.setText(document.problem or doing)
        self._picture.setAccessibleName(document.image.name)
        if another:
            self._paint()

    def forget(self) -> None:
        """Hold no picture."""
        self._document = None
        self._picture.clear()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Fit the picture anew."""
        super().resizeEvent(event)
        self._paint()

    def _paint(self) -> None:
        if self._document is not None:
            size = self._picture.size().expandedTo(QSize(32, 32))
            self._picture.setPixmap(reduced(self._document.image.pixels, size, self.devicePixelRatioF()))


def _words(text: str, kind: str) -> QLabel:
    label = QLabel(text)
    label.setProperty("kind", kind)
    label.setAlignment(Qt.AlignmentFlag.AlignCenter)
    label.setWordWrap(True)
    return label
