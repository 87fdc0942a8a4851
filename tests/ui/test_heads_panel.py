from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from PySide6.QtCore import QEvent, QPoint, QPointF, QSizeF, Qt
from PySide6.QtGui import QFontMetricsF, QHelpEvent
from PySide6.QtWidgets import QApplication, QToolTip

from tests.state.records import record_of, state_of, weights_of
from tests.ui.panels import pixels, show, whole
from viewer.state.colormaps import COLORMAPS, levels, lut
from viewer.state.palette import palette
from viewer.state.scale import ticks
from viewer.state.selection import HeadRef
from viewer.ui.atlas import AtlasLayout, atlas
from viewer.ui.heads_panel import HeadsPanel, _numbers
from viewer.ui.marks import bar_numbers, font

pytestmark = pytest.mark.qt_log_ignore("does not support (propagateSizeHints|raise)", extend=True)
GRID = (4, 6)
HEADS = (3, 2, 3)


@pytest.fixture
def made(qtbot):
    weights = [weights_of(heads, 25, seed) for seed, heads in enumerate(HEADS)]
    _, selection, display, scene = state_of(record_of(weights, GRID))
    panel = HeadsPanel(selection)
    holder = show(qtbot, panel, scene, "heads", (420, 520))
    return panel, selection, display, scene, holder


def patch_centre(layout, head, patch):
    box = layout.box(head)
    return box.topLeft() + QPointF((patch[1] + 0.5) * layout.factor, (patch[0] + 0.5) * layout.factor)


@pytest.mark.parametrize("scale", ["shared", "per head"])
def test_every_patch_of_every_cell_has_the_colour_of_its_weight(made, scale):
    panel, selection, display, scene, _ = made
    display.set(replace(display.value, scale=scale))
    selection.hover((2, 3))
    layout, heads = panel.canvas.layout_of_cells(), scene.value.heads
    assert layout.factor >= 4
    image = pixels(panel.canvas)
    for layer, count in enumerate(HEADS):
        for head in range(count):
            place = levels(heads.maps[layer, head], heads.vmax[layer, head])
            for patch in np.ndindex(*GRID):
                at = patch_centre(layout, HeadRef(layer, head), patch)
                painted = image[int(at.y()), int(at.x())]
                assert painted.tolist() == lut("viridis")[place[patch], :3].tolist()


def test_cells_are_empty_without_a_query_and_absent_without_a_head(made):
    panel, *_ = made
    layout, image = panel.canvas.layout_of_cells(), pixels(panel.canvas)
    theme = palette("light")
    at = layout.box(HeadRef(0, 1)).center()
    assert bytes(image[int(at.y()), int(at.x())]).hex() == theme.empty[1:]
    beyond = layout.box(HeadRef(0, 2)).center() + QPointF(0, layout.pitch[0])
    assert bytes(image[int(beyond.y()), int(beyond.x())]).hex() == theme.ground[1:]


def test_hovering_looks_and_clicking_selects(qtbot, made):
    panel, selection, *_ = made
    layout = panel.canvas.layout_of_cells()
    qtbot.mouseMove(panel.canvas, whole(layout.box(HeadRef(2, 1)).center()))
    assert (selection.value.shown, selection.value.head) == (HeadRef(2, 1), HeadRef(0, None))
    qtbot.mouseClick(panel.canvas, Qt.MouseButton.LeftButton, pos=whole(layout.box(HeadRef(1, 0)).center()))
    assert selection.value.head == HeadRef(1, 0)
    QApplication.sendEvent(panel.canvas, QEvent(QEvent.Type.Leave))
    assert selection.value.shown == HeadRef(1, 0)


def test_a_layers_number_is_the_whole_layer(qtbot, made):
    panel, selection, *_ = made
    layout = panel.canvas.layout_of_cells()
    y = int(layout.box(HeadRef(2, 0)).center().y())
    qtbot.mouseClick(panel.canvas, Qt.MouseButton.LeftButton, pos=QPoint(int(layout.left / 2), y))
    assert selection.value.head == HeadRef(2, None)


