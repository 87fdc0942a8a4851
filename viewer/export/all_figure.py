"""All views in one figure: the picture, every head, the scatter, and what the read-out says."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from viewer.export.heads_figure import HeadsPart
from viewer.export.overlay_figure import OverlayPart
from viewer.export.plain import plain
from viewer.export.scatter_figure import ScatterPart
from viewer.export.typesetting import wrap

if TYPE_CHECKING:
    from viewer.export.sheet import Sheet, Style
    from viewer.state.heads import Heads
    from viewer.state.overlay import Overlay
    from viewer.state.scatter import Scatter


@dataclass(frozen=True)
class AllPart:
    """The picture beside the heads, the scatter below, as in the window.

    Attributes
    ----------
    overlay, heads
        What to draw.
    scatter
        What to draw; None while the record is not measured yet.
    readout
        The read-out's sentence.
    captions
        Whether heads and scatter bear their titles.
    style
        Colours and type.
    """

    overlay: Overlay
    heads: Heads
    scatter: Scatter | None
    readout: str
    captions: bool
    style: Style

    @cached_property
    def _gap(self) -> int:
        return round(2.2 * self.style.em)

    @cached_property
    def _caption(self) -> int:
        return round(2.0 * self.style.em) if self.captions else 0

    @cached_property
    def _picture(self) -> OverlayPart:
        return OverlayPart(self.overlay, self.style)

    @cached_property
    def _every_head(self) -> HeadsPart:
        return HeadsPart(self.heads, self.style)

    @cached_property
    def _dots(self) -> ScatterPart | None:
        return None if self.scatter is None else ScatterPart(self.scatter, self.style, self.width)

    @cached_property
    def _sentence(self) -> list[str]:
        said = (plain(sentence) for sentence in self.readout.splitlines())
        return [line for sentence in said for line in wrap(sentence, self.width, self.style.points)]

    @cached_property
    def width(self) -> int:
        """Width in pixels at scale 1."""
        return max(self._picture.width + self._gap + self._every_head.width, round(40 * self.style.em))

    @cached_property
    def _upper(self) -> int:
        return self._caption + max(self._picture.height, self._every_head.height)

    @cached_property
    def _lower(self) -> int:
        return 0 if self._dots is None else self._gap + self._caption + self._dots.height

    @cached_property
    def height(self) -> int:
        """Height in pixels at scale 1."""
        return self._upper + self._lower + round((1.4 * len(self._sentence) + 0.8) * self.style.em)

    def draw(self, sheet: Sheet, left: int, top: int) -> None:
        """Draw it with its upper left corner there."""
        em, points = self.style.em, self.style.points
        heads_left = left + self._picture.width + self._gap
        self._picture.draw(sheet, left, top + self._caption)
        self._every_head.draw(sheet, heads_left, top + self._caption)
        if self.captions:
            sheet.text(left, top, "The picture", points, bold=True)
            sheet.text(heads_left, top, "Every head", points, bold=True)
        if self._dots is not None and self.scatter is not None:
            below = top + self._upper + self._gap
            if self.captions:
                sheet.text(left, below, self.scatter.title, points, bold=True)
            self._dots.draw(sheet, left, below + self._caption)
        for i, line in enumerate(self._sentence):
            sheet.text(left, top + self._upper + self._lower + (1.4 * i + 0.8) * em, line, points)
