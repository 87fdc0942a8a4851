from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtGui import QTextDocumentFragment
from PySide6.QtWidgets import QApplication

from tests.state.records import random_record, state_of
from tests.ui.panels import painted, pixels, show
from viewer.backends.networks import network_fields
from viewer.state import comparison
from viewer.state.kinds import mark_of
from viewer.state.palette import palette
from viewer.state.references import BEFORE_LABEL, Reference
from viewer.state.selection import HeadRef
from viewer.ui.scatter_panel import ScatterPanel

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints", extend=True)


@pytest.fixture
def made(qtbot):
    _, selection, display, scene = state_of(random_record(layers=4, heads=3, sharp=3.0))
    panel = ScatterPanel(selection, display)
    holder = show(qtbot, panel, scene, "scatter", (900, 420))
    return panel, selection, display, scene, holder


def dot(panel, head):
    scatter = panel.plot._scatter
    place = int(np.flatnonzero((scatter.layer == head.layer) & (scatter.head == head.head))[0])
    x, y = panel.plot.positions()[place]
    return QPoint(round(x), round(y))


def test_every_dot_is_painted_at_its_distance(made):
    panel, *_ = made
    image = pixels(panel.plot.viewport()).astype(int)
    colour = np.array([int(palette("light").dot[i : i + 2], 16) for i in (1, 3, 5)])
    for x, y in panel.plot.positions():
        around = image[int(y) - 2 : int(y) + 3, int(x) - 2 : int(x) + 3].reshape(-1, 3)
        assert np.abs(around - colour).sum(axis=1).min() < 60
    heights = panel.plot.positions()[:, 1]
    assert (np.argsort(-heights) == np.argsort(panel.plot._scatter.y)).all()


def test_a_dot_has_no_prefix_where_no_head_attends_to_any(made):
    panel, _, _, scene, _ = made
    scatter = replace(scene.value.scatter, prefix_mass=np.zeros_like(scene.value.scatter.prefix_mass))
    assert scatter.head_words(0) == f"layer 0, head 0: {scatter.y[0]:.1f} px"
    panel.paint(scatter)
    assert panel._legend.toolTip().splitlines()[0] == "● head"


def test_hovering_a_dot_names_the_head_and_looks_at_it(qtbot, made):
    panel, selection, _, scene, _ = made
    head = HeadRef(2, 1)
    qtbot.mouseMove(panel.plot.viewport(), dot(panel, head))
    assert (selection.value.shown, selection.value.head) == (head, HeadRef(0, None))
    name = panel.plot._name
    assert name.isVisible()
    scatter = scene.value.scatter
    place = 2 * 3 + 1
    assert name.toPlainText() == scatter.head_words(place)
    assert name.toPlainText() == (
        f"layer 2, head 1: {scatter.y[place]:.1f} px, prefix {100 * scatter.prefix_mass[place]:.0f} %"
    )
    QApplication.sendEvent(panel.plot.viewport(), QEvent(QEvent.Type.Leave))
    QApplication.sendEvent(panel.plot, QEvent(QEvent.Type.Leave))
    assert selection.value.hovered_head is None
    assert not name.isVisible()


def test_clicking_a_dot_selects_it(qtbot, made):
    panel, selection, *_ = made
    qtbot.mouseClick(panel.plot.viewport(), Qt.MouseButton.LeftButton, pos=dot(panel, HeadRef(1, 2)))
    assert selection.value.head == HeadRef(1, 2)


def test_away_from_dots_nothing_is_pointed_at(qtbot, made):
    panel, selection, *_ = made
    selection.hover_head(HeadRef(1, 1))
    qtbot.mouseMove(panel.plot.viewport(), QPoint(3, 3))
    assert selection.value.hovered_head is None


def test_a_head_hovered_elsewhere_is_ringed_and_not_named(made):
    panel, selection, *_ = made
    selection.hover_head(HeadRef(3, 0))
    shown = panel.plot._shown
    assert shown.data["x"].tolist() == [panel.plot._scatter.x[9]]
    assert not panel.plot._name.isVisible()
    selection.hover_head(HeadRef(3, None))
    assert shown.data["y"].tolist() == panel.plot._scatter.y[9:].tolist()


