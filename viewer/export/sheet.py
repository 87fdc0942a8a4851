"""The paper that figures are drawn on: laid out in pixels at scale 1, from the top left corner."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from viewer.export.typesetting import DPI, font
from viewer.state.palette import HATCH_INK, HATCH_STEP, HATCH_WIDTH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt
    from matplotlib.axes import Axes

    from viewer.state.palette import Palette

Box = tuple[float, float, float, float]
"""Left, top, width, height in pixels at scale 1."""


@dataclass(frozen=True)
class Style:
    """Colours and type of one figure.

    Attributes
    ----------
    palette
        Of `viewer.state.palette`, as the window has it.
    transparent
        Whether nothing is painted behind the figure.
    """

    palette: Palette
    transparent: bool = False

    @property
    def points(self) -> float:
        """Size of ordinary type in points."""
        return self.palette.points

    @property
    def small(self) -> float:
        """Size of captions and tick labels in points."""
        return 0.85 * self.palette.points

    @property
    def em(self) -> float:
        """Height of ordinary type in pixels, the measure of all gaps."""
        return self.palette.points * DPI / 72

    @property
    def room(self) -> float:
        """Measure of plots and pictures in pixels: an em, or less where type is to be large beside them."""
        return self.palette.room * DPI / 72


class Sheet:
    """A Matplotlib figure without margins on which parts are placed by pixel.

    Parameters
    ----------
    width, height
        Pixels at scale 1.
    style
        Colours and type.
    raster
        Whether it is to be saved as pixels.

    Attributes
    ----------
    figure
        What is saved.
    style
        As given.
    """

    def __init__(self, width: int, height: int, style: Style, raster: bool = True) -> None:
        self.style = style
        self._raster = raster
        self._size = (width, height)
        # Matplotlib rounds the size in pixels down, and 720 pixels may come out as 719.999.
        slack = 0.01 if raster else 0.0
        inches = ((width + slack) / DPI, (height + slack) / DPI)
        ground = "none" if style.transparent else style.palette.ground
        self.figure = Figure(figsize=inches, dpi=DPI, facecolor=ground)
        self._paper = self._axes_in((0, 0, width, height))
        self._paper.set_axis_off()
        self._paper.set_xlim(0, width)
        self._paper.set_ylim(height, 0)

    def _axes_in(self, box: Box) -> Axes:
        left, top, width, height = box
        page_width, page_height = (inch * DPI for inch in self.figure.get_size_inches())
        return self.figure.add_axes(
            (
                left / page_width,
                (page_height - top - height) / page_height,
                width / page_width,
                height / page_height,
            )
        )

    def plot(self, box: Box) -> Axes:
        """Add a plot whose frame is `box`, in the style's colours and without tick labels of its own size."""
        axes = self._axes_in(box)
        palette = self.style.palette
        axes.set_facecolor("none" if self.style.transparent else palette.panel)
        for spine in axes.spines.values():
            spine.set_color(palette.faint)
        axes.tick_params(color=palette.faint, labelsize=self.style.small, labelcolor=palette.text)
        return axes

    def text(
        self,
        x: float,
        y: float,
        text: str,
        points: float | None = None,
        color: str | None = None,
        bold: bool = False,
        h: Literal["left", "center", "right"] = "left",
        v: Literal["top", "center", "bottom"] = "top",
        upwards: bool = False,
    ) -> None:
        """Set one line of type; a "$" in a file's name is a dollar sign, not mathematics."""
        self._paper.text(
            x,
            y,
            text,
            color=color or self.style.palette.text,
            fontproperties=font(points or self.style.points, bold),
            horizontalalignment=h,
            # "top" of Matplotlib follows each line's own letters; the centre line keeps neighbours level.
            verticalalignment="center_baseline" if v == "center" and not upwards else v,
            rotation=90 if upwards else 0,
            rotation_mode="anchor" if upwards else "default",
            parse_math=False,
            clip_on=False,
        )

    def image(
        self,
        box: Box,
        pixels: npt.NDArray[np.uint8],
        smooth: bool = False,
        name: str = "",
        clip: Box | None = None,
    ) -> None:
        """Place an image, (H, W, 3 or 4) uint8; vector formats embed its own pixels, unscaled.

        Parameters
        ----------
        box
            Where.
        pixels
            What.
        smooth
            Whether a PNG blends neighbouring pixels, as a photograph wants it, or shows each as a square.
        name
            Of the element in an SVG.
        clip
            Box outside which nothing of it is drawn; None for none.
        """
        left, top, width, height = box
        placed = self._paper.imshow(
            pixels,
            extent=(left, left + width, top + height, top),
            interpolation="bilinear" if smooth and self._raster else "none",
            gid=name or None,
            aspect="auto",
            origin="upper",
        )
        self._paper.set_xlim(0, self._size[0])
        self._paper.set_ylim(self._size[1], 0)
        if clip is not None:
            placed.set_clip_path(Path(_corners(clip)), self._paper.transData)

    def hatch(self, boxes: Sequence[Box], veil: float = 1.0, under_images: bool = False) -> None:
        """Hatch boxes as the window does, with lines that vector formats keep as lines.

        Parameters
        ----------
        boxes
            Where.
        veil
            Opacity of what is laid under the lines.
        under_images
            Whether images that are drawn over it hide it.
        """
        if not boxes:
            return
        palette, step = self.style.palette, HATCH_STEP * self.style.em
        depth = -0.5 if under_images else 1.0
        area = Path.make_compound_path(*(Path(_corners(box), closed=True) for box in boxes))
        under = PathPatch(area, facecolor=palette.panel, edgecolor="none", alpha=veil, zorder=depth)
        # Cut to the boxes here: not every program that opens an SVG knows clipping.
        lines = [Path(ends) for box in boxes for ends in _diagonals(box, step)]
        strokes = PathPatch(
            Path.make_compound_path(*lines),
            facecolor="none",
            edgecolor=(palette.text, HATCH_INK),
            linewidth=HATCH_WIDTH * self.style.points,
            capstyle="butt",
            zorder=depth,
            gid="not reachable",
            clip_on=False,
        )
        for patch in (under, strokes):
            self._paper.add_patch(patch)

    def frame(
        self, box: Box, color: str, width: float = 1.0, fill: str = "none", dashed: bool = False
    ) -> None:
        """Outline a box, `width` in points, or fill it."""
        left, top, across, down = box
        self._paper.add_patch(
            Rectangle(
                (left, top),
                across,
                down,
                facecolor=fill,
                edgecolor=color,
                linewidth=width,
                linestyle=(0, (4, 2)) if dashed else "-",
                joinstyle="miter",
                clip_on=False,
                zorder=3,
            )
        )

    def fill(self, box: Box, color: str) -> None:
        """Fill a box under all images."""
        left, top, width, height = box
        self._paper.add_patch(
            Rectangle((left, top), width, height, facecolor=color, edgecolor="none", clip_on=False, zorder=-1)
        )

    def line(self, x: list[float], y: list[float], color: str, **marks: object) -> None:
        """Draw a line or markers on the paper; `marks` are Matplotlib's own line properties."""
        self._paper.add_line(Line2D(x, y, color=color, clip_on=False, zorder=3, **marks))


def _corners(box: Box) -> list[tuple[float, float]]:
    """Return the outline of a box, its first corner again at the end."""
    left, top, width, height = box
    right, bottom = left + width, top + height
    return [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]


def _diagonals(box: Box, step: float) -> Iterator[list[tuple[float, float]]]:
    """Yield the ends of lines from below to the right through a box, of one raster for all boxes."""
    left, top, width, height = box
    right, bottom = left + width, top + height
    for at in range(math.ceil((left + top) / step), math.floor((right + bottom) / step) + 1):
        high, low = max(top, at * step - right), min(bottom, at * step - left)
        yield [(at * step - high, high), (at * step - low, low)]
