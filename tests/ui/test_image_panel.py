from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QHelpEvent
from PySide6.QtWidgets import QApplication, QToolTip

from tests.state.records import record_of, state_of, weights_of
from tests.ui.panels import colour_at, pixels, show, whole
from viewer.state.colormaps import lut
from viewer.state.display import DisplayValue
from viewer.state.palette import palette
from viewer.state.selection import HeadRef
from viewer.ui.image_panel import ImagePanel

pytestmark = pytest.mark.qt_log_ignore("does not support (propagateSizeHints|raise)", extend=True)
GRID = (4, 6)


def planted(peak=(1, 4), prefix=("cls", "reg1")):
    """Every query puts 0.5 on one patch, 0.1 on the first prefix token, the rest evenly on all others."""
    tokens = GRID[0] * GRID[1] + len(prefix)
    weights = torch.full((2, tokens, tokens), 0.4 / (tokens - 2))
    weights[:, :, len(prefix) + peak[0] * GRID[1] + peak[1]] = 0.5
    weights[:, :, 0] = 0.1
    return record_of([weights, weights_of(2, tokens)], GRID, prefix, (16, 16))


@pytest.fixture
def made(qtbot):
    _, selection, display, scene = state_of(planted())
    panel = ImagePanel(selection, display)
    holder = show(qtbot, panel, scene, "overlay", (390, 380))
    return panel, selection, display, scene, holder


def tile(panel, patch):
    row, column = patch
    return panel._laid_out(panel._overlay).cells(panel._overlay.asked, (row, column, row + 1, column + 1))


def centre(panel, patch):
    return tile(panel, patch).center()


def chip(panel, name):
    return next(box for own, _, box in panel._laid_out(panel._overlay).chips if own == name).center()


def test_the_mouse_over_a_patch_makes_it_the_query(qtbot, made):
    panel, selection, *_ = made
    heard = []
    selection.changed.connect(heard.append)
    for row in range(GRID[0]):
        for column in range(GRID[1]):
            qtbot.mouseMove(panel, whole(centre(panel, (row, column))))
            assert selection.value.query == (row, column)
    # The cursor may leave a small screen in between, which looks at nothing.
    assert [value.hovered for value in heard if value.hovered] == list(np.ndindex(*GRID))


def test_speaks_of_patches_and_not_of_pixels(qtbot, made):
    panel, selection, *_ = made
    heard = []
    selection.changed.connect(heard.append)
    place = centre(panel, (2, 2))
    for step in range(-6, 7, 2):
        qtbot.mouseMove(panel, whole(place + QPointF(step, -step)))
    assert [value.hovered for value in heard] == [(2, 2)]


def test_the_corners_of_the_picture_belong_to_the_corner_patches(made):
    panel, *_ = made
    layout = panel._laid_out(panel._overlay)
    box = layout.picture
    corners = {
        (0, 0): box.topLeft(),
        (3, 5): box.bottomRight() - QPointF(0.1, 0.1),
        (0, 5): box.topRight() + QPointF(-0.1, 0.1),
    }
    assert all(panel._query_at(place, ()) == patch for patch, place in corners.items())
    assert panel._query_at(box.topLeft() - QPointF(1, 0), ()) is None


def test_leaving_looks_at_nothing(qtbot, made):
    panel, selection, *_ = made
    qtbot.mouseMove(panel, whole(centre(panel, (0, 0))))
    QApplication.sendEvent(panel, QEvent(QEvent.Type.Leave))
    assert selection.value.query is None


def test_clicks_pin_and_unpin(qtbot, made):
    panel, selection, *_ = made
    qtbot.mouseClick(panel, Qt.MouseButton.LeftButton, pos=whole(centre(panel, (1, 1))))
    assert selection.value.pins == ((1, 1),)
    qtbot.mouseClick(
        panel,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.ControlModifier,
        whole(centre(panel, (3, 5))),
    )
    assert selection.value.pins == ((1, 1), (3, 5))
    qtbot.mouseClick(panel, Qt.MouseButton.LeftButton, pos=whole(centre(panel, (1, 1))))
    assert selection.value.pins == ((3, 5), (1, 1))
    qtbot.mouseClick(panel, Qt.MouseButton.LeftButton, pos=whole(centre(panel, (1, 1))))
    assert selection.value.pins == ((3, 5),)
    qtbot.mouseClick(panel, Qt.MouseButton.LeftButton, pos=whole(centre(panel, (0, 0))))
    assert selection.value.pins == ((0, 0),)
    qtbot.mouseClick(panel, Qt.MouseButton.RightButton, pos=whole(centre(panel, (2, 2))))
    assert selection.value.pins == ((0, 0),)


