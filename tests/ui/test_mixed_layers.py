"""A model whose layers differ in grid, windows and kind, looked at with the mouse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QHelpEvent
from PySide6.QtWidgets import QApplication, QToolTip

from tests.state.records import channel_record, mixed_record, state_of
from tests.ui.panels import colour_at, pixels, show, whole
from viewer.attention.uniform import uniform_layer_distance
from viewer.state.colormaps import lut
from viewer.state.palette import palette
from viewer.state.selection import HeadRef
from viewer.ui.heads_panel import HeadsPanel
from viewer.ui.image_panel import ImagePanel
from viewer.ui.scatter_panel import ScatterPanel
from viewer.ui.steps import Steps

pytestmark = pytest.mark.qt_log_ignore("does not support (propagateSizeHints|raise)", extend=True)
GREY = np.full((128, 128, 3), 128, np.uint8)


@pytest.fixture
def made(qtbot):
    documents, selection, display, scene = state_of(replace(mixed_record(), seen=GREY))
    display.set(replace(display.value, opacity=1.0, fade=False))
    panel = ImagePanel(selection, display)
    holder = show(qtbot, panel, scene, "overlay", (560, 560))
    return panel, selection, display, scene, Steps(documents, selection), holder


def place(panel, y, x):
    """Where a point of the model's input is painted."""
    box = panel._laid_out(panel._overlay).picture
    return box.topLeft() + QPointF(x / 128 * box.width(), y / 128 * box.height())


def hatched(tile: np.ndarray) -> bool:
    """Whether a square of pixels is striped from lower left to upper right, and only so."""
    grey = tile.astype(float).mean(axis=2)
    sums = np.add.outer(np.arange(len(grey)), np.arange(grey.shape[1]))
    lines = [grey[sums == at] for at in range(6, sums.max() - 5)]
    along = max(np.ptp(line[1:-1]) for line in lines)
    across = np.ptp([line.mean() for line in lines])
    return across > 25 and along < 0.25 * across


def tile_of(panel, scene, row, column):
    """The inner pixels of one of the shown layer's patches."""
    panel.update()
    box = panel._laid_out(panel._overlay).cells(
        scene.value.overlay.answers, (row, column, row + 1, column + 1)
    )
    return pixels(panel)[
        int(box.top()) + 3 : int(box.bottom()) - 3, int(box.left()) + 3 : int(box.right()) - 3
    ]


@pytest.mark.parametrize("theme", ["light", "dark", "talk"])
def test_patches_out_of_reach_are_hatched_and_never_painted_as_zero(made, theme):
    panel, selection, _, scene, *_ = made
    panel.set_theme(palette(theme))
    selection.select_head(HeadRef(0, 0))
    selection.hover((2, 5))
    QApplication.processEvents()
    for patch in ((0, 0), (3, 3), (4, 5), (7, 7)):
        tile = tile_of(panel, scene, *patch)
        assert hatched(tile), patch
        assert (np.abs(tile.astype(int) - lut("viridis")[0, :3]).sum(axis=2) > 60).all()
    values, vmax = scene.value.overlay.values, scene.value.overlay.vmax
    for patch in ((0, 4), (3, 7), (3, 6)):
        level = min(int(values[patch] / vmax * 256), 255)
        tile = tile_of(panel, scene, *patch)
        np.testing.assert_allclose(tile, np.broadcast_to(lut("viridis")[level, :3], tile.shape), atol=1)
    # In a layer in which all can be reached nothing is.
    selection.select_head(HeadRef(2, 0))
    QApplication.processEvents()
    assert not hatched(tile_of(panel, scene, 0, 0))


@pytest.mark.parametrize("size", [(401, 420), (468, 513), (560, 560), (733, 691)])
def test_no_gap_is_left_between_hatching_and_map(made, size):
    panel, selection, _, scene, _, holder = made
    holder.resize(*size)
    selection.select_head(HeadRef(0, 0))
    selection.hover((2, 5))
    black = replace(scene.value.overlay, seen=np.zeros_like(GREY))
    panel.paint(black)
    QApplication.processEvents()
    box = panel._laid_out(black).picture.toRect()
    inner = pixels(panel)[box.top() + 1 : box.bottom() - 1, box.left() + 1 : box.right() - 1]
    assert inner.any(axis=2).all()


def test_hovering_a_coarse_layer_speaks_of_its_own_patches(qtbot, made):
    panel, selection, _, scene, *_ = made
    selection.select_head(HeadRef(5, 0))
    heard = []
    selection.changed.connect(heard.append)
    for x in range(4, 128, 6):
        qtbot.mouseMove(panel, whole(place(panel, 50, x)))
    said = [value.hovered for value in heard if value.hovered]
    assert [scene.value.overlay.patch(query) for query in said] == [(1, 0), (1, 1), (1, 2), (1, 3)]


