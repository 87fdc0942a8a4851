from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QContextMenuEvent, QGuiApplication
from PySide6.QtWidgets import QApplication, QMenu

from tests.state.records import mixed_record, random_record, state_of
from tests.ui.panels import colour_at, painted, show, whole
from viewer.attention.likeness import measure_likeness
from viewer.state.colormaps import lut
from viewer.state.likeness import keep
from viewer.state.palette import palette
from viewer.state.selection import HeadRef
from viewer.ui.likeness_panel import LikenessPanel

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints", extend=True)


def made_of(qtbot, record, size=(900, 360)):
    documents, selection, display, scene = state_of(record)
    measures = documents.current.measures
    keep(measures, measure_likeness(record, measures))
    documents.update(documents.current.key)
    panel = LikenessPanel(selection, display)
    holder = show(qtbot, panel, scene, "likeness", size)
    return panel, selection, display, scene, holder


@pytest.fixture
def made(qtbot):
    return made_of(qtbot, random_record(layers=4, heads=3, sharp=3.0))


def centre(panel, row, column):
    canvas = panel.canvas
    return canvas.places().cell(row, column, len(canvas._likeness.values)).center()


def test_every_cell_has_the_colour_of_its_cosine_row_by_row(made):
    panel, _, display, scene, _ = made
    display.set(display.value.__class__(likeness_of="layers", likeness="centred"))
    values, low = scene.value.likeness.values, scene.value.likeness.low
    # No square is symmetric in its rows' and columns' places, so turn one: what is asked is where cells lie.
    values = values + np.arange(4)[:, None] * -0.05
    panel.paint(scene.value.likeness.__class__(**{**vars(scene.value.likeness), "values": values}))
    for row in range(4):
        for column in range(4):
            share = (values[row, column] - low) / (1 - low)
            expected = lut("viridis")[min(max(int(share * 256), 0), 255)][:3]
            found = colour_at(panel.canvas, centre(panel, row, column))
            assert np.abs(np.array(found) - expected).max() <= 2, (row, column)


def test_hovering_names_the_pair_with_its_number(qtbot, made):
    panel, selection, _, scene, _ = made
    before = painted(panel.canvas)
    qtbot.mouseMove(panel.canvas, whole(centre(panel, 3, 1)))
    assert panel.canvas.hovered == (3, 1)
    assert (painted(panel.canvas) != before).any()
    assert scene.value.likeness.pair_words(3, 1).startswith("layers 1 and 3, mean of heads: 0.")
    assert selection.value.hovered_head is None
    QApplication.sendEvent(panel.canvas, QEvent(QEvent.Type.Leave))
    assert panel.canvas.hovered is None
    assert (painted(panel.canvas) == before).all()


def test_a_click_selects_the_layer_of_the_row_and_keeps_the_head(qtbot, made):
    panel, selection, *_ = made
    selection.select_head(HeadRef(0, 2))
    qtbot.mouseClick(panel.canvas, Qt.MouseButton.LeftButton, pos=whole(centre(panel, 3, 1)))
    assert selection.value.head == HeadRef(3, 2)
    assert panel.canvas._likeness.shown == 3


def test_heads_of_the_shown_layer_are_chosen_by_a_click(qtbot, made):
    panel, selection, display, *_ = made
    selection.select_head(HeadRef(2, None))
    box = panel.boxes["likeness_of"]
    box.setFocus()
    qtbot.keyClick(box, Qt.Key.Key_Down)
    assert display.value.likeness_of == "heads"
    assert not panel.boxes["likeness_heads"].isVisible()
    qtbot.mouseClick(panel.canvas, Qt.MouseButton.LeftButton, pos=whole(centre(panel, 1, 2)))
    assert selection.value.head == HeadRef(2, 1)


def test_outside_the_square_nothing_is_meant(made):
    panel, *_ = made
    assert panel.canvas.pair_at(QPointF(1, 1)) is None
    square = panel.canvas.places().square
    assert panel.canvas.pair_at(QPointF(square.right() + 3, square.center().y())) is None
    assert panel.canvas.pair_at(square.topLeft() + QPointF(1, 1)) == (0, 0)
    assert panel.canvas.pair_at(square.bottomRight() - QPointF(1, 1)) == (3, 3)


def test_what_can_not_be_compared_is_hatched(qtbot):
    panel, *_ = made_of(qtbot, mixed_record())
    canvas = panel.canvas
    cell = canvas.places().cell(0, 3, 6)
    ratio = canvas.devicePixelRatioF()
    left, top, right, bottom = (int(side * ratio) for side in cell.adjusted(2, 2, -2, -2).getCoords())
    colours = painted(canvas)[top:bottom, left:right].reshape(-1, 3)
    assert len(np.unique(colours, axis=0)) > 3
    grey = np.abs(colours.astype(int) - colours.mean(axis=1, keepdims=True)).max()
    assert grey <= 3


@pytest.mark.parametrize("theme", ["light", "dark", "talk"])
@pytest.mark.parametrize("size", [(320, 260), (1400, 420)])
def test_everything_lies_inside_at_any_size(qtbot, theme, size):
    panel, *_, holder = made_of(qtbot, random_record(layers=4, heads=3), size)
    panel.set_theme(palette(theme))
    holder.resize(size[0], max(size[1], panel.least_height()))
    QApplication.processEvents()
    places = panel.canvas.places()
    assert places.square.width() >= 60
    assert places.bar.right() < panel.canvas.width()
    assert places.square.bottom() < panel.canvas.height()
    corner = painted(panel.canvas)[2, 2]
    assert bytes(corner).hex() == palette(theme).ground[1:]


def test_nothing_measured_is_nothing_painted(made):
    panel, *_ = made
    panel.paint(None)
    assert len(np.unique(painted(panel.canvas).reshape(-1, 3), axis=0)) == 1
    assert panel.canvas.pair_at(QPointF(60, 60)) is None


@pytest.mark.qt_log_ignore("does not support (propagateSizeHints|raise|grabbing the keyboard)", extend=True)
def test_the_words_on_a_pair_are_copied_with_layer_picture_and_model(made):
    panel, selection, display, scene, _ = made
    selection.select_head(HeadRef(2, None))
    display.set(replace(display.value, likeness_of="heads"))
    canvas = panel.canvas

    def ask(position):
        at = whole(position)
        QApplication.sendEvent(
            canvas, QContextMenuEvent(QContextMenuEvent.Reason.Mouse, at, canvas.mapToGlobal(at))
        )
        return canvas.findChildren(QMenu)

    assert ask(QPointF(1, 1)) == []
    [menu] = ask(centre(panel, 0, 2))
    [copy] = menu.actions()
    assert copy.text() == "Copy these words"
    copy.trigger()
    menu.close()
    copied = QGuiApplication.clipboard().text()
    assert copied == scene.value.likeness.told(0, 2)
    assert copied.startswith("Layer 2, heads 0 and 2: 0.")
    assert copied.endswith(scene.value.source) and scene.value.source.startswith("Picture: ")