def test_the_tip_says_what_a_click_on_a_pin_does(made):
    panel, selection, *_ = made
    selection.pin((1, 1))
    selection.add_pin((3, 5))
    found = []
    for patch in ((1, 1), (3, 5), (0, 0)):
        place = whole(centre(panel, patch))
        QApplication.sendEvent(panel, QHelpEvent(QEvent.Type.ToolTip, place, panel.mapToGlobal(place)))
        found.append(QToolTip.text() if QToolTip.isVisible() else "")
    assert found[:2] == ["A click makes this pin active", "Active pin: a click lets it go"]
    QToolTip.hideText()


def test_prefix_tokens_can_be_hovered_and_pinned(qtbot, made):
    panel, selection, _, scene, _ = made
    qtbot.mouseMove(panel, whole(chip(panel, "cls")))
    assert selection.value.query == "cls"
    qtbot.mouseClick(panel, Qt.MouseButton.LeftButton, pos=whole(chip(panel, "reg1")))
    assert selection.value.pins == ("reg1",)
    assert scene.value.overlay.title.endswith("what register 1 attends to")


def test_the_peak_is_painted_on_its_patch(qtbot, made):
    panel, selection, display, scene, _ = made
    display.set(replace(display.value, opacity=1.0, fade=False))
    selection.select_head(HeadRef(0, 0))
    qtbot.mouseMove(panel, whole(centre(panel, (3, 0))))
    values, vmax = scene.value.overlay.values, scene.value.overlay.vmax
    assert values.argmax() == 1 * GRID[1] + 4
    table = lut("viridis")[:, :3].tolist()
    for patch in np.ndindex(*GRID):
        if patch == (3, 0):
            continue  # its outline and the mouse are there
        expected = table[min(int(values[patch] / vmax * 256), 255)]
        assert colour_at(panel, centre(panel, patch)) == pytest.approx(expected, abs=1), patch
    assert colour_at(panel, centre(panel, (1, 4))) == table[255]


@pytest.mark.parametrize("fade", [True, False])
def test_opacity_blends_the_colour_over_the_picture(made, fade):
    panel, selection, display, scene, _ = made
    bare = colour_at(panel, centre(panel, (0, 3)))
    display.set(replace(display.value, opacity=0.25, fade=fade))
    selection.hover((3, 0))
    overlay = scene.value.overlay
    colour = lut("viridis")[min(int(overlay.values[0, 3] / overlay.vmax * 256), 255), :3]
    share = (overlay.values[0, 3] / overlay.values.max()) ** 0.5 if fade else 1.0
    expected = (1 - 0.25 * share) * np.array(bare) + 0.25 * share * colour
    np.testing.assert_allclose(colour_at(panel, centre(panel, (0, 3))), expected, atol=2)


def test_without_a_query_the_picture_is_as_the_model_saw_it(made):
    panel, _, _, scene, _ = made
    seen = scene.value.overlay.seen
    box = panel._laid_out(panel._overlay).picture
    for y, x in ((5, 7), (30, 60), (60, 90), (63, 0)):
        place = box.topLeft() + QPointF((x + 0.5) / 96 * box.width(), (y + 0.5) / 64 * box.height())
        np.testing.assert_allclose(colour_at(panel, place), seen[y, x], atol=4)