def test_moving_within_a_coarse_patch_keeps_the_finer_query(qtbot, made):
    panel, selection, _, scene, *_ = made
    qtbot.mouseMove(panel, whole(place(panel, 60, 60)))
    assert selection.value.hovered == (3, 3)
    selection.select_head(HeadRef(5, 0))
    qtbot.mouseMove(panel, whole(place(panel, 40, 40)))
    assert selection.value.hovered == (3, 3)
    qtbot.mouseMove(panel, whole(place(panel, 40, 70)))
    assert scene.value.overlay.patch(selection.value.hovered) == (1, 2)


def test_a_click_on_a_coarse_patch_lets_go_the_pin_on_it(qtbot, made):
    panel, selection, *_ = made
    qtbot.mouseClick(panel, Qt.MouseButton.LeftButton, pos=whole(place(panel, 60, 60)))
    assert selection.value.pins == ((3, 3),)
    selection.select_head(HeadRef(5, 0))
    qtbot.mouseClick(panel, Qt.MouseButton.LeftButton, pos=whole(place(panel, 40, 40)))
    assert selection.value.pins == ()


def test_the_mouse_finds_patches_around_their_true_centres(qtbot, made):
    panel, selection, _, scene, *_ = made
    selection.select_head(HeadRef(3, 0))  # centres at 8, 40, 72, 104 px
    found = []
    for y in (2, 20, 28, 52, 60, 84, 92, 126):
        qtbot.mouseMove(panel, whole(place(panel, y, 64)))
        found.append(scene.value.overlay.patch(selection.value.query)[0])
    assert found == [0, 0, 1, 1, 2, 2, 3, 3]
    # The strip beyond the last patch is the picture alone.
    np.testing.assert_allclose(colour_at(panel, place(panel, 124, 124)), 128, atol=2)
    assert np.abs(np.array(colour_at(panel, place(panel, 112, 112))) - 128).max() > 20


def test_the_query_is_outlined_as_the_shown_layers_patch(made):
    panel, selection, *_ = made
    accent = np.array([int(palette("light").accent[i : i + 2], 16) for i in (1, 3, 5)])
    selection.hover((2, 5))
    for head, sides in ((HeadRef(0, 0), (32, 48, 80, 96)), (HeadRef(5, 0), (32, 64, 64, 96)),
                        (HeadRef(3, 0), (24, 56, 56, 88))):  # fmt: skip
        selection.select_head(head)
        box = panel._laid_out(panel._overlay).picture.toRect()
        inner = pixels(panel)[box.top() : box.bottom() + 1, box.left() : box.right() + 1].astype(int)
        y, x = np.nonzero(np.abs(inner - accent).sum(axis=2) < 12)
        found = np.array([y.min(), y.max(), x.min(), x.max()]) * 128 / box.width()
        np.testing.assert_allclose(found, sides, atol=1.5)


def test_arrow_keys_step_by_the_shown_layers_patches(made):
    _, selection, _, scene, steps, _ = made
    selection.select_head(HeadRef(5, 0))
    selection.hover((2, 5))
    seen = []
    for _ in range(3):
        steps.query(1, 0)
        seen.append(scene.value.overlay.patch(selection.value.query))
    assert seen == [(2, 2), (3, 2), (3, 2)]
    selection.set_direction("to")
    selection.select_head(HeadRef(2, 0))
    steps.query(-1, -1)
    assert scene.value.overlay.patch(selection.value.query) == (0, 0)


def test_who_attends_is_asked_of_the_keys(qtbot, made):
    panel, selection, _, scene, *_ = made
    selection.set_direction("to")
    selection.select_head(HeadRef(2, 0))
    heard = []
    selection.changed.connect(heard.append)
    for y, x in ((10, 10), (20, 40), (50, 60), (10, 70), (100, 100)):
        qtbot.mouseMove(panel, whole(place(panel, y, x)))
    said = [value.hovered for value in heard if value.hovered]
    assert [scene.value.overlay.patch(query) for query in said] == [(0, 0), (0, 1), (1, 1)]


def test_a_layer_without_a_map_says_so_on_the_picture(made):
    panel, selection, *_ = made
    selection.hover((2, 5))
    selection.select_head(HeadRef(4, 0))
    panel_colour = [int(palette("light").panel[i : i + 2], 16) for i in (1, 3, 5)]
    box = panel._laid_out(panel._overlay).picture.toRect()
    inner = pixels(panel)[box.top() : box.bottom(), box.left() : box.right()]
    words = (inner == panel_colour).all(axis=2)
    assert words.any()
    y, x = np.nonzero(words)
    assert abs(y.mean() - box.height() / 2) < 12
    assert abs(x.mean() - box.width() / 2) < 30
    np.testing.assert_allclose(colour_at(panel, place(panel, 8, 8)), 128, atol=2)


@pytest.fixture
def every_head(qtbot):
    _, selection, _, scene = state_of(replace(mixed_record(), seen=GREY))
    panel = HeadsPanel(selection)
    holder = show(qtbot, panel, scene, "heads", (480, 800))
    selection.hover((2, 5))
    QApplication.processEvents()
    return panel, holder