def test_where_a_layer_lacks_a_head_there_is_nothing_to_point_at(qtbot, made):
    panel, selection, *_ = made
    layout = panel.canvas.layout_of_cells()
    beyond = layout.box(HeadRef(0, 2)).center() + QPointF(0, layout.pitch[0])
    qtbot.mouseMove(panel.canvas, whole(beyond))
    assert selection.value.hovered_head is None
    qtbot.mouseClick(panel.canvas, Qt.MouseButton.LeftButton, pos=whole(beyond))
    assert selection.value.head == HeadRef(0, None)
    assert layout.head_at(QPointF(layout.left + 5, layout.maps.bottom() + 5)) is None


@pytest.mark.parametrize("shown", [HeadRef(1, 1), HeadRef(2, None)])
def test_the_shown_head_is_outlined(made, shown):
    panel, selection, *_ = made
    selection.select_head(shown)
    box = panel.canvas.layout_of_cells().box(shown)
    accent = palette("light").accent[1:]
    image = pixels(panel.canvas)
    for x in (box.left() + 4, box.center().x(), box.right() - 4):
        edge = image[int(box.top()) - 3 : int(box.top()) + 1, int(x)]
        assert accent in [bytes(pixel).hex() for pixel in edge]


def test_the_tool_tip_names_the_module(made):
    panel, *_ = made
    place = whole(panel.canvas.layout_of_cells().box(HeadRef(1, 0)).center())
    tip = QHelpEvent(QEvent.Type.ToolTip, place, panel.canvas.mapToGlobal(place))
    QApplication.sendEvent(panel.canvas, tip)
    assert QToolTip.text() == "layer 1, head 0 (blocks.1.attn)"
    QToolTip.hideText()


@pytest.mark.parametrize("shape", [(1, 1), (12, 6), (12, 12), (24, 16)])
@pytest.mark.parametrize("size", [(240, 300), (500, 800), (1200, 500)])
@pytest.mark.parametrize("grid", [(2, 2), (14, 20), (37, 37)])
def test_cells_can_be_read_at_any_number_and_size(shape, size, grid):
    description = Described(shape, grid)
    layout = AtlasLayout.of(QSizeF(*size), 1.0, description, (40.0, 40.0), 22.0)
    height, width = (side * layout.factor for side in layout.cell)
    assert max(height, width) >= 21.9 or layout.factor * max(layout.cell) > 16
    assert height / width == pytest.approx(grid[0] / grid[1], rel=0.1)
    for layer in range(shape[0]):
        for head in range(shape[1]):
            assert layout.head_at(layout.box(HeadRef(layer, head)).center()) == HeadRef(layer, head)
    image = atlas(description, layout, "#e4e4e0")
    assert image.width() * layout.factor == pytest.approx(layout.maps.width())
    assert image.height() * layout.factor == pytest.approx(layout.maps.height())


