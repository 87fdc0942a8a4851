from __future__ import annotations

import io
import itertools
import math
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import matplotlib
import numpy as np
import pytest
from PIL import Image
from pypdf import PdfReader

from tests.export.scenes import make_document, make_record, make_scene
from tests.export.svg import Svg
from viewer.errors import ExportError, FileError
from viewer.export.all_figure import AllPart
from viewer.export.figure import draw, format_of, save
from viewer.export.heads_figure import HeadsPart
from viewer.export.overlay_figure import OverlayPart
from viewer.export.sheet import Style
from viewer.images.decode import DecodedImage
from viewer.state.colormaps import lut
from viewer.state.display import DisplayValue
from viewer.state.palette import palette
from viewer.state.requests import FigureRequest
from viewer.state.scene import SceneValue, compose
from viewer.state.selection import SelectionValue
from viewer.state.words import weight_words

VIEWS = ("overlay", "heads", "scatter", "all")
GROUNDS = ("light", "dark", "transparent")
EVERY = list(itertools.product(VIEWS, GROUNDS))
PLAIN_MARGIN = 13  # one em of 10 points, what surrounds a figure without a title


def pixels(png: bytes) -> np.ndarray:
    picture = Image.open(io.BytesIO(png))
    assert picture.format == "PNG"
    return np.asarray(picture.convert("RGBA"))


def of_picture(png: bytes, scale: int = 1) -> np.ndarray:
    """The colours of the picture of 14 x 14 patches that stands first in an overlay without a title."""
    return pixels(png)[:, : scale * (PLAIN_MARGIN + 14 * 32 + 4), :3]


def colour(text: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(text[1:]))


# -- every view, format and ground --


@pytest.mark.parametrize(("view", "ground"), EVERY)
def test_png_has_its_ground_and_something_on_it(scene: SceneValue, view: str, ground: str) -> None:
    found = pixels(draw(scene, FigureRequest(view, scale=1, ground=ground)))
    corner = found[0, 0]
    if ground == "transparent":
        assert corner[3] == 0
    else:
        assert tuple(corner) == (*colour(palette(ground).ground), 255)
    drawn = (found != corner).any(axis=2)
    assert drawn.mean() > 0.05
    assert len(np.unique(found.reshape(-1, 4), axis=0)) > 60
    # A margin all around: nothing is cut off at the border.
    for edge in (drawn[:6], drawn[-6:], drawn[:, :6], drawn[:, -6:]):
        assert not edge.any()


@pytest.mark.parametrize(("view", "ground"), EVERY)
def test_svg_has_real_text_and_no_ground_when_transparent(scene: SceneValue, view: str, ground: str) -> None:
    svg = Svg(draw(scene, FigureRequest(view, ground=ground), "svg"))
    words = " ".join(svg.texts)
    assert "vit_small_patch16_224" in words
    assert "cat.jpg" in words
    # Only where distances are shown does their protocol matter.
    assert ("renormalized over patches" in words) == (view in ("scatter", "all"))
    fills = svg.background_fills()
    assert bool(fills) == (ground != "transparent")
    if fills:
        assert palette(ground).ground in fills[0]


@pytest.mark.parametrize(("view", "ground"), EVERY)
def test_pdf_has_real_text_in_embedded_truetype(scene: SceneValue, view: str, ground: str) -> None:
    page = PdfReader(io.BytesIO(draw(scene, FigureRequest(view, ground=ground), "pdf"))).pages[0]
    words = " ".join(page.extract_text().split())
    title = {
        "overlay": "Layer 2, head 1: what patch (row 4, column 5) attends to",
        "heads": "Every head: what patch (row 4, column 5) attends to",
        "scatter": "How far each head reaches",
        "all": "Layer 2, head 1: what patch (row 4, column 5) attends to",
    }
    assert title[view] in words
    assert "vit_small_patch16_224" in words
    label = "mean attention distance (px)" if view in ("scatter", "all") else "attention weight"
    assert label in words
    fonts = page["/Resources"]["/Font"]
    assert {font.get_object()["/Subtype"] for font in fonts.values()} <= {"/Type0", "/TrueType"}


