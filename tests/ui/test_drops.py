"""Real drop events and the clipboard: files, folders, data, and what can't be opened."""

from __future__ import annotations

import base64
import os
import shutil
import sys
import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import timm
from PIL import Image
from PySide6.QtCore import QMimeData, Qt, QUrl
from PySide6.QtGui import QGuiApplication, QImage
from PySide6.QtWidgets import QAbstractScrollArea

from viewer.ui import drops
from viewer.ui.jobs import Request

from .conftest import drop, settle, urls


def png(colour=(200, 30, 30), size=(40, 30)):
    file = BytesIO()
    Image.new("RGB", size, colour).save(file, "PNG")
    return file.getvalue()


def names(session):
    return [document.image.name for document in session.documents.all]


def test_dropped_pictures_open_in_order_and_the_first_is_shown(opened, qtbot, pictures):
    paths = pictures(3, "more")
    assert drop(opened, urls(*paths))
    settle(qtbot, opened)
    assert names(opened) == ["picture 0.png", "picture 0.png", "picture 1.png", "picture 2.png"]
    assert opened.documents.current.image.path == paths[0]
    assert {document.status for document in opened.documents.all} == {"done"}
    assert opened.window.messages.texts == ()


def test_each_bad_file_gets_its_own_sentence_and_the_others_open(opened, qtbot, tmp_path, pictures):
    good = pictures(2, "good")
    empty, cut, text = tmp_path / "empty.png", tmp_path / "cut.png", tmp_path / "notes.png"
    empty.write_bytes(b"")
    cut.write_bytes(good[0].read_bytes()[:300])
    text.write_text("no picture at all")
    missing = tmp_path / "gone.png"
    assert drop(opened, urls(good[0], empty, cut, text, missing, good[1]))
    settle(qtbot, opened)
    assert names(opened)[1:] == ["picture 0.png", "picture 1.png"]
    told = opened.window.messages.texts
    assert len(told) == 4
    for path in (empty, cut, text, missing):
        assert sum(path.name in sentence for sentence in told) == 1, (path, told)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names there")
@pytest.mark.timeout(60)
def test_what_cannot_be_read_keeps_neither_the_window_nor_the_others(opened, qtbot, tmp_path, pictures):
    good = pictures(2, "good")
    pipes = [tmp_path / f"pipe{ending}" for ending in ("", ".png", ".onnx", ".pth", ".svg", ".pdf")]
    for pipe in pipes:
        os.mkfifo(pipe)
    long = [tmp_path / ("n" * 300 + ending) for ending in ("", ".png", ".onnx", ".pth")]
    bad = [*pipes, Path("/dev/zero"), *long, tmp_path / "p" / ("d/" * 3000) / "a.png"]
    opened.window.paths_dropped.emit([good[0], *bad, good[1]])
    settle(qtbot, opened)
    assert names(opened)[1:] == ["picture 0.png", "picture 1.png"]
    told = opened.window.messages.texts
    assert len(told) == len(bad)
    for path in bad:
        assert sum(sentence.startswith(f"{path} ") for sentence in told) == 1, (path, told)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are text")
