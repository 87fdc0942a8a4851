"""Asks what to study and where its results go."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QFileDialog,
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from viewer.study.sources import SAMPLE

_ARCHIVES = "Archives and tables (*.zip *.tar *.tar.gz *.tgz *.tar.bz2 *.tar.xz *.parquet)"
_WIDTH = 34  # of the fields, in letters


class StudyDialog(QDialog):
    """Asks for the pictures and for a new folder.

    Parameters
    ----------
    model
        What the model is called that measures.
    folder
        Where results are proposed.
    what_if
        The changes that are made to the model in the window, as words; empty for none.

    Signals
    -------
    chosen
        Carries the source and the output folder, as text and path.
    """

    chosen = Signal(str, object)

    def __init__(self, model: str, folder: Path, what_if: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Study a folder")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._folder, self._proposed = folder, ""
        self.source, self.output = QLineEdit(), QLineEdit()
        self.source.setPlaceholderText("a folder, a zip, a tar or a Parquet file")
        self.output.setPlaceholderText("a new folder")
        for field in (self.source, self.output):
            field.setMinimumWidth(_WIDTH * field.fontMetrics().averageCharWidth())
            field.textChanged.connect(self._tell)
        self.source.textChanged.connect(self._propose)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Cancel)
        self.start = buttons.addButton("Start", QDialogButtonBox.ButtonRole.AcceptRole)
        buttons.accepted.connect(self._choose)
        buttons.rejected.connect(self.reject)
        about = QLabel(
            f"Every head of {model} is measured over all pictures: mean, spread and quartiles of every "
            "measure. It can be stopped and gone on with at any time."
        )
        about.setWordWrap(True)
        form = QFormLayout()
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.ExpandingFieldsGrow)
        form.addRow("Pictures", self._sources())
        form.addRow("Results", _row(self.output, _button("Choose…", self._choose_output)))
        column = QVBoxLayout(self)
        column.addWidget(about)
        if what_if:
            column.addWidget(_without(what_if))
        column.addLayout(form)
        column.addWidget(buttons)
        self._tell()

    def _sources(self) -> QVBoxLayout:
        both = QVBoxLayout()
        both.addWidget(self.source)
        both.addLayout(
            _row(
                _button("Folder…", self._choose_folder),
                _button("Archive…", self._choose_archive),
                _button("16 shipped photographs", lambda: self.source.setText(SAMPLE)),
            )
        )
        return both

    def _choose_folder(self) -> None:
        path = QFileDialog.getExistingDirectory(self, "Pictures to study", str(self._folder))
        if path:
            self.source.setText(path)

    def _choose_archive(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Pictures to study", str(self._folder), _ARCHIVES)
        if path:
            self.source.setText(path)

    def _choose_output(self) -> None:
        path = QFileDialog.getExistingDirectory(self, "An empty folder for the results", str(self._folder))
        if path:
            self.output.setText(path)

    def _propose(self, source: str) -> None:
        """Propose a folder beside the pictures, as long as no other was written."""
        if self.output.text() != self._proposed:
            return
        name = Path(source).name.split(".")[0]
        beside = self._folder if source == SAMPLE else Path(source).parent
        self._proposed = str(beside / f"{name}-study") if name else ""
        self.output.setText(self._proposed)

    def _tell(self) -> None:
        self.start.setEnabled(bool(self.source.text().strip() and self.output.text().strip()))

    def _choose(self) -> None:
        self.chosen.emit(self.source.text().strip(), Path(self.output.text().strip()))
        self.accept()


def _without(what_if: str) -> QLabel:
    """Say that what the window shows changed is measured unchanged."""
    words = QLabel(
        f"Studies measure the model as it is: the what-if that is on in the window ({what_if}) is left out."
    )
    words.setWordWrap(True)
    words.setObjectName("without what-if")
    return words


def _button(text: str, done: object) -> QPushButton:
    button = QPushButton(text)
    button.setAutoDefault(False)
    button.clicked.connect(lambda _=False: done())
    return button


def _row(*widgets: QWidget) -> QHBoxLayout:
    row = QHBoxLayout()
    for widget in widgets:
        row.addWidget(widget)
    return row