@pytest.mark.parametrize("view", VIEWS)
def test_scale_multiplies_every_side(scene: SceneValue, view: str) -> None:
    once = Image.open(io.BytesIO(draw(scene, FigureRequest(view, scale=1)))).size
    for scale in (2, 3, 4):
        picture = Image.open(io.BytesIO(draw(scene, FigureRequest(view, scale=scale))))
        assert picture.size == (once[0] * scale, once[1] * scale)
        assert picture.info["dpi"] == pytest.approx((96 * scale, 96 * scale), abs=0.02)


# -- what the pixels mean --


@pytest.mark.parametrize("fade", [True, False])
@pytest.mark.parametrize("scale", [1, 4])
def test_hot_patch_has_the_blended_colour_of_its_weight(document, scale: int, fade: bool) -> None:
    scene = make_scene(document, display=DisplayValue(fade=fade))
    found = pixels(draw(scene, FigureRequest("overlay", scale=scale, title=False)))
    overlay = scene.overlay
    for patch in (np.unravel_index(np.argmax(overlay.values), overlay.grid), (0, 0), (13, 2)):
        weight = float(overlay.values[patch])
        level = min(int(weight / overlay.vmax * 256), 255)
        row, column = (16 * (int(place) + 0.5) for place in patch)
        under = overlay.seen[int(row), int(column)].astype(float)
        opacity = 0.8 * ((weight / overlay.values.max()) ** 0.5 if fade else 1.0)
        expected = opacity * lut("viridis")[level, :3] + (1 - opacity) * under
        y, x = (scale * round(PLAIN_MARGIN + 2 * place) for place in (row, column))
        np.testing.assert_allclose(found[y, x, :3], expected, atol=3)
        # All of the patch, up to its border: even colour for one weight, but for the ramp underneath.
        inner = found[y - 12 * scale : y + 12 * scale, x - 12 * scale : x + 12 * scale, :3]
        if patch != (4, 5):
            assert np.abs(inner.astype(float) - expected).max() < 12


def test_query_is_outlined_in_the_accent_colour_where_it_is(document) -> None:
    accent = colour(palette("light").accent)
    scene = make_scene(document, (9, 2))
    found = of_picture(draw(scene, FigureRequest("overlay", scale=2, title=False)), 2)
    y, x = np.nonzero((np.abs(found.astype(int) - accent) < 12).all(axis=2))
    edges = [2 * (PLAIN_MARGIN + 2 * 16 * side) for side in (9, 10, 2, 3)]
    assert [y.min(), y.max(), x.min(), x.max()] == pytest.approx(edges, abs=4)


def test_ring_and_pins_are_drawn_where_they_are(document) -> None:
    shown = make_scene(document, pins=((12, 12), (4, 5)), display=DisplayValue(ring=2))
    found = of_picture(draw(shown, FigureRequest("overlay", scale=1, title=False)))
    ring = colour(palette("light").convolution)
    y, x = np.nonzero((np.abs(found.astype(int) - ring) < 12).all(axis=2))
    edges = [PLAIN_MARGIN + 32 * side for side in (2, 7, 3, 8)]
    assert [y.min(), y.max(), x.min(), x.max()] == pytest.approx(edges, abs=2)
    accent = colour(palette("light").accent)
    y, x = np.nonzero((np.abs(found.astype(int) - accent) < 60).all(axis=2))
    assert [y.max(), x.max()] == pytest.approx([PLAIN_MARGIN + 32 * 13] * 2, abs=2)


def test_where_there_is_no_map_the_words_say_why_and_nothing_is_outlined(document) -> None:
    shown = make_scene(document, pins=((12, 12), (8, 8)))
    blank = replace(shown.overlay, values=None, blank="channels attend to channels here")
    svg = Svg(draw(replace(shown, overlay=blank), FigureRequest("overlay", title=False), "svg"))
    styles = [path.get("style") for path in svg.paths() if palette("light").accent in path.get("style", "")]
    assert len(styles) == 1  # the inset's
    assert any("No map: channels attend" in text for text in svg.texts)


