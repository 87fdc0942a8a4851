"""What becomes of layers whose tokens have no known place, or none on a grid."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.backends.families import lattice, picture, run_of, whole
from viewer.backends.model import Job
from viewer.backends.torch_runner import TorchRunner
from viewer.backends.torch_sizes import SizedModels
from viewer.errors import LayoutError

SIZE = (64, 96)


class Chain(nn.Module):
    """Attention, something done to the tokens, attention."""

    def __init__(self, between):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Conv2d(3, 8, 16, 16)
        self.between = between

    def attend(self, tokens):
        heads = tokens.reshape(1, -1, 2, 4).transpose(1, 2)
        return (
            functional.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).reshape(tokens.shape)
        )

    def forward(self, x):
        tokens = self.attend(self.embed(x).flatten(2).mT)
        return self.attend(self.between(tokens))


def test_a_layer_whose_places_got_lost_is_left_out_and_noted():
    run = run_of(Chain(lambda tokens: tokens.cumsum(1)), picture(*SIZE))
    (layer,) = run.layers
    assert layer.index == 0
    np.testing.assert_allclose(layer.key_layout.positions, whole(lattice(4, 6, 16))[0])
    assert run.notes == (
        "The attention of attention 1 is left out: the trace of positions stopped at the operation 'cumsum'.",
    )


def test_layers_left_out_for_the_same_reason_are_counted():
    class Long(Chain):
        def forward(self, x):
            return self.attend(super().forward(x))

    run = run_of(Long(lambda tokens: tokens.cumsum(1)), picture(*SIZE))
    assert len(run.layers) == 1
    (note,) = run.notes
    assert note.startswith("The attention of attention 1 and 1 more are left out: ")


def test_a_later_picture_has_the_same_layers_and_notes():
    runner = TorchRunner("chain", SizedModels("chain", Chain(lambda tokens: tokens.cumsum(1)), SIZE), "cpu")
    first, second = (runner.run(picture(*SIZE, seed=seed), Job()) for seed in (1, 2))
    assert [layer.name for layer in first.layers] == [layer.name for layer in second.layers]
    assert first.notes == second.notes


def test_tokens_picked_from_the_grid_keep_their_heads_but_have_no_patches():
    run = run_of(Chain(lambda tokens: tokens[:, :23]), picture(*SIZE))
    first, second = run.layers
    assert first.key_layout.grid == (4, 6)
    assert (second.heads, second.scores.groups, second.kind) == (2, 1, "self")
    assert second.verdict.verified
    assert (second.query_layout.grid, second.key_layout.grid) == ((0, 0), (0, 0))
    assert second.note.startswith("its tokens have no patches on the picture: 23 tokens do not fill a grid")
    assert second.weights(0).shape == (2, 23)


@pytest.mark.parametrize(
    ("averaged", "reason"),
    [
        (lambda tokens: tokens[:, :12].mean(1, keepdim=True), "several of its keys sit at the same place"),
        (lambda tokens: tokens.mean(1, keepdim=True), "its keys have no place"),
    ],
)
def test_tokens_at_the_same_place_are_left_out(averaged, reason):
    """Where tokens were averaged, windows can't be told from heads."""
    run = run_of(Chain(lambda tokens: averaged(tokens).expand(-1, 5, -1)), picture(*SIZE))
    assert len(run.layers) == 1
    (note,) = run.notes
    assert reason in note


@pytest.mark.parametrize(
    ("lose", "reason"),
    [
        (lambda maps: maps.cumsum(2), "the trace of positions stopped at the operation 'cumsum'"),
        (lambda maps: torch.ones_like(maps), "its keys have no place on the picture"),
        (lambda maps: maps[..., :2, :2], "2 x 2 patches of 16 x 16 px do not cover a picture of 64 x 96 px"),
    ],
)
def test_a_model_without_any_place_is_refused_with_the_reason(lose, reason):
    class Lost(Chain):
        def forward(self, x):
            return self.attend(lose(self.embed(x)).flatten(2).mT)

    with pytest.raises(LayoutError, match="attention 0") as caught:
        run_of(Lost(None), picture(*SIZE))
    assert reason in str(caught.value)
