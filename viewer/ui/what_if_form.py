"""Choosing a change: its kind, the layers and heads, its number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QSignalBlocker, Signal
from PySide6.QtWidgets import (
    QComboBox,
    QDoubleSpinBox,
    QHBoxLayout,
    QLabel,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from viewer.backends.what_if import KINDS, Change, parse
from viewer.ui.toolbar import KeepsArrows

if TYPE_CHECKING:
    from viewer.state.selection import HeadRef

_ALL = "all"
_TIP = "all, a number, or several: 0-3, 7"


class WhatIfForm(QWidget):
    """A change as it is being chosen; the shown layer and head are proposed.

    Signals
    -------
    added
        A change was asked for; carries it.
    refused
        What was typed is no change; carries why, as a clause.
    turned
        The number was changed; carries the change with it.
    """

    added = Signal(object)
    refused = Signal(str)
    turned = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.kind, self.layers, self.heads = QComboBox(), QComboBox(), QComboBox()
        self.amount, self.add = QDoubleSpinBox(), QToolButton()
        self.add.setText("Add")
        self._shown = ("0", _ALL)
        for kind in KINDS.values():
            self.kind.addItem(f"{kind.words[0].upper()}{kind.words[1:]}", kind.name)
        for box, name in ((self.layers, "Layers"), (self.heads, "Heads")):
            box.setEditable(True)
            box.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
            box.setToolTip(f"{name}: {_TIP}")
            box.setAccessibleName(name)
            box.setMinimumContentsLength(3)
        self.kind.setMinimumContentsLength(8)
        self.kind.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.amount.setKeyboardTracking(False)
        arrows = KeepsArrows(self)
        for control in (self.kind, self.layers, self.heads, self.amount):
            control.installEventFilter(arrows)
        self._lay_out()
        self.kind.activated.connect(self._follow_kind)
        self.add.clicked.connect(self._ask)
        self.amount.valueChanged.connect(self._turn)
        self._follow_kind()

    def _lay_out(self) -> None:
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        self._heads_label = QLabel("Heads")
        for parts in (
            ((self.kind, 1), (self.amount, 0), (self.add, 0)),
            ((QLabel("Layers"), 0), (self.layers, 1), (self._heads_label, 0), (self.heads, 1)),
        ):
            line = QHBoxLayout()
            line.setSpacing(4)
            for part, stretch in parts:
                line.addWidget(part, stretch)
            column.addLayout(line)

    def propose(self, shown: HeadRef) -> None:
        """Propose the shown layer and head, where a person has typed nothing else."""
        proposed = (str(shown.layer), _ALL if shown.head is None else str(shown.head))
        for box, old, new in zip((self.layers, self.heads), self._shown, proposed, strict=True):
            text = box.currentText()
            box.clear()
            box.addItems(list(dict.fromkeys([new, _ALL])))
            box.setEditText(new if text in (old, "") else text)
        self._shown = proposed

    def load(self, change: Change) -> None:
        """Take over a change, to be turned or added again for other layers."""
        with QSignalBlocker(self.kind), QSignalBlocker(self.amount):
            self.kind.setCurrentIndex(self.kind.findData(change.kind))
            self._follow_kind()
            settings = dict(part.split("=") for part in change.text.partition(":")[2].split(","))
            self.layers.setEditText(settings["layers"])
            self.heads.setEditText(settings.get("heads", _ALL))
            if change.amount is not None:
                self.amount.setValue(change.amount)
                self._name_unit()

    @property
    def change(self) -> Change:
        """What is chosen.

        Raises
        ------
        ValueError
            If what was typed is no change.
        """
        kind = KINDS[self.kind.currentData()]
        settings = [f"layers={_joined(self.layers)}"]
        if kind.of_heads:
            settings.append(f"heads={_joined(self.heads)}")
        if kind.amount is not None:
            settings.append(f"{kind.amount.name}={self.amount.value():.6f}")
        return parse(f"{kind.name}:{','.join(settings)}")

    def _follow_kind(self) -> None:
        kind = KINDS[self.kind.currentData()]
        self.kind.setToolTip(kind.source)
        self.heads.setEnabled(kind.of_heads)
        self._heads_label.setEnabled(kind.of_heads)
        # Not hidden: the row would jump.
        self.amount.setEnabled(kind.amount is not None)
        with QSignalBlocker(self.amount):
            if kind.amount is None:
                self.amount.setSpecialValueText(" ")
                self.amount.setRange(0, 0)
                return
            self.amount.setSpecialValueText("")
            self.amount.setDecimals(0 if kind.amount.whole else 2)
            self.amount.setSingleStep(1 if kind.amount.whole else 0.05 if kind.amount.high <= 1 else 0.25)
            self.amount.setRange(kind.amount.low, kind.amount.high)
            self.amount.setSuffix(f" {kind.amount.unit}" if kind.amount.unit else "")
            self.amount.setPrefix(
                "T = " if kind.name == "temperature" else "s = " if kind.name == "cb" else ""
            )
            self.amount.setToolTip(kind.amount.name if kind.amount.name != "t" else "temperature")
            self.amount.setValue(kind.amount.default)
        # Else it is squeezed in a narrow window until its number can't be read.
        self.amount.setMinimumWidth(self.amount.sizeHint().width())
        self._name_unit()

    def _name_unit(self) -> None:
        """Write "1 hop", "2 hops"."""
        amount = KINDS[self.kind.currentData()].amount
        unit = "" if amount is None else amount.unit
        if unit:
            self.amount.setSuffix(f" {unit.removesuffix('s') if self.amount.value() == 1 else unit}")

    def _ask(self) -> None:
        try:
            change = self.change
        except ValueError as error:
            self.refused.emit(str(error))
        else:
            self.added.emit(change)

    def _turn(self) -> None:
        self._name_unit()
        try:
            self.turned.emit(self.change)
        except ValueError as error:
            self.refused.emit(str(error))


def _joined(box: QComboBox) -> str:
    """Return what was typed, a list of numbers as `parse` reads it: people write commas."""
    return box.currentText().strip().rstrip(",").replace(",", "+")
