"""A checkpoint that was trained with Context Broadcasting opens with it, where its configuration says so."""

from __future__ import annotations

import json

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

from tests.backends.what_if_models import VIT, Mlp
from viewer.backends.checkpoint_config import read_config
from viewer.backends.opening import open_model
from viewer.errors import ModelFileError

NAME, SIZE = "test_vit", 160


@pytest.fixture(scope="module")
def state():
    torch.manual_seed(5)
    return timm.create_model(NAME, pretrained=False).state_dict()


@pytest.fixture
def checkpoint(tmp_path, state):
    """Write the weights, with metadata of their own and a config.json beside them."""

    def write(metadata=None, config=None, state=state):
        path = tmp_path / "trained.safetensors"
        save_file(state, path, metadata)
        if config is not None:
            (tmp_path / "config.json").write_text(json.dumps(config))
        return path

    return write


def opened(path):
    return open_model(NAME, path, device="cpu")


def picture():
    return torch.randn(1, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))


def by_hand(state, strength):
    """The same weights in a model whose MLPs were written with Context Broadcasting."""
    module = timm.create_model(NAME, pretrained=False).eval()
    module.load_state_dict(state)
    for block in module.blocks:
        block.mlp = Mlp(block.mlp, strength)
    with torch.no_grad():
        return module(picture())[0].numpy()


SAID = [
    ({"context_broadcasting": "true"}, None, 0.5),
    ({"context_broadcasting": "0.25"}, None, 0.25),
    (None, {"architecture": NAME, "model_args": {"context_broadcasting": True}}, 0.5),
    (None, {"architecture": NAME, "context_broadcasting": 0.3}, 0.3),
    # Its own metadata counts.
    ({"context_broadcasting": "0.25"}, {"context_broadcasting": True}, 0.25),
]


@pytest.mark.parametrize(("metadata", "config", "strength"), SAID)
def test_it_opens_as_it_was_trained(checkpoint, state, metadata, config, strength):
    path = checkpoint(metadata, config)
    model = opened(path)
    record = model.attend(picture())
    np.testing.assert_allclose(record.output, by_hand(state, strength), atol=1e-5)
    # It is the model, and no what-if.
    assert record.what_if == ()
    where = "its metadata" if metadata else "config.json beside it"
    assert record.notes[0] == (
        f"trained.safetensors was trained with Context Broadcasting (strength {strength:g}), as {where} "
        "says, so it is part of the model, after the MLP of every block."
    )
    assert record.verified


@pytest.mark.parametrize("config", [None, {"architecture": NAME}, {"context_broadcasting": False}, [1, 2]])
def test_without_a_word_of_it_nothing_is_added(checkpoint, state, config):
    path = checkpoint(None, config)
    record = opened(path).attend(picture())
    assert not any("Context Broadcasting" in note for note in record.notes)
    assert np.abs(record.output - by_hand(state, 0.5)).max() > 1e-4


@pytest.mark.parametrize("said", ["often", 1.5, [0.5], -1])
def test_what_can_not_be_understood_is_refused(checkpoint, said):
    path = checkpoint(None, {"context_broadcasting": said})
    with pytest.raises(ModelFileError, match="neither true, false nor a strength from 0 to 1"):
        opened(path)


def test_a_config_of_another_program_is_left_alone(checkpoint, tmp_path):
    path = checkpoint()
    (tmp_path / "config.json").write_text("{not json")
    assert read_config(path).broadcasting == 0


def test_of_several_architectures_that_fit_the_configuration_names_one(checkpoint):
    fits_many = timm.create_model(VIT, pretrained=False).state_dict()
    path = checkpoint(None, {"architecture": VIT, "context_broadcasting": True}, fits_many)
    model = open_model(path, device="cpu")
    assert model.name == VIT
    assert "its configuration says vit_tiny_patch16_224" in model.notes[0]
    assert "was trained with Context Broadcasting (strength 0.5)" in model.notes[1]
