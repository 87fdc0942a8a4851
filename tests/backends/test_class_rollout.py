"""Class rollout below the model's code, against gradients of un-fused attention in float64."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from tests.backends.timm_zoo import attending, build, fused, picture, randomize
from viewer.attention.class_rollout import ClassRollout
from viewer.attention.record import AttentionRecord, Prediction
from viewer.backends.class_rollout import class_rollout, why_no_class_rollout
from viewer.backends.model import Job
from viewer.backends.opening import open_model
from viewer.backends.torch_model import TorchModel
from viewer.errors import Cancelled, MapError

CLASS = 3
# name: which of its tokens the classifier reads
READS = {
    "vit_tiny_patch16_224": ("cls",),
    "vit_base_patch16_gap_224": "patches",
    "deit_tiny_distilled_patch16_224": ("cls", "dist"),
    "vit_small_patch16_dinov3": "patches",
    "beit_base_patch16_224": "patches",
}


class Gradients(TorchFunctionMode):
    """Keeps each softmax of an un-fused model, and later its gradient."""

    def __init__(self) -> None:
        self.weights: list[torch.Tensor] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if func in (torch.Tensor.softmax, torch.softmax, nn.functional.softmax):
            found.retain_grad()
            self.weights.append(found)
        return found


def by_hand(model: nn.Module, tensor: torch.Tensor, start: int = 0) -> np.ndarray:
    """The whole product in float64, (tokens, tokens), without the identity it begins with."""
    given = tensor.double().requires_grad_()
    with Gradients() as kept:
        output = model.double()(given)
    output[0, CLASS].backward()
    identity = torch.eye(kept.weights[-1].shape[-1], dtype=torch.float64)
    found = identity
    for weights in kept.weights[start:]:
        found = found + (weights.grad[0] * weights.detach()[0]).clamp(min=0).mean(dim=0) @ found
    return (found - identity).numpy()


def rolled(model: nn.Module, tensor: torch.Tensor, start: int = 0) -> ClassRollout:
    wrapped = attending("net", model)
    return class_rollout(wrapped, looked(wrapped, tensor), tensor, CLASS, start, Job())


def looked(model: TorchModel, tensor: torch.Tensor) -> AttentionRecord:
    """What a classifier leaves behind; one with few classes has no names for them."""
    record = model.attend(tensor)
    return replace(record, prediction=record.prediction or Prediction(("class 0",), (1.0,)))


@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize("name", READS)
def test_relevance_is_that_of_gradients_by_hand(name, is_fused):
    model = build(name, is_fused, num_classes=10)
    tensor = picture(attending(name, model))
    found = rolled(model, tensor)
    whole = by_hand(build(name, False, num_classes=10), tensor)
    reads = READS[name]
    layout = found.layout
    wanted = layout.patch_tokens if reads == "patches" else [layout.token(prefix) for prefix in reads]
    np.testing.assert_array_equal(found.readers, wanted)
    expected = whole[found.readers].mean(axis=0)
    assert expected.max() > 0
    np.testing.assert_allclose(found.relevance, expected, rtol=0, atol=1e-5 * expected.max())
    assert found.relevance.dtype == np.float32


def test_it_begins_with_the_wished_layer():
    model = build("vit_tiny_patch16_224", depth=3, num_classes=10)
    tensor = picture(attending("net", model))
    plain = build("vit_tiny_patch16_224", False, depth=3, num_classes=10)
    expected = by_hand(plain, tensor, start=2)[0]
    found = rolled(model, tensor, start=2)
    np.testing.assert_allclose(found.relevance, expected, rtol=0, atol=1e-5 * expected.max())
    assert found.start == 2


def test_parameters_keep_their_gradients_and_nothing_is_left_on():
    model = build("vit_tiny_patch16_224", num_classes=10)
    tensor = picture(attending("net", model))
    wrapped = attending("net", model)
    record = looked(wrapped, tensor)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    class_rollout(wrapped, record, tensor, CLASS, 0, Job())
    assert all(weight.grad is None for weight in model.parameters())
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    assert not tensor.requires_grad
    again = wrapped.attend(tensor)
    np.testing.assert_array_equal(again.output, record.output)


def test_what_has_no_class_rollout_says_why():
    model = build("vit_tiny_patch16_224", num_classes=10)
    wrapped = attending("net", model)
    tensor = picture(wrapped)
    record = looked(wrapped, tensor)
    assert why_no_class_rollout(record) == ""
    onnx = replace(record, provenance=replace(record.provenance, backend="onnx"))
    assert why_no_class_rollout(onnx) == (
        "it needs gradients, which ONNX Runtime does not compute; open the same weights in PyTorch"
    )
    unnamed = replace(record, prediction=None)
    assert why_no_class_rollout(unnamed) == (
        "the model does not say that its outputs are classes; choose one by its number"
    )
    assert why_no_class_rollout(unnamed, target=9) == ""
    tokens = replace(record, output=np.zeros((17, 4), np.float32))
    assert why_no_class_rollout(tokens) == "the model's output is no list of classes"
    assert "not for a what-if" in why_no_class_rollout(replace(record, what_if=("uniform",)))
    assert why_no_class_rollout(record, 2).startswith("there is no layer 2 to begin with")
    with pytest.raises(MapError, match="there is no class 10; the model has 10, from 0 on"):
        class_rollout(wrapped, record, tensor, 10, 0, Job())


def test_models_with_windows_are_refused():
    with fused(True):
        model = timm.create_model(
            "swin_tiny_patch4_window7_224",
            pretrained=False,
            img_size=64,
            window_size=4,
            depths=(1, 1),
            embed_dim=24,
            num_heads=(2, 4),
            num_classes=10,
        ).eval()
    randomize(model)
    tensor = torch.zeros(1, 3, 64, 64)
    with pytest.raises(MapError, match="layer 0 attends within windows"):
        rolled(model, tensor)


@pytest.mark.parametrize("suffix", [".pt2", ".pt"])
def test_exported_and_scripted_programs_have_one_too(suffix, tmp_path):
    model = build("vit_tiny_patch16_224", num_classes=10)
    tensor = picture(attending("net", model))
    path = tmp_path / f"net{suffix}"
    if suffix == ".pt2":
        torch.export.save(torch.export.export(model, (tensor,)), path)
    else:
        with torch.no_grad(), warnings.catch_warnings():
            # Deprecated; what it wrote is still in everyone's hands.
            warnings.simplefilter("ignore")
            torch.jit.trace(model, tensor).save(str(path))
    opened = open_model(str(path), image_size=None if suffix == ".pt2" else 64)
    found = class_rollout(opened, opened.attend(tensor), tensor, CLASS, 0, Job())
    expected = by_hand(build("vit_tiny_patch16_224", False, num_classes=10), tensor)[0]
    np.testing.assert_allclose(found.relevance, expected, rtol=0, atol=1e-5 * expected.max())


def test_gradients_that_do_not_come_through_are_said():
    model = build("vit_tiny_patch16_224", num_classes=10)
    model.blocks[1].register_forward_pre_hook(lambda module, given: (given[0].detach(),))
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(MapError, match="gradients do not pass"):
        rolled(model, picture(attending("net", model)))


def test_it_can_be_cancelled():
    model = build("vit_tiny_patch16_224", num_classes=10)
    wrapped = attending("net", model)
    tensor = picture(wrapped)
    record = looked(wrapped, tensor)
    job = Job()
    job.cancel()
    with pytest.raises(Cancelled):
        class_rollout(wrapped, record, tensor, CLASS, 0, job)


def test_half_precision_stays_near():
    model = build("vit_tiny_patch16_224", num_classes=10).to(torch.bfloat16)
    tensor = picture(attending("net", build("vit_tiny_patch16_224", num_classes=10)))
    found = rolled(model, tensor)
    expected = by_hand(build("vit_tiny_patch16_224", False, num_classes=10), tensor)[0]
    assert np.corrcoef(found.relevance, expected)[0, 1] > 0.98