@pytest.mark.parametrize("theme", ["light", "dark", "talk"])
def test_maps_are_hatched_where_a_patch_is_out_of_reach(every_head, theme):
    panel, _ = every_head
    panel.set_theme(palette(theme))
    QApplication.processEvents()
    layout, image = panel.canvas.layout_of_cells(), pixels(panel.canvas)
    side = layout.factor

    def part(head, row, column, size):
        corner = layout.box(head).topLeft() + QPointF(column * side, row * side)
        y, x, length = int(corner.y()) + 2, int(corner.x()) + 2, int(size * side) - 4
        return image[y : y + length, x : x + length]

    assert hatched(part(HeadRef(0, 1), 4, 4, 4))
    assert hatched(part(HeadRef(0, 0), 0, 0, 4))
    assert not hatched(part(HeadRef(0, 0), 0, 4, 4))
    assert not hatched(part(HeadRef(2, 0), 0, 0, 4))
    blank = part(HeadRef(4, 0), 0, 0, 8).reshape(-1, 3)
    assert {bytes(pixel).hex() for pixel in blank} == {palette(theme).empty[1:]}


def test_the_tool_tip_tells_grids_and_why_there_is_no_map(every_head):
    panel, _ = every_head
    found = []
    for head in (HeadRef(2, 0), HeadRef(4, 0)):
        at = whole(panel.canvas.layout_of_cells().box(head).center())
        QApplication.sendEvent(
            panel.canvas, QHelpEvent(QEvent.Type.ToolTip, at, panel.canvas.mapToGlobal(at))
        )
        found.append(QToolTip.text())
    QToolTip.hideText()
    assert found[0] == "layer 2, head 0 (stages.1.attn)\nqueries 8 × 8, keys 2 × 2"
    assert found[1].endswith(
        "no map: channels attend to channels here, and they have no place on the picture"
    )


def test_hatching_is_explained_only_where_a_model_has_windows(qtbot, every_head):
    panel, _ = every_head
    before = panel._legend.height()
    plain = mixed_record()
    plain = replace(plain, layers=(replace(plain.layers[2], index=0),))
    _, selection, _, scene = state_of(plain)
    selection.hover((0, 0))
    panel.paint(scene.value.heads)
    assert panel._legend.height() < before


def test_uniform_attention_is_a_level_for_each_layer(qtbot):
    _, selection, display, scene = state_of(mixed_record())
    panel = ScatterPanel(selection, display)
    holder = show(qtbot, panel, scene, "scatter", (900, 300))
    selection.hover((2, 5))
    x, y = panel.plot._lines["uniform"].getData()
    record = mixed_record()
    for layer in (0, 1, 2, 3, 5):
        inside = [at for at in range(len(x) - 1) if x[at] < layer < x[at + 1]]
        expected = uniform_layer_distance(record.layers[layer]).mean()
        assert [y[at] for at in inside] == [pytest.approx(expected)]
    assert not [at for at in range(len(x) - 1) if x[at] < 4 < x[at + 1]]
    assert "no line for convolutions" in panel._legend.toolTip()
    assert not panel.plot._lines["convolution"].isVisible()
    # The dots of the layer without a distance are missing, all others are there.
    assert len(panel.plot.positions()) == 12
    assert holder.isVisible()


def test_a_model_of_channels_alone_is_shown_without_a_query(qtbot):
    record = channel_record()
    documents, selection, display, scene = state_of(record)
    display.set(replace(display.value, grid=True, ring=1))
    panel = ImagePanel(selection, display)
    holder = show(qtbot, panel, scene, "overlay", (560, 560))
    qtbot.mouseMove(panel, whole(place(panel, 60, 60)))
    Steps(documents, selection).query(1, 0)
    assert selection.value.query is None
    assert "no map" in scene.value.overlay.title
    assert holder.isVisible()


def test_a_title_without_a_map_leaves_the_reason_to_the_picture(qtbot):
    record = channel_record()
    _, selection, display, scene = state_of(record)
    panel = ImagePanel(selection, display)
    holder = show(qtbot, panel, scene, "overlay", (300, 300))
    box = panel._laid_out(panel._overlay).title
    lines = pixels(panel)[int(box.top()) : int(box.bottom())].astype(int)
    ink = (np.ptp(lines.reshape(len(lines), -1), axis=1) > 100).tolist()
    # Lines that are cut have ink at the very top of their box.
    assert any(ink) and not any(ink[:2])
    assert holder.isVisible()


def test_a_scatter_without_dots_says_why_instead_of_an_empty_plot(qtbot):
    record = channel_record()
    _, selection, display, scene = state_of(record)
    panel = ScatterPanel(selection, display)
    holder = show(qtbot, panel, scene, "scatter", (420, 300))
    assert panel._legend.text() == "nothing to draw"
    assert panel._legend.toolTip().endswith("in no layer do patches attend to patches")
    assert not panel.plot.getPlotItem().isVisible()
    assert holder.isVisible()
