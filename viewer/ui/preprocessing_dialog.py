"""How pictures are prepared for the model: shown, and changed where the model file does not say it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QDialogButtonBox,
    QDoubleSpinBox,
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from viewer.errors import InputError
from viewer.images.preprocess import INTERPOLATIONS, CropMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from viewer.images.preprocess import Preprocessing

_KNOWN = (
    ("ImageNet", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ("0.5 (Inception, SigLIP)", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    ("CLIP", (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    ("none", (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
)
_CROPS = {
    "center": "resize the short side, crop the middle",
    "squash": "squash to the input size",
    "border": "keep all, fill the border",
    "whole": "keep all, input size follows the picture",
}
_RANGES = {"0 to 1": (0.0, 1.0), "0 to 255": (0.0, 255.0), "-1 to 1": (-1.0, 1.0)}
_LARGEST = 8192


class PreprocessingDialog(QDialog):
    """Asks for another preprocessing.

    Parameters
    ----------
    how
        What is proposed.
    why_not_whole
        Why the model can't take pictures whole, as a sentence; empty where it can.

    Signals
    -------
    chosen
        Carries the `Preprocessing`; what was assumed of it before is a choice from then on.
    """

    chosen = Signal(object)

    def __init__(self, how: Preprocessing, why_not_whole: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Preprocessing")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._before = how
        self.height_box, self.width_box = _whole(how.size[0]), _whole(how.size[1])
        self.mean = [_Number(value, 0.0, 255.0) for value in how.mean]
        self.std = [_Number(value, 0.000001, 255.0) for value in how.std]
        self.crop = _list([(_CROPS[mode], mode) for mode in get_args(CropMode)], how.crop_mode)
        if why_not_whole:
            place = self.crop.findData("whole")
            self.crop.model().item(place).setEnabled(False)
            self.crop.setItemData(place, why_not_whole, Qt.ItemDataRole.ToolTipRole)
        self.share = _Number(how.crop_pct, 0.1, 1.0)
        known = _RANGES.values()
        ranges = {**_RANGES, **({} if how.value_range in known else {str(how.value_range): how.value_range})}
        self.range = _list(list(ranges.items()), how.value_range)
        self.layout_box = _list([(name, name) for name in ("NCHW", "NHWC")], how.layout)
        self.interpolation = _list([(name, name) for name in INTERPOLATIONS], how.interpolation)
        self._build()

    def _build(self) -> None:
        form = QFormLayout()
        form.addRow("Height × width", _row([self.height_box, self.width_box]))
        form.addRow("Crop", self.crop)
        form.addRow("Share kept by the crop", self.share)
        form.addRow("Interpolation", self.interpolation)
        form.addRow("Values", self.range)
        form.addRow("Mean (R, G, B)", _row(self.mean))
        form.addRow("Deviation (R, G, B)", _row(self.std))
        form.addRow("Usual values", self._presets())
        form.addRow("Layout", self.layout_box)
        buttons = QDialogButtonBox(
            QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel
        )
        buttons.button(QDialogButtonBox.StandardButton.Ok).setText("Apply")
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        column = QVBoxLayout(self)
        about = QLabel(
            f"Not told by the model, but assumed: {self._before.assumed}"
            if self._before.assumed
            else "As the model's own configuration says. All pictures run again after a change."
        )
        about.setWordWrap(True)
        self._about = about
        column.addWidget(about)
        column.addLayout(form)
        column.addWidget(buttons)

    def _presets(self) -> QHBoxLayout:
        row = QHBoxLayout()
        for name, mean, std in _KNOWN:
            button = QPushButton(name)
            button.setAutoDefault(False)
            button.clicked.connect(lambda _=False, mean=mean, std=std: self._normalize(mean, std))
            row.addWidget(button)
        return row

    def _normalize(self, mean: Sequence[float], std: Sequence[float]) -> None:
        for box, value in zip([*self.mean, *self.std], [*mean, *std], strict=True):
            box.setValue(value)

    @property
    def value(self) -> Preprocessing:
        """What is chosen now."""
        return replace(
            self._before,
            size=(self.height_box.value(), self.width_box.value()),
            mean=tuple(box.chosen for box in self.mean),
            std=tuple(box.chosen for box in self.std),
            crop_mode=self.crop.currentData(),
            crop_pct=self.share.chosen,
            interpolation=self.interpolation.currentData(),
            value_range=tuple(self.range.currentData()),
            layout=self.layout_box.currentData(),
            assumed="",
        )

    def accept(self) -> None:
        """Ask for it, or say why it can't be."""
        try:
            value = self.value
        except InputError as error:
            self._about.setText(str(error))
            return
        self.chosen.emit(value)
        super().accept()


class _Number(QDoubleSpinBox):
    """A number with as many digits as CLIP's means have, exactly the given one until it is changed."""

    def __init__(self, given: float, least: float, most: float) -> None:
        super().__init__()
        self.setDecimals(8)
        self.setSingleStep(0.01)
        # A model's own number is right, also where no person would choose it.
        self.setRange(min(least, given), max(most, given))
        self.setValue(given)
        self._given, self._shown = given, self.value()

    @property
    def chosen(self) -> float:
        """The number that is meant; rounded, a model's own would be another preprocessing."""
        return self._given if self.value() == self._shown else self.value()

    def textFromValue(self, value: float) -> str:
        """Write a number without trailing zeros."""
        return self.locale().toString(value, "g", 8)


def _whole(value: int) -> QSpinBox:
    box = QSpinBox()
    box.setRange(1, max(_LARGEST, value))
    box.setSuffix(" px")
    box.setValue(value)
    return box


def _list(items: Sequence[tuple[str, object]], now: object) -> QComboBox:
    box = QComboBox()
    for words, value in items:
        box.addItem(words, value)
    box.setCurrentIndex(next((i for i, (_, value) in enumerate(items) if value == now), 0))
    return box


def _row(widgets: Sequence[QWidget]) -> QHBoxLayout:
    row = QHBoxLayout()
    for widget in widgets:
        row.addWidget(widget)
    return row
