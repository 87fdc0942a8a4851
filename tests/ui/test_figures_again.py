"""Exported figures that are opened again while their picture, or their model, is gone."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tests.ui.conftest import drop, settle, urls
from viewer.backends.what_if import Change
from viewer.state.requests import FigureRequest, ModelRequest
from viewer.state.selection import HeadRef


def export(session, qtbot, path):
    session.selection.set(replace(session.selection.value, pins=((2, 7),), head=HeadRef(1, 1)))
    session.export(FigureRequest(path=path))
    settle(qtbot, session)
    return path


def test_the_model_opens_though_the_picture_is_gone(opened, qtbot, tmp_path, sessions):
    figure = export(opened, qtbot, tmp_path / "figure.png")
    opened.window.close()
    opened.documents.current.image.path.unlink()
    again = sessions(files=(str(figure),))
    settle(qtbot, again)
    assert again.documents.model.name == opened.documents.model.name
    assert again.documents.current is None
    [sentence] = again.window.messages.texts
    assert "picture 0.png was not found" in sentence and str(tmp_path) in sentence


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "name", ["n" * 300 + ".png", "zero\0.png", "\ud800.png", "d/" * 3000 + "a.png", "pipe.png"]
)
def test_a_picture_of_an_impossible_name_is_not_found(opened, qtbot, tmp_path, name):
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.png")
    figure = export(opened, qtbot, tmp_path / "figure.png")
    with Image.open(figure) as image:
        facts = json.loads(image.text["patchreach"])
        facts["image"]["name"] = name
        chunks = PngInfo()
        chunks.add_text("patchreach", json.dumps(facts))
        image.save(figure, pnginfo=chunks)
    before = opened.window.messages.texts
    opened.workflow.open_paths([figure])
    settle(qtbot, opened)
    [sentence] = [text for text in opened.window.messages.texts if text not in before]
    assert "was not found" in sentence


def test_picture_and_checkpoint_are_found_beside_the_figure(opened, qtbot, tmp_path, sessions, weights):
    folder = tmp_path / "given on"
    folder.mkdir()
    figure = export(opened, qtbot, folder / "figure.png")
    for path in (opened.documents.current.image.path, weights):
        (folder / path.name).write_bytes(path.read_bytes())
    again = sessions(files=(str(figure),), fresh=True)
    settle(qtbot, again)
    assert again.documents.current.image.path == folder / "picture 0.png"
    assert again.documents.current.status == "done"
    assert again.selection.value.pins == ((2, 7),)
    assert again.window.remembered.recent_models[0].weights == str(folder / weights.name)


def test_a_figures_picture_that_is_open_is_shown_with_the_figures_selection(
    opened, qtbot, tmp_path, pictures
):
    figure = export(opened, qtbot, tmp_path / "figure.png")
    [shown] = opened.documents.all
    for others in ((), pictures(1, "more")):
        opened.workflow.open_paths(others)
        settle(qtbot, opened)
        opened.selection.set(replace(opened.selection.value, pins=((0, 0),), head=HeadRef(0, 0)))
        drop(opened, urls(figure))
        settle(qtbot, opened)
        assert len(opened.documents.all) == 1 + len(others)
        assert opened.documents.current.key == shown.key
        assert opened.selection.value.pins == ((2, 7),)
        assert opened.selection.value.head == HeadRef(1, 1)


@pytest.mark.parametrize("cancelled", [False, True])
def test_what_a_figure_asks_of_its_model_is_asked_of_no_other(opened, qtbot, tmp_path, onnx_file, cancelled):
    opened.what_if.set_changes((Change("head-removed", layers=(3,), heads=(1,)),))
    opened.display.set(replace(opened.display.value, map="rollout", start_layer=3))
    settle(qtbot, opened)
    figure = export(opened, qtbot, tmp_path / "figure.png")
    opened.workflow.open_model(ModelRequest(str(onnx_file)))
    opened.display.set(replace(opened.display.value, start_layer=0))
    settle(qtbot, opened)
    begun = []

    def interrupt(title):
        if title.startswith("Opening test_vit"):
            begun.append(title)
            if cancelled:
                opened.jobs.cancel()
            else:
                opened.workflow.open_model(ModelRequest("worked-example"))

    opened.jobs.started.connect(interrupt)
    opened.workflow.open_paths([figure])
    settle(qtbot, opened)
    assert len(begun) == 1
    if cancelled:
        opened.workflow.open_model(ModelRequest("worked-example"))
        settle(qtbot, opened)
    assert opened.documents.model.name == "worked-example"
    assert opened.what_if.value.changes == ()
    assert opened.display.value.start_layer == 0
