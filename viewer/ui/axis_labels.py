"""The words beside a plot's axes, in as many as there is room for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt

if TYPE_CHECKING:
    from PySide6.QtGui import QFontMetricsF

    from viewer.state.axes import Axis

_SMALL = 0.8  # of ordinary type, where not even the shortest words fit on one line


def forms(axis: Axis) -> list[str]:
    """Return the ways to name quantity and unit, the longest first."""
    unit = f" ({axis.unit})" if axis.unit else ""
    shorter = axis.words.replace(" attention ", " ")
    found = (axis.quantity, f"{shorter}{unit}", f"{shorter.removeprefix('mean ')}{unit}")
    return list(dict.fromkeys(found))


def one_line(axis: Axis, metrics: QFontMetricsF, room: float) -> str:
    """Return the longest form that fits on a line; of the shortest, its end may be left out."""
    found = next((text for text in forms(axis) if metrics.horizontalAdvance(text) <= room), None)
    return found or metrics.elidedText(forms(axis)[-1], Qt.TextElideMode.ElideRight, room)


def fitting(axis: Axis, metrics: QFontMetricsF, room: float) -> tuple[str, float]:
    """Return words that fit, on two lines of smaller type where they must be broken, and the type's scale."""
    found = next((text for text in forms(axis) if metrics.horizontalAdvance(text) <= room), None)
    if found:
        return found, 1.0
    words, room = forms(axis)[-1], room / _SMALL
    lines = (metrics.elidedText(part, Qt.TextElideMode.ElideRight, room) for part in _halves(words))
    return "<br>".join(lines), _SMALL


def _halves(words: str) -> tuple[str, str]:
    """Part words at the space nearest to their middle."""
    spaces = [place for place, letter in enumerate(words) if letter == " "] or [len(words)]
    place = min(spaces, key=lambda place: abs(place - len(words) / 2))
    return words[:place], words[place + 1 :]