def test_the_query_has_dots_of_its_own(made):
    panel, selection, _, scene, _ = made
    plot = panel.plot
    assert not plot._query.isVisible()
    before = pixels(plot.viewport())
    selection.hover((1, 2))
    QApplication.processEvents()
    assert plot._query.isVisible()
    np.testing.assert_array_equal(plot._query._y, scene.value.scatter.query_y)
    assert set(plot._lines["uniform query"].getData()[1]) == set(
        scene.value.scatter.reference("uniform query").y
    )
    changed = (pixels(plot.viewport()) != before).any(axis=2)
    x, y = plot.positions()[0]
    # A diamond at the query's own height beside the head's dot, not at the head's.
    scatter = scene.value.scatter
    per_unit = (plot.positions()[1, 1] - y) / (scatter.y[1] - scatter.y[0])
    row = y + per_unit * (scatter.query_y[0] - scatter.y[0])
    assert changed[int(row) - 5 : int(row) + 6, int(x) - 5 : int(x) + 6].any()
    selection.hover("cls")
    assert not plot._query.isVisible()


def test_everything_stays_in_sight_for_every_query(made):
    panel, selection, _, scene, _ = made
    for query in np.ndindex(4, 5):
        selection.hover(tuple(map(int, query)))
        scatter = scene.value.scatter
        low, high = panel.plot.getPlotItem().getViewBox().viewRange()[1]
        assert low == 0
        assert max(part.max() for part in (scatter.query_y, *(line.y for line in scatter.references))) < high


def test_the_original_protocol_is_one_choice_away(qtbot, made):
    panel, _, display, scene, _ = made
    before = scene.value.scatter.y
    panel.protocol.setFocus()
    qtbot.keyClick(panel.protocol, Qt.Key.Key_Down)
    assert display.value.protocol == "original"
    assert (scene.value.scatter.y < before).all()
    qtbot.keyClick(panel.unit, Qt.Key.Key_Down)
    assert display.value.unit == "patches"
    assert scene.value.scatter.y_axis.label.startswith("mean attention distance (patches), original protocol")


def test_the_switches_follow_the_settings(made):
    from dataclasses import replace

    panel, _, display, *_ = made
    display.set(replace(display.value, protocol="original", unit="patches"))
    assert panel.protocol.currentText() == "original protocol"
    assert panel.unit.currentText() == "patches"


@pytest.mark.parametrize("theme", ["light", "dark", "talk"])
def test_themes_are_taken_live(made, theme):
    panel, *_ = made
    panel.set_theme(palette(theme))
    QApplication.processEvents()
    assert bytes(pixels(panel.plot.viewport())[2, 2]).hex() == palette(theme).panel[1:]
    assert palette(theme).uniform in panel._legend.text()


@pytest.mark.parametrize("theme", ["light", "talk"])
def test_the_legend_goes_beside_below_or_away_and_the_plot_stays(made, theme):
    panel, *_, holder = made
    panel.set_theme(palette(theme))
    holder.resize(1800, 420)
    QApplication.processEvents()
    assert panel._legend.x() > panel.plot.x()
    holder.resize(640, 500)
    QApplication.processEvents()
    assert panel._legend.y() > panel.plot.y()
    assert panel._legend.isVisible()
    holder.resize(640, panel.minimumSizeHint().height())
    QApplication.processEvents()
    assert not panel._legend.isVisible()
    assert panel.plot.height() >= 140


def plain(panel):
    return QTextDocumentFragment.fromHtml(panel._legend.text()).toPlainText().replace("\u2060", "")


def test_the_legend_lists_what_is_drawn_and_nothing_else(made):
    panel, selection, _, _, holder = made
    holder.resize(1800, 420)
    QApplication.processEvents()
    selection.hover((1, 2))
    assert "this query alone" in plain(panel)
    selection.set_direction("to")
    assert "query" not in plain(panel) and "uniform attention" in plain(panel)
    selection.set_direction("from")
    selection.hover("cls")
    assert "alone" not in plain(panel)
    assert "the class token has no place, so no dots of its own" in plain(panel).replace("\xa0", " ")
    panel.paint(None)
    assert plain(panel) == ""


@pytest.mark.parametrize(("height", "words"), [(500, "mean attention distance (px)"), (150, "distance (px)")])
def test_the_axis_names_quantity_and_unit_at_any_height(made, height, words):
    panel, *_, holder = made
    holder.resize(640, height)
    QApplication.processEvents()
    axis = panel.plot.getPlotItem().getAxis("left")
    assert axis.labelText == words
    assert axis.label.boundingRect().width() <= panel.plot.height()


def test_nothing_measured_is_an_empty_plot(made):
    panel, *_ = made
    panel.paint(None)
    assert panel.plot.positions().shape == (0, 2)
    assert panel.plot._head_at(panel.plot.rect().center()) is None


