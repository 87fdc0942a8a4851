"""Choosing a convolutional network to compare with: a usual one, any name, or a file."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QDialogButtonBox,
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

USUAL = (
    *("resnet18", "resnet34", "resnet50", "resnet101", "convnext_tiny", "efficientnet_b0", "densenet121"),
    *("mobilenetv3_large_100", "regnety_032", "vgg16"),
)
"""Networks that are offered; any other name of timm, or torchvision/NAME, can be typed."""
_WHAT = (
    "Each stage of the network becomes a level on the scatter: the mean distance of even attention to a "
    "square as wide as its receptive field, cut off at the border of the picture. No weights are needed."
)
_FILES = "Networks (*.onnx *.pt2 *.pt *.pth);;All files (*)"


class NetworkPicker(QDialog):
    """Asks for a network.

    Parameters
    ----------
    now
        The one that is compared with; empty for none.

    Signals
    -------
    chosen
        Carries the name or file; empty for none.
    """

    chosen = Signal(str)

    def __init__(self, now: str, parent: QWidget | None = None) -> None:
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
        row = QHBoxLayout()
        row.addWidget(QLabel("Network"))
        row.addWidget(self.name, 1)
        row.addWidget(file)
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
        column.addLayout(row)
        column.addWidget(self.buttons)

    def _accept(self) -> None:
        name = self.name.currentText().strip()
        if name:
            self.accept()
            self.chosen.emit(name)

    def _choose_none(self) -> None:
        self.accept()
        self.chosen.emit("")

    def _choose_file(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Open a network", "", _FILES)
        if path:
            self.name.setCurrentText(path)
