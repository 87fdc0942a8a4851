"""The figure of a study: the scatter with error bars, under what it is of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from viewer.export import provenance
from viewer.export.figure import encode
from viewer.export.heading import BIG, Heading
from viewer.export.plain import plain
from viewer.export.scatter_figure import ScatterPart
from viewer.export.sheet import Sheet, Style
from viewer.export.typesetting import text_width, wrap
from viewer.state.palette import palette

if TYPE_CHECKING:
    from collections.abc import Sequence

    from viewer.export.figure import Format
    from viewer.state.display import Theme
    from viewer.state.scatter import Scatter


def draw_study(
    scatter: Scatter,
    told: Sequence[str],
    facts: dict[str, Any],
    format: Format,
    scale: int = 2,
    theme: Theme = "light",
) -> bytes:
    """Draw a study's scatter as a file's bytes.

    Parameters
    ----------
    scatter
        What to draw; its title stands above.
    told
        What stands below the title, each a few words: model, pictures, protocol.
    facts
        Provenance, ready for JSON; goes into the file.
    format
        "png", "svg" or "pdf".
    scale
        Of a PNG.
    theme
        Colours and type size.
    """
    style = Style(palette(theme))

    def compose() -> Sheet:
        part = ScatterPart.alone(scatter, style)
        width = part.width
        heading = _heading(scatter, told, width, style)
        margin = round(style.em)
        sheet = Sheet(width + 2 * margin, heading.height + part.height + 2 * margin, style, format == "png")
        heading.draw(sheet, margin, margin)
        part.draw(sheet, margin, margin + heading.height)
        return sheet

    return encode(compose, format, scale, lambda: provenance.metadata(facts, plain(scatter.title), format))


def _heading(scatter: Scatter, told: Sequence[str], width: float, style: Style) -> Heading:
    words = wrap(plain(scatter.title), width, BIG * style.points, bold=True)
    lines: list[str] = []
    for fact in map(plain, told):
        longer = f"{lines[-1]}  ·  {fact}" if lines else fact
        if lines and text_width(longer, style.small) <= width:
            lines[-1] = longer
        else:
            lines += wrap(fact, width, style.small)
    return Heading(tuple(words), tuple(lines), style)
