"""The whole picture in small, with a frame around what the model saw of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    import numpy.typing as npt

    from viewer.export.sheet import Box, Sheet, Style
    from viewer.state.overlay import Overlay

_SHARE = 0.28  # of the picture's width and height, at most
_NARROW = 6  # ems that it may be wide beside any picture
_LEAST = 1.5  # ems of its shorter side; smaller, nothing can be told
_BAR = 9  # ems that a colour bar above it keeps
_SHARP = 4  # embedded pixels for each pixel at scale 1, the largest scale there is


@dataclass(frozen=True)
class Inset:
    """As the window's image panel has it below the colour bar.

    Attributes
    ----------
    overlay
        Whose `whole` and `box`.
    style
        Colours and type.
    width, height
        In pixels at scale 1, padding around the picture included.
    """

    overlay: Overlay
    style: Style
    width: float
    height: float

    @classmethod
    def beside(cls, overlay: Overlay, picture: tuple[int, int], style: Style) -> Inset | None:
        """Make one that fits beside a picture of (width, height) in pixels; None where there is no room."""
        if overlay.box is None:
            return None
        left, top, right, bottom = overlay.extent
        room = max(_SHARE * picture[0], _NARROW * style.em), _SHARE * picture[1]
        factor = min(room[0] / (right - left), room[1] / (bottom - top))
        width, height = factor * (right - left), factor * (bottom - top)
        if min(width, height) < _LEAST * style.em or picture[1] - height < (_BAR + 1) * style.em:
            return None
        return cls(overlay, style, width, height)

    def draw(self, sheet: Sheet, left: float, top: float) -> None:
        """Draw it with its upper left corner there."""
        palette = self.style.palette
        height, width = self.overlay.whole.shape[:2]
        # What is not the picture's own is padding.
        sheet.fill((left, top, self.width, self.height), palette.empty)
        sheet.image(self._place(left, top, (0, 0, width, height)), self._small(), smooth=True, name="whole")
        seen = self._place(left, top, self.overlay.box)
        sheet.frame(seen, "#ffffff", 3.6)
        sheet.frame(seen, palette.accent, 2.0)

    def _place(self, left: float, top: float, sides: tuple[float, float, float, float]) -> Box:
        """Return the box of (left, top, right, bottom) in pixels of the whole picture."""
        start, above, end, _ = self.overlay.extent
        factor = self.width / (end - start)
        return (
            left + (sides[0] - start) * factor,
            top + (sides[1] - above) * factor,
            (sides[2] - sides[0]) * factor,
            (sides[3] - sides[1]) * factor,
        )

    def _small(self) -> npt.NDArray[np.uint8]:
        """Return the picture in no more pixels than a figure can show: photographs have 24 megapixels."""
        picture = Image.fromarray(self.overlay.whole)
        picture.thumbnail((max(round(_SHARP * self.width), 1), max(round(_SHARP * self.height), 1)))
        return np.asarray(picture)
