"""The model that is open: its name, where it runs, what was verified, what a person should know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QSizePolicy, QWidget

from viewer.state.words import model_words

if TYPE_CHECKING:
    from viewer.attention.record import AttentionRecord
    from viewer.backends.model import Model
    from viewer.state.documents import Documents, ImageDocument


class ModelBar(QWidget):
    """One line about the model and the current picture's record.

    Signals
    -------
    model_asked, preprocessing_asked
        The button was pressed.
    """

    model_asked = Signal()
    preprocessing_asked = Signal()

    def __init__(self, documents: Documents, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._documents = documents
        self._name = QPushButton()
        self._name.setFlat(True)
        self._name.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._name.clicked.connect(self.model_asked)
        self._where = _label("faint")
        self._badge = _label("verified")
        self._notes = _label("faint")
        self._notes.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self._preprocessing = QPushButton("Preprocessing…")
        self._preprocessing.setToolTip("How pictures are resized, cropped and normalized for this model")
        self._preprocessing.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._preprocessing.clicked.connect(self.preprocessing_asked)
        row = QHBoxLayout(self)
        row.setContentsMargins(4, 0, 4, 0)
        for widget in (self._name, self._where, self._badge):
            row.addWidget(widget)
        row.addWidget(self._notes, 1)
        row.addWidget(self._preprocessing)
        documents.model_changed.connect(self._tell_model)
        documents.current_changed.connect(self._tell_record)
        self._tell_model(documents.model)

    def add(self, part: QWidget) -> None:
        """Put one more part beside the notes, which leave it the room that it asks for."""
        row: QHBoxLayout = self.layout()
        row.insertWidget(row.count() - 1, part)

    @property
    def badge(self) -> str:
        """What is said of verification."""
        return self._badge.text()

    @property
    def badge_reasons(self) -> str:
        """What is said of it layer by layer."""
        return self._badge.toolTip()

    @property
    def notes(self) -> str:
        """What is said of assumptions and fallbacks."""
        return self._notes.toolTip()

    def _tell_model(self, model: Model | None) -> None:
        self._name.setText(model_words(model.name) if model else "No model is open: open one…")
        self._name.setToolTip(f"{model.name}\nOpen another model (Ctrl+M)" if model else "Ctrl+M")
        self._where.setText(
            f"{_BACKENDS.get(model.backend, model.backend)} · {model.device}" if model else ""
        )
        self._preprocessing.setVisible(model is not None)
        self._tell_record(self._documents.current)

    def _tell_record(self, document: ImageDocument | None) -> None:
        record = document.record if document else None
        model = self._documents.model
        self._badge.setText("" if record is None else "✓ verified" if record.verified else "not verified")
        self._badge.setToolTip("" if record is None else verification(record))
        self._badge.setProperty("kind", "verified" if record is None or record.verified else "unverified")
        self._badge.style().polish(self._badge)
        assumed = (model.preprocessing.assumed,) if model and model.preprocessing.assumed else ()
        notes = (*(model.notes if model else ()), *assumed)
        notes += (*document.image.notes, *(record.notes if record else ())) if document else ()
        notes = tuple(dict.fromkeys(notes))
        self._notes.setText("  ·  ".join(notes))
        self._notes.setToolTip("\n".join(notes))


_BACKENDS = {"torch": "PyTorch", "onnx": "ONNX Runtime"}


def verification(record: AttentionRecord) -> str:
    """Say what was verified of a record, layer by layer where something was not."""
    lines = []
    failed = [layer for layer in record.layers if not layer.verdict.verified]
    errors = [layer.verdict.output_error for layer in record.layers if layer.verdict.output_error is not None]
    if not failed:
        worst = f", largest relative error {max(errors):.1g}" if errors else ""
        lines.append(
            f"All {len(record.layers)} layers verified: the shown weights reproduce each attention's real "
            f"output{worst}."
        )
    lines += [
        f"Layer {layer.index} ({layer.name}) is not verified: {layer.verdict.reason}." for layer in failed
    ]
    lines.append(
        {
            True: "Looking inside left the model's output as it was.",
            False: "Looking inside changed the model's output.",
            None: "Whether looking inside changed the model's output was not compared.",
        }[record.output_unchanged]
    )
    return "\n".join(lines)


def _label(kind: str) -> QLabel:
    label = QLabel()
    label.setProperty("kind", kind)
    label.setTextFormat(Qt.TextFormat.PlainText)
    return label
