"""Colours and type sizes of each theme, the same for the window and for exported figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from viewer.state.display import Theme


@dataclass(frozen=True)
class Palette:
    """Colours as "#rrggbb", type size in points.

    Attributes
    ----------
    ground, panel
        Behind everything, and behind a plot.
    text, faint
        Labels, and what may recede: axes, grid lines, captions.
    dot
        A head in the scatter.
    accent
        What is selected: the query's outline, the shown head.
    query
        The selected query's own values in the scatter.
    uniform, convolution
        Reference lines.
    empty
        A cell that holds no data.
    mat
        Between the small maps of the heads; on a dark ground lighter than the darkest of their colours.
    points
        Size of ordinary type.
    room
        Size of type that figures are laid out for, in points: where it is smaller than `points`, type is
        large beside plots and pictures, and stays so whatever size the figure is shown at.
    """

    ground: str
    panel: str
    text: str
    faint: str
    dot: str
    accent: str
    query: str
    uniform: str
    convolution: str
    empty: str
    mat: str
    points: float
    room: float

    @property
    def dark(self) -> bool:
        """Whether things lie on a dark ground."""
        return int(self.ground[1:3], 16) < 128


# Okabe and Ito's set keeps apart for every kind of colour vision.
_LIGHT = Palette(
    ground="#f6f6f4",
    panel="#ffffff",
    text="#1a1a1a",
    faint="#6b6b6b",
    dot="#0072b2",
    accent="#d55e00",
    query="#009e73",
    uniform="#555555",
    convolution="#b0568f",
    empty="#e4e4e0",
    mat="#f6f6f4",
    points=10.0,
    room=10.0,
)
_DARK = Palette(
    ground="#1e1f22",
    panel="#27282c",
    text="#ececec",
    faint="#a0a0a0",
    dot="#56b4e9",
    accent="#ff8c42",
    query="#3ddc97",
    uniform="#bbbbbb",
    convolution="#e08cc0",
    empty="#3a3b40",
    mat="#5c5c5f",
    points=10.0,
    room=10.0,
)
_TALK = Palette(
    ground="#ffffff",
    panel="#ffffff",
    text="#000000",
    faint="#444444",
    dot="#0072b2",
    accent="#d55e00",
    query="#009e73",
    uniform="#333333",
    convolution="#a03c7c",
    empty="#e4e4e0",
    mat="#ffffff",
    points=16.0,
    room=11.0,
)

VEIL = 0.5
"""Opacity of what is laid over a picture under hatching."""
HATCH_STEP, HATCH_WIDTH = 0.55, 0.08
"""Distance along the horizontal, and width of the lines of hatching, in ems."""
HATCH_INK = 0.6
"""Opacity of those lines, which have the colour of text: it shows on all that is veiled."""


def palette(theme: Theme) -> Palette:
    """Return the palette of a theme."""
    return {"light": _LIGHT, "dark": _DARK, "talk": _TALK}[theme]
