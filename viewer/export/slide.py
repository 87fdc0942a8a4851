"""A step of the lesson as a slide: headline, words, the list of keys, and a view beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from viewer.errors import ExportError
from viewer.export import figure, provenance
from viewer.export.heading import facts, warning
from viewer.export.overlay_figure import OverlayPart
from viewer.export.plain import plain
from viewer.export.scatter_figure import ScatterPart
from viewer.export.sheet import Sheet, Style
from viewer.export.slide_table import TablePart
from viewer.export.typesetting import shorten, wrap
from viewer.export.writing import write_atomically
from viewer.state.lesson_steps import STEPS, TITLE
from viewer.state.lesson_table import table
from viewer.state.palette import palette

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from viewer.export.figure import Format, Part
    from viewer.state.lesson_steps import Step
    from viewer.state.requests import SlideRequest
    from viewer.state.scene import SceneValue

SIZE = (1280, 720)
"""Width and height in pixels at scale 1: 16 to 9."""

_MARGIN, _GAP = 44, 36
_HEADLINE, _FOOT = 28.0, 10.0  # points
_TYPE = tuple(half / 2 for half in range(36, 23, -1))  # points of words, the largest that fits is taken
_VIEW_TYPE = tuple(range(14, 6, -1))  # points in the views
_LEAD = 1.38  # from line to line, in ems
_BETWEEN = 0.6  # between paragraphs, in ems
_WORDS, _LISTED = 0.36, 0.46  # share of the width that words take, and words over a list


def draw(scene: SceneValue, request: SlideRequest, format: Format | None = None) -> bytes:
    """Draw a step of the lesson as a file's bytes.

    Parameters
    ----------
    scene
        What the views show at this step.
    request
        Step, scale (of a PNG) and ground.
    format
        By default the suffix of ``request.path``.

    Raises
    ------
    ExportError
        If what the step shows is not there, or there is no such format.
    """
    format = format or figure.format_of(request.path)
    step = STEPS[request.step]
    document = scene.document
    if document is None or document.record is None or document.measures is None:
        raise ExportError(f"There is nothing to draw yet of the step “{step.title}”.")

    def metadata() -> dict[str, object]:
        known = {**provenance.of_scene(scene, step.view), "lesson": step.name}
        return provenance.metadata(known, f"{TITLE} {step.title}", format)

    return figure.encode(
        lambda: _compose(scene, step, request, format == "png"), format, request.scale, metadata
    )


def save(scene: SceneValue, request: SlideRequest) -> Path:
    """Draw a step of the lesson into a file, which appears whole or not at all.

    Raises
    ------
    ExportError, FileError
        As `draw`, and if the file can't be written.
    """
    write_atomically(request.path, draw(scene, request))
    return request.path


def _compose(scene: SceneValue, step: Step, request: SlideRequest, raster: bool) -> Sheet:
    style = _style(scene, request)
    width, height = SIZE
    sheet = Sheet(width, height, style, raster)
    top = _draw_headline(sheet, step)
    bottom = _draw_foot(sheet, scene, request.step)
    left_width = round((_WORDS if table(scene, step) is None else _LISTED) * width)
    words = Words.fit(scene, step, style, left_width, bottom - top)
    words.draw(sheet, _MARGIN, top)
    left = _MARGIN + left_width + _GAP
    room = width - _MARGIN - left
    part = _fitted(step, scene, style, room, bottom - top)
    part.draw(sheet, left + (room - part.width) // 2, top + max((bottom - top - part.height) // 3, 0))
    return sheet


def _style(scene: SceneValue, request: SlideRequest) -> Style:
    """Return the window's colours on the wished ground."""
    theme = scene.display.theme
    colours = "dark" if request.ground == "dark" else "light" if theme == "dark" else theme
    return _in_type(Style(palette(colours), request.ground == "transparent"), _TYPE[0])


def _draw_headline(sheet: Sheet, step: Step) -> int:
    """Draw what the step is called; return where the rest begins."""
    sheet.text(_MARGIN, 36, step.title, _HEADLINE, bold=True)
    return 36 + round(2.0 * _HEADLINE * 96 / 72)


def _draw_foot(sheet: Sheet, scene: SceneValue, index: int) -> int:
    """Draw lesson, model, picture and what is not verified; return where the rest ends."""
    width, height = SIZE
    room = width - 2 * _MARGIN
    found = facts(scene, "overlay")[:2]
    line = "  ·  ".join([f"{TITLE} {index + 1} of {len(STEPS)}", *found, "Patchreach"])
    y = height - 30
    sheet.text(_MARGIN, y, shorten(line, room, _FOOT), _FOOT, sheet.style.palette.faint)
    for said in reversed(wrap(plain(warning(scene, "all")), room, _FOOT)):
        y -= 18
        sheet.text(_MARGIN, y, said, _FOOT, sheet.style.palette.accent)
    return y - 16


@dataclass(frozen=True)
class Words:
    """A step's paragraphs over its list of keys, in the largest type that fits.

    Attributes
    ----------
    paragraphs
        Each broken into lines.
    keys
        The list below; None for none.
    style
        Colours and type.
    """

    paragraphs: tuple[tuple[str, ...], ...]
    keys: TablePart | None
    style: Style

    @classmethod
    def fit(cls, scene: SceneValue, step: Step, style: Style, width: int, height: int) -> Words:
        """Break the words of a step into lines of a width in pixels."""
        said, listed = step.words(scene), table(scene, step)
        for points in _TYPE:
            smaller = _in_type(style, points)
            lines = tuple(tuple(wrap(words, width, points)) for words in said)
            keys = None if listed is None else TablePart(listed, smaller, width)
            found = cls(lines, keys, smaller)
            if found.height <= height:
                break
        return found

    @cached_property
    def _text_height(self) -> float:
        lines = sum(map(len, self.paragraphs))
        return (_LEAD * lines + _BETWEEN * len(self.paragraphs)) * self.style.em

    @property
    def height(self) -> float:
        """Height in pixels at scale 1."""
        return self._text_height + (0 if self.keys is None else self.keys.height)

    def draw(self, sheet: Sheet, left: int, top: int) -> None:
        """Draw them with the upper left corner there."""
        y = float(top)
        for lines in self.paragraphs:
            for line in lines:
                sheet.text(left, y, line, self.style.points)
                y += _LEAD * self.style.em
            y += _BETWEEN * self.style.em
        if self.keys is not None:
            self.keys.draw(sheet, left, round(y))


def _fitted(step: Step, scene: SceneValue, style: Style, width: int, height: int) -> Part:
    """Return a step's view in the largest type with which it fits, or else in the smallest."""
    part: Part | None = None
    for points in _VIEW_TYPE:
        for part in _parts(step, scene, _in_type(style, points), width, height):
            if part.width <= width and part.height <= height:
                return part
    return part


def _parts(step: Step, scene: SceneValue, style: Style, width: int, height: int) -> Iterator[Part]:
    """Yield a view in one size of type; the picture ever smaller, until it is better to take smaller type."""
    if step.view == "scatter":
        yield ScatterPart(scene.scatter, style, width, step.named(scene.document))
    else:
        rows = scene.overlay.grid[0]
        for pixels in range(height // rows, max(round(0.55 * height / rows), 1), -1):
            yield OverlayPart(scene.overlay, style, patch=pixels)


def _in_type(style: Style, points: float) -> Style:
    return replace(style, palette=replace(style.palette, points=float(points), room=float(points)))
