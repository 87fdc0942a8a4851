"""Figures of a model whose layers differ in grid, windows and kind."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from pypdf import PdfReader

from tests.export.svg import SVG, Svg
from tests.state.records import channel_record, document_of, mixed_record
from viewer.export.figure import draw
from viewer.state.colormaps import lut
from viewer.state.display import DisplayValue
from viewer.state.palette import palette
from viewer.state.requests import FigureRequest
from viewer.state.scene import SceneValue, compose
from viewer.state.selection import HeadRef, SelectionValue

PLAIN = DisplayValue(opacity=1.0, fade=False)
FACTOR = 4  # figure pixels at scale 1 to a pixel of the picture
LEGEND = "not reachable (other window or masked)"


@pytest.fixture(scope="module")
def document():
    record = mixed_record()
    return document_of(replace(record, seen=np.full_like(record.seen, 128)))


def scene_of(document, head=(0, 0), query=(2, 5), display=PLAIN, direction="from") -> SceneValue:
    selection = SelectionValue(hovered=query, head=HeadRef(*head), direction=direction)
    return compose(document, selection, display)


def pixels(content: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).astype(int)


def tile(found: np.ndarray, row: int, column: int, scale: int = 2) -> np.ndarray:
    """The inner pixels of a patch of 16 px in a figure without a title."""
    margin, side = 13 * scale, 16 * FACTOR * scale
    y, x = margin + row * side, margin + column * side
    return found[y + 5 : y + side - 5, x + 5 : x + side - 5]


def hatched(part: np.ndarray) -> bool:
    """Whether pixels are striped from lower left to upper right."""
    grey = part.mean(axis=2)
    sums = np.add.outer(np.arange(len(grey)), np.arange(grey.shape[1]))
    lines = [grey[sums == at] for at in range(8, sums.max() - 7)]
    across = np.ptp([line.mean() for line in lines])
    return across > 25 and max(np.ptp(line[1:-1]) for line in lines) < 0.3 * across


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_patches_out_of_reach_are_hatched_in_pixels(document, theme) -> None:
    scene = scene_of(document, display=replace(PLAIN, theme=theme))
    ground = "dark" if theme == "dark" else "light"
    found = pixels(draw(scene, FigureRequest("overlay", scale=2, title=False, ground=ground)))
    for patch in ((0, 0), (3, 3), (4, 5), (7, 7)):
        assert hatched(tile(found, *patch)), patch
        assert (np.abs(tile(found, *patch) - lut("viridis")[0, :3]).sum(axis=2) > 60).all()
    values = scene.overlay.values
    for patch in ((0, 4), (3, 7), (3, 6)):
        level = min(int(values[patch] / scene.overlay.vmax * 256), 255)
        part = tile(found, *patch)
        np.testing.assert_allclose(part, np.broadcast_to(lut("viridis")[level, :3], part.shape), atol=1)


def test_hatching_is_lines_in_vector_figures(document) -> None:
    svg = Svg(draw(scene_of(document), FigureRequest("overlay", title=False), "svg"))
    (strokes,) = [group for group in svg.root.iter(f"{SVG}g") if group.get("id") == "not reachable"]
    (path,) = strokes.iter(f"{SVG}path")
    # Lines end at the borders of what is out of reach, here three quarters of the picture.
    ends = np.array([float(word) for word in path.get("d").split() if word not in "ML"]).reshape(-1, 2)
    assert len(ends) > 100
    side = 16 * FACTOR * 72 / 96
    x, y = (ends - 13 * 72 / 96).T / side
    assert (x > -0.01).all()
    assert (y > -0.01).all()
    assert (x < 8.01).all()
    assert (y < 8.01).all()
    assert not ((x > 4.01) & (y < 3.99)).any()
    assert palette("light").text in path.get("style")
    # The image of the map itself is clear there, and opaque elsewhere.
    opaque = svg.image("attention")[..., 3] > 0
    there = np.zeros((8, 8), bool)
    there[:4, 4:] = True
    np.testing.assert_array_equal(opaque, there)
    reader = PdfReader(io.BytesIO(draw(scene_of(document), FigureRequest("overlay", title=False), "pdf")))
    commands = reader.pages[0].get_contents().get_data()
    assert commands.count(b" l\n") > 40


def test_maps_of_every_head_are_clear_over_hatched_cells(document) -> None:
    scene = scene_of(document)
    svg = Svg(draw(scene, FigureRequest("heads"), "svg"))
    names = [group.get("id") for group in svg.root.iter(f"{SVG}g")]
    assert names.count("not reachable") == 2  # the cells, and the swatch of the legend
    assert LEGEND in svg.texts
    atlas = svg.image("heads")
    first = atlas[:8, :8]
    assert (first[:4, 4:, 3] == 255).all()
    assert (first[4:, :, 3] == 0).all()
    pitch = 8 + (atlas.shape[0] - 6 * 8) // 5
    channel = atlas[4 * pitch : 4 * pitch + 8, :8]
    assert {bytes(pixel).hex() for pixel in channel.reshape(-1, 4)} == {f"{palette('light').empty[1:]}ff"}


@pytest.mark.parametrize("theme", ["light", "talk"])
def test_the_legend_of_hatching_fits_its_figure(document, theme) -> None:
    svg = Svg(draw(scene_of(document, display=replace(PLAIN, theme=theme)), FigureRequest("heads"), "svg"))
    for text, (left, _, right, bottom) in svg.text_boxes():
        assert left >= -1, text
        assert right <= svg.width + 1, text
        assert bottom <= svg.height + 1, text


def test_the_caption_explains_hatching_only_where_there_is_some(document) -> None:
    said = " ".join(Svg(draw(scene_of(document), FigureRequest("overlay"), "svg")).texts)
    assert f"Hatched: {LEGEND}" in said
    pooled = " ".join(Svg(draw(scene_of(document, (2, 0)), FigureRequest("overlay"), "svg")).texts)
    assert "Hatched" not in pooled
    assert "queries 8 rows × 8 columns, keys 2 rows × 2 columns" in pooled


def test_tiles_lie_around_their_true_centres_and_stop_at_the_picture(document) -> None:
    scene = scene_of(document, (3, 0))
    found = pixels(draw(scene, FigureRequest("overlay", scale=1, title=False)))
    values = scene.overlay.values
    for row, column in ((0, 0), (1, 1), (3, 0), (2, 3)):
        level = min(int(values[row, column] / scene.overlay.vmax * 256), 255)
        y, x = (13 + FACTOR * (8 + 32 * index) for index in (row, column))
        np.testing.assert_allclose(found[y + 9, x + 9], lut("viridis")[level, :3], atol=1)
    # Left of the picture is paper, and right of the last tile the picture alone.
    np.testing.assert_allclose(found[40, 6], [0xF6, 0xF6, 0xF4], atol=1)
    np.testing.assert_allclose(found[200, 13 + FACTOR * 124], 128, atol=1)


def test_a_layer_without_a_map_says_why_in_its_figure(document) -> None:
    for view in ("overlay", "all"):
        said = " ".join(Svg(draw(scene_of(document, (4, 0)), FigureRequest(view), "svg")).texts)
        assert "No map: channels attend to channels here" in said
        assert "attention" not in Svg(draw(scene_of(document, (4, 0)), FigureRequest(view), "svg")).images


def test_the_scatter_has_a_level_for_each_layer_and_no_convolutions(document) -> None:
    scene = scene_of(document)
    svg = Svg(draw(scene, FigureRequest("scatter", title=False), "svg"))
    line = next(
        path
        for path in svg.paths()
        if palette("light").uniform in path.get("style", "") and "clip-path" in path.attrib
    )
    levels = {float(part.split()[1]) for part in line.get("d").replace("L", "M").split("M")[1:]}
    assert len(levels) == 4  # layers 3 and 5 agree
    assert not any("convolution" in text for text in svg.texts)
    assert not any(palette("light").convolution in path.get("style", "") for path in svg.paths())


def test_a_plot_without_dots_says_why_in_ink() -> None:
    record = channel_record()
    scene = compose(document_of(record), SelectionValue(head=HeadRef(0, 0)), DisplayValue())
    found = pixels(draw(scene, FigureRequest("scatter", scale=1, title=False, ground="light")))
    middle = found[found.shape[0] // 4 : -found.shape[0] // 3, 60:-60]
    assert (middle < 100).any()


@pytest.mark.parametrize("view", ["overlay", "heads", "scatter", "all"])
def test_a_model_of_channel_attention_alone_has_figures_that_say_so(view) -> None:
    record = channel_record()
    selection = SelectionValue(head=HeadRef(0, 0))
    scene = compose(document_of(record), selection, DisplayValue(grid=True, ring=2))
    said = " ".join(Svg(draw(scene, FigureRequest(view), "svg")).texts)
    assert ("channels attend to channels here" in said) == (view in ("overlay", "all"))
    scattered = view in ("scatter", "all")
    assert ("No distance to measure: in no layer do patches attend to patches" in said) == scattered
    assert "uniform attention" not in said and "paler" not in said and "0.8" not in said
    assert "dashed" not in said


def test_the_maps_of_channels_alone_stand_close_together() -> None:
    record = channel_record()
    record = replace(record, layers=record.layers * 2)
    scene = compose(document_of(record), SelectionValue(head=HeadRef(0, 0)), DisplayValue())
    atlas = Svg(draw(scene, FigureRequest("heads"), "svg")).image("heads")
    assert (atlas[..., 3] > 0).mean() > 0.8


def test_the_words_that_there_is_no_map_are_not_crossed_by_the_query(document) -> None:
    scene = scene_of(document, (4, 0))
    drawn = draw(scene, FigureRequest("overlay"), "svg").decode()
    # Only the small picture, which comes last, has a frame.
    assert drawn.index("No map") < drawn.index(palette("light").accent)
