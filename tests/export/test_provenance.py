from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from pypdf import PdfReader

from tests.export.scenes import make_document, make_record, make_scene
from viewer import __version__
from viewer.export.figure import draw, save
from viewer.export.provenance import KEY, read_provenance, to_text
from viewer.export.restore import restore
from viewer.state.display import DisplayValue
from viewer.state.requests import FigureRequest, ModelRequest
from viewer.state.scene import compose
from viewer.state.selection import HeadRef, SelectionValue

DISPLAY = DisplayValue("original", "patches", "per head", "batlow", 0.45, False, True, 3, "talk")


@pytest.fixture(params=[".png", ".svg", ".pdf"])
def figure(request: pytest.FixtureRequest, document, tmp_path: Path) -> Path:
    scene = make_scene(
        document, pins=((1, 2), (4, 5)), head=(3, 1), fusion="max", direction="to", display=DISPLAY
    )
    return save(scene, FigureRequest("all", tmp_path / f"fig{request.param}", scale=1))


def test_a_figure_says_what_it_was_made_from(figure: Path, document) -> None:
    facts = read_provenance(figure)
    assert facts["model"] == {
        "name": "vit_small_patch16_224",
        "sha256": "a" * 64,
        "weights": "",
        "backend": "torch",
        "device": "cpu",
        "input_size": [224, 224],
        "verified": True,
    }
    assert facts["image"] == {"name": "cat.jpg", "sha256": "b" * 64}
    assert facts["preprocessing"] == document.record.provenance.preprocessing
    assert facts["versions"]["patchreach"] == __version__
    assert {"python", "numpy", "torch", "timm"} <= set(facts["versions"])
    assert facts["selection"] == {
        "query": [4, 5],
        "pins": [[1, 2], [4, 5]],
        "layer": 3,
        "head": 1,
        "fusion": "max",
        "direction": "to",
    }
    assert facts["display"]["protocol"] == "original"
    assert facts["view"] == "all"
    assert facts["created"].endswith("+00:00")


def test_a_figure_opens_as_it_was(figure: Path, document) -> None:
    found = restore(figure)
    assert found.model == ModelRequest("vit_small_patch16_224", None, (224, 224))
    assert (found.model_sha256, found.image, found.image_sha256) == ("a" * 64, "cat.jpg", "b" * 64)
    assert found.display == DISPLAY
    assert found.selection == SelectionValue(
        pins=((1, 2), (4, 5)), head=HeadRef(3, 1), fusion="max", direction="to"
    )
    assert found.view == "all"
    again = compose(document, found.selection, found.display)
    request = FigureRequest("overlay", scale=1)
    first = make_scene(
        document, pins=((1, 2), (4, 5)), head=(3, 1), fusion="max", direction="to", display=DISPLAY
    )
    pictures = [np.asarray(Image.open(io.BytesIO(draw(scene, request)))) for scene in (first, again)]
    np.testing.assert_array_equal(*pictures)


def test_a_renamed_figure_is_recognized_by_its_content(figure: Path) -> None:
    renamed = figure.rename(figure.with_suffix(".dat"))
    assert restore(renamed) is not None


def test_what_was_hovered_is_pinned_when_opened_again(document, tmp_path: Path) -> None:
    scene = make_scene(document, "cls", head=(0, None))
    found = restore(save(scene, FigureRequest("heads", tmp_path / "fig.png", scale=1)))
    assert found.selection.pins == ("cls",)
    assert found.selection.head == HeadRef(0, None)


def test_checkpoint_and_onnx_are_named(tmp_path: Path) -> None:
    record = make_record(1, 1, (4, 4))
    provenance = replace(record.provenance, model="vit.onnx", weights="own $x$ (1).pth", backend="onnx")
    scene = make_scene(make_document(replace(record, provenance=provenance)), (1, 1), (0, 0))
    path = save(scene, FigureRequest("overlay", tmp_path / "fig.pdf"))
    facts = read_provenance(path)
    assert {"onnx", "numpy"} <= set(facts["versions"])
    assert "torch" not in facts["versions"]
    assert restore(path).model == ModelRequest("vit.onnx", "own $x$ (1).pth", (64, 64))


def test_names_in_any_script_survive(document, tmp_path: Path) -> None:
    name = '写真 (1) \\ "é" ]]> & <x>.jpg'
    record = replace(document.record, provenance=replace(document.record.provenance, image=name))
    scene = make_scene(replace(document, record=record))
    for suffix in (".png", ".svg", ".pdf"):
        path = save(scene, FigureRequest("heads", tmp_path / f"fig{suffix}", scale=1))
        assert restore(path).image == name


def test_other_programs_see_title_and_maker(scene, tmp_path: Path) -> None:
    with Image.open(save(scene, FigureRequest("overlay", tmp_path / "fig.png"))) as picture:
        assert picture.info["Title"] == "Layer 2, head 1: what patch (row 4, column 5) attends to"
        assert picture.info["Software"] == f"Patchreach {__version__}"
    found = PdfReader(save(scene, FigureRequest("overlay", tmp_path / "fig.pdf"))).metadata
    assert found.title == "Layer 2, head 1: what patch (row 4, column 5) attends to"
    assert found.creator == f"Patchreach {__version__}"


