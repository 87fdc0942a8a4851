"""Figures: what the window shows, drawn anew from its description as PNG, SVG or PDF."""

from __future__ import annotations

import io
import math
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, cast, get_args

import matplotlib.style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG

from viewer.errors import ExportError
from viewer.export import provenance
from viewer.export.all_figure import AllPart
from viewer.export.heading import BIG, Heading, title, warning
from viewer.export.heads_figure import HeadsPart
from viewer.export.likeness_figure import LikenessPart
from viewer.export.overlay_figure import OverlayPart
from viewer.export.plain import plain
from viewer.export.scatter_figure import ScatterPart
from viewer.export.sheet import Sheet, Style
from viewer.export.typesetting import DPI, SANS_SERIF, text_width, wrap
from viewer.export.writing import write_atomically
from viewer.state.palette import palette
from viewer.state.requests import FigureRequest

if TYPE_CHECKING:
    from viewer.state.scene import SceneValue

Format = Literal["png", "svg", "pdf"]
FORMATS: tuple[str, ...] = get_args(Format)
_CANVAS = {"png": FigureCanvasAgg, "svg": FigureCanvasSVG, "pdf": FigureCanvasPdf}
_NARROWEST = 26  # least width of a figure with a title, in `Style.room`
_WIDER = 1.15  # how much wider than what it shows a title may make a figure

# Matplotlib has these switches only as global settings; they hold while one figure is written.
_SETTINGS = {
    "font.sans-serif": SANS_SERIF,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "image.composite_image": False,
    "axes.unicode_minus": False,
}
_one_at_a_time = threading.Lock()


class Part(Protocol):
    """A piece of a figure that knows its size before it is drawn."""

    width: int
    height: int

    def draw(self, sheet: Sheet, left: int, top: int) -> None:
        """Draw it with its upper left corner there."""


def draw(scene: SceneValue, request: FigureRequest, format: Format | None = None) -> bytes:
    """Draw one moment of the window as a file's bytes.

    Parameters
    ----------
    scene
        What the views show.
    request
        View, scale (of a PNG), title and ground.
    format
        By default the suffix of ``request.path``, or "png" where there is none.

    Raises
    ------
    ExportError
        If there is nothing to draw yet, or the format or scale is not one there is.
    """
    format = format or format_of(request.path)
    if request.scale not in (1, 2, 3, 4):
        raise ExportError(f"A figure's scale is 1, 2, 3 or 4, not {request.scale}.")
    return encode(
        lambda: _compose(scene, request, raster=format == "png"),
        format,
        request.scale,
        lambda: _metadata(scene, request, format),
    )


def encode(
    compose: Callable[[], Sheet], format: Format, scale: int, metadata: Callable[[], dict[str, object]]
) -> bytes:
    """Return a sheet as a file's bytes.

    Parameters
    ----------
    compose
        Lays it out; called where Matplotlib is set for figures, one at a time.
    format
        See `FORMATS`.
    scale
        Of a PNG.
    metadata
        Gives what goes into the file, see `viewer.export.provenance.metadata`.
    """
    with _one_at_a_time, _settings():
        sheet = compose()
        _CANVAS[format](sheet.figure)
        file = io.BytesIO()
        dpi = DPI * scale if format == "png" else DPI
        sheet.figure.savefig(file, format=format, dpi=dpi, metadata=metadata())
    return _smooth_photograph(file.getvalue()) if format == "svg" else file.getvalue()


def save(scene: SceneValue, request: FigureRequest, path: str | Path | None = None) -> Path:
    """Draw one moment of the window into a file; the file appears whole or not at all.

    Parameters
    ----------
    scene, request
        As for `draw`.
    path
        By default ``request.path``; its suffix is the format.

    Raises
    ------
    ExportError
        If there is nothing to draw yet, or no such format.
    FileError
        If the file can't be written.
    """
    target = path or request.path
    if target is None:
        raise ExportError("A figure needs a file name to be saved under.")
    write_atomically(Path(target), draw(scene, request, format_of(target)))
    return Path(target)


