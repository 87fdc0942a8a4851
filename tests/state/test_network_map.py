"""The effective field of a network's stage over the model's picture, averaged over the open ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import timm
import torch

from viewer.attention.record import Provenance
from viewer.attention.sweep import measure_record
from viewer.backends.effective_field import effective_fields
from viewer.backends.effective_units import units_of_maps
from viewer.backends.model import Job
from viewer.backends.networks import network_fields, open_network
from viewer.backends.timm_model import wrap
from viewer.backends.torch_model import TorchModel
from viewer.errors import MapError
from viewer.images.decode import open_image
from viewer.images.preprocess import prepare
from viewer.state import comparison, maps
from viewer.state.averaged import MOST, Averaged, alike, shares
from viewer.state.display import DisplayValue
from viewer.state.documents import ImageDocument
from viewer.state.scene import SceneValue, compose
from viewer.state.selection import SelectionValue

NETWORK = "test_resnet"
DISPLAY = DisplayValue(
    map="effective field", compare=NETWORK, compare_weights="untrained", stage="layer2", protocol="original"
)
KEY = ("network field", NETWORK, "untrained")


@pytest.fixture(scope="module")
def model() -> TorchModel:
    torch.manual_seed(0)
    return wrap("test_vit", timm.create_model("test_vit", img_size=64), "cpu", Provenance("test_vit"))


@pytest.fixture(scope="module", autouse=True)
def read() -> Iterator[None]:
    comparison.keep(network_fields(NETWORK))
    yield
    del comparison._networks[NETWORK]


@pytest.fixture(scope="module")
def plain(model: TorchModel) -> ImageDocument:
    """A picture that nothing was worked out of yet, with another one beside it."""
    random = np.random.default_rng(0)
    first, second = (open_image(random.integers(0, 255, size, dtype=np.uint8)) for size in [(64, 64, 3)] * 2)
    record = model.attend(first)
    found = ImageDocument(0, first, "done", record, measure_record(record))
    return replace(found, strip=(found, ImageDocument(1, second)))


@pytest.fixture(scope="module")
def document(model: TorchModel, plain: ImageDocument) -> ImageDocument:
    return maps.mapped(plain, model, DISPLAY, Job())


def look(document: ImageDocument, display: DisplayValue = DISPLAY) -> SceneValue:
    return compose(document, replace(SelectionValue(), hovered=(0, 0)), display)


def test_it_is_the_mean_of_what_the_network_itself_gives(model, document) -> None:
    network = open_network(NETWORK, image_size=64, device="cpu", untrained=True)
    how = replace(model.preprocessing, mean=network.preprocessing.mean, std=network.preprocessing.std)
    pictures = [torch.from_numpy(prepare(one.image, how).tensor) for one in document.strip]
    units = units_of_maps(network.module, (64, 64), ["layer2"])
    (expected,) = effective_fields(network.module, pictures, units, Job())
    found = document.maps[KEY]
    assert found.fields["layer2"].images == expected.images == 2
    np.testing.assert_allclose(found.fields["layer2"].map, expected.map, rtol=1e-5)
    shown = look(document).overlay
    np.testing.assert_array_equal(shown.values, shares(expected.map, document.record.layout))
    assert shown.values.sum() == pytest.approx(1, abs=1e-5)
    assert shown.marked == (document.record.layout.patch_at(*expected.centre),)


def test_title_caption_and_read_out_say_what_it_is(document) -> None:
    scene = look(document)
    assert scene.overlay.title == (
        "Effective field of test_resnet layer2, mean of 2 pictures: what its middle unit depends on"
    )
    assert scene.overlay.caption.startswith(
        "Outlined: the patch with the middle unit, whose gradient this is, mean over 2 pictures, "
        "weights: random, as initialized, zero norms set to 1. "
    )
    field = document.maps[KEY].fields["layer2"]
    assert (
        f"The field: side {field.size:.0f} px (over 4.55 % of the largest gradient), sigma "
        f"{field.deviation[0]:.0f} × {field.deviation[1]:.0f} px, mean distance "
        f"{field.mean_distance:.0f} px. "
    ) in scene.overlay.caption
    assert "The middle unit of test_resnet layer2 depends on pixels" in scene.readout
    assert "px in theory" in scene.readout


def test_the_scatter_has_its_levels_whatever_the_map_is(model, plain) -> None:
    display = replace(DISPLAY, map="attention", stage="")
    assert maps.wanted(plain, display) == KEY
    found = maps.mapped(plain, model, display, Job())
    reference = look(found, display).scatter.reference("network effective")
    stages = [stage.name for stage in comparison.known(NETWORK).stages]
    fields = found.maps[KEY].fields
    expected = [fields[name].mean_distance for name in stages if name in fields]
    assert reference.y[~np.isnan(reference.y)][::2].tolist() == pytest.approx(expected)
    assert reference.label == (
        "effective fields of its stages, mean over 2 pictures, weights: random, as initialized, "
        "zero norms set to 1"
    )


def test_another_open_picture_makes_it_anew(document) -> None:
    assert maps.wanted(document, DISPLAY) is None
    more = replace(document, strip=(*document.strip, ImageDocument(2, document.image)))
    assert maps.wanted(more, DISPLAY) == KEY
    # Until that is there, the old one is shown.
    assert look(more).overlay.values is not None


def test_the_models_own_field_is_averaged_too(model, plain) -> None:
    display = DisplayValue(map="effective field")
    both = maps.mapped(plain, model, display, Job())
    single = [
        maps.mapped(replace(plain, image=one.image, strip=()), model, display, Job()) for one in plain.strip
    ]
    found = [document.maps[("effective field",)] for document in (both, *single)]
    assert [one.images for one in found] == [2, 1, 1]
    for layer in range(len(plain.record.layers)):
        mean = (found[1].fields[layer].map + found[2].fields[layer].map) / 2
        np.testing.assert_allclose(found[0].fields[layer].map, mean, rtol=1e-5)
    assert "whose vector's gradient this is, mean over 2 pictures" in look(both, display).overlay.caption


def test_pictures_with_input_sizes_of_their_own_are_left_out(model, plain) -> None:
    wide = ImageDocument(2, open_image(np.zeros((64, 96, 3), np.uint8)))
    document = replace(plain, strip=(*plain.strip, wide))
    whole = model.with_preprocessing(replace(model.preprocessing, crop_mode="whole"))
    assert len(alike(document, model)) == 3
    assert alike(document, whole) == [one.image for one in plain.strip]
    assert MOST >= 3


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"compare_weights": ""}, "it needs weights of test_resnet; choose some"),
        ({"stage": "layer9"}, "test_resnet has no stage layer9; it has conv1"),
    ],
)
def test_a_sentence_where_something_lacks(model, plain, changed, why) -> None:
    display = replace(DISPLAY, **changed)
    assert look(plain, display).overlay.blank.startswith(why)
    with pytest.raises(MapError, match=why):
        maps.mapped(plain, model, display, Job())


def test_a_what_if_does_not_change_the_network(document) -> None:
    changed = replace(document, record=replace(document.record, what_if=("uniform:layers=all",)))
    assert look(changed).overlay.blank == ("test_resnet is not changed by a what-if; show the model as it is")


def test_the_networks_fields_outlive_other_maps() -> None:
    found = {KEY: Averaged({}, ())}
    for number in range(5):
        found = maps.kept(found, ("rollout", "mean", number), number)
    assert KEY in found
    assert len(found) == 3