def test_a_hot_patch_stays_visible_on_a_coarse_screen():
    description = Described((1, 1), (60, 60))
    description.maps = np.zeros((1, 1, 60, 60), np.float32)
    description.maps[0, 0, 31, 17] = 1
    layout = AtlasLayout.of(QSizeF(65, 65), 1.0, description, (40.0, 40.0), 22.0)
    assert layout.shrink == 3
    image = atlas(description, layout, "#e4e4e0")
    top = lut("viridis")[255, :3].tolist()
    hot = [
        (x, y)
        for x in range(layout.cell[1])
        for y in range(layout.cell[0])
        if list(image.pixelColor(x, y).getRgb()[:3]) == top
    ]
    assert hot == [(17 // 3, 31 // 3)]


def test_what_does_not_fit_is_scrolled(made):
    panel, *_, holder = made
    holder.resize(150, 160)
    QApplication.processEvents()
    layout = panel.canvas.layout_of_cells()
    assert panel.canvas.height() >= layout.maps.bottom() - 1
    assert panel.canvas.width() >= layout.maps.right() - 1
    holder.resize(420, 520)
    QApplication.processEvents()
    assert panel.canvas.layout_of_cells().factor >= layout.factor


def test_pointing_at_heads_builds_no_new_image(made):
    panel, selection, display, *_ = made
    selection.hover((1, 1))
    pixels(panel.canvas)
    image = panel.canvas._image
    selection.hover_head(HeadRef(1, 1))
    pixels(panel.canvas)
    assert panel.canvas._image is image
    display.set(replace(display.value, colormap="magma"))
    at = patch_centre(panel.canvas.layout_of_cells(), HeadRef(0, 0), (0, 0))
    magma = lut("magma")[:, :3].tolist()
    assert pixels(panel.canvas)[int(at.y()), int(at.x())].tolist() in magma
    selection.hover((2, 2))
    pixels(panel.canvas)
    assert panel.canvas._image is not image


def test_another_theme_is_painted_at_once(made):
    panel, *_ = made
    panel.set_theme(palette("dark"))
    assert bytes(pixels(panel)[-1, -1]).hex() == palette("dark").ground[1:]
    assert bytes(pixels(panel.canvas)[1, 1]).hex() == palette("dark").ground[1:]


class Described:
    """The fields of a `Heads` that decide where cells are."""

    def __init__(self, shape, grid):
        self.vmax = np.ones(shape, np.float32)
        self.heads = (shape[1],) * shape[0]
        self.grid = grid
        self.maps = torch.rand(*shape, *grid).numpy()
        self.colormap = "viridis"
        self.blank = ("",) * shape[0]


def deep(qtbot, theme, size, layers=12, heads=6):
    """A panel of many maps."""
    weights = [weights_of(heads, 25, seed) for seed in range(layers)]
    _, selection, _, scene = state_of(record_of(weights, GRID))
    panel = HeadsPanel(selection)
    panel.set_theme(palette(theme))
    holder = show(qtbot, panel, scene, "heads", size)
    selection.hover((1, 1))
    QApplication.processEvents()
    return panel, selection, holder, scene  # signals hold no reference


@pytest.mark.parametrize("theme", ["light", "talk"])
def test_maps_become_smaller_before_they_are_scrolled(qtbot, theme):
    panel, _, holder, _scene = deep(qtbot, theme, (300, 460))
    assert panel._scroll.viewport().height() >= panel.canvas.height()
    assert panel.canvas.layout_of_cells().maps.bottom() <= panel.canvas.height() + 4
    holder.resize(300, 300)
    QApplication.processEvents()
    assert panel.canvas.height() > panel._scroll.viewport().height()
    layout = panel.canvas.layout_of_cells()
    assert max(layout.cell) * layout.factor >= 9.9


def test_the_shown_layer_is_scrolled_to(qtbot):
    panel, selection, *_kept = deep(qtbot, "talk", (300, 300))
    for layer in (11, 0, 7):
        selection.select_head(HeadRef(layer, 2))
        QApplication.processEvents()
        box = panel.canvas.layout_of_cells().box(HeadRef(layer, 2))
        top = panel.canvas.mapTo(panel._scroll.viewport(), whole(box.topLeft())).y()
        assert 0 <= top <= panel._scroll.viewport().height() - box.height()


@pytest.mark.parametrize("size", [(360, 700), (700, 420), (500, 500)])
def test_maps_fill_the_panel_by_its_shorter_side(qtbot, size):
    panel, *_ = deep(qtbot, "light", size)
    layout, seen = panel.canvas.layout_of_cells(), panel._scroll.viewport().size()
    down = layout.maps.bottom() / seen.height()
    across = (layout.maps.width() + panel.canvas._margin()[1]) / seen.width()
    assert max(down, across) > 0.88
    assert max(down, across) <= 1.02
    # What is left over is shared out on both sides.
    left = layout.left - panel.canvas._margin()[1]
    assert left == pytest.approx(seen.width() - layout.maps.right(), abs=8)


@pytest.mark.parametrize("height", [400, 600, 900])
def test_the_width_it_asks_for_is_what_its_maps_fill(qtbot, height):
    panel, _, holder, _scene = deep(qtbot, "light", (400, height), layers=6, heads=6)
    holder.resize(panel.width_for(height), height)
    QApplication.processEvents()
    layout, seen = panel.canvas.layout_of_cells(), panel._scroll.viewport().size()
    assert layout.maps.bottom() / seen.height() > 0.85
    assert (layout.maps.width() + panel.canvas._margin()[1]) / seen.width() > 0.85


def test_on_a_dark_ground_maps_stand_apart_in_every_colour_map(made):
    panel, selection, *_ = made
    panel.set_theme(palette("dark"))
    selection.hover((1, 1))
    layout = panel.canvas.layout_of_cells()
    box = layout.box(HeadRef(0, 0))
    between = pixels(panel.canvas)[int(box.center().y()), int(box.right()) + 1].astype(float)
    for name in COLORMAPS:
        darkest = lut(name)[:, :3].astype(float)[0]
        assert np.abs(between - darkest).max() > 50, name


def test_the_shown_number_is_written_where_numbers_are_thinned():
    assert _numbers(12, 2, 5) == [0, 2, 5, 8, 10]
    assert _numbers(12, 5, None) == [0, 5, 10]
    assert _numbers(12, 5, 10) == [0, 5, 10]
    assert _numbers(12, 5, 11) == [0, 5, 11]
    assert _numbers(6, 1, 3) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("theme", ["light", "talk"])
@pytest.mark.parametrize("width", [220, 300, 460])
def test_the_longest_title_is_whole(qtbot, theme, width):
    panel, selection, _, scene = deep(qtbot, theme, (width, 500), layers=2)
    selection.set_direction("to")
    QApplication.processEvents()
    assert "which patches attend to patch" in scene.value.heads.title
    image = pixels(panel._title).astype(int)
    ink = np.abs(image - image[0, 0]).sum(axis=2) > 60
    assert ink.any() and not ink[:2].any() and not ink[-2:].any()


@pytest.mark.parametrize("theme", ["light", "talk"])
def test_the_numbers_of_the_scale_never_touch(qtbot, theme):
    panel, _, holder, scene = deep(qtbot, theme, (420, 500), layers=2)
    legend = panel._legend
    for end, largest in ((0.05, 0.6), (0.15, 0.6), (0.0004, 0.0004), (1.0, 1.0), (0.03, 0.9)):
        vmax = np.full_like(scene.value.heads.vmax, end)
        panel.paint(replace(scene.value.heads, vmax=vmax, largest=largest))
        for width in range(110, 500, 13):
            holder.resize(width, 500)
            QApplication.processEvents()
            numbers = legend.numbers()
            assert numbers[0][2] == "0" and numbers[-1][2].endswith(f"{end:.3g}")
            assert len(numbers) >= 2
            assert numbers[0][0] >= 0 and numbers[-1][1] <= legend.width()
            for (_, right, _), (left, _, _) in pairwise(numbers):
                assert left - right >= 4, (width, numbers)
    # Where there is room, they are those beside the picture.
    assert [text for *_, text in numbers] == [
        text for _, text in ticks(end, largest, bar_numbers(palette(theme)))
    ]


def test_what_is_painted_below_the_scale_has_gaps_between_its_numbers(qtbot):
    panel, _, _, scene = deep(qtbot, "light", (150, 500), layers=2)
    heads = scene.value.heads
    panel.paint(replace(heads, vmax=np.full_like(heads.vmax, 0.05), largest=0.6))
    QApplication.processEvents()
    legend = panel._legend
    image = pixels(legend).astype(int)
    line = QFontMetricsF(font(palette("light"), 0.9)).height()
    band = image[int(1.1 * line) + 2 : int(2 * line)]
    ink = np.abs(band - image[-1, -1]).sum(axis=2).max(axis=0) > 90
    for (_, right, _), (left, _, _) in pairwise(legend.numbers()):
        assert not ink[int(right) + 2 : int(left) - 1].any()
    assert ink.any()
