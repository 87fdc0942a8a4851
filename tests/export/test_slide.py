"""Slides of the lesson: 16:9, large type that is real text and never cut, and provenance."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pypdf import PdfReader

from tests.export.svg import Svg
from tests.state.records import document_of, key_query_record
from viewer.backends.opening import open_model
from viewer.errors import ExportError
from viewer.export import slide
from viewer.export.provenance import read_provenance
from viewer.export.restore import restore
from viewer.state.display import Display, DisplayValue
from viewer.state.documents import Documents
from viewer.state.lesson import Lesson
from viewer.state.lesson_stage import Stage, nine_patches
from viewer.state.lesson_steps import STEPS
from viewer.state.palette import palette
from viewer.state.requests import SlideRequest
from viewer.state.scene import Scene, SceneValue
from viewer.state.selection import Selection

DIAGONAL = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
SMALLEST = 8.0  # points of the smallest type on a slide of 960 x 540 points


@pytest.fixture(scope="module")
def stage() -> Stage:
    """As many layers, heads and patches as the sample model has, with other attention."""
    document = document_of(key_query_record(12, 6, (16, 16)))
    return Stage(open_model("worked-example"), document.image, document.record, document.measures)


@pytest.fixture
def steps(stage):
    """Go to a step of a lesson and return its moment."""
    documents, selection, display = Documents(), Selection(), Display(DisplayValue(theme="talk"))
    scene, lesson = Scene(documents, selection, display), Lesson(documents, selection, display)
    lesson.begin(nine_patches(DIAGONAL))
    lesson.provide("sample", stage)

    def go(index: int) -> SceneValue:
        lesson.go(index)
        return scene.value

    go.lesson, go.display, go.scene = lesson, display, scene
    return go


def request(index: int, suffix: str = ".svg", **options) -> SlideRequest:
    return SlideRequest(index, Path(f"slide{suffix}"), **options)


def test_a_png_has_the_pixels_of_its_scale(steps):
    for scale in (1, 2):
        png = slide.draw(steps(1), request(1, ".png", scale=scale))
        assert Image.open(io.BytesIO(png)).size == (1280 * scale, 720 * scale)


@pytest.mark.parametrize("index", range(8))
@pytest.mark.parametrize("ground", ["light", "dark"])
def test_all_type_is_on_the_page_and_large_and_apart(steps, index, ground):
    svg = Svg(slide.draw(steps(index), request(index, ground=ground)))
    assert (svg.width, svg.height) == (960, 540)
    assert STEPS[index].title in svg.texts
    for text, size in svg.sized_texts():
        assert size >= SMALLEST * 0.85, text
    boxes = svg.text_boxes()
    for text, (left, top, right, bottom) in boxes:
        assert left >= 0, text
        assert top >= 0, text
        assert right <= 960, text
        assert bottom <= 540, text
    for place, (text, box) in enumerate(boxes):
        for other, its in boxes[place + 1 :]:
            apart = (
                box[2] <= its[0] + 1 or its[2] <= box[0] + 1 or box[3] <= its[1] + 2 or its[3] <= box[1] + 2
            )
            assert apart, (text, other)


@pytest.mark.parametrize("index", range(8))
def test_the_words_of_the_step_are_all_there(steps, index):
    scene = steps(index)
    svg = Svg(slide.draw(scene, request(index)))
    everything = " ".join(svg.texts)
    for paragraph in STEPS[index].words(scene):
        assert paragraph in everything
    assert STEPS[index].hint not in everything


def test_the_list_of_keys_is_text_and_the_map_an_image_of_nine_pixels(steps):
    svg = Svg(slide.draw(steps(1), request(1)))
    for text in ("16.92", "56.76", "0.298", "0.018", "8 (2, 2)"):
        assert text in svg.texts
    assert svg.image("attention").shape == (3, 3, 4)
    alpha = svg.image("attention")[..., 3]
    assert alpha[2, 2] > alpha[0, 1]


@pytest.mark.parametrize("index", [1, 2, 3])
def test_words_over_a_list_are_nearly_as_large_as_words_alone(steps, index):
    alone, listed = (dict(Svg(slide.draw(steps(at), request(at))).sized_texts()) for at in (0, index))
    assert (
        listed["4 (1, 1)"] >= 0.85 * alone[next(text for text in alone if "nine patches, numbered" in text)]
    )


def test_edited_brightness_is_what_the_slide_has(steps):
    steps(3)
    steps.lesson.brighten(8, 0.0)
    svg = Svg(slide.draw(steps.scene.value, request(3)))
    assert "0.298" not in svg.texts
    assert svg.image("picture")[250, 250, 0] == 0


@pytest.mark.parametrize(("ground", "theme"), [("light", "dark"), ("dark", "light"), ("transparent", "talk")])
def test_grounds(steps, ground, theme):
    steps.display.set(DisplayValue(theme=theme))
    png = slide.draw(steps(2), request(2, ".png", scale=1, ground=ground))
    corner = np.asarray(Image.open(io.BytesIO(png)).convert("RGBA"))[0, 0].tolist()
    if ground == "transparent":
        assert corner[3] == 0
    else:
        assert corner == [*bytes.fromhex(palette(ground).ground[1:]), 255]


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_slide_knows_where_it_comes_from_and_opens_again(steps, tmp_path, suffix):
    target = tmp_path / f"step{suffix}"
    slide.save(steps(2), SlideRequest(2, target))
    facts = read_provenance(target)
    assert (facts["lesson"], facts["view"]) == ("hop-by-hop", "overlay")
    again = restore(target)
    assert again.model.model == "worked-example"
    assert again.model.image_size == (288, 288)
    assert again.display.ring == 1
    assert open_model(again.model.model, image_size=again.model.image_size).preprocessing.size == (288, 288)


def test_a_pdf_is_one_page_of_text(steps):
    [page] = PdfReader(io.BytesIO(slide.draw(steps(3), request(3, ".pdf")))).pages
    assert math.isclose(page.mediabox.width / page.mediabox.height, 16 / 9, rel_tol=1e-3)
    assert "Content beats proximity" in page.extract_text()


def test_nothing_to_draw_and_no_such_format(steps):
    with pytest.raises(ExportError, match="nothing to draw yet of the step “From scores to shares”"):
        slide.draw(SceneValue(), request(1))
    with pytest.raises(ExportError, match=r"\.gif is not a kind of figure"):
        slide.draw(steps(1), request(1, ".gif"))


@pytest.mark.parametrize("index", [6, 7])
def test_every_head_that_the_words_name_is_ringed(steps, index) -> None:
    scene, step = steps(index), STEPS[index]
    named = step.named(scene.document)
    assert len(set(named)) >= 2
    assert scene.selection.shown in named
    said = " ".join(step.words(scene))
    assert all(f"head {head}" in said and re.search(rf"[Ll]ayer {layer}\b", said) for layer, head in named)
    content = slide.draw(scene, request(index)).decode()
    accent = palette("talk").accent

    assert "named in the text" in content
    # One more ring is in the legend.
    assert len(re.findall(f"<use [^>]*stroke: {accent}", content)) == len(named) + 1


def test_numbers_along_the_axes_are_as_large_as_what_they_count(steps) -> None:
    sizes = dict(Svg(slide.draw(steps(6), request(6))).sized_texts())
    assert STEPS[6].view == "scatter"
    assert sizes["11"] == pytest.approx(sizes["layer"])
