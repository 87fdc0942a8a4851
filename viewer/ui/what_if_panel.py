"""The what-if lab: changes of the running model, and what they make of the picture on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QSignalBlocker, QSize, Qt
from PySide6.QtGui import QFontMetricsF
from PySide6.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QLabel,
    QListWidget,
    QRadioButton,
    QStackedWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from viewer.state.palette import palette as palette_of
from viewer.state.words import PROTOCOLS
from viewer.ui.marks import font
from viewer.ui.what_if_form import WhatIfForm
from viewer.ui.what_if_table import WhatIfTable

if TYPE_CHECKING:
    from PySide6.QtGui import QShowEvent

    from viewer.state.display import Display
    from viewer.state.documents import Documents
    from viewer.state.palette import Palette
    from viewer.state.selection import Selection
    from viewer.state.what_if import WhatIf

_NONE = (
    "Choose a change and add it: the model runs again at once, and the numbers of before and after come here."
)
_ROWS = 5  # of the table, that are to be seen in little room


class WhatIfPanel(QWidget):
    """Form, list of changes and table of a `WhatIf`.

    Parameters
    ----------
    documents, selection, display
        What is shown: which model, layer and head, under which protocol.
    what_if
        Told what a person changes; shown.
    """

    def __init__(
        self,
        documents: Documents,
        selection: Selection,
        display: Display,
        what_if: WhatIf,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._documents, self._selection, self._display = documents, selection, display
        self._what_if = what_if
        self.form, self.changes, self.table = WhatIfForm(), QListWidget(), WhatIfTable()
        self.remove, self.undo, self.redo = (_button(name) for name in ("Remove", "Undo", "Redo"))
        self.before, self.after = QRadioButton("before"), QRadioButton("after")
        self.scope, self.caption = QComboBox(), QLabel()
        self.refusal = QLabel()
        self._pages, self._clause = QStackedWidget(), ""
        self._lay_out()
        self._connect()
        self._tell()

    def _lay_out(self) -> None:
        self.scope.addItem("Head", "shown")
        self.scope.addItem("All", "all")
        self.scope.setToolTip("Numbers of the shown head or layer, or the mean of all heads of all layers")
        for label in (self.caption, self.refusal):
            label.setWordWrap(True)
            label.setTextFormat(Qt.TextFormat.PlainText)
        self.caption.setProperty("kind", "faint")
        self.refusal.setAlignment(Qt.AlignmentFlag.AlignCenter)
        left, right, lab = QVBoxLayout(), QVBoxLayout(), QWidget()
        left.addWidget(self.form)
        left.addWidget(self.changes, 1)
        left.addLayout(_row(self.remove, self.undo, self.redo, None))
        right.addLayout(_row(QLabel("Views:"), self.before, self.after, None, self.scope))
        right.addWidget(self.table, 1)
        right.addWidget(self.caption)
        whole = QHBoxLayout(lab)
        whole.setContentsMargins(6, 4, 6, 2)
        whole.addLayout(left, 2)
        whole.addLayout(right, 3)
        for page in (lab, self.refusal):
            self._pages.addWidget(page)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self._pages)
        self.changes.setWordWrap(True)
        self.changes.setAccessibleName("Changes of the model")
        self.before.setToolTip("All views show the model as it is")
        self.after.setToolTip("All views show the changed model")
        self.scope.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        self.undo.setToolTip("Take back the last edit of the changes")
        for part in (self.remove, self.undo, self.redo, self.changes):
            part.setFocusPolicy(Qt.FocusPolicy.TabFocus)

    def _connect(self) -> None:
        self.form.added.connect(self._add)
        self.form.turned.connect(self._turn)
        self.form.refused.connect(self._refuse)
        self.changes.itemClicked.connect(lambda item: self._load(self.changes.row(item)))
        self.remove.clicked.connect(lambda: self._what_if.remove(self.changes.currentRow()))
        self.undo.clicked.connect(self._what_if.undo)
        self.redo.clicked.connect(self._what_if.redo)
        self.before.clicked.connect(lambda: self._what_if.show("before"))
        self.after.clicked.connect(lambda: self._what_if.show("after"))
        self.scope.activated.connect(self._tell)
        self._what_if.changed.connect(self._tell)
        self._selection.changed.connect(self._follow)
        self._display.changed.connect(self._tell)
        self._documents.model_changed.connect(self._tell)

    def least_height(self) -> int:
        """Return the height at which form, list and table can be used."""
        line = QFontMetricsF(font(palette_of(self._display.value.theme))).height()
        return round(line * (2 * _ROWS + 2.5))

    def minimumSizeHint(self) -> QSize:
        """Return the least size at which it can be used."""
        return QSize(320, self.least_height())

    def set_theme(self, palette: Palette) -> None:
        """Take another type size; colours are the application's."""
        self.setFont(font(palette))
        self.updateGeometry()

    # What a person does

    def _add(self, change: object) -> None:
        self._clause = ""
        self._what_if.add(change)
        self._tell()

    def _turn(self, change: object) -> None:
        """Take another number for a change that is active already."""
        same = [(one.kind, one.layers, one.heads) for one in self._what_if.value.changes]
        if (change.kind, change.layers, change.heads) in same:
            self._what_if.add(change)

    def _refuse(self, clause: str) -> None:
        self._clause = f"{clause[0].upper()}{clause[1:]}."
        self._tell()

    def _load(self, index: int) -> None:
        self.form.load(self._what_if.value.changes[index])

    # What is shown

    def showEvent(self, event: QShowEvent) -> None:
        """Take up what changed while another tab was in front."""
        super().showEvent(event)
        self._follow()

    def _follow(self, _: object = None) -> None:
        if not self.isVisible():
            return
        self.form.propose(self._selection.value.head)
        self._fill()

    def _tell(self, _: object = None) -> None:
        value = self._what_if.value
        self.refusal.setText(self._what_if.refusal)
        self._pages.setCurrentIndex(1 if self._what_if.refusal else 0)
        row = self.changes.currentRow()
        with QSignalBlocker(self.changes):
            self.changes.clear()
            self.changes.addItems([f"{words[0].upper()}{words[1:]}" for words in self._words()])
            self.changes.setCurrentRow(min(max(row, 0), len(value.changes) - 1))
        self.remove.setEnabled(bool(value.changes))
        self.undo.setEnabled(self._what_if.can_undo)
        self.redo.setEnabled(self._what_if.can_redo)
        for button, side in ((self.before, "before"), (self.after, "after")):
            button.setEnabled(value.result is not None)
            button.setChecked(value.shown == side)
        self._follow()
        self.caption.setText(self._caption())

    def _words(self) -> list[str]:
        return [change.words for change in self._what_if.value.changes]

    def _fill(self) -> None:
        shown = self._selection.value.head if self.scope.currentData() == "shown" else None
        self.table.tell(self._what_if.value.result, shown, self._display.value)

    def _caption(self) -> str:
        value = self._what_if.value
        if self._clause or value.problem:
            return self._clause or value.problem
        if not value.changes:
            return _NONE
        if value.result is None:
            return "The changed model has not looked at the picture yet."
        protocol = PROTOCOLS[self._display.value.protocol]
        return f"The model was not trained with this. Distances: {protocol}."


def _button(text: str) -> QToolButton:
    """Return a button no wider than its word."""
    button = QToolButton()
    button.setText(text)
    return button


def _row(*parts: QWidget | None) -> QHBoxLayout:
    """Put widgets side by side; None stands for what room is left."""
    row = QHBoxLayout()
    row.setSpacing(4)
    for part in parts:
        if part is None:
            row.addStretch(1)
        else:
            row.addWidget(part)
    return row
