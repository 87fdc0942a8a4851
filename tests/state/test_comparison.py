"""A convolutional network's stages beside the heads: levels, words, and what does not compare."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.state.records import document_of, mixed_record, record_of
from viewer.attention.distance import uniform_distance
from viewer.backends.effective_field import EffectiveField
from viewer.backends.network_fields import STAGE, FieldLayer, NetworkFields
from viewer.state import comparison
from viewer.state.averaged import Averaged
from viewer.state.display import DisplayValue
from viewer.state.readout import readout
from viewer.state.scatter import Scatter, scatter
from viewer.state.selection import HeadRef, SelectionValue

FIELDS = {"conv1": 7, "layer1": 48, "layer2": 80, "layer4": 900}


@pytest.fixture(autouse=True)
def network(monkeypatch: pytest.MonkeyPatch) -> NetworkFields:
    monkeypatch.setattr(comparison, "_networks", {})
    stages = tuple(
        FieldLayer(name, STAGE, None, None, None, (4.0, 4.0), (float(size), float(size)), (0.5, 0.5), False)
        for name, size in FIELDS.items()
    )
    found = NetworkFields("net", "torch", stages)
    comparison.keep(found)
    return found


def identity_and_uniform() -> torch.Tensor:
    """Two heads on a 14 x 14 grid: one stays where it is, one looks everywhere."""
    return torch.stack([torch.eye(196), torch.full((196, 196), 1 / 196)])


def describe(**display: object) -> Scatter:
    document = document_of(record_of([identity_and_uniform()] * 2, (14, 14), ()))
    return scatter(document, None, SelectionValue(), DisplayValue(compare="net", **display))


def test_a_level_for_each_stage_across_the_plot() -> None:
    reference = describe().reference("network")
    levels = reference.y.reshape(-1)[~np.isnan(reference.y)].reshape(-1, 2)
    assert (levels[:, 0] == levels[:, 1]).all()
    # 48 and 80 px are one and two stacked 3x3 convolutions over 16 px patches.
    assert levels[:, 0] == pytest.approx([0, 16.698, 28.831, 116.492], abs=1e-3)
    assert np.isinf(reference.x[~np.isnan(reference.x)]).all()


def test_levels_follow_the_unit() -> None:
    reference = describe(unit="patches").reference("network")
    assert reference.y[-1] == pytest.approx(7.28076, abs=1e-5)


def test_how_many_heads_are_shorter_is_told() -> None:
    told = describe().reference("network").told.splitlines()
    assert told[0] == "conv1: field 7 px, as uniform attention 0.0 px; 0 of 4 heads are shorter"
    assert told[1] == (
        "layer1: field 48 px, as uniform attention 16.7 px; 2 of 4 heads are shorter (layer/head 0/0, 1/0)"
    )
    # Uniform heads reach as far as a field that covers all, and no less.
    assert "2 of 4 heads are shorter" in told[3]


def test_levels_that_lie_close_share_their_words() -> None:
    notes = describe().reference("network").notes
    assert [words for _, words in notes] == [
        *("conv1, field 7 px", "layer1, field 48 px", "layer2, field 80 px", "layer4, field 900 px")
    ]
    comparison.keep(NetworkFields("net", "torch", comparison.known("net").stages[2:] * 2))
    found = describe(protocol="original").reference("network").notes
    assert [words for _, words in found] == [
        *("layer2, layer2: fields 80, 80 px", "layer4, layer4: fields 900, 900 px")
    ]


def test_only_distances_compare() -> None:
    found = describe(y_measure="entropy_nats")
    assert found.reference("network") is None
    assert not any("net" in words for words in found.missing)


def test_what_is_still_being_read_is_said() -> None:
    comparison._networks.clear()
    found = describe()
    assert found.reference("network") is None
    assert "the layers of net are being read" in found.missing


def test_layers_with_grids_of_their_own_do_not_compare() -> None:
    document = document_of(mixed_record())
    found = scatter(document, None, SelectionValue(), DisplayValue(compare="net"))
    assert "no levels of net: the layers differ in their patches" in found.missing


def test_the_same_reference_while_the_mouse_moves() -> None:
    document = document_of(record_of([identity_and_uniform()], (14, 14), ()))
    display = DisplayValue(compare="net")
    first, second = (scatter(document, None, SelectionValue(), display) for _ in range(2))
    assert first.reference("network") is second.reference("network")


def test_a_covering_field_is_uniform_attention() -> None:
    document = document_of(record_of([identity_and_uniform()], (14, 14), ()))
    found = comparison.levels(document.record, document.measures, DisplayValue(compare="net"))
    assert found[-1].distance == pytest.approx(uniform_distance(document.record.layout))
    assert [level.shorter for level in found] == [(), ((0, 0),), ((0, 0),), ((0, 0),)]


def test_effective_fields_are_lines_of_their_own() -> None:
    assert describe(compare_weights="untrained").reference("network effective") is None
    edge = np.zeros((9, 9))
    edge[4, 0] = edge[4, 8] = 1.0
    found = Averaged({"layer2": EffectiveField("layer2", edge, (4.5, 4.5), 2)}, (0, 1), "some.pth")
    document = document_of(record_of([identity_and_uniform()], (14, 14), ()))
    document = replace(document, maps={("network field", "net", "some.pth"): found})
    display = DisplayValue(compare="net", compare_weights="some.pth")
    shown = scatter(document, None, SelectionValue(), display)
    reference = shown.reference("network effective")
    assert reference.y.tolist() == [4.0, 4.0]
    assert reference.notes == ((4.0, "layer2, effective"),)
    assert reference.label == "effective fields of its stages, mean over 2 pictures, weights: some.pth"
    assert reference.told == "layer2: depends on pixels 4.0 px away on average, by gradient"
    assert scatter(document, None, SelectionValue(), display).reference("network effective") is reference
    in_patches = scatter(document, None, SelectionValue(), replace(display, unit="patches"))
    assert in_patches.reference("network effective").y.tolist() == [0.25, 0.25]
    failed = replace(document, maps={("network field", "net", "some.pth"): "there is no such file"})
    missing = scatter(failed, None, SelectionValue(), display).missing
    assert "no effective fields of net: there is no such file" in missing


def test_stages_that_lie_close_share_their_words() -> None:
    levels = [(30.0, "layer3"), (10.0, "conv1"), (11.0, "layer1"), (12.0, "layer2")]
    assert comparison.shared_words(levels) == [(10.0, "conv1 to layer2"), (30.0, "layer3")]
    mixed = [(10.0, "conv1"), (30.0, "layer1"), (10.0, "layer2"), (29.0, "layer3")]
    assert comparison.shared_words(mixed) == [(10.0, "conv1, layer2"), (29.0, "layer1, layer3")]


def test_the_read_out_places_the_selected_head() -> None:
    document = document_of(record_of([identity_and_uniform()], (14, 14), ()))
    words = []
    for head in (0, 1, None):
        shown = SelectionValue(head=HeadRef(0, head))
        words.append(readout(document, None, shown, DisplayValue(compare="net")))
    assert "Beside net it reaches at least as far as conv1 (field 7 px) and less far than layer1" in words[0]
    assert words[1].endswith("Beside net it reaches at least as far as layer4 (field 900 px).")
    assert "Beside" not in words[2]
