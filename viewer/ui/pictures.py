"""Arrays to Qt pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QImage, QPixmap

if TYPE_CHECKING:
    import numpy.typing as npt


def picture(pixels: npt.NDArray[np.uint8]) -> QImage:
    """Return an image of its own memory from uint8 (H, W, 3)."""
    pixels = np.ascontiguousarray(pixels)
    height, width = pixels.shape[:2]
    return QImage(pixels.data, width, height, 3 * width, QImage.Format.Format_RGB888).copy()


def reduced(pixels: npt.NDArray[np.uint8], size: QSize, ratio: float) -> QPixmap:
    """Return a picture fitted into `size`, sharp on a screen of that device pixel ratio.

    Large photographs are thinned out to about twice the wanted size first: smooth scaling of 24 megapixels on
    the window's thread would be felt.
    """
    wanted = size * ratio
    enough = (max(2 * wanted.height(), 1), max(2 * wanted.width(), 1))
    step = max(1, min(pixels.shape[0] // enough[0], pixels.shape[1] // enough[1]))
    pixmap = QPixmap.fromImage(picture(pixels[::step, ::step])).scaled(
        wanted, Qt.AspectRatioMode.KeepAspectRatio, Qt.TransformationMode.SmoothTransformation
    )
    pixmap.setDevicePixelRatio(ratio)
    return pixmap
