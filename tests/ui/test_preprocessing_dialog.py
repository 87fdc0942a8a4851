"""The dialog that asks for another preprocessing: opened and applied unchanged, it changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

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
