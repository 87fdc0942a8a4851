"""The talk theme: larger type beside what it names, since a slide shows every figure at its own width."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.export.scenes import make_document, make_record, make_scene
from tests.export.svg import Svg
from viewer.attention.likeness import measure_likeness
from viewer.export.figure import draw
from viewer.export.sheet import Style
from viewer.export.study_figure import draw_study
from viewer.state.display import DisplayValue
from viewer.state.likeness import keep
from viewer.state.palette import palette
from viewer.state.references import Reference
from viewer.state.requests import FigureRequest
from viewer.state.scene import SceneValue

VIEWS = ("overlay", "heads", "scatter", "likeness", "all")
_LONG = "effective fields of its stages, mean over 2 pictures, weights: random, as initialized, norms at 1"
_RECORDS = {
    "usual": {},
    "tall": {"grid": (20, 5)},
    "wide": {"grid": (4, 16), "prefix": ("cls", "reg1", "reg2", "reg3", "reg4")},
    "large": {"layers": 24, "heads": 16, "grid": (7, 7), "doubted": (1, 2)},
}


@pytest.fixture(scope="module", params=_RECORDS)
def scenes(request: pytest.FixtureRequest) -> dict[str, SceneValue]:
    """The same in light and talk."""
    document = make_document(make_record(**_RECORDS[request.param]))
    keep(document.measures, measure_likeness(document.record, document.measures))
    levels = Reference(
        "network effective",
        np.array([-np.inf, np.inf]),
        np.array([20.0, 20.0]),
        _LONG,
        notes=((20.0, "layer1 to layer3, effective"), (20.5, "layer4, field 435 px")),
    )
    found = {}
    for theme in ("light", "talk"):
        display = DisplayValue(theme=theme, ring=1, protocol="original")
        scene = make_scene(document, (3, 2), display=display)
        scatter = replace(scene.scatter, references=(*scene.scatter.references, levels))
        found[theme] = replace(scene, scatter=scatter)
    return found


def _svg(scene: SceneValue, view: str) -> Svg:
    return Svg(draw(scene, FigureRequest(view), "svg"))


@pytest.mark.parametrize("view", VIEWS)
def test_type_is_larger_beside_the_figure(scenes: dict[str, SceneValue], view: str) -> None:
    sizes = {}
    for theme, scene in scenes.items():
        svg = _svg(scene, view)
        smallest, largest = (pick(size for _, size in svg.sized_texts()) for pick in (min, max))
        sizes[theme] = np.array([smallest, largest]) / svg.width
    # Where little is drawn, words alone make a figure's width, and type gains least.
    assert (sizes["talk"] > 1.1 * sizes["light"]).all()


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("theme", ["light", "talk"])
def test_no_text_is_cut_off_or_lies_on_another(scenes: dict[str, SceneValue], theme: str, view: str) -> None:
    svg = _svg(scenes[theme], view)
    boxes = svg.text_boxes()
    for text, (left, top, right, bottom) in boxes:
        assert left >= -1, text
        assert top >= -1, text
        assert right <= svg.width + 1, text
        assert bottom <= svg.height + 1, text
    for (one, first), (other, second) in itertools.combinations(boxes, 2):
        across = min(first[2], second[2]) - max(first[0], second[0])
        down = min(first[3], second[3]) - max(first[1], second[1])
        assert min(across, down) < 1.5, (one, other)


def test_long_words_of_the_legend_are_broken_and_all_there(scenes: dict[str, SceneValue]) -> None:
    for scene in scenes.values():
        said = " ".join(_svg(scene, "scatter").texts).replace(",", "")
        assert _LONG.replace(",", "") in said


def test_the_figure_of_a_study_is_like_a_scatter(scenes: dict[str, SceneValue]) -> None:
    widths = []
    for theme, scene in scenes.items():
        facts = {"created": "2024-01-01T00:00:00+00:00"}
        svg = Svg(draw_study(scene.scatter, ["a model", "16 pictures"], facts, "svg", theme=theme))
        assert all(right <= svg.width + 1 for _, (_, _, right, _) in svg.text_boxes())
        widths.append(svg.width / Style(palette(theme)).em)
    assert widths[1] < widths[0] / 1.15
