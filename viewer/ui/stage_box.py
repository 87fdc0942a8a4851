"""Choosing whose effective field the map shows: the model's, or that of a stage of the compared network."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QSignalBlocker
from PySide6.QtWidgets import QComboBox, QSizePolicy, QWidget

from viewer.state.comparison import known
from viewer.state.network_map import short_name

if TYPE_CHECKING:
    from viewer.state.display import Display, DisplayValue

_OWN = "this model"


class StageBox(QComboBox):
    """Lists the model and the stages of the network that is compared with."""

    def __init__(self, display: Display, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._display = display
        self._offered: tuple[str, tuple[str, ...]] = ("", ())
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(16)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.setToolTip(
            "Whose effective field is shown: of the layer's block, or of a stage of the network that is "
            "compared with (View menu)"
        )
        self.setAccessibleName("Effective field of")
        self.activated.connect(self._choose)

    def offer(self, value: DisplayValue) -> bool:
        """List what there is now, and return whether there is a choice."""
        fields = known(value.compare)
        stages = () if fields is None else tuple(stage.name for stage in fields.stages)
        with QSignalBlocker(self):
            if (value.compare, stages) != self._offered:
                self._offered = value.compare, stages
                self.clear()
                self.addItem(_OWN, "")
                for stage in stages:
                    self.addItem(f"{short_name(value.compare)} {stage}", stage)
            self.setCurrentIndex(max(self.findData(value.stage), 0))
        return bool(stages)

    def _choose(self, place: int) -> None:
        self._display.set(replace(self._display.value, stage=self.itemData(place)))
