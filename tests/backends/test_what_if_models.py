"""What-ifs give what hand-made modules with the same change give, and leave honest records."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import timm
import torch
from torch import nn

from tests.backends.what_if_models import (
    SWIN,
    VIT,
    Attention,
    Mlp,
    Skipped,
    by_hand,
    changed,
    hops,
    opened,
    picture,
)
from viewer.attention.record import Provenance
from viewer.backends.model import Job
from viewer.backends.timm_model import wrap
from viewer.backends.torch_runner import TorchRunner
from viewer.backends.torch_sizes import SizedModels
from viewer.backends.what_if import parse
from viewer.errors import InputError

WIDTH = 16
PREFIX = 2  # class token and one register


@pytest.fixture(scope="module", params=[True, False], ids=["fused", "unfused"])
def vit(request):
    return opened(VIT, request.param)


@pytest.fixture(scope="module", params=[True, False], ids=["fused", "unfused"])
def swin(request):
    return opened(SWIN, request.param)


def same(record, expected, model):
    plain = model.attend(picture(model.name)).output
    assert np.abs(record.output - expected[0]).max() <= 1e-5
    # The change is no small one, so that equal outputs mean something.
    assert np.abs(record.output - plain).max() > 1e-3
    assert record.verified


def attend(model, *texts):
    return changed(model, *texts).attend(picture(model.name))


def replaced(layers, **options):
    def replace(module):
        for layer in layers:
            module.blocks[layer].attn = Attention(module.blocks[layer].attn, **options)

    return replace


def test_context_broadcasting(vit):
    def replace(module):
        for block in module.blocks:
            block.mlp = Mlp(block.mlp)

    record = attend(vit, "cb")
    same(record, by_hand(vit, replace), vit)


def test_context_broadcasting_of_a_strength_in_some_layers(vit):
    def replace(module):
        module.blocks[0].mlp = Mlp(module.blocks[0].mlp, 0.8)
        module.blocks[2].mlp = Mlp(module.blocks[2].mlp, 0.8)

    same(attend(vit, "cb:layers=0+2,strength=0.8"), by_hand(vit, replace), vit)


def test_context_broadcasting_over_all_tokens_of_all_windows(swin):
    def replace(module):
        for stage in module.layers:
            for block in stage.blocks:
                block.mlp = Mlp(block.mlp)

    same(attend(swin, "cb"), by_hand(swin, replace), swin)


def test_uniform_attention(vit):
    record = attend(vit, "uniform:layers=1")
    uniform = replaced([1], alter=lambda logits: torch.full_like(logits, 1 / logits.shape[-1]))
    same(record, by_hand(vit, uniform), vit)
    tokens = record.layers[1].scores.keys
    np.testing.assert_allclose(record.layers[1].matrix(2), 1 / tokens, rtol=1e-5)
    # Before the change all is as it was, after it the layers see other tokens.
    plain = vit.attend(picture(VIT))
    np.testing.assert_array_equal(record.layers[0].matrix(0), plain.layers[0].matrix(0))
    assert np.abs(record.layers[2].matrix(0) - plain.layers[2].matrix(0)).max() > 1e-4


def test_uniform_attention_in_one_head(vit):
    def alter(logits):
        weights = logits.softmax(dim=-1)
        weights[:, 1] = 1 / logits.shape[-1]
        return weights

    record = attend(vit, "uniform:layer=2,head=1")
    same(record, by_hand(vit, replaced([2], alter=alter)), vit)
    plain = vit.attend(picture(VIT))
    np.testing.assert_allclose(record.layers[2].matrix(0), plain.layers[2].matrix(0), atol=1e-6)


@pytest.mark.parametrize("k", [0, 1, 3])
def test_attention_limited_to_hops(vit, k):
    far = hops(PREFIX) > k
    record = attend(vit, f"local:hops={k}")
    local = replaced(range(4), alter=lambda logits: logits.masked_fill(far, -torch.inf).softmax(dim=-1))
    same(record, by_hand(vit, local), vit)
    # Out of reach, and so no number; the prefix tokens stay.
    np.testing.assert_array_equal(np.isnan(record.layers[3].matrix(0)), far.numpy())
    assert record.layers[0].limited


def test_hops_in_some_heads(vit):
    far = hops(PREFIX) > 1

    def alter(logits):
        logits = logits.clone()
        logits[:, [0, 2]] = logits[:, [0, 2]].masked_fill(far, -torch.inf)
        return logits.softmax(dim=-1)

    record = attend(vit, "local:layer=1,heads=0+2,hops=1")
    same(record, by_hand(vit, replaced([1], alter=alter)), vit)


def test_temperature(vit):
    record = attend(vit, "temperature:layers=0-1,t=3")
    flat = replaced([0, 1], alter=lambda logits: (logits / 3).softmax(dim=-1))
    same(record, by_hand(vit, flat), vit)


def test_temperature_of_one_head(vit):
    def alter(logits):
        return (logits / torch.tensor([1.0, 0.5, 1.0]).view(1, 3, 1, 1)).softmax(dim=-1)

    record = attend(vit, "temperature:layer=1,head=1,t=0.5")
    same(record, by_hand(vit, replaced([1], alter=alter)), vit)


def test_a_head_removed(vit):
    record = attend(vit, "head-removed:layer=1,head=2")
    removed = replaced([1], keep=[1.0, 1.0, 0.0])
    same(record, by_hand(vit, removed), vit)
    # Its weights are shown all the same; what it gives is zero.
    plain = vit.attend(picture(VIT))
    np.testing.assert_allclose(record.layers[1].matrix(2), plain.layers[1].matrix(2), atol=1e-6)
    assert record.layers[1].note == "what if: head 2 of layer 1 removed"


def test_a_block_skipped(vit):
    def replace(module):
        module.blocks[2] = Skipped()

    record = attend(vit, "skip:layer=2")
    same(record, by_hand(vit, replace), vit)
    # The layers keep their numbers, and the skipped one says what it is.
    assert len(record.layers) == 4
    assert record.layers[2].note == (
        "what if: its block is skipped, so the model makes no use of what is shown here"
    )


def test_several_changes_at_a_time(vit):
    far = hops(PREFIX) > 2

    def replace(module):
        replaced([0], alter=lambda logits: (logits / 2).masked_fill(far, -torch.inf).softmax(dim=-1))(module)
        replaced([1], keep=[0.0, 1.0, 1.0])(module)
        module.blocks[1].mlp = Mlp(module.blocks[1].mlp, 0.25)
        module.blocks[3] = Skipped()

    texts = ("local:layer=0,hops=2", "temperature:layer=0", "head-removed:layer=1,head=0")
    record = attend(vit, *texts, "cb:layer=1,strength=0.25", "skip:layer=3")
    same(record, by_hand(vit, replace), vit)


def test_windows_keep_to_themselves_when_uniform(swin):
    """Uniform over what each query may look at: its own window, and in a shifted one its part of it."""

    class Uniform(nn.Module):
        def __init__(self, original):
            super().__init__()
            self.original = original

        def forward(self, x, mask=None):
            own = self.original
            windows, tokens, _ = x.shape
            values = own.qkv(x).reshape(windows, tokens, 3, own.num_heads, -1).permute(2, 0, 3, 1, 4)[2]
            seen = torch.ones(windows, tokens, tokens) if mask is None else (mask == 0).float()
            weights = (seen / seen.sum(-1, keepdim=True))[:, None]
            return own.proj((weights @ values).transpose(1, 2).reshape(windows, tokens, -1))

    def replace(module):
        for block in module.layers[0].blocks:
            block.attn = Uniform(block.attn)

    record = attend(swin, "uniform:layers=0-1")
    same(record, by_hand(swin, replace), swin)
    plain = swin.attend(picture(SWIN))
    # A query sees no key that it did not see before, shifted windows included.
    for query in ((0, 0), (13, 14), (27, 27)):
        reach = plain.layers[1].reach(query)
        np.testing.assert_array_equal(record.layers[1].reach(query), reach)
        weights = record.layers[1].weights(query)[:, reach]
        np.testing.assert_allclose(weights, 1 / reach.sum(), rtol=1e-5)


def test_hops_within_windows(swin):
    record = attend(swin, "local:layers=0-1,hops=1")
    plain = swin.attend(picture(SWIN))
    assert record.verified
    layer, layout = record.layers[1], record.layers[1].query_layout
    for query in ((0, 0), (10, 11), (13, 13), (27, 5)):
        reach = layer.reach(query)
        rows, columns = np.divmod(layer.key_layout.cells, layout.grid[1])
        near = np.maximum(abs(rows - query[0]), abs(columns - query[1])) <= 1
        np.testing.assert_array_equal(reach, near & plain.layers[1].reach(query))
        np.testing.assert_allclose(layer.weights(query)[:, reach].sum(axis=1), 1, rtol=1e-5)
    # The first layer's queries and keys are the model's own, so its weights are those of before, rescaled.
    before, after = (one.layers[0].weights((10, 11)) for one in (plain, record))
    reach = record.layers[0].reach((10, 11))
    kept = before[:, reach] / before[:, reach].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(after[:, reach], kept, rtol=1e-4)


IDLE = ("cb:strength=0", "temperature:t=1", "local:hops=6", "local:layer=1,head=0,hops=40")


@pytest.mark.parametrize("text", IDLE)
def test_changes_that_change_nothing_leave_the_output_untouched(vit, text):
    np.testing.assert_array_equal(attend(vit, text).output, vit.attend(picture(VIT)).output)


@pytest.mark.parametrize("text", ["temperature:t=1", "local:hops=28", "cb:strength=0"])
def test_the_same_with_windows(swin, text):
    np.testing.assert_array_equal(attend(swin, text).output, swin.attend(picture(SWIN)).output)


def test_the_model_itself_is_left_alone(vit):
    before = vit.attend(picture(VIT))
    attend(vit, "cb", "skip:layer=1", "uniform", "head-removed:layer=0,heads=all")
    after = vit.attend(picture(VIT))
    np.testing.assert_array_equal(before.output, after.output)
    assert after.what_if == ()
    assert not any(module._forward_hooks for module in vit.module.modules())


def test_the_first_pass_of_all_may_be_changed():
    fresh, again = opened(VIT), opened(VIT)
    record = attend(fresh, "uniform:layer=1")
    again.attend(picture(VIT))
    np.testing.assert_array_equal(record.output, attend(again, "uniform:layer=1").output)


def test_a_changed_record_says_what_it_is(vit):
    record = attend(vit, "uniform:layer=1,head=0", "cb:layers=0")
    assert record.what_if == ("uniform:layers=1,heads=0", "cb:layers=0,strength=0.5")
    assert record.notes[-1] == (
        "What if: uniform attention in head 0 of layer 1; Context Broadcasting (strength 0.5) after the MLP "
        "of layer 0. This is an intervention on a model that was not trained with it."
    )
    assert record.layers[1].note == "what if: uniform attention in head 0 of layer 1"
    assert record.layers[0].note == record.layers[2].note == ""


def test_final_features_are_what_the_classifier_sees(vit):
    record = vit.attend(picture(VIT))
    with torch.no_grad():
        tokens = vit.module.forward_features(picture(VIT))
        expected = vit.module.forward_head(tokens, pre_logits=True)[0].numpy()
    np.testing.assert_allclose(record.features, expected, atol=1e-6)
    rebuilt = vit.module.head(torch.from_numpy(record.features)).detach().numpy()
    np.testing.assert_allclose(rebuilt, record.output, atol=1e-5)


def test_no_features_where_the_output_is_no_projection():
    bare = opened(VIT, num_classes=0)
    assert bare.attend(picture(VIT)).features is None


class Streams(nn.Module):
    """A block with two streams of tokens, given apart or together."""

    def __init__(self, together):
        super().__init__()
        self.attn = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.mlp = nn.Linear(WIDTH, WIDTH)
        self.together = together

    def forward(self, one, two=None):
        if self.together:
            one, two = one
        one = one + self.attn(one, one, one, need_weights=False)[0]
        two = self.mlp(two) + one
        return [one, two] if self.together else (one, two)


class TwoStreams(nn.Module):
    def __init__(self, together):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 16, 16)
        self.block, self.together = Streams(together), together

    def forward(self, pixels):
        tokens = self.patches(pixels).flatten(2).transpose(1, 2)
        pair = (tokens, 2 * tokens)
        one, two = self.block(list(pair)) if self.together else self.block(*pair)
        return one.mean(1) + 3 * two.mean(1)


@pytest.mark.parametrize("together", [False, True])
def test_all_streams_of_a_skipped_block_pass_it_by(together):
    torch.manual_seed(2)
    module = TwoStreams(together).eval()
    runner = TorchRunner("net", SizedModels("net", module, (96, 96)), "cpu")
    run = runner.run(picture(VIT), Job(), [parse("skip:layer=0")])
    with torch.no_grad():
        expected = 7 * module.patches(picture(VIT)).flatten(2).mean(2)
    torch.testing.assert_close(run.output, expected, atol=1e-5, rtol=0)


REFUSED = [
    ("uniform:layer=4", "What if: there is no layer 4 in vit_tiny_patch16_224; it has 4, from 0 on."),
    (
        "head-removed:layer=1,head=3",
        "What if: there is no head 3 in layer 1 of vit_tiny_patch16_224; it has 3, from 0 on.",
    ),
]


@pytest.mark.parametrize(("text", "sentence"), REFUSED)
def test_what_the_model_lacks_is_refused(vit, text, sentence):
    with pytest.raises(InputError) as refusal:
        attend(vit, text)
    assert str(refusal.value) == sentence


def test_hops_that_leave_a_query_without_keys_are_refused():
    """Keys of a PVT are pooled 8 by 8, and lie up to 3.5 patches of the queries away."""
    pooled = wrap(
        "pvt_v2_b0", timm.create_model("pvt_v2_b0", pretrained=False), "cpu", Provenance("pvt_v2_b0")
    )
    with pytest.raises(InputError, match=r"some queries of layer 0 .* reach no key at all; allow 4 or more"):
        changed(pooled, "local:layer=0,hops=2").attend(torch.randn(1, 3, 224, 224))


def test_programs_have_no_blocks():
    module = TwoStreams(False).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the age of TorchScript; its files are in everyone's hands
        # Its check traces again, and by then the module takes PyTorch's other path.
        traced = torch.jit.trace(module, picture(VIT), check_trace=False)
    runner = TorchRunner("net", SizedModels("net", traced, (96, 96)), "cpu")
    with pytest.raises(InputError, match="lies in no module that holds both attention and MLP"):
        runner.run(picture(VIT), Job(), [parse("cb")])
    plain, uniform = (runner.run(picture(VIT), Job(), changes) for changes in ([], [parse("uniform")]))
    assert float((plain.output - uniform.output).abs().max()) > 1e-5
    assert all(layer.verdict.verified for layer in uniform.layers)


def test_pytorch_s_own_layer_gets_broadcasting_after_its_second_linear():
    torch.manual_seed(3)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, WIDTH, 16, 16)
            self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True, norm_first=True)

        def forward(self, pixels):
            return self.layer(self.patches(pixels).flatten(2).transpose(1, 2)).mean(1)

    module = Net().eval()
    runner = TorchRunner("net", SizedModels("net", module, (96, 96)), "cpu")
    run = runner.run(picture(VIT), Job(), [parse("cb:strength=1")])
    plain = runner.run(picture(VIT), Job())
    # All tokens get the mean, so the mean of all stays what it was.
    torch.testing.assert_close(run.output, plain.output, atol=1e-5, rtol=0)
    some = runner.run(picture(VIT), Job(), [parse("cb:strength=0.5"), parse("skip:layer=0")])
    with torch.no_grad():
        expected = module.patches(picture(VIT)).flatten(2).mean(2)
    torch.testing.assert_close(some.output, expected, atol=1e-5, rtol=0)
