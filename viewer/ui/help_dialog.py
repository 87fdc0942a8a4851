"""Keys and mouse, on one page."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QGridLayout, QLabel, QWidget

_KEYS = (
    ("Mouse over a patch", "look at it; every view follows"),
    ("Click a patch", "pin it in place of all pins; Ctrl+click pins one more"),
    ("Click a pin", "make it the active one, which all views show; click the active one to unpin it"),
    (
        "Class and register tokens",
        "look at or click them above the picture, or choose one in the Query menu",
    ),
    ("Mouse over a dot or a small map", "look at that head"),
    ("Click a dot or a small map", "select that head"),
    ("Arrow keys", "move the query by one patch of the shown layer"),
    ("Space, Esc", "pin the query, and again: unpin it; Esc only unpins"),
    ("[ and ]", "previous and next layer"),
    (", and .", "previous and next head; before head 0 come all heads together"),
    ("+ and -", "make the overlay more and less opaque"),
    ("F, G", "let the picture show through where attention is weak; patch borders"),
    ("R, Shift+R", "outline the reach of one more or one less stacked 3x3 convolution"),
    ("Ctrl+O, Ctrl+M or Ctrl+Shift+O", "open pictures; open a model"),
    ("Ctrl+V", "open the picture or file on the clipboard"),
    ("Ctrl+C, Ctrl+Shift+C", "copy the figure; copy all views together"),
    ("Ctrl+E", "export a figure or a table"),
    ("Ctrl+W, Del", "close the picture"),
    ("Page Down, Page Up", "in the lesson (Help menu): the next step, the step before"),
    (
        "F8, double click on a tab",
        "give scatter, likeness or what-if lab the picture's room too, and back",
    ),
    ("F9", "show or hide the film strip"),
    ("F1", "show this page"),
    ("Ctrl+Q", "quit"),
)


class HelpDialog(QDialog):
    """Lists what keys and mouse do."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Keys and mouse")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        grid = QGridLayout(self)
        grid.setHorizontalSpacing(24)
        for row, (keys, does) in enumerate(_KEYS):
            bold = QLabel(f"<b>{keys.replace('&', '&amp;')}</b>")
            grid.addWidget(bold, row, 0)
            grid.addWidget(QLabel(does), row, 1)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        buttons.rejected.connect(self.reject)
        grid.addWidget(buttons, len(_KEYS), 0, 1, 2)