def test_query_and_pins_are_outlined(made):
    panel, selection, *_ = made
    accent = [int(palette("light").accent[i : i + 2], 16) for i in (1, 3, 5)]
    for patch, pins in (((2, 3), False), ((1, 1), True)):
        if pins:
            selection.pin(patch)
            selection.add_pin((0, 5))
        else:
            selection.hover(patch)
        box = tile(panel, patch)
        middle = slice(int(box.left()) + 3, int(box.right()) - 3)
        edge = pixels(panel)[int(box.top()) - 1 : int(box.top()) + 2, middle].astype(int)
        there = (np.abs(edge - accent).sum(axis=2) < 80).any(axis=0)
        # The active one all along its edge, another pin in dashes.
        assert there.any()
        assert there.all() == (not pins)


def test_where_there_is_no_map_no_frame_crosses_the_words_that_say_why(made):
    panel, selection, display, scene, _ = made
    display.set(replace(display.value, ring=1))
    selection.pin((0, 5))
    selection.hover((2, 3))
    assert accents(panel)
    panel.paint(replace(scene.value.overlay, values=None, blank="channels attend to channels here"))
    assert not accents(panel)


def accents(panel):
    """Return how many pixels of the picture are of the accent's colour."""
    accent = np.array([int(palette("light").accent[i : i + 2], 16) for i in (1, 3, 5)])
    box = panel._laid_out(panel._overlay).picture.toRect()
    inside = pixels(panel)[box.top() : box.bottom(), box.left() : box.right()].astype(int)
    return int((np.abs(inside - accent).sum(axis=2) < 30).sum())


def outline(panel, patch):
    """Return how many pixels wide each side of a patch's outline is, colour and white apart."""
    accent = np.array([int(palette("light").accent[i : i + 2], 16) for i in (1, 3, 5)])
    box = tile(panel, patch)
    image = pixels(panel).astype(int)
    across = image[int(box.center().y()), int(box.left()) - 6 : int(box.right()) + 7]
    down = image[int(box.top()) - 6 : int(box.bottom()) + 7, int(box.center().x())]
    lines = [half for line in (across, down) for half in np.array_split(line, 2)]
    close = [[np.abs(line - colour).sum(axis=1) < 6 for colour in (accent, 255)] for line in lines]
    return [tuple(int(near.sum()) for near in both) for both in close]


def test_an_outline_is_of_one_strength_on_all_sides(made):
    panel, selection, *_, holder = made
    for size in ((390, 380), (397, 391), (411, 402)):
        holder.resize(*size)
        QApplication.processEvents()
        for patch in ((1, 1), (2, 3), (2, 4)):
            selection.hover(patch)
            assert len(set(outline(panel, patch))) == 1, (size, patch, outline(panel, patch))


@pytest.mark.parametrize("size", [(390, 380), (700, 640), (1300, 800)])
def test_switching_the_ring_on_leaves_the_picture_as_large_as_it_was(made, size):
    panel, selection, display, _, holder = made
    holder.resize(*size)
    selection.hover((2, 2))
    QApplication.processEvents()
    before = panel._laid_out(panel._overlay).picture
    display.set(replace(display.value, ring=2))
    assert panel._laid_out(panel._overlay).picture == before


def test_grid_lines_and_ring_are_drawn_when_asked_for(made):
    panel, selection, display, *_ = made
    selection.hover((2, 2))
    plain = pixels(panel)
    display.set(DisplayValue(grid=True))
    lines = pixels(panel)
    box = panel._laid_out(panel._overlay).picture
    changed = np.argwhere((plain != lines).any(axis=2))
    assert changed[:, 0].min() >= int(box.top()) - 1
    assert changed[:, 1].max() <= int(box.right()) + 1
    display.set(DisplayValue(ring=1))
    assert (pixels(panel) != plain).any()


def test_colour_bar_numbers_and_label_follow_the_scale(made):
    panel, selection, display, *_ = made
    selection.hover((2, 2))
    bar = panel._laid_out(panel._overlay).bar
    table = lut("viridis")[:, :3]
    image = pixels(panel)
    x = int(bar.center().x())
    np.testing.assert_allclose(image[int(bar.top()) + 2, x], table[254], atol=8)
    np.testing.assert_allclose(image[int(bar.bottom()) - 2, x], table[1], atol=8)
    display.set(replace(display.value, colormap="magma"))
    np.testing.assert_allclose(pixels(panel)[int(bar.top()) + 2, x], lut("magma")[254, :3], atol=8)


