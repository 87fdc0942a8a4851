"""What is found in a small model of some of timm's families; the whole table takes minutes."""

from __future__ import annotations

import pytest
import timm

from viewer.backends.coverage import cover, families
from viewer.backends.model import Job
from viewer.errors import Cancelled


def test_families_are_those_of_timm():
    assert families() == tuple(timm.list_modules())
    assert families("swin") == ("swin_transformer", "swin_transformer_v2", "swin_transformer_v2_cr")
    assert families("iforme?") == ("iformer",)
    assert families("no such family") == ()


# family: layers, kinds, grids of the queries with the number of groups
ATTENDING = {
    "iformer": (5, {"self"}, {(14, 14, 1), (7, 7, 1)}),
    "efficientvit_msra": (24, {"self"}, {(14, 14, 4), (7, 7, 1), (4, 4, 1)}),
    "mobilevit": (9, {"self"}, {(32, 32, 4), (16, 16, 4), (8, 8, 4)}),
    "mvitv2": (10, {"self"}, {(56, 56, 1), (28, 28, 1), (14, 14, 1), (7, 7, 1)}),
    "edgenext": (3, {"channel"}, {(0, 0, 1)}),
    "xcit": (14, {"channel", "pool"}, {(0, 0, 1)}),
}


@pytest.mark.parametrize("family", ATTENDING)
def test_families_that_attend_are_verified(family):
    layers, kinds, grids = ATTENDING[family]
    found = cover(family, Job())
    assert found.record is not None, found.refusal
    assert found.attends and not found.failed and found.record.verified
    assert len(found.record.layers) == layers
    assert {layer.kind for layer in found.record.layers} == kinds
    assert {(*layer.query_layout.grid, layer.scores.groups) for layer in found.record.layers} == grids


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("starnet", "It is a convolutional network: "),
        ("efficientvit_mit", "multiply its features with one another, and no softmax follows, as in linear"),
        ("efficientvim", "6 softmaxes (the first in stages.0.blocks.0.mixer) weigh values, but come from no"),
        (
            "coat",
            "26 softmaxes (the first in serial_blocks1.0.factoratt_crpe) weigh values, but come from no",
        ),
        ("resnest", "4 softmaxes (the first in layer1.0.conv2) meet no matrix product, as in gates"),
    ],
)
def test_families_that_do_not_attend_say_what_they_do(family, reason):
    found = cover(family, Job())
    assert (found.record, found.attends, found.failed) == (None, False, False)
    assert reason in found.refusal


def test_the_smallest_model_is_taken_that_attends():
    assert cover("fastvit", Job()).model == "fastvit_mci0"  # fastvit_t8 is smaller


def test_a_family_whose_models_can_not_be_made_is_no_reason_to_stop(monkeypatch):
    def broken(name, **arguments):
        raise ZeroDivisionError("no")

    monkeypatch.setattr(timm, "create_model", broken)
    found = cover("iformer", Job())
    assert (found.model, found.record, found.failed) == ("", None, True)
    assert found.refusal == "ZeroDivisionError: no"


def test_a_job_can_be_cancelled():
    job = Job()
    job.cancel()
    with pytest.raises(Cancelled):
        cover("iformer", job)