def test_a_picture_whose_name_is_no_text_opens(opened, qtbot, tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png"))
    path.write_bytes(png())
    opened.window.paths_dropped.emit([path])
    settle(qtbot, opened)
    assert opened.documents.current.image.path == path
    assert opened.documents.current.status == "done"


def test_a_drop_is_taken_anywhere_on_the_window(opened, qtbot, pictures):
    views = opened.window.views
    places = [views.image, views.heads, views.scatter, views.readout, opened.window.film_strip.viewport()]
    areas = [area for area in views.findChildren(QAbstractScrollArea) if area.window() is opened.window]
    assert areas
    places += [area.viewport() for area in areas]
    places += [
        opened.window.toolbar,
        opened.window.model_bar,
        opened.window.menuBar(),
    ]
    paths = pictures(len(places), "anywhere")
    for count, (place, path) in enumerate(zip(places, paths, strict=True), start=2):
        assert drop(opened, urls(path), place), place
        settle(qtbot, opened)
        assert len(opened.documents.all) == count, place


def test_a_folder_opens_its_pictures(opened, qtbot, pictures):
    folder = pictures(3, "holiday")[0].parent
    (folder / "notes.txt").write_text("not a picture")
    assert drop(opened, urls(folder))
    settle(qtbot, opened)
    assert names(opened)[1:] == ["picture 0.png", "picture 1.png", "picture 2.png"]
    assert opened.window.messages.texts == ()


def test_a_folder_without_pictures_gives_a_sentence(opened, qtbot, tmp_path):
    (tmp_path / "empty folder").mkdir()
    drop(opened, urls(tmp_path / "empty folder"))
    settle(qtbot, opened)
    [sentence] = opened.window.messages.texts
    assert "empty folder" in sentence
    assert len(opened.documents.all) == 1


def test_a_large_folder_opens_its_beginning_and_says_so(opened, qtbot, tmp_path):
    folder = tmp_path / "large"
    folder.mkdir()
    for number in range(66):
        (folder / f"{number}.png").write_bytes(png())
    drop(opened, urls(folder))
    settle(qtbot, opened)
    [sentence] = opened.window.messages.texts
    assert sentence.startswith("large holds 66 pictures; the first 64 are opened.")
    assert names(opened)[1:] == [f"{number}.png" for number in range(64)]


def test_a_second_drop_while_one_runs_is_not_lost(opened, qtbot, pictures):
    first, second = pictures(4, "first"), pictures(2, "second")
    drop(opened, urls(*first))
    assert opened.jobs.busy
    drop(opened, urls(*second))
    settle(qtbot, opened)
    assert [document.image.path for document in opened.documents.all[1:]] == [*first, *second]
    assert {document.status for document in opened.documents.all} == {"done"}


def test_a_dropped_model_replaces_the_one_that_is_open(opened, qtbot, onnx_file):
    before = opened.documents.current.record
    assert drop(opened, urls(onnx_file))
    settle(qtbot, opened)
    assert opened.documents.model.backend == "onnx"
    record = opened.documents.current.record
    assert record is not before
    assert record.grid == before.grid
    assert opened.documents.current.status == "done"


def test_models_and_pictures_in_one_drop_both_open(sessions, qtbot, onnx_file, pictures):
    session = sessions()
    second = onnx_file.with_name("another.onnx")
    shutil.copy(onnx_file, second)
    drop(session, urls(*pictures(1), onnx_file, second))
    settle(qtbot, session)
    assert session.documents.model.name == str(second)
    assert [document.status for document in session.documents.all] == ["done"]
    assert session.window.messages.texts == (
        "One model is open at a time: another.onnx is opened, tiny.onnx is not.",
    )


# The plugin that draws without a screen says this of every dialog.
OFFSCREEN = pytest.mark.qt_log_ignore("does not support propagateSizeHints", extend=True)


@OFFSCREEN
def test_weights_alone_ask_for_an_architecture(opened, qtbot, tmp_path, weights):
    copied = tmp_path / "mine.safetensors"
    shutil.copy(weights, copied)
    drop(opened, urls(copied))
    from viewer.ui.model_picker import ModelPicker

    picker = opened.window.findChild(ModelPicker)
    assert picker.isVisible()
    assert picker.weights.text() == str(copied)
    assert not picker.open_button.isEnabled()
    before = opened.documents.model
    picker.name.setText("test_vit")
    picker.open_button.click()
    qtbot.waitUntil(lambda: opened.documents.model is not before, timeout=30_000)
    settle(qtbot, opened)
    assert opened.documents.current.status == "done"
    assert opened.documents.current.record.provenance.weights == str(copied)


@OFFSCREEN
@pytest.mark.parametrize("answered", [True, False])
def test_a_picture_waits_until_the_architecture_of_weights_is_chosen(
    sessions, qtbot, pictures, weights, answered, tmp_path, monkeypatch
):
    from viewer.ui.model_picker import ModelPicker

    # No sample model can be had.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    session = sessions(files=(str(weights), *map(str, pictures(1))))
    qtbot.waitUntil(lambda: session.documents.current is not None, timeout=30_000)
    settle(qtbot, session)
    picker = session.window.findChild(ModelPicker)
    assert picker.isVisible()
    assert session.documents.model is None
    assert not session.window.messages.texts
    if answered:
        picker.name.setText("test_vit")
        picker.open_button.click()
        settle(qtbot, session)
        assert session.documents.current.status == "done"
        assert not session.window.messages.texts
    else:
        picker.reject()
        settle(qtbot, session)
        said = session.window.messages.texts[-1]
        assert said.startswith("No model was open, so the sample model")


@OFFSCREEN
def test_architectures_that_weights_fit_come_first(opened, qtbot, tmp_path, weights, monkeypatch):
    from viewer.backends import architectures
    from viewer.ui.model_picker import ModelPicker

    copied = tmp_path / "mine.safetensors"
    shutil.copy(weights, copied)
    # Among the hundreds there are it takes seconds.
    monkeypatch.setattr(
        architectures, "model_names", lambda: ("vit_tiny_patch16_224", "test_vit", "test_vit2")
    )
    drop(opened, urls(copied))
    picker = opened.window.findChild(ModelPicker)
    assert picker.question.isVisible() and picker.question.wordWrap()
    assert picker.question.text() == "Which architecture are the weights in mine.safetensors for?"
    qtbot.waitUntil(lambda: "fit" in picker.question.text().split(), timeout=30_000)
    assert picker.question.text() == "The weights in mine.safetensors fit test_vit."
    shown = picker.names.model()
    assert shown.index(0, 0).data() == "test_vit"
    assert shown.rowCount() > 100
    picker.reject()
    settle(qtbot, opened)


def test_a_folder_of_transformers_and_a_program_open_as_models(opened, qtbot, tmp_path):
    transformers = pytest.importorskip("transformers")
    import torch

    folder, program = tmp_path / "dinov2", tmp_path / "traced.pt"
    sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 64}
    transformers.Dinov2Model(transformers.Dinov2Config(**sizes, patch_size=16)).save_pretrained(folder)
    drop(opened, urls(folder))
    settle(qtbot, opened)
    assert opened.documents.model.name == str(folder)
    assert opened.documents.current.status == "done"
    assert len(opened.documents.current.record.layers) == 1

    vit = timm.create_model("test_vit", pretrained=False).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, the files stay
        torch.jit.trace(vit, torch.zeros(1, 3, 160, 160)).save(str(program))
    drop(opened, urls(program))
    settle(qtbot, opened)
    assert opened.documents.model.name == str(program)
    assert len(opened.documents.current.record.layers) == 6
    assert opened.window.messages.texts == ()