def ink_of(panel, item):
    """How much of each pixel of the screen one item of the plot inks, 0 to 1."""
    plot = panel.plot
    for other in (
        *plot._lines.values(),
        plot._heads,
        plot._query,
        plot._shown,
    ):
        other.setVisible(False)
    empty = painted(plot.viewport()).astype(int)
    item.setVisible(True)
    changed = np.abs(painted(plot.viewport()).astype(int) - empty).sum(axis=2)
    return changed / changed.max()


@pytest.mark.parametrize(("item", "width"), [("uniform", 1.5), ("uniform query", 1.0), ("convolution", 1.5)])
def test_a_line_is_as_wide_on_every_screen(made, item, width):
    panel, selection, *_ = made
    selection.hover((1, 1))
    columns = ink_of(panel, panel.plot._lines[item]).sum(axis=0) / panel.plot.devicePixelRatioF()
    # A wide line may be painted one pixel of the screen narrower or wider.
    assert 0.65 * width <= np.median(columns[columns > 0.1]) <= width + 1


def test_the_ring_is_as_wide_on_every_screen(made):
    panel, selection, *_ = made
    selection.hover_head(HeadRef(3, 0))
    plot, ratio = panel.plot, panel.plot.devicePixelRatioF()
    ink = ink_of(panel, plot._shown)
    centre = plot.positions()[3 * 3][0]
    top_and_bottom = ink[:, round(centre * ratio)].sum() / ratio
    assert top_and_bottom == pytest.approx(2 * 2.0, abs=1.0)


def choose(panel, box, value):
    box.setCurrentIndex(box.findData(value))
    box.activated.emit(box.currentIndex())
    QApplication.processEvents()


def test_any_measure_is_a_choice_away_and_its_numbers_are_its_own(made):
    panel, selection, display, scene, _ = made
    selection.hover((1, 2))
    choose(panel, panel.y, "nmi")
    assert display.value.y_measure == "nmi"
    scatter = scene.value.scatter
    low, high = panel.plot.getPlotItem().getViewBox().viewRange()[1]
    assert 0 <= low < scatter.y.max() < high <= 1
    axis = panel.plot.getPlotItem().getAxis("left")
    texts = axis.tickStrings(axis.tickValues(low, high, 200)[0][1], axis.autoSIPrefixScale, 0.1)
    assert max(map(float, texts)) <= 1
    # Neither unit nor protocol has a part in it, and of one query there is none.
    assert not panel.unit.isVisible() and not panel.protocol.isVisible()
    assert not panel.plot._query.isVisible()
    assert "one query has none" in panel._legend.toolTip()
    choose(panel, panel.y, "mean_distance")
    assert panel.unit.isVisible() and panel.plot._query.isVisible()


def test_two_measures_against_each_other_have_uniform_attention_as_a_point(made):
    panel, selection, _, scene, _ = made
    choose(panel, panel.y, "entropy_nats")
    choose(panel, panel.x, "mean_distance")
    scatter, plot = scene.value.scatter, panel.plot
    x, y = plot._points["uniform"].getData()
    assert plot._points["uniform"].isVisible() and not plot._lines["uniform"].isVisible()
    assert (x[0], y[0]) == (scatter.reference("uniform").x[0], pytest.approx(np.log(21), abs=1e-5))
    assert not plot._lines["convolution"].isVisible()
    image = pixels(plot.viewport()).astype(int)
    colour = np.array([int(palette("light").dot[i : i + 2], 16) for i in (1, 3, 5)])
    places = plot.positions()
    assert (np.argsort(places[:, 0]) == np.argsort(scatter.x)).all()
    for across, down in places:
        around = image[int(down) - 2 : int(down) + 3, int(across) - 2 : int(across) + 3].reshape(-1, 3)
        assert np.abs(around - colour).sum(axis=1).min() < 60
    selection.hover((1, 2))
    assert plot._points["uniform query"].isVisible()
    assert plot.getPlotItem().getAxis("bottom").labelText == "mean attention distance (px)"


def test_dots_show_kinds_with_what_decided_them(qtbot, made):
    panel, _, display, scene, _ = made
    qtbot.mouseClick(panel.kinds, Qt.MouseButton.LeftButton)
    assert display.value.kinds
    scatter = scene.value.scatter
    assert len(scatter.kinds) == 12
    symbols = {point.symbol() for point in panel.plot._heads.points()}
    assert symbols == {mark_of(kind).symbol for kind in scatter.kinds}
    counts = panel._legend.toolTip().splitlines()
    assert sum(int(line.split(": ")[1].split()[0]) for line in counts if " heads" in line) == 12
    panel.plot._point(HeadRef(2, 1))
    assert scatter.kinds[7].kind in panel.plot._name.toPlainText()
    assert "attention within 1 hop" in panel.plot._name.toPlainText()


