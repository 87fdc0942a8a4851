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

_WIDEST = 56  # so many `Style.room` that the picture's column may be wide


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
        room = (round(_WIDEST * self.style.room), self._every_head.height)
        return OverlayPart(self.overlay, self.style, room)

    @cached_property
    def _every_head(self) -> HeadsPart:
        return HeadsPart(self.heads, self.style)

    @cached_property
    def _dots(self) -> ScatterPart | None:
        return None if self.scatter is None else ScatterPart(self.scatter, self.style, self.width)

    def _wrapped(self, width: int) -> list[str]:
        said = (plain(sentence) for sentence in self.readout.splitlines())
        return [line for sentence in said for line in wrap(sentence, width, self.style.points)]

    def _text_height(self, lines: list[str]) -> int:
        return round((1.4 * len(lines) + 0.8) * self.style.em)

    @cached_property
    def _under_picture(self) -> list[str]:
        """What the read-out says, where a flat picture leaves room for it below; else nothing."""
        lines = self._wrapped(self._picture.width)
        fits = self._picture.height + self._text_height(lines) <= self._every_head.height
        return lines if fits else []

    @cached_property
    def _sentence(self) -> list[str]:
        return [] if self._under_picture else self._wrapped(self.width)

    @cached_property
    def width(self) -> int:
        """Width in pixels at scale 1."""
        return max(self._picture.width + self._gap + self._every_head.width, round(40 * self.style.room))

    @cached_property
    def _upper(self) -> int:
        return self._caption + max(self._picture.height, self._every_head.height)

    @cached_property
    def _lower(self) -> int:
        return 0 if self._dots is None else self._gap + self._caption + self._dots.height

    @cached_property
    def height(self) -> int:
        """Height in pixels at scale 1."""
        return self._upper + self._lower + (self._text_height(self._sentence) if self._sentence else 0)

    def draw(self, sheet: Sheet, left: int, top: int) -> None:
        """Draw it with its upper left corner there."""
        points = self.style.points
        heads_left = left + self._picture.width + self._gap
        self._picture.draw(sheet, left, top + self._caption)
        self._every_head.draw(sheet, heads_left, top + self._caption)
        if self.captions:
            sheet.text(left, top, "The picture", points, bold=True)
            # Without what is asked, which the figure's title says; with its mark, where the model is changed.
            sheet.text(heads_left, top, self.heads.title.partition(":")[0], points, bold=True)
        if self._dots is not None and self.scatter is not None:
            below = top + self._upper + self._gap
            if self.captions:
                sheet.text(left, below, self.scatter.title, points, bold=True)
            self._dots.draw(sheet, left, below + self._caption)
        self._draw_text(sheet, left, top + self._caption + self._picture.height, self._under_picture)
        self._draw_text(sheet, left, top + self._upper + self._lower, self._sentence)

    def _draw_text(self, sheet: Sheet, left: int, top: int, lines: list[str]) -> None:
        for i, line in enumerate(lines):
            sheet.text(left, top + (1.4 * i + 0.8) * self.style.em, line, self.style.points)