def test_pins_that_are_not_asked_for_are_dashed_as_in_the_window(document) -> None:
    shown = make_scene(document, pins=((12, 12), (9, 2), (4, 5)))
    svg = Svg(draw(shown, FigureRequest("overlay", title=False), "svg"))
    styles = [path.get("style") for path in svg.paths() if palette("light").accent in path.get("style", "")]
    assert ["stroke-dasharray" in style for style in styles] == [
        True,
        True,
        False,
        False,
    ]  # the last: the inset's


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_lies_between_the_maps_is_of_the_windows_colour(document, theme: str) -> None:
    scene = make_scene(document, display=DisplayValue(theme=theme))
    scene = replace(scene, heads=replace(scene.heads, heads=(3, 2, 3, 3)))
    part = HeadsPart(scene.heads, Style(palette(theme)))
    found = pixels(draw(scene, FigureRequest("heads", scale=1, title=False, ground=theme)))
    (above, before), (down, across), gap = part._margin, part._pitch, part._gap * part._patch
    top, left = PLAIN_MARGIN + above, PLAIN_MARGIN + before
    mat = (*colour(palette(theme).mat), 255)
    for layer in (0, 1, 3):
        row = found[top + layer * down + 3]
        assert tuple(row[left + across - gap // 2 - 1]) == mat  # between two maps of a layer
        assert tuple(row[left - 2]) == mat
    assert tuple(found[top + 2 * down - gap // 2 - 1, left + 5]) == mat  # between two layers
    nothing = found[top + down + part._cell_height // 2, left + 2 * across + part._cell_width // 2]
    assert tuple(nothing) == (*colour(palette(theme).ground), 255)


@pytest.mark.parametrize("sides", [(28, 0, 196, 224), (0, 0, 224, 224), (0, -60, 224, 284)])
def test_the_whole_picture_stands_beside_it_with_a_frame_around_what_the_model_saw(document, sides) -> None:
    record = replace(document.record, box=tuple(map(float, sides)))
    scene = make_scene(make_document(record), None)
    svg = Svg(draw(scene, FigureRequest("overlay", title=False), "svg"))
    np.testing.assert_array_equal(svg.image("whole")[..., :3], scene.overlay.whole)
    found = pixels(draw(scene, FigureRequest("overlay", scale=1, title=False))).astype(int)
    part = OverlayPart(scene.overlay, Style(palette("light")))
    inset, (width, height) = part._inset, part._picture
    left, top = PLAIN_MARGIN + width + round(0.8 * 40 / 3), PLAIN_MARGIN + height - inset.height
    x, y, across, down = inset._place(left, top, sides)
    rows, columns = np.nonzero((np.abs(found[..., :3] - colour(palette("light").accent)) < 12).all(axis=2))
    assert [rows.min(), rows.max() + 1] == pytest.approx([y, y + down], abs=2)
    assert [columns.min(), columns.max() + 1] == pytest.approx([x, x + across], abs=2)
    for edge in (rows.min(), rows.max()):
        assert (rows == edge).sum() > 0.95 * across
    for edge in (columns.min(), columns.max()):
        assert (columns == edge).sum() > 0.95 * down


def test_a_photograph_is_embedded_no_larger_than_a_figure_can_show(document) -> None:
    large = np.zeros((3000, 4000, 3), np.uint8)
    record = replace(document.record, box=(500.0, 0.0, 3500.0, 3000.0))
    whole = DecodedImage(large, "cat.jpg", None, "b" * 64)
    scene = make_scene(replace(make_document(record), image=whole))
    embedded = Svg(draw(scene, FigureRequest("overlay"), "svg")).image("whole")
    inset = OverlayPart(scene.overlay, Style(palette("light")))._inset
    assert embedded.shape[1] == pytest.approx(4 * inset.width, abs=2)


def test_svg_embeds_picture_and_attention_at_native_size_with_opacity(document) -> None:
    scene = make_scene(document, display=DisplayValue(fade=False))
    svg = Svg(draw(scene, FigureRequest("overlay"), "svg"))
    picture, attention = svg.image("picture"), svg.image("attention")
    np.testing.assert_array_equal(picture[..., :3], scene.overlay.seen)
    assert attention.shape == (14, 14, 4)
    assert set(np.unique(attention[..., 3])) == {round(255 * 0.8)}
    levels = np.minimum(scene.overlay.values / scene.overlay.vmax * 256, 255).astype(int)
    np.testing.assert_array_equal(attention[..., :3], lut("viridis")[levels][..., :3])
    assert "pixelated" in svg.images["attention"].get("style")
    assert svg.images["picture"].get("style") is None


def test_pdf_embeds_images_at_native_size_with_opacity(document) -> None:
    scene = make_scene(document, display=DisplayValue(fade=False))
    page = PdfReader(io.BytesIO(draw(scene, FigureRequest("overlay"), "pdf"))).pages[0]
    images = [entry.get_object() for entry in page["/Resources"]["/XObject"].values()]
    images = [entry for entry in images if entry["/Subtype"] == "/Image"]
    sizes = {(entry["/Width"], entry["/Height"]) for entry in images}
    assert {(224, 224), (14, 14)} <= sizes
    attention = next(entry for entry in images if entry["/Width"] == 14)
    assert set(attention["/SMask"].get_data()) == {round(255 * 0.8)}


@pytest.mark.parametrize("scale", ["shared", "per head"])
def test_heads_atlas_has_every_map_in_its_own_place_and_scale(document, scale: str) -> None:
    scene = make_scene(document, display=DisplayValue(scale=scale, colormap="cividis"))
    svg = Svg(draw(scene, FigureRequest("heads"), "svg"))
    atlas, heads = svg.image("heads"), scene.heads
    gap = (atlas.shape[1] - 3 * 14) // 2
    assert gap >= 1
    for layer, head in itertools.product(range(4), range(3)):
        top, left = layer * (14 + gap), head * (14 + gap)
        cell = atlas[top : top + 14, left : left + 14]
        levels = np.minimum(heads.maps[layer, head] / heads.vmax[layer, head] * 256, 255).astype(int)
        np.testing.assert_allclose(cell[..., :3], lut("cividis")[levels][..., :3], atol=1)
    assert (atlas[:14, 14 : 14 + gap, 3] == 0).all()
    assert ("own max." in svg.texts) == (scale == "per head")


def test_layer_with_fewer_heads_leaves_its_places_empty(scene: SceneValue) -> None:
    maps = scene.heads.maps.copy()
    maps[1, 2] = np.nan
    fewer = replace(scene, heads=replace(scene.heads, maps=maps, heads=(3, 2, 3, 3)))
    atlas = Svg(draw(fewer, FigureRequest("heads"), "svg")).image("heads")
    gap = (atlas.shape[1] - 3 * 14) // 2
    assert (atlas[14 + gap : 28 + gap, 2 * (14 + gap) :, 3] == 0).all()


def test_scatter_has_a_vector_mark_for_every_head(scene: SceneValue) -> None:
    svg = Svg(draw(scene, FigureRequest("scatter", title=False), "svg"))
    dots = palette("light").dot
    filled = [mark for mark in svg.marks() if dots in mark.get("style", "")]
    assert len(filled) == 12 + 1  # one a head, one in the legend
    diamonds = [mark for mark in svg.marks() if palette("light").query in mark.get("style", "")]
    assert len(diamonds) == 12 + 1
    assert not svg.images
    assert {"layer", "uniform attention"} <= set(svg.texts)


def test_scatter_dots_lie_at_their_distance(scene: SceneValue) -> None:
    svg = Svg(draw(scene, FigureRequest("scatter", title=False), "svg"))
    dots = [mark for mark in svg.marks() if palette("light").dot in mark.get("style", "")][1:]
    y = np.array([float(mark.get("y")) for mark in dots])
    # Two tick labels give the axis: same pixels a unit for all dots.
    distance = scene.scatter.y
    slope, offset = np.polyfit(distance, y, 1)
    np.testing.assert_allclose(y, slope * distance + offset, atol=0.01)
    assert slope < 0
    uniform = next(
        path
        for path in svg.paths()
        if palette("light").uniform in path.get("style", "") and "clip-path" in path.attrib
    )
    height = float(uniform.get("d").split()[2])
    assert height == pytest.approx(slope * scene.scatter.reference("uniform").y[0] + offset, abs=0.01)


def test_paler_dots_for_heads_on_prefix_tokens() -> None:
    scene = make_scene(make_document(make_record()))
    scatter = replace(scene.scatter, prefix_mass=np.linspace(0, 1, 12))
    svg = Svg(draw(replace(scene, scatter=scatter), FigureRequest("scatter", title=False), "svg"))
    dots = [mark for mark in svg.marks() if palette("light").dot in mark.get("style", "")][1:]
    opacity = [float(mark.get("style").split("fill-opacity: ")[1].split(";")[0]) for mark in dots[1:]]
    np.testing.assert_allclose(opacity, np.maximum(1 - np.linspace(0, 1, 12)[1:], 0.15), atol=1e-3)
    assert not any("stroke-opacity" in mark.get("style") for mark in dots)  # the outline stays
    assert "a head, paler the more it attends to prefix tokens" in " ".join(svg.texts)


@pytest.mark.parametrize("kinds", [False, True])
def test_heads_that_are_not_used_are_hollow_and_crossed_out(kinds: bool) -> None:
    changes = ("head-removed:layers=1,heads=0+2",)
    record = replace(make_record(), what_if=changes)
    scene = make_scene(make_document(record), display=DisplayValue(kinds=kinds))
    svg = Svg(draw(scene, FigureRequest("scatter", title=False), "svg"))
    plain = Svg(draw(make_scene(make_document(make_record())), FigureRequest("scatter", title=False), "svg"))
    hollow = [mark for mark in svg.marks() if re.match("fill: #.{6}; fill-opacity: 0;", mark.get("style"))]
    places = Counter((mark.get("x"), mark.get("y")) for mark in svg.marks())
    assert len(hollow) == 2
    assert all(places[mark.get("x"), mark.get("y")] >= 2 for mark in hollow), "a cross lies over each"
    words = "head removed or skipped: not used"
    assert words in svg.texts and words not in plain.texts


def test_nothing_is_said_of_prefix_tokens_where_no_head_attends_to_any() -> None:
    scene = make_scene(make_document(make_record()))
    scatter = replace(scene.scatter, prefix_mass=np.zeros(12))
    said = Svg(draw(replace(scene, scatter=scatter), FigureRequest("scatter", title=False), "svg")).texts
    assert "a head" in said
    assert not any("prefix tokens" in text for text in said)


# -- words --


def test_every_part_of_a_changed_model_is_marked() -> None:
    record = replace(make_record(), what_if=("uniform:layers=all,heads=all",))
    svg = Svg(draw(make_scene(make_document(record)), FigureRequest("all"), "svg"))
    assert "What if · Every head" in svg.texts
    plain = Svg(draw(make_scene(make_document(make_record())), FigureRequest("all"), "svg"))
    assert "Every head" in plain.texts


def test_title_line_can_be_switched_off(scene: SceneValue) -> None:
    words = Svg(draw(scene, FigureRequest("overlay", title=False), "svg")).texts
    assert not any("cat.jpg" in text or "attends to" in text for text in words)
    assert any("attention weight" in text for text in words)


def test_scatter_title_names_head_query_unit_and_protocol(document) -> None:
    display = DisplayValue(protocol="original", unit="patches")
    words = " ".join(Svg(draw(make_scene(document, display=display), FigureRequest("scatter"), "svg")).texts)
    for part in ("layer 2, head 1", "patch (4, 5)", "(patches)", "original protocol"):
        assert part in words


def test_what_is_not_verified_is_named_even_without_a_title() -> None:
    scene = make_scene(make_document(make_record(doubted=(1, 2))))
    for view in VIEWS:
        words = " ".join(Svg(draw(scene, FigureRequest(view, title=False), "svg")).texts)
        assert "Not verified" in words
        assert "layer 2 (weights times V miss the output)" in words
        assert ("layer 1 (" in words) == (view != "overlay")
    verified = make_scene(make_document(make_record()))
    assert not any("Not verified" in text for text in Svg(draw(verified, FigureRequest("all"), "svg")).texts)


def test_prefix_tokens_and_their_weights_stand_below_the_picture() -> None:
    record = make_record(prefix=("cls", "reg1", "reg2"))
    scene = make_scene(make_document(record), "cls")
    words = Svg(draw(scene, FigureRequest("overlay"), "svg")).texts
    weights = record.layers[2].weights("cls")[1, :3]
    assert f"class token {weight_words(weights[0])}" in words
    assert f"register 2 {weight_words(weights[2])}" in words


def test_the_prefix_token_that_is_asked_for_is_marked_as_in_the_window() -> None:
    document = make_document(make_record(prefix=("cls", "reg1", "reg2")))
    marked = {}
    for query, pins in (("reg1", ()), ((1, 1), ()), ("reg2", ("cls", "reg2"))):
        scene = make_scene(document, query, pins=pins)
        svg = Svg(draw(scene, FigureRequest("overlay", title=False), "svg"))
        frames = [path for path in svg.paths() if palette("light").accent in path.get("style", "")]
        marked[query, pins] = len(frames)
    # Beside the crop's frame in the inset and the outline of a query that is a patch.
    assert list(marked.values()) == [2, 2, 3]


def test_without_a_query_the_picture_is_drawn_alone_and_the_title_gives_no_orders(document) -> None:
    scene = make_scene(document, None)
    svg = Svg(draw(scene, FigureRequest("overlay"), "svg"))
    assert set(svg.images) == {"picture", "whole"}
    assert not any("point at" in text for text in svg.texts)
    assert "Layer 2, head 1" in svg.texts


def test_talk_theme_has_large_type_on_any_ground(document) -> None:
    sizes = {}
    for theme in ("light", "talk"):
        scene = make_scene(document, display=DisplayValue(theme=theme))
        for ground in GROUNDS:
            svg = Svg(draw(scene, FigureRequest("overlay", ground=ground), "svg"))
            sizes[theme, ground] = min(size for _, size in svg.sized_texts())
    assert {sizes["light", ground] for ground in GROUNDS} == {8.5}
    assert {sizes["talk", ground] for ground in GROUNDS} == {13.6}


LONG_NAME = "IMG_2024 $x^2$ " + "a very long name that goes on and on " * 5 + ".jpeg"
LAYOUTS = {
    "wide grid": ({"grid": (14, 20), "heads": 12, "layers": 12}, {}),
    "many heads": ({"grid": (8, 8), "heads": 16, "layers": 24}, {"head": (23, None)}),
    "fine grid": ({"grid": (37, 37), "patch": 14, "heads": 2, "layers": 2}, {"head": (1, None)}),
    "one head": ({"grid": (4, 4), "patch": 8, "heads": 1, "layers": 1}, {"query": (0, 0), "head": (0, 0)}),
    "flat picture": ({"grid": (2, 30), "heads": 2, "layers": 3}, {"query": (1, 29)}),
    "tall picture": ({"grid": (30, 2), "heads": 2, "layers": 3}, {"query": (29, 1)}),
    "registers": ({"prefix": ("cls", *(f"reg{i}" for i in range(1, 17)))}, {"query": "reg16"}),
}


@pytest.mark.parametrize("theme", ["light", "talk"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_no_text_is_cut_off_or_runs_into_another(name: str, theme: str) -> None:
    parts, choices = LAYOUTS[name]
    model = "vit_so400m_patch14_siglip_gap_378.webli_ft_in1k" + "_and_more" * 15
    document = make_document(make_record(**parts, model=model), LONG_NAME)
    scene = make_scene(document, display=DisplayValue(theme=theme, protocol="original", ring=1), **choices)
    for view in VIEWS:
        svg = Svg(draw(scene, FigureRequest(view), "svg"))
        boxes = svg.text_boxes()
        assert len(boxes) > 5
        for text, (left, top, right, bottom) in boxes:
            assert left >= 0 and top >= 0, (view, text)
            assert right <= svg.width + 0.5 and bottom <= svg.height + 0.5, (view, text)
        for (one, a), (other, b) in itertools.combinations(boxes, 2):
            across, down = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
            assert across < 1.0 or down < 1.0, (view, one, other)


def test_file_names_are_never_read_as_mathematics_or_markup(document) -> None:
    odd = make_document(document.record, "a$\\frac{1}{2}$ <b>&amp; \udcff\x07.jpg")
    scene = make_scene(odd)
    words = " ".join(Svg(draw(scene, FigureRequest("overlay"), "svg")).texts)
    assert "a$\\frac{1}{2}$ <b>&amp; \\udcff\\x07.jpg" in words
    assert len(draw(scene, FigureRequest("overlay"), "png")) > 1000
    assert len(draw(scene, FigureRequest("overlay"), "pdf")) > 1000


def test_letters_without_a_font_do_not_warn(document) -> None:
    scene = make_scene(make_document(document.record, "猫 \U00013080.jpg"))
    assert "猫" in " ".join(Svg(draw(scene, FigureRequest("overlay"), "svg")).texts)
    draw(scene, FigureRequest("overlay"), "png")


# -- saving --


def test_save_takes_the_format_from_the_suffix(scene: SceneValue, tmp_path) -> None:
    starts = {".png": b"\x89PNG", ".SVG": b"<?xml", ".pdf": b"%PDF-"}
    for suffix, start in starts.items():
        path = save(scene, FigureRequest("heads", tmp_path / f"figure{suffix}"))
        assert path.read_bytes().startswith(start)
    assert len(list(tmp_path.iterdir())) == 3


def test_unknown_suffix_names_those_there_are() -> None:
    with pytest.raises(ExportError, match=r"fig\.jpg: \.jpg is not .* one of \.png, \.svg, \.pdf\."):
        format_of("fig.jpg")
    with pytest.raises(ExportError, match="a name without a suffix is not"):
        format_of("fig")


def test_saving_where_nothing_can_be_saved_says_why(scene: SceneValue, tmp_path) -> None:
    with pytest.raises(FileError, match="there is no folder"):
        save(scene, FigureRequest("heads", tmp_path / "no" / "fig.png"))
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(FileError, match="it is a folder"):
        save(scene, FigureRequest("heads", tmp_path / "folder.png"))
    with pytest.raises(ExportError, match="needs a file name"):
        save(scene, FigureRequest("heads"))


def test_a_failed_save_leaves_the_old_file_whole(scene: SceneValue, tmp_path) -> None:
    path = tmp_path / "fig.png"
    path.write_bytes(b"old")
    with pytest.raises(ExportError, match="scale is 1, 2, 3 or 4"):
        save(scene, FigureRequest("heads", path, scale=5))
    assert path.read_bytes() == b"old"
    link = tmp_path / "link.png"
    link.symlink_to(path)
    save(scene, FigureRequest("heads", link, scale=1))
    assert link.is_symlink()
    assert path.read_bytes().startswith(b"\x89PNG")
    assert {entry.name for entry in tmp_path.iterdir()} == {"fig.png", "link.png"}


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(ExportError, match="needs a model and a picture"):
        draw(SceneValue(), FigureRequest())
    unmeasured = replace(make_document(make_record()), measures=None)
    scene = compose(unmeasured, SelectionValue(), DisplayValue())
    with pytest.raises(ExportError, match="finished measures"):
        draw(scene, FigureRequest("scatter"))
    assert Svg(draw(scene, FigureRequest("all"), "svg")).texts


# -- neighbours --


def test_global_settings_of_matplotlib_stay_as_they_were(scene: SceneValue) -> None:
    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"font.size": 40, "axes.facecolor": "red", "svg.fonttype": "path"}):
        spoiled = dict(matplotlib.rcParams)
        figure = draw(scene, FigureRequest("scatter"), "svg")
        assert dict(matplotlib.rcParams) == spoiled
    assert dict(matplotlib.rcParams) == before
    assert not any("red" in path.get("style", "") for path in Svg(figure).paths())


def test_figures_need_neither_qt_nor_pyplot() -> None:
    names = "('PySide6', 'matplotlib.pyplot')"
    code = f"import sys, viewer.export.figure; print([m for m in sys.modules if m in {names}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_huge_pictures_are_shrunk_by_whole_factors() -> None:
    document = make_document(make_record(1, 1, (40, 60), patch=32), "wide.jpg")
    scene = make_scene(document, (20, 30), (0, 0))
    found = pixels(draw(scene, FigureRequest("overlay", scale=1, title=False)))
    assert found.shape[1] < 1200
    overlay = scene.overlay
    factor = 1 / math.ceil(max(overlay.seen.shape) / 900)
    row, column = np.unravel_index(np.argmax(overlay.values), overlay.grid)
    # Beside the query's outline, in the patch's lower right quarter.
    y, x = (round(PLAIN_MARGIN + factor * 32 * (place + 0.6)) for place in (row, column))
    level = min(int(overlay.values[row, column] / overlay.vmax * 256), 255)
    under = overlay.seen[int(32 * (row + 0.6)), int(32 * (column + 0.6))]
    expected = 0.8 * lut("viridis")[level, :3] + 0.2 * under
    np.testing.assert_allclose(found[y, x, :3], expected, atol=6)


def test_a_layer_that_lacks_prefix_tokens_or_patches_shows_no_number_for_them(scene: SceneValue) -> None:
    values = np.full_like(scene.overlay.values, np.nan)
    overlay = replace(scene.overlay, values=values, prefix=(("cls", math.nan),))
    svg = Svg(draw(replace(scene, overlay=overlay), FigureRequest("overlay"), "svg"))
    assert not any("nan" in text or "class token" in text for text in svg.texts)
    assert (svg.image("attention")[..., 3] == 0).all()


def talk(grid: tuple[int, int] = (16, 16)) -> SceneValue:
    return make_scene(make_document(make_record(12, 6, grid)), display=DisplayValue(theme="talk"))


@pytest.mark.parametrize("view", ["overlay", "heads"])
def test_large_type_has_a_large_picture_beside_it_and_no_blank(view: str) -> None:
    picture = np.asarray(Image.open(io.BytesIO(draw(talk(), FigureRequest(view, scale=1)))).convert("RGB"))
    ground = picture[0, 0]
    used = np.flatnonzero((picture != ground).any(axis=(0, 2)))
    assert picture.shape[1] - used.max() < 0.06 * picture.shape[1]


def test_the_colour_bar_is_as_high_as_a_flat_picture() -> None:
    part = OverlayPart(talk((7, 20)).overlay, Style(palette("talk")))
    assert part._bar.height == part._picture[1]


@pytest.mark.parametrize("theme", ["light", "talk"])
def test_with_all_views_the_picture_fills_the_height_of_the_heads(theme: str) -> None:
    scene = make_scene(make_document(make_record(12, 6, (16, 16), 14)), display=DisplayValue(theme=theme))
    part = AllPart(scene.overlay, scene.heads, scene.scatter, scene.readout, True, Style(palette(theme)))
    picture, heads = part._picture, part._every_head
    assert 0.9 * heads.height < picture.height <= heads.height
    assert (picture.factor * 14) % 1 == 0  # patches stay whole pixels