def format_of(path: str | Path | None) -> Format:
    """Return the format that a file's suffix stands for; PNG where there is no path.

    Raises
    ------
    ExportError
        If it is none of the formats there are.
    """
    if path is None:
        return "png"
    suffix = Path(path).suffix.lower()
    if suffix[1:] not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        found = f"{suffix} is not" if suffix else "a name without a suffix is not"
        raise ExportError(f"{path}: {found} a kind of figure there is; choose one of {known}.")
    return cast("Format", suffix[1:])


@contextmanager
def _settings() -> Iterator[None]:
    with matplotlib.style.context(["default", _SETTINGS]), warnings.catch_warnings():
        # A letter that no installed font has becomes a box in PNG and PDF, and stays itself in SVG.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        yield


def _style(scene: SceneValue, request: FigureRequest) -> Style:
    """Return the window's colours on the wished ground, in the theme's type size."""
    theme = scene.display.theme
    colours = theme
    if request.ground == "dark":
        colours = "dark"
    elif request.ground == "light" and theme == "dark":
        colours = "light"
    size = palette(theme)
    dressed = replace(palette(colours), points=size.points, room=size.room)
    return Style(dressed, request.ground == "transparent")


def _part(scene: SceneValue, request: FigureRequest, style: Style) -> Part:
    overlay, heads, scatter = scene.overlay, scene.heads, scene.scatter
    if request.view == "scatter" and scatter is not None:
        return ScatterPart.alone(scatter, style)
    likeness = scene.likeness
    if request.view == "likeness" and likeness is not None:
        if likeness.values is None:
            raise ExportError(likeness.blank)
        return LikenessPart(likeness, style)
    if request.view == "heads" and heads is not None:
        return HeadsPart(heads, style)
    if request.view == "overlay" and overlay is not None:
        return OverlayPart(overlay, style)
    if request.view == "all" and overlay is not None and heads is not None:
        return AllPart(overlay, heads, scatter, scene.readout, request.title, style)
    raise ExportError(
        "There is nothing to draw yet: a figure needs a model, a picture"
        + (" and finished measures." if request.view in ("scatter", "likeness") else " and its attention.")
    )


def _compose(scene: SceneValue, request: FigureRequest, raster: bool) -> Sheet:
    """Lay out margins, heading, the part and what is not verified."""
    if scene.document is None or scene.document.record is None:
        raise ExportError("There is nothing to draw yet: a figure needs a model and a picture.")
    style = _style(scene, request)
    part = _part(scene, request, style)
    width = _width(scene, request, part, style)
    heading = Heading.fit(scene, request.view, width, style) if request.title else None
    notes = wrap(warning(scene, request.view), width, style.small)
    margin = round(style.em)
    above = heading.height if heading else 0
    below = round(1.3 * style.em * len(notes)) + (margin if notes else 0)
    sheet = Sheet(width + 2 * margin, above + part.height + below + 2 * margin, style, raster)
    if heading:
        heading.draw(sheet, margin, margin)
    part.draw(sheet, margin, margin + above)
    for i, line in enumerate(notes):
        y = margin + above + part.height + margin + 1.3 * style.em * i
        sheet.text(margin, y, line, style.small, style.palette.accent)
    return sheet


def _width(scene: SceneValue, request: FigureRequest, part: Part, style: Style) -> int:
    """Return a width for part and title: a small one gets a little more room before it is broken."""
    if not request.title:
        return part.width
    wider = _WIDER if style.room >= style.em else 1.0
    needed = text_width(plain(title(scene, request.view)), BIG * style.points, bold=True)
    return max(part.width, round(_NARROWEST * style.room), min(math.ceil(needed), round(wider * part.width)))


def _smooth_photograph(svg: bytes) -> bytes:
    """Let viewers blend the photograph's pixels; Matplotlib asks for squares, which only the maps want."""
    return re.sub(rb'(<image [^>]*id="picture"[^>]*?) style="image-rendering:[^"]*"', rb"\1", svg)


def _metadata(scene: SceneValue, request: FigureRequest, format: Format) -> dict[str, object]:
    facts = provenance.of_scene(scene, request.view)
    return provenance.metadata(facts, plain(title(scene, request.view)), format)
