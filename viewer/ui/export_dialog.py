"""Choosing what to export: a view as a figure, or the measures as a table."""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QStandardPaths, Qt, Signal
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
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

from viewer.state.preferences import ExportChoices
from viewer.state.requests import FigureRequest, TableRequest

if TYPE_CHECKING:
    from viewer.state.documents import ImageDocument
    from viewer.state.preferences import Preferences

_TABLES_OF = {"table": "measures", "likeness table": "likeness"}
_VIEWS = (
    ("The picture with its overlay", "overlay"),
    ("All layers and heads", "heads"),
    ("Scatter", "scatter"),
    ("Likeness of layers or heads", "likeness"),
    ("Everything together", "all"),
    ("Measures as a table", "table"),
    ("Likeness as a table", "likeness table"),
)
_ABOUT = {
    "table": "All measures of every layer and head.",
    "likeness table": "Cosines of the maps of every two layers, head by head, and of two heads of a layer.",
}
_FIGURES = (("PNG picture", ".png"), ("SVG drawing", ".svg"), ("PDF drawing", ".pdf"))
_TABLES = (("CSV", ".csv"), ("JSON", ".json"), ("Parquet", ".parquet"))
_GROUNDS = (("light", "light"), ("dark", "dark"), ("transparent", "transparent"))


class ExportDialog(QDialog):
    """Asks what to export.

    Signals
    -------
    chosen
        Carries a `FigureRequest` or a `TableRequest`.
    choices_made
        Carries the `ExportChoices` to be remembered.
    """

    chosen = Signal(object)
    choices_made = Signal(object)

    def __init__(
        self, document: ImageDocument, preferences: Preferences, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle("Export")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        remembered = preferences.export
        self.view, self.format, self.factor = _list(_VIEWS), QComboBox(), QComboBox()
        for factor in range(1, 5):
            self.factor.addItem(f"{factor} ×", factor)
        self.ground, self.title = (
            _list(_GROUNDS),
            QCheckBox("model, picture, layer, head, query and protocol"),
        )
        self.path, self.about = QLineEdit(), QLabel()
        self._stem = Path(document.image.name).stem or "picture"
        self._folder = remembered.folder if os.path.isdir(remembered.folder) else _own_pictures()  # noqa: PTH112
        self._build()
        _take(self.view, remembered.view)
        self._offer_formats()
        _take(self.format, remembered.suffix)
        _take(self.factor, remembered.factor)
        _take(self.ground, remembered.ground)
        self.title.setChecked(remembered.title)
        self._propose()

    def _build(self) -> None:
        browse = QPushButton("Folder and name…")
        browse.setAutoDefault(False)
        browse.clicked.connect(self._browse)
        row = QHBoxLayout()
        row.addWidget(self.path, 1)
        row.addWidget(browse)
        self._form = QFormLayout()
        self._form.addRow("What", self.view)
        self._form.addRow("Format", self.format)
        self._form.addRow("Size", self.factor)
        self._form.addRow("Title line", self.title)
        self._form.addRow("Ground", self.ground)
        self._form.addRow("File", row)
        self.about.setProperty("kind", "faint")
        self.about.setWordWrap(True)
        buttons = QDialogButtonBox(
            QDialogButtonBox.StandardButton.Save | QDialogButtonBox.StandardButton.Cancel
        )
        self.save_button = buttons.button(QDialogButtonBox.StandardButton.Save)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        column = QVBoxLayout(self)
        column.addLayout(self._form)
        column.addWidget(self.about)
        column.addWidget(buttons)
        self.path.setMinimumWidth(360)
        self.view.currentIndexChanged.connect(self._offer_formats)
        self.format.currentIndexChanged.connect(self._propose)
        self.path.textChanged.connect(lambda text: self.save_button.setEnabled(bool(text.strip())))

    def accept(self) -> None:
        """Ask for the export; an existing file is overwritten only after a question."""
        # Whatever was typed must not raise here, as pathlib's may: writing tells what is wrong with it.
        path = Path(os.path.expanduser(self.path.text().strip()))  # noqa: PTH111
        if path.suffix.lower() != self.format.currentData():
            path = Path(f"{path}{self.format.currentData()}")
        if os.path.exists(path) and not self._overwrite(path):  # noqa: PTH110
            return
        self.choices_made.emit(
            ExportChoices(
                self.view.currentData(),
                self.format.currentData(),
                self.factor.currentData(),
                self.title.isChecked(),
                self.ground.currentData(),
                str(path.absolute().parent),
            )
        )
        self.chosen.emit(self._request(path))
        super().accept()

    def _request(self, path: Path) -> FigureRequest | TableRequest:
        if self._is_table:
            return TableRequest(path, _TABLES_OF[self.view.currentData()])
        return FigureRequest(
            view=self.view.currentData(),
            path=path,
            scale=self.factor.currentData(),
            title=self.title.isChecked(),
            ground=self.ground.currentData(),
        )

    def _overwrite(self, path: Path) -> bool:
        from PySide6.QtWidgets import QMessageBox

        yes, no = QMessageBox.StandardButton.Yes, QMessageBox.StandardButton.No
        words = f"{path.name} is there already. Overwrite it?"
        answer = QMessageBox.question(self, "Export", words, yes | no, no)
        return answer == QMessageBox.StandardButton.Yes

    @property
    def _is_table(self) -> bool:
        return self.view.currentData() in _TABLES_OF

    def _offer_formats(self) -> None:
        table = self._is_table
        before = self.format.currentData()
        self.format.clear()
        for words, suffix in _TABLES if table else _FIGURES:
            self.format.addItem(f"{words} ({suffix})", suffix)
        _take(self.format, before)
        self._propose()

    def _propose(self) -> None:
        """Offer only what fits the format, and keep the written name but for its suffix."""
        suffix = self.format.currentData() or ""
        table = self._is_table
        self._form.setRowVisible(self.factor, suffix == ".png")
        for field in (self.title, self.ground):
            self._form.setRowVisible(field, not table)
        old = Path(self.path.text().strip()) if self.path.text().strip() else None
        what = _TABLES_OF.get(self.view.currentData(), self.view.currentData())
        name = f"{self._stem}-{what}{suffix}"
        self.path.setText(str((old.parent if old else Path(self._folder)) / name))
        self.about.setText(
            _ABOUT.get(
                self.view.currentData(),
                "Drawn anew, as sharp as the format allows, with its provenance inside.",
            )
        )

    def _browse(self) -> None:
        path, _ = QFileDialog.getSaveFileName(
            self, "Export to", self.path.text(), options=QFileDialog.Option.DontConfirmOverwrite
        )
        if path:
            self.path.setText(path)


def _own_pictures() -> str:
    """Return the person's folder of pictures, or home."""
    places = QStandardPaths.StandardLocation
    found = QStandardPaths.writableLocation(places.PicturesLocation)
    return found if Path(found or " ").is_dir() else QStandardPaths.writableLocation(places.HomeLocation)


def _list(items: tuple[tuple[str, str], ...]) -> QComboBox:
    box = QComboBox()
    for words, value in items:
        box.addItem(words, value)
    return box


def _take(box: QComboBox, value: object) -> None:
    place = box.findData(value)
    if place >= 0:
        box.setCurrentIndex(place)
