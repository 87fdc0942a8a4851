"""One line of numbers in words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QAction, QColor, QFont, QFontMetricsF, QGuiApplication, QPainter
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from viewer.state.palette import palette as palette_of
from viewer.ui.marks import font, unbroken

if TYPE_CHECKING:
    from PySide6.QtGui import QPaintEvent, QResizeEvent

    from viewer.state.palette import Palette

_WORST = (
    "Layer 10, mean of 12 heads: on average these heads look 200 px (14.3 patches) away, 100 % of what "
    "uniform attention would (original protocol, prefix tokens count as 0); 0.1 % goes to the class token "
    "and 4 registers; its attention is spread as over 1000 tokens (entropy 6.71 nats).\nPatch (10, 12): "
    "200 px (14.3 patches) away, 100 % of what uniform attention would; 0.1 % goes to the class token and 4 "
    "registers; spread as over 1000 tokens, most on patch (10, 12) with 0.1 %."
)
_MARGIN = 4
_LARGE = 12.0  # points; in a lecture hall the pictures have the room
_LINES = 2
_SMALLER = 0.9  # a brief read-out's share of ordinary type
_SHRUNK = (0.9, 0.8)  # shares of ordinary type that longer words are written in
_LOW = 44.0  # lines of type
# What stands in brackets, but for the place of a patch.
_ASIDE = re.compile(r" \((?!\d+, \d+|row )[^()]*\)")
# What `viewer.state.readout` says in full, and how it is said where there is little room.
_SHORTER = (
    ("of what uniform attention would", "of uniform attention"),
    ("on average this head looks", "on average"),
    ("on average these heads look", "on average"),
    ("its attention is spread", "spread"),
)


class ReadoutLine(QWidget):
    """Says what the selected head and query do; as high as its longest sentences need, so nothing jumps.

    In large type and low windows it keeps to two lines of smaller type, and the tool tip has the rest.

    A label would lay out the whole window anew for each text, which a hover can't wait for.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._palette = palette_of("light")
        self._words, self._source = "", ""
        self._low = False
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Numbers of the selected head and query")
        copy = QAction("Copy these words", self)
        copy.triggered.connect(self._copy)
        self.addAction(copy)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.ActionsContextMenu)

    def text(self) -> str:
        """Return what is said now."""
        return self._words

    def paint(self, words: str, source: str = "") -> None:
        """Show the words of a `SceneValue.readout`; its `source` goes with them where they are copied."""
        self._source = source
        if words != self._words:
            self._words = words
            self.setAccessibleDescription(words)
            self.update()

    def set_theme(self, palette: Palette) -> None:
        """Take other colours and another type size."""
        self._palette = palette
        self._fit()
        self.update()

    def fit_into(self, height: float) -> None:
        """Keep to two lines where all views together have little height."""
        low = height < _LOW * QFontMetricsF(font(self._palette)).height()
        if low != self._low:
            self._low = low
            self._fit()
            self.update()

    @property
    def _brief(self) -> bool:
        return self._low or self._palette.points > _LARGE

    @property
    def _font(self) -> QFont:
        return font(self._palette, _SMALLER if self._brief else 1.0)

    def sizeHint(self) -> QSize:
        """Return any width, and the height the longest sentences take at the width there is."""
        return QSize(400, self.height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Find the height anew."""
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        metrics = QFontMetricsF(self._font)
        if self._brief:
            height = int((_LINES + 0.3) * metrics.height()) + 2 * _MARGIN
        else:
            room = QRectF(0, 0, max(self.width() - 2 * _MARGIN, 100), 10_000)
            needed = metrics.boundingRect(room, Qt.TextFlag.TextWordWrap, _WORST).height()
            height = int(needed + 0.4 * metrics.height()) + 2 * _MARGIN
        if height != self.height():
            self.setFixedHeight(height)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Write the words."""
        painter = QPainter(self)
        painter.fillRect(self.rect(), QColor(self._palette.ground))
        painter.setFont(self._font)
        painter.setPen(QColor(self._palette.text))
        words = self._words
        if self._brief:
            metrics = QFontMetricsF(painter.font())
            lines = words.split("\n")[:_LINES]
            words = "\n".join(shortened(line, metrics, self.width() - 2 * _MARGIN) for line in lines)
        words = unbroken(words)
        box = QRectF(self.rect()).adjusted(_MARGIN, _MARGIN, -_MARGIN, -_MARGIN)
        way = Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextWordWrap
        for smaller in (1.0, *_SHRUNK) if not self._brief else ():
            # What is not verified, and a layer's note, come on a line more than there mostly is.
            painter.setFont(font(self._palette, smaller))
            if QFontMetricsF(painter.font()).boundingRect(box, way, words).height() <= box.height() + 1:
                break
        painter.drawText(box, way, words)

    def event(self, event: QEvent) -> bool:
        """Show all the words in the tool tip where some were left out."""
        if event.type() == QEvent.Type.ToolTip and self._brief:
            QToolTip.showText(event.globalPos(), self._words, self)
            return True
        return super().event(event)

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText("\n".join(filter(None, (self._words, self._source))))


def shortened(sentence: str, metrics: QFontMetricsF, room: float) -> str:
    """Return what fits of a sentence on a line: without asides, in fewer words, without its last parts."""
    if metrics.horizontalAdvance(sentence) <= room:
        return sentence
    sentence = _ASIDE.sub("", sentence).rstrip(".")
    for words, fewer in _SHORTER:
        if metrics.horizontalAdvance(f"{sentence}…") > room:
            sentence = sentence.replace(words, fewer)
    parts = re.split("(?=; |, most on )", sentence)
    while len(parts) > 1 and metrics.horizontalAdvance("".join(parts) + "…") > room:
        parts.pop()
    return metrics.elidedText("".join(parts) + "…", Qt.TextElideMode.ElideRight, room)