def test_a_broken_model_leaves_the_open_one_alone(opened, qtbot, tmp_path):
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"this is no model")
    before = opened.documents.model
    drop(opened, urls(broken))
    settle(qtbot, opened)
    assert opened.documents.model is before
    assert opened.documents.current.status == "done"
    [sentence] = opened.window.messages.texts
    assert "broken.onnx" in sentence


def offered_as_png():
    data = QMimeData()
    data.setData("image/png", png())
    return data


def offered_as_pixels():
    data = QMimeData()
    image = QImage(40, 30, QImage.Format.Format_RGB32)
    image.fill(0xC81E1E)
    data.setImageData(image)
    return data


def offered_as_data_url():
    data = QMimeData()
    data.setUrls([QUrl("data:image/png;base64," + base64.b64encode(png()).decode())])
    return data


def offered_as_markup():
    data = QMimeData()
    encoded = base64.b64encode(png()).decode()
    data.setHtml(f'<html><body><img alt="x" src="data:image/png;base64,{encoded}"></body></html>')
    return data


def offered_by_a_browser():
    data = QMimeData()
    data.setUrls([QUrl("https://example.org/picture.png")])
    data.setData("image/png", png())
    return data


OFFERS = [offered_as_png, offered_as_pixels, offered_as_data_url, offered_as_markup, offered_by_a_browser]


@pytest.mark.parametrize("offer", OFFERS, ids=lambda offer: offer.__name__)
def test_picture_data_opens_however_it_is_offered(opened, qtbot, offer):
    assert drop(opened, offer())
    settle(qtbot, opened)
    document = opened.documents.current
    assert document.image.name == "dropped picture"
    assert document.image.path is None
    assert document.image.pixels.shape == (30, 40, 3)
    assert np.array_equal(document.image.pixels[10, 10], (200, 30, 30))
    assert document.status == "done"
    assert opened.window.messages.texts == ()


def test_an_address_on_the_web_is_refused_in_a_sentence(opened, qtbot):
    assert drop(opened, urls("https://example.org/picture.png"))
    settle(qtbot, opened)
    [sentence] = opened.window.messages.texts
    assert "https://example.org/picture.png" in sentence
    assert len(opened.documents.all) == 1


def test_a_drag_of_nothing_usable_is_not_welcome(opened):
    data = QMimeData()
    data.setData("application/x-something", b"1")
    assert not drop(opened, data)


@pytest.mark.parametrize("offer", [offered_as_png, offered_as_pixels], ids=lambda offer: offer.__name__)
def test_a_picture_is_pasted(opened, qtbot, offer):
    QGuiApplication.clipboard().setMimeData(offer())
    qtbot.keyClick(opened.window, "v", modifier=Qt.KeyboardModifier.ControlModifier)
    settle(qtbot, opened)
    assert opened.documents.current.image.name == "pasted picture"
    assert opened.documents.current.status == "done"


def test_a_copied_path_is_pasted(opened, qtbot, pictures):
    [path] = pictures(1, "copied")
    data = QMimeData()
    data.setText(f'"{path}"\n')
    QGuiApplication.clipboard().setMimeData(data)
    opened.window.paste()
    settle(qtbot, opened)
    assert opened.documents.current.image.path == path


def test_pasting_nothing_usable_says_so(opened):
    data = QMimeData()
    data.setText("just a sentence, no path")
    QGuiApplication.clipboard().setMimeData(data)
    opened.window.paste()
    assert opened.window.messages.texts == ("The clipboard holds no picture and no file.",)


def test_pasting_from_an_empty_clipboard_says_so(opened):
    QGuiApplication.clipboard().clear()
    opened.window.paste()
    assert opened.window.messages.texts == ("The clipboard holds no picture and no file.",)


def test_a_model_is_read_from_text_only_if_every_line_is_a_file(tmp_path):
    there = tmp_path / "a.png"
    there.write_bytes(b"x")
    data = QMimeData()
    data.setText(f"{there}\nand more text")
    assert not drops.read(data)
    data.setText(f"{there}\n{there}\n")
    assert drops.read(data).paths == (there, there)
    for text in ("~nobody-of-this-name/a.png", "/" + "n" * 300, "/a\0b"):
        data.setText(text)
        assert not drops.read(data)


def test_work_of_others_does_not_hold_up_a_drop(opened, qtbot, pictures):
    order = []
    opened.jobs.submit(Request("export", lambda job: order.append("export")))
    drop(opened, urls(*pictures(1, "late")))
    settle(qtbot, opened)
    assert order == ["export"]
    assert names(opened)[-1] == "picture 0.png"
