"""Models that treat one picture unlike another: each record says what is true of its own picture."""

from __future__ import annotations

import numpy as np
import pytest
import timm
import torch
from torch import nn
from torch.nn import functional

from tests.backends.timm_zoo import attending, fused, randomize
from viewer.errors import LayoutError, NoAttentionError

BRIGHT = torch.ones(1, 3, 64, 64)
DARK = -torch.ones(1, 3, 64, 64)
NOISE = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
SHIFT = 2  # patches, of 4 x 4


class Moved(nn.Module):
    """A small transformer whose tokens are moved as `move(tokens, picture)` says, before it attends."""

    def __init__(self, move, attend=functional.scaled_dot_product_attention):
        super().__init__()
        self.cut = nn.Conv2d(3, 16, 16, 16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.move, self.attend = move, attend
        self.num_classes, self.pretrained_cfg = 0, {"input_size": (3, 64, 64)}
        randomize(self)

    def forward(self, x):
        tokens = self.move(self.cut(x).flatten(2).transpose(1, 2), x)
        q, k, v = self.qkv(tokens).reshape(1, -1, 3, 2, 8).permute(2, 0, 3, 1, 4)
        return self.out(self.attend(q, k, v).transpose(1, 2).reshape(1, -1, 16)).mean(1)


def order(bright):
    """Return patch numbers in token order: rolled where the picture is bright."""
    patches = np.arange(16)
    return np.roll(patches, SHIFT) if bright else patches


def by_branch(tokens, picture):
    return tokens.roll(SHIFT, 1) if picture.mean() > 0 else tokens


def by_number(tokens, picture):
    return tokens.roll(int(picture.mean() > 0) * SHIFT, 1)


def by_index(tokens, picture):
    shift = (picture.mean() > 0).long() * SHIFT
    return tokens[:, (torch.arange(16) - shift) % 16]


def by_gather(tokens, picture):
    shift = (picture.mean() > 0).long() * SHIFT
    return tokens.gather(1, ((torch.arange(16) - shift) % 16)[None, :, None].expand(1, 16, 16))


def by_a_list_from_python(tokens, picture):
    chosen = np.argsort(np.roll(np.arange(16), -SHIFT)) if picture.numpy().mean() > 0 else np.arange(16)
    return tokens[:, torch.tensor(chosen.tolist())]


def by_numbers_read(tokens, picture):
    shift = int(picture.mean().item() > 0) * SHIFT
    return tokens.index_select(1, torch.tensor([(place - shift) % 16 for place in range(16)]))


@pytest.mark.parametrize(
    "move", [by_branch, by_number, by_index, by_gather, by_a_list_from_python, by_numbers_read]
)
@pytest.mark.parametrize("first", ["bright", "dark"])
def test_tokens_that_move_with_the_picture(move, first):
    model = attending("moved", Moved(move).eval())
    pictures = [(True, BRIGHT), (False, DARK), (True, BRIGHT), (False, DARK), (True, BRIGHT)]
    for bright, picture in pictures if first == "bright" else pictures[1:]:
        layout = model.attend(picture).layers[0].key_layout
        assert np.array_equal(np.argsort(order(bright)), layout.patch_tokens)


def test_tokens_that_stay_are_traced_once(monkeypatch):
    model = attending("still", Moved(lambda tokens, picture: tokens.roll(SHIFT, 1)).eval())
    model.attend(NOISE)
    traced = []
    monkeypatch.setattr(model.runner, "_traced", lambda *given: traced.append(given))
    for picture in (BRIGHT, DARK, NOISE):
        model.attend(picture)
    assert traced == []


@pytest.mark.parametrize("first", [BRIGHT, DARK])
def test_numbers_that_are_not_finite(first):
    model = attending("broken", Moved(_nan_where_bright).eval())
    for picture in (first, BRIGHT, DARK, BRIGHT, NOISE - 5):
        record = model.attend(picture)
        bright = bool(picture.mean() > 0)
        assert record.verified is not bright
        assert record.layers[0].verdict.reason == (
            "the model's numbers are not finite for this picture" if bright else ""
        )
        assert record.output_unchanged is True


def _nan_where_bright(tokens, picture):
    return tokens + (-picture.mean()).sqrt().item() * 0


def test_a_first_picture_without_finite_numbers_hides_no_changed_output():
    """A module that notices the tap changes its output; that is said also after a picture full of NaN."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    def shy(q, k, v):
        output = functional.scaled_dot_product_attention(q, k, v)
        return output if _get_current_dispatch_mode() is None else output * 2

    model = attending("shy", Moved(_nan_where_bright, shy).eval())
    assert model.attend(BRIGHT).output_unchanged is True
    assert model.attend(DARK).output_unchanged is False
    assert not model.attend(DARK).verified


def softmaxes(q, k, v):
    weights = (q @ k.transpose(-2, -1)).softmax(-1)
    return weights @ (k @ q.transpose(-2, -1)).softmax(-1) @ v


def subtracted(q, k, v):
    return functional.scaled_dot_product_attention(q, k, v) - 0.5 * functional.scaled_dot_product_attention(
        k, q, v
    )


def subtracted_heads(q, k, v):
    output = functional.scaled_dot_product_attention(q, k, v).unflatten(1, (1, 2))
    return (output[:, :, :1] - 0.3 * output[:, :, 1:]).expand(1, 1, 2, 16, 8).flatten(1, 2)


def subtracted_weights(q, k, v):
    return ((q @ k.transpose(-2, -1)).softmax(-1) - 0.5 * (k @ q.transpose(-2, -1)).softmax(-1)) @ v


ALONE = "so neither map is what the model uses alone"
MIXED = {
    "product of two": (softmaxes, f"the weights of two attentions are multiplied in the model, {ALONE}"),
    "outputs subtracted": (subtracted, f"the outputs of two attentions are subtracted in the model, {ALONE}"),
    "heads subtracted": (subtracted_heads, "the outputs of two attentions are subtracted"),
    "weights subtracted": (subtracted_weights, "the weights of two attentions are subtracted"),
    "over the queries": (
        lambda q, k, v: (q @ k.transpose(-2, -1)).softmax(-2) @ v,
        "normalizes its weights over the queries, not over the keys",
    ),
}


@pytest.mark.parametrize("name", MIXED)
def test_maps_the_model_does_not_use_alone_are_refused(name):
    attend, reason = MIXED[name]
    model = attending("mixed", Moved(lambda tokens, picture: tokens, attend).eval())
    for _ in range(2):
        with pytest.raises(LayoutError, match=reason):
            model.attend(NOISE)


def test_weights_turned_over_are_not_verified():
    turned = Moved(
        lambda tokens, picture: tokens,
        lambda q, k, v: (k @ q.transpose(-2, -1)).softmax(-1).transpose(-2, -1) @ v,
    ).eval()
    try:
        record = attending("turned", turned).attend(NOISE)
    except (LayoutError, NoAttentionError):
        return
    assert not record.verified


@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize("name", ["vit_dlittle_patch16_reg1_gap_256", "vit_dpwee_patch16_reg1_gap_256"])
def test_differential_attention_is_refused_however_it_is_computed(name, is_fused):
    with fused(is_fused):
        built = timm.create_model(name, img_size=64, depth=2, embed_dim=64, num_heads=2).eval()
    what = "outputs" if is_fused else "weights"
    with pytest.raises(LayoutError, match=f"the {what} of two attentions are subtracted in blocks.0"):
        attending(name, built).attend(NOISE)
