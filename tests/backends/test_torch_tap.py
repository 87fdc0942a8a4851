"""What the tap takes for attention, what it makes of it, and what it leaves alone."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional

from viewer.attention.scores import QueryKeyScores, WeightScores
from viewer.backends.torch_names import ModuleNames
from viewer.backends.torch_tap import AttentionTap
from viewer.backends.verdicts import check, spread_rows

HEADS, TOKENS, WIDTH = 2, 12, 8


@pytest.fixture
def qkv():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, 1, HEADS, TOKENS, WIDTH, generator=generator) * 1.5


def tap(compute, *tensors):
    with torch.no_grad(), AttentionTap() as found:
        output = compute(*tensors)
    return found.layers, output


def softmax64(logits):
    powers = (logits.double() - logits.double().amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)


BIAS = torch.randn(1, HEADS, TOKENS, TOKENS, generator=torch.Generator().manual_seed(3))
MASK = torch.rand(TOKENS, TOKENS, generator=torch.Generator().manual_seed(4)) < 0.3
MASK.fill_diagonal_(False)
GAIN = torch.tensor([0.4, 1.7]).view(HEADS, 1, 1)

# How models write logits; each is followed by softmax and a product with the values.
LOGITS = {
    "plain product": lambda q, k: q @ k.mT,
    "scale on the queries": lambda q, k: (q * 0.3) @ k.mT,
    "scale on the product": lambda q, k: (q @ k.mT) * 0.3,
    "scale from the left": lambda q, k: 0.3 * (q @ k.mT),
    "division": lambda q, k: (q @ k.mT) / 3.5,
    "bias": lambda q, k: (q @ k.mT) * 0.3 + BIAS,
    "bias from the left": lambda q, k: BIAS + (q @ k.mT),
    "bias taken off": lambda q, k: (q @ k.mT) - BIAS,
    "scale after the bias": lambda q, k: ((q @ k.mT) * 0.5 + BIAS) * 0.6,
    "two biases": lambda q, k: q @ k.mT + BIAS + BIAS[:, :1],
    "a number added": lambda q, k: (q @ k.mT) * 0.3 + 5,
    "one bias row": lambda q, k: q @ k.mT + BIAS[:, :, :1],
    "in place": lambda q, k: (q @ k.mT).mul_(0.3).add_(BIAS),
    "scale per head": lambda q, k: (q @ k.mT) * GAIN,
    "scale per head after a bias": lambda q, k: (q @ k.mT + BIAS) * GAIN,
    "scale as a tensor": lambda q, k: (q @ k.mT) * torch.tensor(0.3),
    "masked with a low number": lambda q, k: (q @ k.mT).masked_fill(MASK, -1e9),
    "masked with infinity": lambda q, k: (q @ k.mT).masked_fill(MASK, -torch.inf),
    "masked with where": lambda q, k: torch.where(MASK, -torch.inf, q @ k.mT),
    "unmasked with where": lambda q, k: torch.where(~MASK, q @ k.mT, -1e9),
    "einsum": lambda q, k: torch.einsum("bhid,bhjd->bhij", q, k) * 0.3,
    "heads folded into the batch": lambda q, k: torch.bmm(q[0], k[0].mT).view(1, HEADS, TOKENS, TOKENS),
    "baddbmm": lambda q, k: torch.baddbmm(BIAS[0].to(q), q[0], k[0].mT, beta=0.5, alpha=0.3)[None],
    "baddbmm without input": lambda q, k: torch.baddbmm(BIAS[0].to(q), q[0], k[0].mT, beta=0, alpha=0.3)[
        None
    ],
}


@pytest.mark.parametrize("form", LOGITS)
def test_queries_and_keys_are_found_behind_a_bare_softmax(form, qkv):
    make = LOGITS[form]
    layers, _ = tap(lambda q, k, v: make(q, k).softmax(-1) @ v, *qkv)
    (layer,) = layers
    assert isinstance(layer.scores, QueryKeyScores)
    expected = softmax64(make(qkv[0].double(), qkv[1].double())[0])
    torch.testing.assert_close(layer.scores.weights(slice(None)).double(), expected, rtol=0, atol=1e-6)
    assert layer.check.verdict().verified


FUSED = {
    "plain": ({}, lambda logits: logits),
    "scale": ({"scale": 0.2}, lambda logits: logits * 0.2 * WIDTH**0.5),
    "bias": ({"attn_mask": BIAS}, lambda logits: logits + BIAS),
    "bias for all heads": ({"attn_mask": BIAS[0, 0]}, lambda logits: logits + BIAS[:, :1]),
    "boolean mask": ({"attn_mask": ~MASK}, lambda logits: logits.masked_fill(MASK, -torch.inf)),
    "causal": (
        {"is_causal": True},
        lambda logits: logits.masked_fill(torch.ones(TOKENS, TOKENS).triu(1).bool(), -torch.inf),
    ),
}


@pytest.mark.parametrize("form", FUSED)
def test_fused_attention_gives_scale_bias_and_mask(form, qkv):
    options, make = FUSED[form]
    layers, _ = tap(lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, **options), *qkv)
    (layer,) = layers
    expected = softmax64(make(qkv[0].double() @ qkv[1].double().mT / WIDTH**0.5)[0])
    torch.testing.assert_close(layer.scores.weights(slice(None)).double(), expected, rtol=0, atol=1e-6)
    assert layer.check.verdict().verified


def test_keys_shared_by_several_query_heads(qkv):
    q, k, v = qkv[0], qkv[1][:, :1], qkv[2][:, :1]
    layers, _ = tap(
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, enable_gqa=True), q, k, v
    )
    (layer,) = layers
    expected = softmax64(q[0].double() @ k[0].double().mT / WIDTH**0.5)
    torch.testing.assert_close(layer.scores.weights(slice(None)).double(), expected, rtol=0, atol=1e-6)
    assert layer.check.verdict().verified


def test_logits_that_come_from_elsewhere_leave_the_weights_themselves(qkv):
    mix = torch.tensor([[0.7, 0.3], [0.2, 0.8]])

    def talking_heads(q, k, v):
        logits = torch.einsum("bhij,hg->bgij", q @ k.mT, mix)
        return logits.softmax(-1) @ v

    layers, _ = tap(talking_heads, *qkv)
    (layer,) = layers
    assert isinstance(layer.scores, WeightScores)
    logits = torch.einsum("bhij,hg->bgij", qkv[0].double() @ qkv[1].double().mT, mix.double())
    torch.testing.assert_close(
        layer.scores.weights(slice(None)).double(), softmax64(logits[0]), rtol=0, atol=1e-6
    )
    assert layer.check.verdict().verified


def test_reordered_heads_are_noticed_and_the_weights_kept(qkv):
    layers, _ = tap(lambda q, k, v: (q @ k.mT).flip(1).softmax(-1) @ v, *qkv)
    shuffled, _ = tap(
        lambda q, k, v: (q @ k.mT).view(1, HEADS, TOKENS, TOKENS).transpose(2, 3).softmax(-1) @ v, *qkv
    )
    for (layer,), logits in (
        (layers, (qkv[0] @ qkv[1].mT).flip(1)),
        (shuffled, (qkv[0] @ qkv[1].mT).transpose(2, 3)),
    ):
        assert isinstance(layer.scores, WeightScores)
        expected = softmax64(logits[0])
        torch.testing.assert_close(layer.scores.weights(slice(None)).double(), expected, rtol=0, atol=1e-6)


def test_softmax_without_values_is_no_attention(qkv):
    def classify(q, k, v):
        scores = (q @ k.mT).softmax(-1)
        return torch.log_softmax(v.mean(2), -1), scores.sum(), v.softmax(-1)

    assert tap(classify, *qkv)[0] == []


def test_softmax_over_another_axis_is_no_attention(qkv):
    assert tap(lambda q, k, v: (q @ k.mT).softmax(-2) @ v, *qkv)[0] == []


def test_weights_that_meet_values_twice_are_one_layer(qkv):
    def twice(q, k, v):
        weights = (q @ k.mT).softmax(-1)
        return weights @ v + weights @ v.flip(2)

    assert len(tap(twice, *qkv)[0]) == 1


def test_values_are_not_kept_alive(qkv):
    joint = torch.randn(1, TOKENS, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4)
    layers, _ = tap(functional.scaled_dot_product_attention, *joint.unbind(0))
    held = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in layers[0].scores.tensors
    }
    assert joint.untyped_storage().data_ptr() not in held
    assert sum(held.values()) == 2 * 4 * HEADS * TOKENS * WIDTH


def test_values_multiplied_from_the_left(qkv):
    layers, _ = tap(lambda q, k, v: v.mT @ (q @ k.mT).softmax(-1).transpose(-2, -1), *qkv)
    (layer,) = layers
    assert isinstance(layer.scores, QueryKeyScores)
    assert layer.check.verdict().verified
    # Without the transposition queries would be mixed, not keys: rows of weights that do not sum to 1.
    (layer,) = tap(lambda q, k, v: v.mT @ (q @ k.mT).softmax(-1), *qkv)[0]
    assert not layer.check.verdict().verified


def test_dropout_left_on_is_not_taken_for_the_softmax_alone(qkv):
    layers, _ = tap(lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, dropout_p=0.5), *qkv)
    assert [layer.note for layer in layers] == [
        "weights of the softmax, before the model mixes or scales them"
    ]


def test_wrong_scale_fails_verification(qkv):
    q, k, v = (part[0] for part in qkv)
    output = (q @ k.mT * 0.3).softmax(-1) @ v
    assert check(QueryKeyScores(q, k, 0.3), v, output).verdict().verified
    verdict = check(QueryKeyScores(q, k, 0.31), v, output).verdict()
    assert not verdict.verified
    assert verdict.output_error > 1e-3
    assert "differ from the model's output" in verdict.reason


def test_rows_that_miss_1_and_outputs_that_are_not_numbers_fail_verification(qkv):
    q, k, v = (part[0] for part in qkv)
    halved = WeightScores((q @ k.mT).softmax(-1) * 0.5)
    verdict = check(halved, v, halved.weights(slice(None)) @ v).verdict()
    assert (verdict.verified, verdict.row_error) == (False, pytest.approx(0.5, abs=1e-6))
    assert "misses 1 by 0.5" in verdict.reason
    assert not check(QueryKeyScores(q, k, 1.0), v, torch.full_like(q, torch.nan)).verdict().verified


def test_weights_changed_after_the_softmax_are_shown_as_the_softmax_gave_them(qkv):
    layers, _ = tap(lambda q, k, v: ((q @ k.mT).softmax(-1) * 0.5) @ v, *qkv)
    (layer,) = layers
    assert layer.note == "weights of the softmax, before the model mixes or scales them"
    expected = (qkv[0].double() @ qkv[1].double().mT).softmax(-1)[0]
    torch.testing.assert_close(
        layer.scores.weights(slice(None)).double(), expected.double(), rtol=0, atol=1e-6
    )


def test_maps_mixed_into_a_map_are_shown_as_the_model_uses_them(qkv):
    def attend(q, k, v):
        return (0.3 * (q @ k.mT).softmax(-1) + 0.7 * (k @ q.mT).softmax(-1)) @ v

    (layer,), _ = tap(attend, *qkv)
    assert layer.note == "weights as the model uses them, after mul"
    q, k = qkv[0].double()[0], qkv[1].double()[0]
    expected = 0.3 * (q @ k.mT).softmax(-1) + 0.7 * (k @ q.mT).softmax(-1)
    torch.testing.assert_close(
        layer.scores.weights(slice(None)).double(), expected.double(), rtol=0, atol=1e-6
    )


def test_a_softmax_that_is_no_product_of_queries_and_keys_is_no_attention(qkv):
    projection = torch.randn(WIDTH, TOKENS)
    with torch.no_grad(), AttentionTap() as found:
        (qkv[0] @ projection).softmax(-1) @ qkv[2]
    assert found.layers == []
    assert found.other == ["1 softmax weighs values, but comes from no product of queries and keys."]


def test_factorized_attention_is_no_attention(qkv):
    with AttentionTap() as found, torch.no_grad():
        q, k, v = qkv
        q @ (k.softmax(-2).mT @ v)
        (q.mean(2, keepdim=True).softmax(1) * v).sum(1)
    assert found.layers == [] and found.unmet == []
    assert found.other == [
        "1 softmax weighs values, but comes from no product of queries and keys.",
        "1 softmax meets no matrix product, as in gates and classifiers.",
    ]


def test_logits_written_to_through_a_part_are_what_they_became(qkv):
    bias = torch.randn(HEADS, TOKENS - 1, TOKENS - 1) * 9

    def attend(q, k, v):
        logits = q @ k.mT
        logits[:, :, 1:, 1:] = logits[:, :, 1:, 1:] + bias
        return logits.softmax(-1) @ v

    (layer,) = tap(attend, *qkv)[0]
    logits = qkv[0].double() @ qkv[1].double().mT
    logits[:, :, 1:, 1:] += bias
    torch.testing.assert_close(
        layer.scores.weights(slice(None)).double(), softmax64(logits[0]), rtol=0, atol=1e-6
    )


def test_one_row_of_logits_written_to_is_not_missed(qkv):
    # Eight rows are compared with the real weights, and this is none of them.
    rows = spread_rows(TOKENS)
    row = next(row for row in range(TOKENS) if row not in rows)

    def attend(q, k, v):
        logits = q @ k.mT
        logits[:, :, row] += v[..., 0] * 9
        return logits.softmax(-1) @ v

    (layer,) = tap(attend, *qkv)[0]
    logits = qkv[0].double() @ qkv[1].double().mT
    logits[:, :, row] += qkv[2].double()[..., 0] * 9
    torch.testing.assert_close(
        layer.scores.weights(slice(None)).double(), softmax64(logits[0]), rtol=0, atol=1e-6
    )


def test_logits_put_together_from_parts_are_attention(qkv):
    def attend(q, k, v):
        logits = q.new_empty(1, HEADS, TOKENS, TOKENS)
        logits[:, :, :2] = q[:, :, :2] @ k.mT
        logits[:, :, 2:] = q[:, :, 2:] @ k.mT
        return logits.softmax(-1) @ v

    (layer,) = tap(attend, *qkv)[0]
    assert layer.scores.how == "weights"


def test_weights_do_not_outlive_their_use(qkv):
    q, k, v = qkv
    with AttentionTap() as found, torch.no_grad():
        weights = (q @ k.mT).softmax(-1)
        weights @ v
        kept = weakref.ref(weights)
        del weights
        assert kept() is None
    assert found.layers[0].scores.how == "query-key"


@pytest.mark.parametrize("fused", [True, False])
def test_groups_of_tokens_are_stacked(qkv, fused):
    windows = qkv.view(3, HEADS, 1, TOKENS, WIDTH)

    def attend(q, k, v):
        if fused:
            return functional.scaled_dot_product_attention(q, k, v)
        return (q @ k.mT).softmax(-1) @ v

    (layer,), _ = tap(attend, *windows)
    assert layer.check.verdict().verified
    scale = WIDTH**-0.5 if fused else 1.0
    expected = (scale * windows[0].double() @ windows[1].double().mT).softmax(-1)[:, 0]
    torch.testing.assert_close(
        layer.scores.weights(slice(None)).double(), expected.double(), rtol=0, atol=1e-6
    )


def test_output_is_what_it_was(qkv):
    plain = functional.scaled_dot_product_attention(*qkv)
    _, tapped = tap(functional.scaled_dot_product_attention, *qkv)
    assert torch.equal(plain, tapped)


class _Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Sequential(nn.Dropout(0.1))

    def forward(self, x):
        return self.drop(functional.scaled_dot_product_attention(self.proj(x), x, x))


def test_module_names_and_no_hooks_left(qkv):
    model = nn.Sequential(_Block(), nn.Sequential(_Block())).eval()
    with torch.no_grad(), ModuleNames(model) as names, AttentionTap(names) as found:
        model(qkv[0])
    assert [layer.module for layer in found.layers] == ["0", "1.0"]
    for module in model.modules():
        assert not module._forward_pre_hooks
        assert not module._forward_hooks


def test_hooks_go_also_when_the_model_fails():
    model = nn.Sequential(_Block())
    with pytest.raises(RuntimeError, match="shape"), ModuleNames(model):
        model(torch.zeros(3, 5))
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())
