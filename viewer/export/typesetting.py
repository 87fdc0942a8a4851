"""Type in figures: which fonts, how wide a text runs, and breaking it so that nothing is clipped."""

from __future__ import annotations

import re
from functools import lru_cache

from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.font_manager import FontProperties, fontManager

DPI = 96
"""Pixels an inch of a figure at scale 1; type of 10 points is 13.3 pixels high, as on most screens."""

SANS_SERIF = ("DejaVu Sans", "Verdana")
"""DejaVu comes with Matplotlib; where an SVG is read without it, Verdana runs as wide."""

# These only fill in letters that DejaVu lacks: file names may hold any script.
_FALLBACKS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans CJK KR",
    "PingFang SC",
    "Hiragino Sans",
    "Apple SD Gothic Neo",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
    "WenQuanYi Zen Hei",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
)


_FACTORS = (1, 2, 3, 4, 8)  # the scales of a PNG, and one at which fitting no longer matters


@lru_cache(maxsize=1)
def families() -> tuple[str, ...]:
    """Return the font families to set type in, those for other scripts only if they are installed."""
    installed = {font.name for font in fontManager.ttflist}
    return ("sans-serif", *(name for name in _FALLBACKS if name in installed))


@lru_cache(maxsize=64)
def font(points: float, bold: bool = False) -> FontProperties:
    """Return the font of a size in points."""
    return FontProperties(family=list(families()), size=points, weight="bold" if bold else "normal")


@lru_cache(maxsize=len(_FACTORS))
def _ruler(factor: int) -> RendererAgg:
    return RendererAgg(1, 1, DPI * factor)


@lru_cache(maxsize=4096)
def text_width(text: str, points: float, bold: bool = False) -> float:
    """Return how wide a line of text runs, in pixels at scale 1.

    Letters are fitted to whole pixels in a PNG, so each scale has its own width, and vector formats another;
    the widest is returned, so that a layout holds for all.
    """
    widths = (
        _ruler(factor).get_text_width_height_descent(text, font(points, bold), False)[0] / factor
        for factor in _FACTORS
    )
    return float(max(widths))


def shorten(text: str, width: float, points: float, bold: bool = False) -> str:
    """Return text that fits a width in pixels, its middle left out where it is too long."""
    if text_width(text, points, bold) <= width:
        return text
    low, high = 0, len(text)
    while low < high:
        kept = (low + high + 1) // 2
        if text_width(_without_middle(text, kept), points, bold) <= width:
            low = kept
        else:
            high = kept - 1
    return _without_middle(text, low)


def _without_middle(text: str, kept: int) -> str:
    # Both ends tell names apart: the family at the front, the variant and the suffix at the back.
    front, back = (kept + 1) // 2, kept // 2
    return f"{text[:front]}…{text[len(text) - back :]}"


# Coordinates such as "(4, 5)" or "(row 4, column 5)", sizes and numbers with their unit count as one word.
_BREAK = re.compile(
    r"(?<!\d,)(?<!\(row)(?<!, column)(?<!×)(?!\s+(?:on|to)$)"
    r"(?!\s+×)(?!\s+of\s+\d+\s×)(?!(?<=\bof)\s+\d+\s×)"
    r"(?!(?<=\d)\s+(?:px|patches|%|tokens|nats|rows|columns)(?![a-z]))\s+"
)


def wrap(text: str, width: float, points: float, bold: bool = False) -> list[str]:
    """Break text into lines that fit a width in pixels; a single word that is too long loses its middle.

    Coordinates, sizes and numbers with their units are not parted; a last "on" or "to" stays with its verb.
    """
    lines: list[str] = []
    words = _BREAK.split(text.strip()) if text.strip() else []
    for word in words:
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, points, bold) <= width:
            lines[-1] = longer
        else:
            lines.append(shorten(word, width, points, bold))
    return lines


def wrap_clauses(text: str, width: float, points: float) -> list[str]:
    """Break a label that does not fit a width after its last comma, so that no last word stands alone."""
    if text_width(text, points) <= width:
        return [text]
    *first, last = text.rsplit(", ", 1)
    return [line for clause in (*first, last) for line in wrap(clause, width, points)]
