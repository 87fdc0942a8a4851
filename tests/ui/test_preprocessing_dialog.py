"""The dialog that asks for another preprocessing: opened and applied unchanged, it changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QHelpEvent
from PySide6.QtWidgets import QApplication, QToolTip

from viewer.images.preprocess import INTERPOLATIONS, CropMode, Preprocessing
from viewer.ui.preprocessing_dialog import PreprocessingDialog

UNUSUAL = {
    **{f"resized by {name}": {"interpolation": name} for name in INTERPOLATIONS},
    **{f"crop {mode}": {"crop_mode": mode} for mode in get_args(CropMode)},
    "more than all is kept": {"crop_pct": 1.15},
    "hardly anything is kept": {"crop_pct": 0.05},
    "more digits than are shown": {"mean": (124 / 255, 117 / 255, 104 / 255), "std": (1 / 4.2585,) * 3},
    "means below nothing": {"mean": (-0.5, -1.0, -300.0)},
    "large deviations": {"std": (1000.0, 1e-9, 58.395)},
    "its own range": {"value_range": (-2.5, 2.5)},
    "a huge input": {"size": (20000, 3)},
    "channels last": {"layout": "NHWC"},
}


@pytest.mark.parametrize("part", UNUSUAL.values(), ids=UNUSUAL)
def test_whatever_a_model_asks_for_stays_until_it_is_changed(qtbot, part):
    how = replace(Preprocessing((224, 224)), **part)
    dialog = PreprocessingDialog(how)
    qtbot.addWidget(dialog)
    assert dialog.value == how
    dialog.share.setValue(0.875)
    assert dialog.value == replace(how, crop_pct=0.875)


def test_a_number_that_is_changed_is_the_one_that_is_shown(qtbot):
    how = Preprocessing((224, 224), mean=(124 / 255,) * 3)
    dialog = PreprocessingDialog(how)
    qtbot.addWidget(dialog)
    dialog.mean[1].setValue(0.25)
    assert dialog.value.mean == (124 / 255, 0.25, 124 / 255)


WHY = "net.pt2 takes only pictures of 64x64 pixels, so it can't take them whole."


@pytest.mark.qt_log_ignore("does not support (propagateSizeHints|raise|grabbing the keyboard)", extend=True)
@pytest.mark.parametrize("why", ["", WHY])
def test_whole_is_out_of_use_with_the_reason_where_the_model_takes_one_size(qtbot, why):
    how = Preprocessing((64, 64))
    dialog = PreprocessingDialog(how, why)
    qtbot.addWidget(dialog)
    with qtbot.waitExposed(dialog):
        dialog.show()
    dialog.crop.showPopup()
    rows, place = dialog.crop.view(), dialog.crop.findData("whole")
    qtbot.waitUntil(rows.isVisible)
    box = rows.visualRect(dialog.crop.model().index(place, dialog.crop.modelColumn()))
    tip = QHelpEvent(QEvent.Type.ToolTip, box.center(), rows.viewport().mapToGlobal(box.center()))
    QApplication.sendEvent(rows.viewport(), tip)
    assert QToolTip.text() == why
    QToolTip.hideText()
    qtbot.mouseMove(rows.viewport(), box.center())
    qtbot.mouseClick(rows.viewport(), Qt.MouseButton.LeftButton, pos=box.center())
    assert dialog.value.crop_mode == ("center" if why else "whole")
    dialog.crop.hidePopup()
    # Keys do not reach it either.
    dialog.crop.setCurrentIndex(place - 1)
    qtbot.keyClick(dialog.crop, Qt.Key.Key_Down)
    assert dialog.value.crop_mode == ("border" if why else "whole")
