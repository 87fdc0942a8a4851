"""One panel alone, following the state as in the window."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QPoint, QPointF
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication, QVBoxLayout, QWidget


def show(qtbot, panel: QWidget, scene, part: str, size: tuple[int, int]) -> QWidget:
    """Put a panel into a window, and let it paint one part of every moment of the scene."""
    holder = QWidget()
    qtbot.addWidget(holder)
    column = QVBoxLayout(holder)
    column.setContentsMargins(0, 0, 0, 0)
    column.addWidget(panel)
    holder.resize(*size)

    def paint(value) -> None:
        panel.paint(getattr(value, part))

    scene.changed.connect(paint)
    holder.paint_part = paint  # the signal holds no reference
    paint(scene.value)
    with qtbot.waitExposed(holder):
        holder.show()
    QApplication.processEvents()
    return holder


def pixels(widget: QWidget) -> np.ndarray:
    """Return what a widget paints, uint8 (H, W, 3), one pixel for each of its own coordinates."""
    step = round(widget.devicePixelRatioF())
    return painted(widget)[::step, ::step]


def colour_at(widget: QWidget, position: QPointF) -> list[int]:
    """Return the colour painted at a position in the widget's own coordinates."""
    ratio = widget.devicePixelRatioF()
    return painted(widget)[int(position.y() * ratio), int(position.x() * ratio)].tolist()


def painted(widget: QWidget) -> np.ndarray:
    """Return what a widget paints, uint8 (H, W, 3), in the pixels of the screen."""
    image = widget.grab().toImage().convertToFormat(QImage.Format.Format_RGB888)
    rows = np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), image.bytesPerLine())
    return rows[:, : 3 * image.width()].reshape(image.height(), image.width(), 3).copy()


def whole(position: QPointF) -> QPoint:
    return QPoint(int(position.x()), int(position.y()))
