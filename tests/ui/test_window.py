"""The window under real keys, mouse and dialogs: state follows it, and it follows state."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QPoint, QRect, QStandardPaths, Qt, QTimer
from PySide6.QtGui import QColor, QGuiApplication, QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QApplication,
    QCheckBox,
    QComboBox,
    QLabel,
    QMenu,
    QMessageBox,
    QPushButton,
    QSlider,
    QSpinBox,
    QStyle,
    QStyleOptionComboBox,
)

from viewer.state.colormaps import COLORMAPS
from viewer.state.palette import palette
from viewer.state.requests import ModelRequest
from viewer.state.selection import HeadRef
from viewer.ui.choices import DISPLAY_CHOICES
from viewer.ui.export_dialog import ExportDialog
from viewer.ui.help_dialog import HelpDialog
from viewer.ui.jobs import Request
from viewer.ui.model_picker import ModelPicker
from viewer.ui.preprocessing_dialog import PreprocessingDialog

from .conftest import GRID, HEADS, LAYERS, settle

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints", extend=True)
CONTROL = Qt.KeyboardModifier.ControlModifier
_OWN = (QStandardPaths.StandardLocation.PicturesLocation, QStandardPaths.StandardLocation.HomeLocation)
SHIFT = Qt.KeyboardModifier.ShiftModifier


def press(session, key, modifier=Qt.KeyboardModifier.NoModifier, times=1):
    for _ in range(times):
        QTest.keyClick(QApplication.focusWidget() or session.window, key, modifier)


def test_panels_are_filled_once_the_first_picture_is_done(opened):
    value = opened.scene.value
    assert opened.window.stack.currentWidget() is opened.window.views
    assert value.selection.query == (5, 5)
    assert value.selection.head == HeadRef(LAYERS // 2, None)
    assert value.overlay.values.shape == GRID
    assert value.heads.maps.shape == (LAYERS, HEADS, *GRID)
    assert len(value.scatter.y) == LAYERS * HEADS
    assert value.readout


def test_arrows_move_the_query_and_stop_at_the_border(opened):
    press(opened, Qt.Key.Key_Up, times=2)
    press(opened, Qt.Key.Key_Right)
    assert opened.selection.value.query == (3, 6)
    press(opened, Qt.Key.Key_Left, times=9)
    press(opened, Qt.Key.Key_Down, times=9)
    assert opened.selection.value.query == (9, 0)
    assert opened.scene.value.overlay.query == (9, 0)


def test_pinned_queries_move_and_are_let_go(opened):
    press(opened, Qt.Key.Key_Space)
    assert opened.selection.value.pins == ((5, 5),)
    press(opened, Qt.Key.Key_Right)
    assert opened.selection.value.pins == ((5, 6),)
    press(opened, Qt.Key.Key_Escape)
    assert opened.selection.value.pins == ()
    assert opened.selection.value.query == (5, 6)


def test_brackets_step_through_layers_and_comma_and_point_through_heads(opened):
    middle = LAYERS // 2
    press(opened, Qt.Key.Key_BracketRight)
    assert opened.selection.value.shown == HeadRef(middle + 1, None)
    press(opened, Qt.Key.Key_BracketLeft, times=20)
    assert opened.selection.value.shown == HeadRef(0, None)
    press(opened, Qt.Key.Key_Period)
    assert opened.selection.value.shown == HeadRef(0, 0)
    press(opened, Qt.Key.Key_Period)
    assert opened.selection.value.shown == HeadRef(0, 1)
    press(opened, Qt.Key.Key_Comma, times=2)
    assert opened.selection.value.shown == HeadRef(0, None)


def test_arrows_belong_to_a_control_that_has_the_focus(opened):
    opacity = opened.window.toolbar.overlay.opacity
    opacity.setFocus()
    before = opacity.value()
    press(opened, Qt.Key.Key_Right)
    assert opacity.value() == before + 1
    assert opened.display.value.opacity == pytest.approx((before + 1) / 100)
    assert opened.selection.value.query == (5, 5)


def test_the_class_token_can_be_the_query(opened):
    [menu] = [menu for menu in opened.window.findChildren(QMenu) if "tokens" in menu.title()]
    [action] = menu.actions()
    assert action.text() == "The class token"
    action.trigger()
    assert opened.selection.value.query == "cls"
    assert opened.scene.value.overlay.query == "cls"
    press(opened, Qt.Key.Key_Down)
    assert opened.selection.value.query == (5, 5)


def test_the_toolbar_chooses_layer_head_and_fusion_and_follows_keys(opened):
    heads = opened.window.toolbar.heads
    choose(heads.layer, "4")
    choose(heads.head, "1")
    assert opened.selection.value.shown == HeadRef(4, 1)
    choose(heads.head, f"max of all {HEADS}")
    assert opened.selection.value.shown == HeadRef(4, None)
    assert opened.selection.value.fusion == "max"
    press(opened, Qt.Key.Key_BracketRight)
    assert heads.layer.currentText() == "5"


def choose(box: QComboBox, words: str) -> None:
    """Choose as a person does: focus and keys."""
    place = box.findText(words)
    assert place >= 0, [box.itemText(i) for i in range(box.count())]
    box.setFocus()
    QTest.keyClick(box, Qt.Key.Key_Home)
    for _ in range(place):
        QTest.keyClick(box, Qt.Key.Key_Down)
    assert box.currentText() == words


@pytest.mark.parametrize("choice", DISPLAY_CHOICES, ids=lambda choice: choice.field)
def test_every_choice_of_the_menu_reaches_state_and_is_marked(opened, choice):
    [menu] = [menu for menu in opened.window.findChildren(QMenu) if menu.title() == choice.label]
    for action in menu.actions():
        action.trigger()
        assert getattr(opened.display.value, choice.field) == action.data()
        menu.aboutToShow.emit()
        assert [other.data() for other in menu.actions() if other.isChecked()] == [action.data()]


def test_every_colour_map_there_is_can_be_chosen():
    [choice] = [choice for choice in DISPLAY_CHOICES if choice.field == "colormap"]
    assert tuple(value for value, _ in choice.options) == COLORMAPS


@pytest.mark.parametrize("theme", ["light", "dark", "talk"])
def test_a_theme_is_applied_at_once_to_everything(opened, theme):
    opened.display.set(replace(opened.display.value, theme=theme))
    QApplication.processEvents()
    colours = palette(theme)
    assert QApplication.palette().window().color().name() == colours.ground
    assert opened.window.font().pointSizeF() == colours.points
    corner = opened.window.model_bar.mapTo(opened.window, QPoint(1, 1))
    assert opened.window.grab().toImage().pixelColor(corner).name() == colours.ground


def test_the_badge_says_verified_and_why(opened):
    bar = opened.window.model_bar
    assert opened.documents.current.record.verified
    assert bar.badge == "✓ verified"
    assert f"All {LAYERS} layers verified" in bar.badge_reasons


def test_the_badge_names_the_layers_that_are_not_verified(opened):
    record = opened.documents.current.record
    layer = record.layers[2]
    verdict = replace(layer.verdict, verified=False, reason="its bias is not known")
    layers = (*record.layers[:2], replace(layer, verdict=verdict), *record.layers[3:])
    opened.documents.update(opened.documents.current.key, record=replace(record, layers=layers))
    assert opened.window.model_bar.badge == "not verified"
    assert (
        f"Layer 2 ({layer.name}) is not verified: its bias is not known."
        in opened.window.model_bar.badge_reasons
    )


def test_progress_and_cancel_appear_only_after_a_moment(opened, qtbot):
    gate, entered = threading.Event(), threading.Event()
    activity, failures = opened.window.activity, []

    def work(job):
        entered.set()
        while not gate.wait(0.01):
            job.step("counting sheep", 0.25)

    opened.jobs.submit(Request("long work", work, failed=failures.append))
    qtbot.waitUntil(entered.is_set)
    assert not activity.cancel.isVisible()
    qtbot.waitUntil(activity.cancel.isVisible, timeout=3000)
    assert activity.doing == "counting sheep"
    qtbot.mouseClick(activity.cancel, Qt.MouseButton.LeftButton)
    settle(qtbot, opened)
    assert [str(error) for error in failures] == ["cancelled"]
    assert not activity.cancel.isVisible()
    assert activity.doing == ""


def test_a_bug_is_told_quietly_with_details_to_copy(opened, qtbot, capsys):
    opened.jobs.submit(Request("Counting", lambda job: 1 // 0))
    settle(qtbot, opened)
    [sentence] = opened.window.messages.texts
    assert sentence == "Counting failed because of an error in Patchreach; nothing that is open was lost."
    assert "ZeroDivisionError" in capsys.readouterr().err
    [copy] = [b for b in buttons(opened.window.messages) if b.text() == "Copy details"]
    qtbot.mouseClick(copy, Qt.MouseButton.LeftButton)
    assert "ZeroDivisionError" in QGuiApplication.clipboard().text()
    assert QApplication.activeModalWidget() is None
    [dismiss] = [b for b in buttons(opened.window.messages) if b.text() == "✕"]
    qtbot.mouseClick(dismiss, Qt.MouseButton.LeftButton)
    assert opened.window.messages.texts == ()
    assert not opened.window.messages.isVisible()


def buttons(widget):
    from PySide6.QtWidgets import QToolButton

    return widget.findChildren(QToolButton)


def test_closing_pictures_goes_back_to_the_welcome_page(opened, qtbot):
    assert opened.window.film_strip.count() == 1
    press(opened, Qt.Key.Key_W, CONTROL)
    assert opened.documents.all == ()
    assert opened.window.film_strip.count() == 0
    assert opened.window.stack.currentWidget() is opened.window.welcome
    words = " ".join(label.text() for label in opened.window.welcome.findChildren(QLabel))
    assert "Drop a picture here" in words
    assert "test_vit is open" in words


def test_a_click_in_the_film_strip_shows_the_picture(opened, qtbot, pictures):
    opened.workflow.open_paths(pictures(2, "more"))
    settle(qtbot, opened)
    strip = opened.window.film_strip
    assert strip.currentRow() == 1
    where = strip.visualItemRect(strip.item(2)).center()
    qtbot.mouseClick(strip.viewport(), Qt.MouseButton.LeftButton, pos=where)
    assert opened.documents.current is opened.documents.all[2]
    opened.documents.show(opened.documents.all[0].key)
    assert strip.currentRow() == 0
    assert opened.selection.value.query is not None


def test_the_read_out_is_copied_with_its_picture_and_model(opened):
    readout = opened.window.views.readout
    [copy] = readout.actions()
    copy.trigger()
    assert QGuiApplication.clipboard().text() == (
        f"{opened.scene.value.readout}\n"
        "Picture: picture 0.png, input 160 × 160 px. Model: test_vit with test_vit.safetensors."
    )


def test_ctrl_c_puts_the_figure_on_the_clipboard(opened, qtbot):
    QGuiApplication.clipboard().clear()
    press(opened, Qt.Key.Key_C, CONTROL)
    settle(qtbot, opened)
    data = QGuiApplication.clipboard().mimeData()
    assert data.data("image/png").data()[:8] == b"\x89PNG\r\n\x1a\n"
    assert QGuiApplication.clipboard().image().width() > 400
    assert opened.window.messages.texts == ("The figure is on the clipboard.",)


@pytest.mark.parametrize(
    ("view", "suffix", "start"),
    [
        ("all", ".png", b"\x89PNG"),
        ("heads", ".svg", b"<?xml"),
        ("scatter", ".pdf", b"%PDF"),
        ("table", ".csv", b"image,"),
    ],
)
def test_ctrl_e_exports_a_file(opened, qtbot, tmp_path, view, suffix, start):
    press(opened, Qt.Key.Key_E, CONTROL)
    dialog = opened.window.findChild(ExportDialog)
    assert dialog.isVisible()
    dialog.view.setCurrentIndex(dialog.view.findData(view))
    dialog.format.setCurrentIndex(dialog.format.findData(suffix))
    assert dialog.path.text().endswith(suffix)
    dialog.path.setText(str(tmp_path / "talk"))
    qtbot.mouseClick(dialog.save_button, Qt.MouseButton.LeftButton)
    settle(qtbot, opened)
    written = (tmp_path / "talk").with_suffix(suffix)
    assert written.read_bytes()[: len(start)] == start
    assert opened.window.messages.texts == (f"Saved {written}.",)
    assert opened.window.remembered.export.suffix == suffix


def test_an_export_that_cannot_be_written_gives_a_sentence(opened, qtbot, tmp_path):
    press(opened, Qt.Key.Key_E, CONTROL)
    dialog = opened.window.findChild(ExportDialog)
    dialog.path.setText(str(tmp_path / "no such folder" / "figure.png"))
    qtbot.mouseClick(dialog.save_button, Qt.MouseButton.LeftButton)
    settle(qtbot, opened)
    [sentence] = opened.window.messages.texts
    assert "figure.png" in sentence and "no folder" in sentence


@pytest.mark.parametrize("source", ["picture", "weights"])
def test_an_export_never_overwrites_what_it_is_made_from(opened, qtbot, weights, source):
    from viewer.state.requests import FigureRequest, TableRequest

    path = opened.documents.current.image.path if source == "picture" else weights
    before = path.read_bytes()
    for request in (FigureRequest(path=path), TableRequest(path)):
        opened.export(request)
    settle(qtbot, opened)
    told = opened.window.messages.texts
    assert told and all("made from that very file" in sentence for sentence in told)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["n" * 300, "~nobody-of-this-name/figure", "zero\0"])
def test_names_that_cannot_be_give_a_sentence(opened, qtbot, tmp_path, name):
    press(opened, Qt.Key.Key_E, CONTROL)
    dialog = opened.window.findChild(ExportDialog)
    dialog.path.setText(name if name.startswith("~") else str(tmp_path / name))
    qtbot.mouseClick(dialog.save_button, Qt.MouseButton.LeftButton)
    settle(qtbot, opened)
    [sentence] = opened.window.messages.texts
    assert "can't be written" in sentence


def test_an_exported_figure_dropped_again_shows_the_same(opened, qtbot, tmp_path, sessions):
    opened.selection.set(replace(opened.selection.value, pins=((2, 7),), head=HeadRef(1, 1), direction="to"))
    opened.display.set(replace(opened.display.value, unit="patches", grid=True))
    before = opened.selection.value
    from viewer.state.requests import FigureRequest

    opened.export(FigureRequest(path=tmp_path / "figure.png"))
    settle(qtbot, opened)
    opened.window.close()  # remembers picture and checkpoint, whose folders no figure tells
    again = sessions(files=(str(tmp_path / "figure.png"),))
    settle(qtbot, again)
    assert again.documents.current.image.path == opened.documents.current.image.path
    assert again.selection.value.pins == before.pins
    assert again.selection.value.head == before.head
    assert again.selection.value.direction == "to"
    assert again.display.value.unit == "patches" and again.display.value.grid
    assert again.scene.value.overlay.title == opened.scene.value.overlay.title


def test_the_model_picker_searches_by_words_and_walks_with_arrows(opened, qtbot):
    press(opened, Qt.Key.Key_M, CONTROL)
    picker = opened.window.findChild(ModelPicker)
    qtbot.waitUntil(lambda: picker.names.model().rowCount() > 100, timeout=20_000)
    QTest.keyClicks(picker.name, "dino small 14")
    shown = [picker.names.model().index(row, 0).data() for row in range(picker.names.model().rowCount())]
    assert 0 < len(shown) < 20
    assert all("dino" in name and "small" in name and "14" in name for name in shown)
    QTest.keyClick(picker.name, Qt.Key.Key_Down)
    assert picker.name.text() in shown
    picker.size.setText("12x")
    assert not picker.open_button.isEnabled()
    assert "height first" in picker.problem.text()
    picker.size.setText("")
    asked = []
    opened.window.model_asked.disconnect()
    picker.chosen.connect(asked.append)
    picker.accept()
    assert [(request.model, request.weights, request.image_size) for request in asked] == [
        (shown[0], None, None)
    ]


def test_preprocessing_is_changed_and_everything_runs_again(opened, qtbot):
    before = opened.documents.current.record
    opened.window.choose_preprocessing()
    dialog = opened.window.findChild(PreprocessingDialog)
    assert dialog.value == replace(opened.documents.model.preprocessing, assumed="")
    [imagenet] = [b for b in dialog.findChildren(QPushButton) if b.text() == "ImageNet"]
    qtbot.mouseClick(imagenet, Qt.MouseButton.LeftButton)
    dialog.accept()
    settle(qtbot, opened)
    assert opened.documents.model.preprocessing.mean == (0.485, 0.456, 0.406)
    assert opened.documents.model.preprocessing.std == (0.229, 0.224, 0.225)
    assert opened.documents.current.record is not before
    assert opened.documents.current.status == "done"


def test_a_size_the_model_cannot_take_leaves_everything_as_it_was(opened, qtbot):
    before = opened.documents.current.record
    opened.window.preprocessing_asked.emit(replace(opened.documents.model.preprocessing, size=(7, 9)))
    settle(qtbot, opened)
    assert opened.documents.current.record is before
    assert len(opened.window.messages.texts) == 1


def test_whole_pictures_are_offered_where_the_model_takes_every_size(opened, qtbot, onnx_file):
    def offered():
        opened.window.choose_preprocessing()
        dialog = opened.window.findChildren(PreprocessingDialog)[-1]
        found = dialog.crop.model().item(dialog.crop.findData("whole")).isEnabled()
        dialog.reject()
        return found

    assert offered()
    opened.window.model_asked.emit(ModelRequest(str(onnx_file)))
    settle(qtbot, opened)
    assert not offered()


def test_a_size_no_memory_can_hold_is_refused_in_the_dialog(opened):
    opened.window.choose_preprocessing()
    dialog = opened.window.findChild(PreprocessingDialog)
    dialog.height_box.setValue(8192)
    dialog.width_box.setValue(8192)
    dialog.accept()
    assert dialog.isVisible()
    assert any("8192 x 8192 pixels is too large" in label.text() for label in dialog.findChildren(QLabel))
    dialog.reject()


def test_help_lists_every_key_of_the_menus(opened):
    press(opened, Qt.Key.Key_F1)
    dialog = opened.window.findChild(HelpDialog)
    lines = [re.sub("</?b>", "", label.text()) for label in dialog.findChildren(QLabel)]
    words = " ".join(lines).replace("Arrow keys", "Up Down Left Right")
    actions = [action for menu in opened.window.findChildren(QMenu) for action in menu.actions()]
    keys = {key.toString() for action in actions for key in action.shortcuts()}
    assert keys
    named = {*re.split(r"[ ;]+|, ", words), ","}
    assert [key for key in sorted(keys) if key not in named] == []
    assert "Class and register tokens" in words
    dialog.close()


def test_no_two_actions_share_a_key(opened):
    actions = [action for menu in opened.window.findChildren(QMenu) for action in menu.actions()]
    keys = [
        key.toString(QKeySequence.SequenceFormat.PortableText)
        for action in actions
        for key in action.shortcuts()
    ]
    assert len(keys) == len(set(keys))


def test_every_control_has_a_name_for_screen_readers(opened):
    bar = opened.window.toolbar
    kinds = (QComboBox, QSlider, QSpinBox, QCheckBox)
    controls = [child for kind in kinds for child in bar.findChildren(kind)]
    assert len(controls) == 9
    for control in controls:
        assert control.accessibleName(), control
        assert control.toolTip(), control


@pytest.mark.parametrize(
    ("theme", "least"), [("light", (900, 600)), ("dark", (900, 600)), ("talk", (1024, 700))]
)
def test_the_smallest_window_shows_everything(opened, qtbot, theme, least):
    opened.display.set(replace(opened.display.value, theme=theme))
    opened.window.resize(300, 200)
    views = opened.window.views
    qtbot.waitUntil(lambda: views.heads.canvas.height() <= views.heads._scroll.viewport().height())
    assert (opened.window.width(), opened.window.height()) == least, opened.window.minimumSizeHint()
    for panel in (views.image, views.heads, views.scatter, views.readout):
        corner = panel.mapTo(opened.window, QPoint(panel.width(), panel.height()))
        assert corner.x() <= least[0] and corner.y() <= least[1]
    assert views.scatter.plot.height() >= 140
    assert views.image._laid_out(opened.scene.value.overlay).picture.height() > 170


def test_the_heads_get_the_width_their_maps_fill_until_a_person_divides(opened, qtbot):
    views, window = opened.window.views, opened.window
    window.resize(1400, 900)
    qtbot.wait(50)
    wanted = max(views.heads.width_for(views._row.height()), 0.25 * views.width())
    assert views.heads.width() == pytest.approx(min(wanted, 0.55 * views.width()), abs=8)
    assert window.remembered.splitters == {}
    handle = views._row.handle(1)
    there = handle.rect().center()
    QTest.mousePress(handle, Qt.MouseButton.LeftButton, pos=there)
    QTest.mouseMove(handle, there - QPoint(90, 0))
    QTest.mouseRelease(handle, Qt.MouseButton.LeftButton, pos=there - QPoint(90, 0))
    divided = tuple(views._row.sizes())
    assert set(window.remembered.splitters) == {"views and heads"}
    opened.display.set(replace(opened.display.value, theme="dark"))
    qtbot.wait(50)
    assert tuple(views._row.sizes()) == divided


@pytest.mark.parametrize("theme", ["light", "talk"])
@pytest.mark.parametrize("width", [1024, 1280, 1366, 2000])
def test_every_control_is_in_reach_and_its_label_too_where_there_is_room(opened, qtbot, theme, width):
    opened.display.set(replace(opened.display.value, theme=theme))
    opened.window.resize(width, 800)
    qtbot.wait(50)
    bar = opened.window.toolbar
    labels = bar.findChildren(QLabel)
    for control in [label.buddy() for label in labels] + bar.findChildren(QCheckBox):
        assert control.isVisible(), control.accessibleName()
        assert control.mapTo(bar, QPoint(control.width(), 0)).x() <= bar.width(), control.accessibleName()
    shown = [label for label in labels if label.isVisible()]
    assert all(label.width() >= label.sizeHint().width() for label in shown)
    names = [label.text() for label in shown]
    assert names[:2] == ["Layer", "Head"]
    if width >= 1366 or (theme == "light" and width >= 1280):
        assert names == ["Layer", "Head", "Show", "Opacity", "Convolutions", "Colours", "Scale"]


def test_labels_that_went_for_a_narrow_window_come_back(opened, qtbot):
    window, labels = opened.window, opened.window.toolbar.findChildren(QLabel)
    for width, all_shown in ((1600, True), (950, False), (1600, True)):
        window.resize(width, 800)
        qtbot.waitUntil(lambda all_shown=all_shown: all(x.isVisible() for x in labels) == all_shown)
    opened.display.set(replace(opened.display.value, theme="talk"))
    window.resize(1250, 800)
    qtbot.waitUntil(lambda: not all(label.isVisible() for label in labels))
    opened.display.set(replace(opened.display.value, theme="light"))
    qtbot.waitUntil(lambda: all(label.isVisible() for label in labels))


@pytest.mark.parametrize("theme", ["light", "talk"])
def test_the_longest_name_of_heads_together_is_whole(opened, qtbot, theme):
    opened.display.set(replace(opened.display.value, theme=theme))
    qtbot.wait(50)
    combo = opened.window.toolbar.heads.head
    option = QStyleOptionComboBox()
    combo.initStyleOption(option)
    part = QStyle.SubControl.SC_ComboBoxEditField
    room = combo.style().subControlRect(QStyle.ComplexControl.CC_ComboBox, option, part, combo)
    assert combo.fontMetrics().horizontalAdvance("mean of all 16") <= room.width()


def test_a_message_moves_nothing_and_needs_no_scroll_bar(opened, qtbot):
    window, views = opened.window, opened.window.views
    parts = (views.image, views.heads, views.scatter, views.readout)
    before = [part.mapTo(window, part.rect().bottomRight()) for part in parts]
    window.say("Saved figure.png.")
    qtbot.wait(50)
    assert [part.mapTo(window, part.rect().bottomRight()) for part in parts] == before
    assert window.messages.isVisible()
    assert not window.messages.verticalScrollBar().isVisible()
    [label] = [label for label in window.messages.findChildren(QLabel) if label.text() == "Saved figure.png."]
    assert window.rect().contains(label.mapTo(window, label.rect().topLeft()))
    assert window.rect().contains(label.mapTo(window, label.rect().bottomRight()))
    window.resize(1100, 700)
    qtbot.wait(50)
    foot = window.messages.mapTo(window, window.messages.rect().bottomLeft())
    assert foot.y() == window.rect().bottom()


def test_many_messages_can_be_scrolled_to(opened, qtbot):
    for number in range(20):
        opened.window.say(f"Picture {number} could not be read.")
    qtbot.wait(50)
    assert opened.window.messages.verticalScrollBar().isVisible()
    assert opened.window.messages.height() < opened.window.height() / 2


def test_both_colour_bars_of_a_shared_scale_read_the_same(opened):
    overlay, heads = opened.scene.value.overlay, opened.scene.value.heads
    assert float(heads.vmax.flat[0]) == pytest.approx(overlay.vmax)
    assert heads.largest == overlay.largest


def test_an_export_goes_to_the_last_folder_and_never_among_the_programs_own(opened, qtbot, tmp_path):
    from viewer.images.samples import SAMPLES

    opened.workflow.open_paths([SAMPLES[0].path])
    settle(qtbot, opened)
    press(opened, Qt.Key.Key_E, CONTROL)
    dialog = opened.window.findChild(ExportDialog)
    first = Path(dialog.path.text()).parent
    assert first != SAMPLES[0].path.parent and first.is_dir()
    assert first in [Path(QStandardPaths.writableLocation(place)) for place in _OWN]
    (tmp_path / "talks").mkdir()
    dialog.path.setText(str(tmp_path / "talks" / "figure.png"))
    qtbot.mouseClick(dialog.save_button, Qt.MouseButton.LeftButton)
    settle(qtbot, opened)
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    opened.window.choose_export()
    dialog = opened.window.findChild(ExportDialog)
    assert Path(dialog.path.text()).parent == tmp_path / "talks"
    dialog.close()


def test_enter_does_not_overwrite(opened, qtbot, tmp_path):
    file = tmp_path / "figure.png"
    file.write_bytes(b"precious")
    press(opened, Qt.Key.Key_E, CONTROL)
    dialog = opened.window.findChild(ExportDialog)
    dialog.path.setText(str(file))

    def answer() -> None:
        question = QApplication.activeModalWidget()
        if isinstance(question, QMessageBox):
            QTest.keyClick(question, Qt.Key.Key_Return)
        else:
            QTimer.singleShot(50, answer)

    QTimer.singleShot(50, answer)
    qtbot.mouseClick(dialog.save_button, Qt.MouseButton.LeftButton)
    assert file.read_bytes() == b"precious"
    assert dialog.isVisible()
    dialog.close()


@pytest.mark.parametrize("kind", ["check box", "slider"])
def test_small_controls_can_be_seen_on_a_dark_ground(opened, qtbot, kind):
    opened.display.set(replace(opened.display.value, theme="dark", grid=False))
    qtbot.wait(50)
    overlay = opened.window.toolbar.overlay
    control = overlay.grid if kind == "check box" else overlay.opacity
    ground = QColor(palette("dark").ground).lightness()
    image = opened.window.grab(QRect(control.mapTo(opened.window, QPoint()), control.size())).toImage()
    if kind == "check box":
        across = [image.pixelColor(x, image.height() // 2).lightness() for x in range(20)]
        assert max(across) > ground + 70
    else:
        share = control.value() / 100
        middle = int(8 + share * (image.width() - 16))
        down = [image.pixelColor(middle, y).lightness() for y in range(image.height())]
        assert max(down) > ground + 120


def test_the_query_stays_when_the_mouse_leaves_the_picture(opened, qtbot):
    image, heads = opened.window.views.image, opened.window.views.heads
    QTest.mouseMove(image, image.rect().center() - QPoint(60, 40))
    QApplication.processEvents()
    hovered = opened.selection.value.query
    assert hovered not in (None, (5, 5))
    QApplication.sendEvent(image, QEvent(QEvent.Type.Leave))
    QTest.mouseMove(heads, heads.rect().center())
    assert opened.selection.value.query == hovered
    assert opened.scene.value.heads.maps is not None


def test_the_lower_left_takes_the_pictures_room_and_gives_it_back(opened, qtbot):
    views = opened.window.views
    opened.window.resize(1280, 860)
    qtbot.wait(50)
    before = views.tabs.height()
    press(opened, Qt.Key.Key_F8)
    qtbot.waitUntil(lambda: views.tabs.height() > views.heads.height() - 10)
    assert not views.image.isVisible()
    tab = views.tabs.tabBar().tabRect(0).center()
    QTest.mouseDClick(views.tabs.tabBar(), Qt.MouseButton.LeftButton, pos=tab)
    qtbot.waitUntil(lambda: views.tabs.height() == before)
    assert views.image.isVisible()


def test_lists_of_the_scatter_show_whole_words_however_little_room_there_is(opened, qtbot):
    scatter = opened.window.views.scatter
    boxes = (scatter.y, scatter.x, scatter.unit, scatter.protocol)
    for width in (900, 1280, 1900):
        opened.window.resize(width, 860)
        qtbot.wait(50)
        for box in boxes:
            assert box.width() >= box.minimumSizeHint().width(), (width, box.words())
    assert [box.words() for box in boxes] == [box.currentText() for box in boxes]
