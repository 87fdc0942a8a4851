"""Choosing a model: by name from a list that can be searched, by file, or a name with a file of weights."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QModelIndex, QObject, QSortFilterProxyModel, QStringListModel, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QDialogButtonBox,
    QFileDialog,
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListView,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from viewer.state.requests import ModelRequest, parse_size, size_text
from viewer.ui.jobs import Jobs, Request

if TYPE_CHECKING:
    from viewer.backends.model import Job
    from viewer.state.preferences import Preferences

_DEVICES = ("auto", "cpu", "cuda", "mps")


class NameFilter(QSortFilterProxyModel):
    """Keeps the names that hold every word of the search, in any order."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._words: tuple[str, ...] = ()

    def search(self, text: str) -> None:
        """Look for these words."""
        self._words = tuple(text.lower().split())
        self.invalidate()

    def filterAcceptsRow(self, row: int, parent: QModelIndex) -> bool:
        """Return whether a name is shown."""
        name = self.sourceModel().index(row, 0, parent).data().lower()
        return all(word in name for word in self._words)


class ModelPicker(QDialog):
    """Asks for a model.

    Parameters
    ----------
    jobs
        Loads the list of names.
    preferences
        Recent models come first.
    weights
        A file of weights that an architecture is to be chosen for.

    Signals
    -------
    chosen
        Carries the `ModelRequest`.
    """

    chosen = Signal(object)

    def __init__(
        self, jobs: Jobs, preferences: Preferences, weights: Path | None = None, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle("Open a model")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._folder = preferences.folder
        self._first = list(
            dict.fromkeys(["sample", *(request.model for request in preferences.recent_models)])
        )
        self.name, self.weights, self.size = QLineEdit(), QLineEdit(), QLineEdit()
        self.device, self.names, self.problem = QComboBox(), QListView(), QLabel()
        self.question = QLabel()
        self._strings, self._filter = QStringListModel(self._first, self), NameFilter(self)
        self._filter.setSourceModel(self._strings)
        self._build()
        self.weights.setText(str(weights) if weights else "")
        if weights is not None:
            self._ask(f"Which architecture are the weights in {weights.name} for?")
        self.resize(560, 560)
        self._check()
        scope = id(self)
        jobs.submit(Request("Listing model names", _model_names, self._take_names, scopes=(scope,)))
        if weights is not None:
            looking = "Looking for the architectures that the weights fit"
            found = partial(self._take_fitting, weights.name)
            jobs.submit(Request(looking, partial(_fitting, weights), found, scopes=(scope,)))
        self.destroyed.connect(lambda: jobs.invalidate(scope))

    def _build(self) -> None:
        self.name.setPlaceholderText("Search, or write a name or path: vit_base patch16 224")
        self.name.setAccessibleName("Model name or path")
        self.name.setClearButtonEnabled(True)
        self.name.installEventFilter(self)
        self.names.setModel(self._filter)
        self.names.setAccessibleName("Model names")
        self.names.setEditTriggers(QListView.EditTrigger.NoEditTriggers)
        self.names.setUniformItemSizes(True)
        self.weights.setPlaceholderText("the model's own pretrained weights")
        self.weights.setAccessibleName("File of weights")
        self.size.setPlaceholderText("the model's own; or 518, 224x320 (height first), whole")
        self.size.setAccessibleName("Input size")
        self.device.addItems(_DEVICES)
        self.device.setEditable(True)
        self.device.setAccessibleName("Device")
        self.problem.setProperty("kind", "bad")
        self.problem.setWordWrap(True)
        self.question.setWordWrap(True)
        self.question.setTextFormat(Qt.TextFormat.PlainText)
        self.question.hide()
        buttons = QDialogButtonBox(
            QDialogButtonBox.StandardButton.Open | QDialogButtonBox.StandardButton.Cancel
        )
        self.open_button = buttons.button(QDialogButtonBox.StandardButton.Open)
        form = QFormLayout()
        form.addRow("Weights", _with_button(self.weights, "File…", self._browse_weights))
        form.addRow("Input size", self.size)
        form.addRow("Device", self.device)
        column = QVBoxLayout(self)
        column.addWidget(self.question)
        column.addLayout(_with_button(self.name, "Model file…", self._browse_model))
        column.addWidget(self.names, 1)
        column.addLayout(form)
        column.addWidget(self.problem)
        column.addWidget(buttons)
        self.name.textEdited.connect(self._filter.search)
        self.name.textChanged.connect(self._check)
        self.size.textChanged.connect(self._check)
        self.names.selectionModel().currentChanged.connect(lambda now, _: self.name.setText(now.data() or ""))
        self.names.doubleClicked.connect(lambda _: self.accept())
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Let the arrow keys walk through the list while the search is being written."""
        keys = (Qt.Key.Key_Down, Qt.Key.Key_Up, Qt.Key.Key_PageDown, Qt.Key.Key_PageUp)
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent) and event.key() in keys:
            self.names.event(event)
            return True
        return super().eventFilter(watched, event)

    def accept(self) -> None:
        """Ask for the model, if what was written makes sense."""
        if not self.open_button.isEnabled():
            return
        self.chosen.emit(
            ModelRequest(
                self.name.text().strip(),
                self.weights.text().strip() or None,
                parse_size(self.size.text()),
                self.device.currentText().strip() or "auto",
            )
        )
        super().accept()

    def take(self, request: ModelRequest) -> None:
        """Fill in a request."""
        self.name.setText(request.model)
        self.weights.setText(request.weights or "")
        self.size.setText(size_text(request.image_size))
        self.device.setCurrentText(request.device)

    def _take_names(self, names: list[str]) -> None:
        self._strings.setStringList(list(dict.fromkeys([*self._first, *names])))
        self._filter.search(self.name.text())

    def _take_fitting(self, weights: str, names: Sequence[str]) -> None:
        """Put the architectures that the given weights fit first, the best at the top."""
        if not names:
            return
        self._first = list(names)
        self._take_names(self._strings.stringList())
        self._ask(
            f"The weights in {weights} fit {names[0]}."
            if len(names) == 1
            else f"The weights in {weights} fit the first {len(names)} of these, the best at the top, and "
            "nothing in them tells which it is."
        )

    def _ask(self, question: str) -> None:
        self.question.setText(question)
        self.question.show()

    def _check(self) -> None:
        problem = ""
        try:
            parse_size(self.size.text())
        except ValueError as error:
            problem = str(error)
        self.problem.setText(problem)
        self.problem.setVisible(bool(problem))
        self.open_button.setEnabled(not problem and bool(self.name.text().strip()))

    def _browse_model(self) -> None:
        path, _ = QFileDialog.getOpenFileName(
            self,
            "Open a model file",
            self._folder,
            "Models (*.onnx *.pt2 *.pt *.pth *.safetensors);;All files (*)",
        )
        if path:
            self.name.setText(path)

    def _browse_weights(self) -> None:
        path, _ = QFileDialog.getOpenFileName(
            self,
            "Open a file of weights",
            self._folder,
            "Checkpoints (*.safetensors *.pth *.pt *.bin *.ckpt);;All files (*)",
        )
        if path:
            self.weights.setText(path)


def _model_names(job: Job) -> list[str]:
    from viewer.backends.catalogue import model_names

    job.step("Listing model names")
    return model_names()


def _fitting(weights: Path, job: Job) -> tuple[str, ...]:
    """Return the architectures that a file of weights fits; opening it tells what is wrong with it."""
    from viewer.backends.architectures import fitting
    from viewer.backends.checkpoint_files import read_state

    return fitting(read_state(weights), job)


def _with_button(field: QLineEdit, text: str, clicked: object) -> QHBoxLayout:
    button = QPushButton(text)
    button.setAutoDefault(False)
    button.clicked.connect(clicked)
    row = QHBoxLayout()
    row.addWidget(field, 1)
    row.addWidget(button)
    return row
