from __future__ import annotations

import numpy as np
import pytest
from PySide6.QtCore import QEvent
from PySide6.QtGui import QFontMetricsF, QGuiApplication, QHelpEvent
from PySide6.QtWidgets import QApplication, QToolTip

from tests.state.records import random_record, state_of
from tests.ui.panels import pixels, show
from viewer.state.palette import palette
from viewer.state.selection import HeadRef
from viewer.ui.marks import font
from viewer.ui.readout_line import _SHORTER, ReadoutLine, shortened

pytestmark = pytest.mark.qt_log_ignore("does not support (propagateSizeHints|raise)", extend=True)


@pytest.fixture
def made(qtbot):
    _, selection, _, scene = state_of(random_record(prefix=("cls", "reg1", "reg2", "reg3", "reg4")))
    line = ReadoutLine()
    holder = show(qtbot, line, scene, "readout", (700, 200))
    return line, selection, scene, holder


def test_says_what_the_scene_says(made):
    line, selection, scene, _ = made
    selection.hover((1, 2))
    assert "Patch (row 1, column 2)" in line.text()
    assert line.text() == scene.value.readout == line.accessibleDescription()


def test_its_height_does_not_change_with_the_words(made):
    line, selection, *_ = made
    before = line.height()
    selection.hover((1, 2))
    QApplication.processEvents()
    assert line.height() == before


@pytest.mark.parametrize("width", [420, 700, 1024, 1400])
def test_large_type_keeps_to_two_lines_and_the_tip_has_the_rest(made, width):
    line, selection, _, holder = made
    line.set_theme(palette("talk"))
    holder.resize(width, 600)
    selection.hover((1, 2))
    QApplication.processEvents()
    metrics = QFontMetricsF(font(palette("talk")))
    assert line.height() < 3 * metrics.height()
    for sentence in line.text().split("\n"):
        assert metrics.horizontalAdvance(shortened(sentence, metrics, width)) <= width
    tip = QHelpEvent(QEvent.Type.ToolTip, line.rect().center(), line.mapToGlobal(line.rect().center()))
    QApplication.sendEvent(line, tip)
    assert QToolTip.text() == line.text()
    QToolTip.hideText()


def test_asides_go_before_numbers_and_the_place_of_a_patch_stays(qapp):
    metrics = QFontMetricsF(font(palette("talk")))
    whole = "Patch (row 6, column 5): 60 px (4.3 patches) away; 1.2 % goes to the class token; spread widely."
    brief = "Patch (row 6, column 5): 60 px away; 1.2 % goes to the class token…"
    assert shortened(whole, metrics, metrics.horizontalAdvance(whole)) == whole
    assert shortened(whole, metrics, metrics.horizontalAdvance(brief)) == brief


def test_fewer_words_go_before_numbers(qapp):
    metrics = QFontMetricsF(font(palette("talk"), 0.9))
    whole = (
        "Layer 3, head 2: on average this head looks 60 px (4.3 patches) away, 65 % of what uniform "
        "attention would (renormalized over patches); 1.2 % goes to the class token; its attention is spread "
        "as over 71 tokens (entropy 4.26 nats)."
    )
    brief = (
        "Layer 3, head 2: on average 60 px away, 65 % of uniform attention; 1.2 % goes to the class token; "
        "spread as over 71 tokens…"
    )
    assert shortened(whole, metrics, metrics.horizontalAdvance(brief)) == brief
    query = "Patch (row 6, column 5): 60 px away; spread as over 14 tokens, most on patch (7, 11) with 30 %."
    brief = "Patch (row 6, column 5): 60 px away; spread as over 14 tokens…"
    assert shortened(query, metrics, metrics.horizontalAdvance(brief)) == brief


def test_what_is_said_in_fewer_words_is_what_the_scene_says(made):
    _, selection, scene, _ = made
    selection.hover((1, 2))
    said = ""
    for head in (HeadRef(0, 1), HeadRef(0, None)):
        selection.select_head(head)
        said += scene.value.readout
    assert ", most on " in said
    assert all(words in said for words, _ in _SHORTER)


def test_a_low_window_gets_two_lines_too(made):
    line, *_, holder = made
    holder.resize(420, 600)
    QApplication.processEvents()
    before = line.height()
    line.fit_into(300)
    assert line.height() < before
    line.fit_into(3000)
    assert line.height() == before


def assert_whole(line):
    """See that there are words, and a clear rim: nothing is cut off at the upper and the lower edge."""
    image = pixels(line).astype(int)
    ink = np.abs(image - image[0, 0]).sum(axis=2) > 60
    assert ink.any()
    assert not ink[:2].any()
    assert not ink[-2:].any()


@pytest.mark.parametrize("theme", ["light", "dark", "talk"])
@pytest.mark.parametrize("width", [420, 700, 1400])
def test_all_words_fit(made, theme, width):
    line, selection, _, holder = made
    line.set_theme(palette(theme))
    holder.resize(width, 600)
    selection.hover((1, 2))
    QApplication.processEvents()
    assert_whole(line)


def test_its_words_can_be_copied(made):
    line, _, scene, _ = made
    line.actions()[0].trigger()
    assert QGuiApplication.clipboard().text() == scene.value.readout


@pytest.mark.parametrize("width", [420, 700, 1400])
def test_a_note_and_what_is_not_verified_fit_too(made, width):
    line, selection, scene, holder = made
    holder.resize(width, 600)
    selection.hover((1, 2))
    line.paint(
        f"{scene.value.readout}\nLayer 0: weights are shown before the heads were mixed. Layer 0 is not "
        "verified: weights times V miss the output."
    )
    QApplication.processEvents()
    assert_whole(line)


def test_the_place_of_a_patch_is_no_aside(qapp):
    metrics = QFontMetricsF(font(palette("talk")))
    whole = (
        "Patch (row 5, column 7 of 14 × 14): 60 px (4.3 patches) away, most on patch (4, 6 of 14 × 14); so."
    )
    found = shortened(whole, metrics, metrics.horizontalAdvance(whole) * 0.9)
    assert found == "Patch (row 5, column 7 of 14 × 14): 60 px away, most on patch (4, 6 of 14 × 14); so…"