@pytest.mark.parametrize("size", [(300, 300), (340, 700), (900, 300), (1200, 900)])
@pytest.mark.parametrize("theme", ["light", "dark", "talk"])
def test_everything_stays_inside_the_panel_and_apart(qtbot, made, size, theme):
    panel, selection, _, _, holder = made
    panel.set_theme(palette(theme))
    holder.resize(*size)
    selection.hover((1, 1))
    QApplication.processEvents()
    layout = panel._laid_out(panel._overlay)
    inside = panel.rect().toRectF()
    boxes = [layout.title, layout.picture, layout.bar, *(box for _, _, box in layout.chips)]
    for i, box in enumerate(boxes):
        assert inside.contains(box), i
        assert not any(box.intersects(other) for other in boxes[i + 1 :])
    assert layout.picture.width() / layout.picture.height() == pytest.approx(96 / 64, rel=0.05)


def test_nothing_is_shown_of_no_picture(made):
    panel, *_ = made
    panel.paint(None)
    assert (pixels(panel).reshape(-1, 3) != [0xF6, 0xF6, 0xF4]).any()
    assert panel._query_at(QPointF(300, 200), ()) is None


def inset_of(qtbot, box):
    """Return a panel of a picture of which the model saw `box`, and where frame and inset are painted."""
    _, selection, display, scene = state_of(replace(planted(), box=box))
    panel = ImagePanel(selection, display)
    panel.kept = show(qtbot, panel, scene, "overlay", (390, 380)), scene  # signals hold no reference
    layout, extent = panel._laid_out(panel._overlay), panel._overlay.extent
    return panel, layout.in_inset(extent, box), layout.in_inset(extent, (0, 0, 96, 64)), layout.inset


# The whole picture is 96 px wide and 64 px high: a crop, all of it, and padded to a square and all around.
BOXES = [
    (32.0, 0.0, 96.0, 64.0),
    (0.0, 0.0, 96.0, 64.0),
    (0.0, -16.0, 96.0, 80.0),
    (-20.0, -20.0, 116.0, 84.0),
]


@pytest.mark.parametrize("box", BOXES)
def test_the_inset_frames_what_the_model_saw_on_all_four_sides(qtbot, box):
    panel, frame, _, inset = inset_of(qtbot, box)
    image = pixels(panel).astype(int)
    accent = np.array([int(palette("light").accent[i : i + 2], 16) for i in (1, 3, 5)])
    marked = np.abs(image - accent).sum(axis=2) < 80
    marked[:, : int(inset.left()) - 3] = False
    marked[: int(inset.top()) - 3] = False
    top, bottom, left, right = (
        slice(round(side) - 2, round(side) + 3)
        for side in (frame.top(), frame.bottom(), frame.left(), frame.right())
    )
    across = slice(round(frame.left()) + 2, round(frame.right()) - 2)
    down = slice(round(frame.top()) + 2, round(frame.bottom()) - 2)
    for edge in (marked[top, across], marked[bottom, across], marked[down, left].T, marked[down, right].T):
        assert edge.any(axis=0).all()
    assert panel.rect().toRectF().contains(frame.adjusted(-2, -2, 2, 2))


def test_padding_in_the_inset_is_no_part_of_the_picture(qtbot):
    panel, _, whole_picture, inset = inset_of(qtbot, (0.0, -16.0, 96.0, 80.0))
    assert inset.width() == pytest.approx(inset.height())
    assert whole_picture.height() == pytest.approx(inset.height() * 64 / 96)
    empty = [int(palette("light").empty[i : i + 2], 16) for i in (1, 3, 5)]
    middle = inset.center().x()
    for y in (whole_picture.top() - 5, whole_picture.bottom() + 5):
        assert colour_at(panel, QPointF(middle, y)) == empty
    assert colour_at(panel, whole_picture.center()) != empty


def test_where_the_crop_is_unknown_there_is_no_inset(made):
    panel, *_ = made
    panel.paint(replace(panel._overlay, box=None))
    assert panel._laid_out(panel._overlay).inset is None
