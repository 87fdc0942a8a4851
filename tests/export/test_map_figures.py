"""Figures of other maps than attention: their colours, their marks, their words."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
from PIL import Image

from tests.export.scenes import make_document, make_record, make_scene
from tests.export.svg import Svg
from viewer.attention.rollout import rollout
from viewer.backends.model import Job
from viewer.export.figure import draw
from viewer.state.display import DisplayValue
from viewer.state.maps import mapped
from viewer.state.requests import FigureRequest

OPAQUE = {"opacity": 1.0, "fade": False}


def normed():
    record = make_record()
    norms = np.full(197, 2.0, np.float32)
    norms[1 + 5 * 14 + 9] = 80
    layers = tuple(replace(layer, stream_norms=norms) for layer in record.layers)
    return make_document(replace(record, layers=layers))


def drawn(scene, **request: object) -> np.ndarray:
    content = draw(scene, FigureRequest("overlay", scale=1, title=False, **request))
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def test_a_figure_of_norms_has_its_own_title_label_and_rule():
    scene = make_scene(normed(), display=DisplayValue(map="norms"))
    text = " ".join(Svg(draw(scene, FigureRequest("overlay"), "svg")).texts)
    assert "Norms of the residual stream entering layer 2: 1 high-norm patch" in text
    assert "token norm" in text
    assert "attention weight" not in text
    assert "more than 3 times the median patch's norm" in text


def test_the_bar_says_that_a_token_lies_above_its_end():
    document = normed()
    longest = np.full(197, 2.0, np.float32)
    longest[0] = 90
    layers = tuple(replace(layer, stream_norms=longest) for layer in document.record.layers)
    above = make_document(replace(document.record, layers=layers))
    texts = [
        Svg(draw(make_scene(one, display=DisplayValue(map="norms")), FigureRequest("overlay"), "svg")).texts
        for one in (document, above)
    ]
    assert not any("≥" in text for text in texts[0])
    assert "≥ 2" in texts[1]


def test_a_high_norm_patch_is_outlined_where_it_lies():
    document = normed()
    shown = make_scene(document, query=None, display=DisplayValue(map="norms", **OPAQUE))
    without = replace(shown, overlay=replace(shown.overlay, marked=()))
    rows, columns = np.nonzero((drawn(shown) != drawn(without)).any(axis=2))
    # A margin of 13 pixels, and patches of 16 model pixels enlarged by a whole factor.
    factor = round((rows.mean() - 13) / (5.5 * 16))
    assert factor >= 1
    assert abs(rows.mean() - 13 - 5.5 * 16 * factor) < 2
    assert abs(columns.mean() - 13 - 9.5 * 16 * factor) < 2
    assert np.ptp(rows) < 20 * factor


def test_the_strongest_colour_of_a_rollout_lies_on_its_strongest_patch():
    display = DisplayValue(map="rollout", scale="per head", **OPAQUE)
    document = mapped(make_document(make_record()), None, display, Job())
    scene = make_scene(document, query="cls", display=display)
    row = rollout(document.record).matrix[0, 1:].reshape(14, 14)
    np.testing.assert_array_equal(scene.overlay.values, row)
    picture = drawn(scene)[13:, 13:]
    factor = 2
    while (14 * 16 * (factor + 1)) < picture.shape[0]:
        factor += 1
    side = 16 * factor
    # In viridis green and red rise with the value.
    tops = picture[side // 2 :: side, side // 2 :: side][:14, :14, :2].astype(int).sum(axis=2)
    assert np.unravel_index(tops.argmax(), tops.shape) == np.unravel_index(row.argmax(), row.shape)


def test_a_doubted_layer_is_named_where_it_is_in_the_map():
    document = make_document(make_record(doubted=(0,)))
    display = DisplayValue(map="rollout")
    told = {}
    for start in (0, 1):
        looks = replace(display, start_layer=start)
        scene = make_scene(mapped(document, None, looks, Job()), display=looks)
        told[start] = " ".join(Svg(draw(scene, FigureRequest("overlay"), "svg")).texts)
    assert "Not verified: layer 0" in told[0]
    assert "Not verified" not in told[1]
