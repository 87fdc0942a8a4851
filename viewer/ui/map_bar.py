"""The line above the picture: which map is on it, and the options that this kind of map has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QSignalBlocker, Qt
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLabel, QSizePolicy, QSpinBox, QWidget

from viewer.state.class_map import best_classes
from viewer.ui.choices import MAP_CHOICE, ROLLOUT_FUSION
from viewer.ui.stage_box import StageBox
from viewer.ui.toolbar import ChoiceBox, KeepsArrows

if TYPE_CHECKING:
    from viewer.attention.record import AttentionRecord
    from viewer.state.display import Display, DisplayValue
    from viewer.state.scene import SceneValue

_GAP = 6


class MapBar(QWidget):
    """Chooses the map, and shows the options of the chosen kind alone.

    Parameters
    ----------
    display
        Holds the choice.
    """

    def __init__(self, display: Display, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._display = display
        self.setObjectName("maps")
        self.kind = ChoiceBox(MAP_CHOICE, display)
        self.fusion = ChoiceBox(ROLLOUT_FUSION, display)
        self.start = QSpinBox()
        self.start.setToolTip("First layer that is in, numbered from 0")
        self.start.setAccessibleName("First layer")
        self.start.setRange(0, 0)
        self.target = ClassBox(display)
        self.stage = StageBox(display)
        row = QHBoxLayout(self)
        row.setContentsMargins(_GAP, 2, _GAP, 0)
        row.setSpacing(_GAP)
        self._labels = {
            control: _labelled(row, words, control)
            for words, control in (
                ("Map", self.kind),
                ("Heads", self.fusion),
                ("From layer", self.start),
                ("Class", self.target),
                ("Of", self.stage),
            )
        }
        row.addStretch(1)
        keeps = KeepsArrows(self)
        for control in self._labels:
            control.setFocusPolicy(Qt.FocusPolicy.TabFocus)
            control.installEventFilter(keeps)
        # Into this one a person types.
        self.target.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.start.valueChanged.connect(self._set_start)
        display.changed.connect(self._tell)
        self._tell(display.value)

    def paint(self, scene: SceneValue) -> None:
        """Follow what is shown: how many layers there are."""
        if scene.document is not None and scene.document.record is not None:
            last = len(scene.document.record.layers) - 1
            with QSignalBlocker(self.start):
                self.start.setMaximum(max(last, self._display.value.start_layer))
        self.target.offer(scene)
        # The network's layers may have been read meanwhile.
        self._show_stages(self._display.value)

    def _set_start(self, layer: int) -> None:
        self._display.set(replace(self._display.value, start_layer=layer))

    def _tell(self, value: DisplayValue) -> None:
        with QSignalBlocker(self.start):
            self.start.setMaximum(max(self.start.maximum(), value.start_layer))
            self.start.setValue(value.start_layer)
        self._show(self.fusion, value.map == "rollout")
        self._show(self.start, value.map in ("rollout", "class rollout"))
        self._show(self.target, value.map == "class rollout")
        self._show_stages(value)

    def _show_stages(self, value: DisplayValue) -> None:
        self._show(self.stage, self.stage.offer(value) and value.map == "effective field")

    def _show(self, control: QComboBox | QSpinBox, there: bool) -> None:
        control.setVisible(there)
        self._labels[control].setVisible(there)


class ClassBox(QComboBox):
    """A class, of the model's best ones or by its number."""

    def __init__(self, display: Display, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._display = display
        self._record: AttentionRecord | None = None
        self._offered: tuple[tuple[int, str, float], ...] = ()
        self.setEditable(True)
        # It would make 710 of a typed 7.
        self.setCompleter(None)
        self.setEnabled(False)
        self.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(16)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.setToolTip("One of the model's best classes, or the number of any class, from 0")
        self.setAccessibleName("Class")
        self.activated.connect(self._choose)
        self.lineEdit().editingFinished.connect(self._take_number)

    def offer(self, scene: SceneValue) -> None:
        """List the best classes of what is shown, and say which one is chosen."""
        record = scene.document.record if scene.document is not None else None
        # Sorting all classes is too much for each hover.
        best = self._offered if record is self._record else best_classes(record)
        self._record = record
        if best != self._offered:
            self._offered = best
            self.setEnabled(bool(best))
            with QSignalBlocker(self):
                self.clear()
                for number, label, share in best:
                    self.addItem(f"{number}: {label}, {100 * share:.0f} %", number)
        if not self.lineEdit().hasFocus():
            self._tell()

    def _tell(self) -> None:
        chosen = self._display.value.map_class
        at = 0 if chosen < 0 else self.findData(chosen)
        with QSignalBlocker(self):
            self.setCurrentIndex(at)
            if at < 0:
                self.setEditText(str(chosen))
        # A long name is cut at its end, not at the number.
        self.lineEdit().setCursorPosition(0)

    def _choose(self, place: int) -> None:
        # The best one is followed from picture to picture.
        self._set(-1 if place == 0 else self.itemData(place))

    def _take_number(self) -> None:
        typed = self.currentText().partition(":")[0].strip()
        listed = self.findText(self.currentText())
        if listed >= 0:
            self._choose(listed)
        elif typed.isascii() and typed.isdigit() and len(typed) <= 6:
            self._set(int(typed))
        else:
            self._tell()
        # Keys belong to the views again.
        self.clearFocus()

    def _set(self, number: int) -> None:
        self._display.set(replace(self._display.value, map_class=number))


def _labelled(row: QHBoxLayout, words: str, control: QWidget) -> QLabel:
    label = QLabel(words)
    label.setProperty("kind", "faint")
    label.setBuddy(control)
    row.addWidget(label)
    row.addWidget(control)
    return label
