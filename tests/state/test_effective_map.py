"""The effective field as a map over the patches, and its distance on the scatter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import timm
import torch

from tests.state.records import document_of, random_record
from viewer.attention.layout import TokenLayout
from viewer.attention.record import Provenance
from viewer.attention.sweep import measure_record
from viewer.backends.model import Job
from viewer.backends.timm_model import wrap
from viewer.backends.torch_model import TorchModel
from viewer.errors import MapError
from viewer.images.decode import open_image
from viewer.state import maps
from viewer.state.averaged import shares
from viewer.state.display import DisplayValue
from viewer.state.documents import ImageDocument
from viewer.state.scene import compose
from viewer.state.selection import HeadRef, SelectionValue

DISPLAY = DisplayValue(map="effective field")


@pytest.fixture(scope="module")
def model() -> TorchModel:
    torch.manual_seed(0)
    return wrap("test_vit", timm.create_model("test_vit", img_size=64), "cpu", Provenance("test_vit"))


@pytest.fixture(scope="module")
def document(model: TorchModel) -> ImageDocument:
    pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    image = open_image(pixels)
    record = model.attend(image)
    found = ImageDocument(0, image, "done", record, measure_record(record))
    return maps.mapped(found, model, DISPLAY, Job())


def look(layer: int) -> SelectionValue:
    return replace(SelectionValue(), hovered=(0, 0), head=HeadRef(layer, 0))


def test_every_layer_has_a_map_that_sums_to_one(document: ImageDocument) -> None:
    for layer in document.record.layers:
        shown = compose(document, look(layer.index), DISPLAY).overlay
        assert shown.blank == ""
        assert shown.values.shape == document.record.grid == (4, 4)
        assert shown.values.sum() == pytest.approx(1, abs=1e-5)
        # The residual stream keeps most of a patch's own picture.
        assert np.unravel_index(shown.values.argmax(), (4, 4)) == (2, 2)
        assert shown.marked == ((2, 2),)


def test_words_name_the_measure_and_its_block(document: ImageDocument) -> None:
    scene = compose(document, look(1), DISPLAY)
    assert scene.overlay.title == (
        "Effective field behind the block of layer 1: what patch (row 2, column 2) depends on"
    )
    assert (
        "Behind layer 1 (blocks.1), the vector of the middle patch (2, 2) depends on pixels" in scene.readout
    )


def test_the_scatter_has_its_distance_for_each_layer(document: ImageDocument) -> None:
    scene = compose(document, look(0), DISPLAY)
    found = scene.scatter.reference("effective")
    assert found.points
    assert found.x.tolist() == list(range(len(document.record.layers)))
    assert ((found.y > 0) & (found.y < 64)).all()
    in_patches = compose(document, look(0), replace(DISPLAY, unit="patches")).scatter.reference("effective")
    assert in_patches.y == pytest.approx(found.y / 16)
    assert (
        compose(document, look(0), replace(DISPLAY, y_measure="entropy_nats")).scatter.reference("effective")
        is None
    )


def test_nothing_is_left_to_do_once_it_is_there(document: ImageDocument) -> None:
    assert maps.wanted(document, DISPLAY) is None
    assert maps.wanted(replace(document, maps={}), DISPLAY) == ("effective field",)
    before = compose(replace(document, maps={}), look(0), DISPLAY)
    assert before.overlay.title == "Effective field behind the block of layer 0: being worked out"
    assert before.scatter.reference("effective") is None


def test_without_gradients_a_sentence_says_why(model: TorchModel) -> None:
    record = random_record()
    record = replace(record, provenance=replace(record.provenance, backend="onnx"))
    with pytest.raises(MapError, match="it needs gradients, which ONNX Runtime does not compute"):
        maps.mapped(document_of(record), model, DISPLAY, Job())


def test_pixels_are_summed_over_patches() -> None:
    layout = TokenLayout.regular((2, 3), (4.0, 2.0), ())
    pixels = np.arange(48, dtype=np.float64).reshape(8, 6)
    expected = pixels.reshape(2, 4, 3, 2).sum(axis=(1, 3)) / pixels.sum()
    assert shares(pixels, layout) == pytest.approx(expected)
