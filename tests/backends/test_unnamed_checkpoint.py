"""Weights without the name of their architecture: what fits is found, and never picked where two do."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import timm
import torch

from tests.backends.timm_zoo import attending, randomize
from viewer import open_model
from viewer.backends import architectures
from viewer.backends.architectures import fitting
from viewer.backends.model import Job
from viewer.errors import Cancelled, UnnamedWeightsError

# Each beside others that are like it in all but one thing.
NEAR = (
    "vit_tiny_patch16_224",
    "vit_tiny_patch16_384",
    "deit_tiny_patch16_224",
    "deit_tiny_distilled_patch16_224",
    "vit_small_patch14_dinov2",
    "vit_small_patch14_reg4_dinov2",
    "vit_small_patch16_dinov3",
    "eva02_tiny_patch14_224",
    "eva02_tiny_patch14_336",
    "vit_wee_patch16_reg1_gap_256",
)


@pytest.fixture
def few(monkeypatch):
    """Look among a few names only: all there are take seconds, and one test does that."""
    monkeypatch.setattr(architectures, "model_names", lambda: ("sample", *NEAR, f"{NEAR[0]}.augreg_in21k"))


def weights(name, **arguments):
    """Return zeros in the shapes of an architecture."""
    shapes = architectures.made_for_shapes(name, **arguments).state_dict()
    return {key: torch.zeros(weight.shape) for key, weight in shapes.items()}


@pytest.mark.parametrize(
    ("name", "arguments", "found"),
    [
        ("vit_tiny_patch16_224", {}, ("vit_tiny_patch16_224", "deit_tiny_patch16_224")),
        ("vit_tiny_patch16_224", {"num_classes": 7}, ("vit_tiny_patch16_224", "deit_tiny_patch16_224")),
        ("vit_tiny_patch16_224", {"num_classes": 0}, ("vit_tiny_patch16_224", "deit_tiny_patch16_224")),
        ("vit_tiny_patch16_384", {}, ("vit_tiny_patch16_384",)),
        ("deit_tiny_distilled_patch16_224", {}, ("deit_tiny_distilled_patch16_224",)),
        ("vit_small_patch14_dinov2", {}, ("vit_small_patch14_dinov2",)),
        ("vit_small_patch14_reg4_dinov2", {}, ("vit_small_patch14_reg4_dinov2",)),
        ("vit_small_patch16_dinov3", {}, ("vit_small_patch16_dinov3",)),
        ("eva02_tiny_patch14_336", {}, ("eva02_tiny_patch14_336",)),
        # Another depth, another width, a size that none was made for, no transformer at all.
        ("vit_tiny_patch16_224", {"depth": 11}, ()),
        ("vit_tiny_patch16_224", {"embed_dim": 96}, ()),
        (
            "vit_tiny_patch16_224",
            {"img_size": 112},
            ("vit_tiny_patch16_224", "vit_tiny_patch16_384", "deit_tiny_patch16_224"),
        ),
        ("resnet18", {}, ()),
    ],
)
def test_what_fits_best_first(few, name, arguments, found):
    assert fitting(weights(name, **arguments), Job()) == found


@pytest.mark.parametrize("prefix", ["", "module.", "model.backbone."])
def test_prefixes_do_not_matter(few, prefix):
    state = weights("deit_tiny_distilled_patch16_224")
    state = {f"{prefix}{key}": value for key, value in state.items()}
    assert fitting(state, Job()) == ("deit_tiny_distilled_patch16_224",)


def test_the_only_one_that_fits_is_opened_and_said(few, tmp_path):
    path = tmp_path / "mine.pth"
    trained = timm.create_model("deit_tiny_distilled_patch16_224", pretrained=False, num_classes=3).eval()
    randomize(trained)
    torch.save(trained.state_dict(), path)
    model = open_model(path)
    assert model.name == "deit_tiny_distilled_patch16_224"
    assert model.notes == (
        "mine.pth does not say its architecture; only deit_tiny_distilled_patch16_224 of timm's has weights "
        "of these shapes.",
    )
    tensor = torch.randn(1, 3, 224, 224)
    record, wanted = model.attend(tensor), attending("m", trained).attend(tensor)
    np.testing.assert_array_equal(record.layers[3].matrix(1), wanted.layers[3].matrix(1))
    assert dataclasses.asdict(record.provenance)["weights"] == str(path)


def test_two_that_fit_are_never_picked_between(few, tmp_path):
    path = tmp_path / "mine.pth"
    torch.save(weights("vit_tiny_patch16_224"), path)
    with pytest.raises(UnnamedWeightsError) as caught:
        open_model(path)
    assert caught.value.candidates == ("vit_tiny_patch16_224", "deit_tiny_patch16_224")
    assert str(caught.value) == (
        f"{path} does not say its architecture, and its weights fit 2, which no shape tells apart: "
        f"vit_tiny_patch16_224, deit_tiny_patch16_224. Say which: --model vit_tiny_patch16_224 "
        f"--weights {path}"
    )


def test_none_that_fits(few, tmp_path):
    path = tmp_path / "mine.pth"
    torch.save({"a": torch.zeros(1), "b": torch.zeros(1)}, path)
    with pytest.raises(UnnamedWeightsError) as caught:
        open_model(path)
    assert caught.value.candidates == ()
    assert str(caught.value) == (
        f"{path} holds 2 weights but not the architecture they belong to, and of those in timm that can be "
        f"shown, none has weights of these shapes. Join it with one: --model NAME --weights {path} "
        "(`patchreach models` lists the names)."
    )


def test_looking_can_be_cancelled(few):
    job = Job(lambda doing, share: job.cancel() if share and share > 0.3 else None)
    with pytest.raises(Cancelled):
        fitting({"a": torch.zeros(1)}, job)


@pytest.mark.parametrize("name", ["vit_small_patch14_reg4_dinov2", "pvt_v2_b0", "levit_128s"])
def test_among_all_there_are(name):
    """Of the hundreds that can be opened by name."""
    seen = []
    found = fitting(weights(name), Job(lambda doing, share: seen.append(share)))
    assert found == (name,)
    assert len(seen) > 200
    assert seen == sorted(seen)