@pytest.mark.parametrize("size", [(420, 240), (640, 420), (900, 300)])
@pytest.mark.parametrize("theme", ["light", "talk"])
def test_the_name_of_a_dot_stays_inside_the_plot(made, size, theme, monkeypatch):
    panel, _, display, _, holder = made
    monkeypatch.setattr(comparison, "_networks", {})
    comparison.keep(network_fields("resnet18"))
    display.set(replace(display.value, kinds=True, compare="resnet18"))
    panel.set_theme(palette(theme))
    holder.resize(*size)
    QApplication.processEvents()
    plot = panel.plot
    # Levels of a network have their words beside the dots, which have less room then.
    assert plot.getPlotItem().getViewBox().width() < 0.85 * plot.width()
    for place in range(12):
        plot._point(HeadRef(place // 3, place % 3))
        words = plot._name.textItem
        assert words.isVisible()
        assert plot.sceneRect().contains(words.mapRectToScene(words.boundingRect()))
        # No word is longer than the lines.
        assert words.document().idealWidth() <= words.boundingRect().width()


def test_error_bars_reach_from_lower_to_upper_end(made):
    panel, _, _, scene, _ = made
    y = scene.value.scatter.y
    panel.paint(replace(scene.value.scatter, y=y.copy(), spread=np.stack([y - 3, y + 5], axis=1)))
    assert panel.plot._bars.isVisible()
    x, ends = panel.plot._bars.getData()
    np.testing.assert_array_equal(ends.reshape(-1, 2), np.stack([y - 3, y + 5], axis=1))
    np.testing.assert_array_equal(x[::2], panel.plot._scatter.x)
    assert panel.plot.getPlotItem().getViewBox().viewRange()[1][1] > (y + 5).max()
    assert "spread" in panel._legend.toolTip()


def inked(panel, head, across, down):
    """Whether anything is painted around a place beside a dot, given in diameters of dots."""
    at, image = dot(panel, head), painted(panel.plot.viewport()).astype(int)
    ratio, size = panel.plot.devicePixelRatioF(), panel.plot.dot_size
    x, y = (round(place * ratio) for place in (at.x() + across * size, at.y() + down * size))
    ground = [int(palette("light").panel[i : i + 2], 16) for i in (1, 3, 5)]
    return bool((np.abs(image[y - 1 : y + 2, x - 1 : x + 2] - ground).sum(axis=2) > 90).any())


@pytest.mark.parametrize("kinds", [False, True])
def test_a_head_that_is_not_used_is_hollow_and_crossed_out(made, kinds):
    panel, _, display, scene, _ = made
    display.set(replace(display.value, kinds=kinds))
    scatter, head = scene.value.scatter, HeadRef(1, 1)
    # No dot lies near another, or near a line.
    apart = np.linspace(50, 20, 12)
    alone = replace(scatter, y=apart, query_x=None, query_y=None, references=(), shown=HeadRef(-1, None))
    corners = [(across, down) for across in (-0.65, 0.65) for down in (-0.65, 0.65)]
    panel.paint(alone)
    assert inked(panel, head, 0, 0) and not any(inked(panel, head, *corner) for corner in corners)
    assert "not used" not in panel._legend.toolTip()
    panel.paint(replace(alone, y=apart.copy(), unused=(alone.layer == 1) & (alone.head == 1)))
    assert all(inked(panel, head, *corner) for corner in corners)
    filled = [point.brush().color().alpha() > 0 for point in panel.plot._heads.points()]
    assert filled == [place != 4 for place in range(12)]
    assert not any(inked(panel, HeadRef(1, 2), *corner) for corner in corners)
    assert "⊗ head removed or skipped: not used" in panel._legend.toolTip()
    assert panel.plot._scatter.head_words(4).startswith("layer 1, head 1 (not used): ")
    assert "not used" not in panel.plot._scatter.head_words(5)
    panel.paint(replace(alone, y=apart.copy()))
    assert not any(inked(panel, head, *corner) for corner in corners)


def test_the_legend_has_the_marks_that_are_drawn(made):
    panel, _, display, scene, _ = made
    plain = scene.value.scatter
    before = Reference("before", plain.x, plain.y, BEFORE_LABEL, points=True)
    panel.paint(replace(plain, references=(*plain.references, before)))
    assert panel.plot._points["before"].opts["symbol"] == "o"
    assert f"○ {BEFORE_LABEL}" in panel._legend.toolTip()
    display.set(replace(display.value, x_measure="entropy_nats"))
    assert panel.plot._points["uniform"].isVisible()
    assert panel.plot._points["uniform"].opts["symbol"] == "+"
    assert "+ uniform attention" in panel._legend.toolTip()
