"""Choosing a convolutional network to compare with: a usual one, any name, or a file."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QDialogButtonBox,
    QFileDialog,
    QGridLayout,
    QLabel,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from viewer.state.network_map import TRAINED, UNTRAINED

USUAL = (
    *("resnet18", "resnet34", "resnet50", "resnet101", "convnext_tiny", "efficientnet_b0", "densenet121"),
    *("mobilenetv3_large_100", "regnety_032", "vgg16"),
)
"""Networks that are offered; any other name of timm, or torchvision/NAME, can be typed."""
_WHAT = (
    "Each stage of the network becomes a level on the scatter: the mean distance of even attention to a "
    "square as wide as its receptive field, cut off at the border of the picture. That needs no weights. "
    "With some, effective fields are drawn too, by gradient, and the map over the picture can be a stage's."
)
_CHECKPOINT = "a checkpoint…"
_WEIGHTS = (
    ("none, theoretical fields alone", ""),
    ("trained, as published", TRAINED),
    ("random, untrained", UNTRAINED),
    (_CHECKPOINT, None),
)
_CHECKPOINTS = "Checkpoints (*.safetensors *.pth *.pt *.bin);;All files (*)"
_FILES = "Networks (*.onnx *.pt2 *.pt *.pth);;All files (*)"


class NetworkPicker(QDialog):
    """Asks for a network.

    Parameters
    ----------
    now
        The one that is compared with; empty for none.
    weights
        As `viewer.state.display.DisplayValue.compare_weights`.

    Signals
    -------
    chosen
        Carries the name or file, empty for none, and its weights.
    """

    chosen = Signal(str, str)

    def __init__(self, now: str, weights: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Compare with a convolutional network")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.name = QComboBox()
        self.name.setEditable(True)
        self.name.setAccessibleName("Network")
        self.name.addItems(USUAL)
        self.name.setCurrentText(now or USUAL[2])
        self.name.setMinimumContentsLength(24)
        words = QLabel(_WHAT)
        words.setWordWrap(True)
        file = QPushButton("File…")
        file.clicked.connect(self._choose_file)
        self.weights = QComboBox()
        self.weights.setAccessibleName("Weights")
        for text, value in _WEIGHTS:
            self.weights.addItem(text, value)
        self._take_weights(weights)
        self.weights.activated.connect(self._choose_weights)
        rows = QGridLayout()
        rows.setColumnStretch(1, 1)
        rows.addWidget(QLabel("Network"), 0, 0)
        rows.addWidget(self.name, 0, 1)
        rows.addWidget(file, 0, 2)
        rows.addWidget(QLabel("Weights"), 1, 0)
        rows.addWidget(self.weights, 1, 1)
        self.buttons = QDialogButtonBox(
            QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel
        )
        self.buttons.button(QDialogButtonBox.StandardButton.Ok).setText("Compare")
        self.none = self.buttons.addButton("No network", QDialogButtonBox.ButtonRole.DestructiveRole)
        self.none.setEnabled(bool(now))
        self.none.clicked.connect(self._choose_none)
        self.buttons.accepted.connect(self._accept)
        self.buttons.rejected.connect(self.reject)
        column = QVBoxLayout(self)
        column.addWidget(words)
        column.addLayout(rows)
        column.addWidget(self.buttons)

    def _accept(self) -> None:
        name = self.name.currentText().strip()
        if name:
            self.accept()
            self.chosen.emit(name, self.weights.currentData())

    def _choose_none(self) -> None:
        self.accept()
        self.chosen.emit("", "")

    def _take_weights(self, value: str) -> None:
        """Show what is chosen; a checkpoint that is not listed yet by its name."""
        if self.weights.findData(value) < 0:
            self.weights.insertItem(0, Path(value).name, value)
        self._weights = self.weights.findData(value)
        self.weights.setCurrentIndex(self._weights)

    def _choose_weights(self, place: int) -> None:
        if self.weights.itemData(place) is not None:
            self._weights = place
            return
        path, _ = QFileDialog.getOpenFileName(self, "Open a checkpoint", "", _CHECKPOINTS)
        if path:
            self._take_weights(path)
        else:
            self.weights.setCurrentIndex(self._weights)

    def _choose_file(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Open a network", "", _FILES)
        if path:
            self.name.setCurrentText(path)