def test_other_files_are_none_of_ours(tmp_path: Path) -> None:
    foreign = {
        "empty": b"",
        "text": b"hello",
        "svg": b"<svg xmlns='http://www.w3.org/2000/svg'><metadata/></svg>",
        "broken.svg": b"<svg <<<",
        "broken.png": b"\x89PNG\r\n\x1a\n" + b"\0" * 40,
        "broken.pdf": b"%PDF-1.4\ntrailer << /Root 1 0 R >>",
        "entities.svg": b'<!DOCTYPE svg [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><svg>&b;</svg>',
    }
    for name, content in foreign.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert read_provenance(path) is None, name
    Image.new("RGB", (4, 4)).save(tmp_path / "photo.png")
    assert read_provenance(tmp_path / "photo.png") is None
    assert read_provenance(tmp_path / "missing.png") is None
    assert read_provenance(tmp_path) is None


def test_half_a_figure_is_no_figure_or_a_whole_description(figure: Path) -> None:
    whole = read_provenance(figure)
    content = figure.read_bytes()
    for share in (0.01, 0.1, 0.5, 0.9):
        figure.write_bytes(content[: int(share * len(content))])
        assert read_provenance(figure) in (None, whole)


def figure_with(facts: object, folder: Path) -> Path:
    information = PngInfo()
    information.add_text(KEY, facts if isinstance(facts, str) else to_text(facts))
    path = folder / "made.png"
    Image.new("RGB", (2, 2)).save(path, pnginfo=information)
    return path


def test_a_later_format_is_left_alone(tmp_path: Path) -> None:
    assert read_provenance(figure_with({"patchreach": "9.0", "format": 1}, tmp_path)) is not None
    assert read_provenance(figure_with({"patchreach": "9.0", "format": 2}, tmp_path)) is None
    assert read_provenance(figure_with("[1, 2]", tmp_path)) is None
    assert read_provenance(figure_with("{not json", tmp_path)) is None
    assert read_provenance(figure_with("[" * 100_000, tmp_path)) is None


def test_values_of_the_wrong_kind_fall_back_to_defaults(tmp_path: Path) -> None:
    facts = {
        "patchreach": "1",
        "format": 1,
        "model": {"name": "sample", "weights": 7, "input_size": [0, 10**9]},
        "image": ["no"],
        "view": "everything",
        "selection": {
            "query": [1, -1],
            "pins": [[1, 2, 3], 1, {}],
            "layer": True,
            "head": -4,
            "fusion": {},
        },
        "display": {
            "opacity": float("nan"),
            "ring": 10**9,
            "grid": "yes",
            "colormap": "../jet",
            "theme": ["dark"],
            "unit": "px",
        },
    }
    found = restore(figure_with(json.dumps(facts), tmp_path))
    assert found.model == ModelRequest("sample")
    assert found.selection == SelectionValue()
    assert found.display == DisplayValue()
    assert (found.image, found.view) == ("", "overlay")


@pytest.mark.parametrize(
    ("written", "taken"),
    [
        ("resnet18", "resnet18"),
        ("torchvision/resnet18", "torchvision/resnet18"),
        ("net.onnx", ""),
        ("net.PT2", ""),
        ("../net", ""),
        ("/dev/zero", ""),
        (["resnet18"], ""),
    ],
)
def test_a_network_is_compared_with_by_its_name_alone(written: object, taken: str, tmp_path: Path) -> None:
    display = {"compare": written, "compare_weights": "\u00e9" * 200}
    facts = {"patchreach": "1", "format": 1, "model": {"name": "sample"}, "display": display}
    assert restore(figure_with(facts, tmp_path)).display.compare == taken


def test_a_figure_that_names_no_model_can_not_be_restored(tmp_path: Path) -> None:
    assert restore(figure_with({"patchreach": "1", "format": 1, "model": {"name": ""}}, tmp_path)) is None


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(
    st.fixed_dictionaries({"name": st.just("sample"), "weights": ANYTHING, "input_size": ANYTHING}),
    st.fixed_dictionaries(dict.fromkeys(("query", "pins", "layer", "head", "fusion", "direction"), ANYTHING)),
    st.fixed_dictionaries(
        dict.fromkeys(
            (
                *(
                    "protocol",
                    "opacity",
                    "grid",
                    "ring",
                    "theme",
                    "colormap",
                    "map",
                    "start_layer",
                    "map_class",
                ),
                *("x_measure", "y_measure", "kinds", "compare", "compare_weights", "stage", "likeness_of"),
            ),
            ANYTHING,
        )
    ),
)
def test_whatever_a_figure_says_the_views_can_be_composed(
    document, tmp_path_factory, model: dict, selection: dict, display: dict
) -> None:
    facts = {"patchreach": "1", "format": 1, "model": model, "selection": selection, "display": display}
    found = restore(figure_with(facts, tmp_path_factory.mktemp("any")))
    scene = compose(document, found.selection, found.display)
    assert scene.overlay is not None
    assert hash(found.selection) == hash(replace(found.selection))
