"""Theoretical receptive fields of PyTorch networks: published values, and the support of real gradients."""

from __future__ import annotations

import timm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from viewer.backends.architectures import made_for_shapes
from viewer.backends.network_fields import STAGE, stage_of
from viewer.backends.receptive_field import receptive_fields

# MEASURES: the end of conv1, of the pooling and of each of the four stages.
RESNETS = {
    "resnet18": (7, 11, 43, 99, 211, 435),
    "resnet34": (7, 11, 59, 179, 547, 899),
    "resnet50": (7, 11, 35, 91, 267, 427),
    "resnet101": (7, 11, 35, 91, 811, 971),
}
FIRST_1X1 = (7, 11, 35, 99, 291, 483)
STAGES = ("conv1", "maxpool", "layer1", "layer2", "layer3", "layer4")


def ends(model: nn.Module, size: tuple[int, int] = (64, 64)) -> dict[str, tuple[float, float]]:
    return {stage.name: stage.field for stage in receptive_fields("it", model.eval(), size).stages}


def test_resnets_have_the_published_fields() -> None:
    for name, fields in RESNETS.items():
        found = receptive_fields(name, made_for_shapes(name).eval(), (224, 224))
        assert [(stage.name, stage.field) for stage in found.stages] == [
            (stage, (field, field)) for stage, field in zip(STAGES, fields, strict=True)
        ]
        assert [stage.jump[0] for stage in found.stages] == [2, 4, 4, 8, 16, 32]
        assert (found.end, found.gated) == ("", False)


def test_a_resnet_with_its_stride_in_the_first_1x1() -> None:
    model = timm.create_model("resnet50")
    for layer in (model.layer2, model.layer3, model.layer4):
        layer[0].conv1.stride, layer[0].conv2.stride = (2, 2), (1, 1)
    assert [field[0] for field in ends(model).values()] == list(FIRST_1X1)


def test_fields_do_not_depend_on_the_input_size() -> None:
    model = timm.create_model("resnet18")
    assert ends(model, (64, 96)) == ends(model, (160, 128))


def test_every_convolution_and_pooling_is_a_layer() -> None:
    found = receptive_fields("resnet18", timm.create_model("resnet18").eval(), (64, 64))
    kinds = [layer.kind for layer in found.layers if layer.kind != STAGE]
    assert (kinds.count("conv"), kinds.count("max pool")) == (20, 1)
    first = found.layers[0]
    assert (first.name, first.kernel, first.stride, first.dilation) == ("conv1", (7, 7), (2, 2), (1, 1))
    assert first.start == (0.5, 0.5)


def test_a_gate_is_told_and_not_counted() -> None:
    with_gates = receptive_fields("it", made_for_shapes("seresnet50").eval(), (64, 64))
    without = receptive_fields("it", made_for_shapes("resnet50").eval(), (64, 64))
    assert [stage.field for stage in with_gates.stages] == [stage.field for stage in without.stages]
    assert [stage.gated for stage in with_gates.stages] == [False, False, True, True, True, True]
    assert not without.gated


def test_channels_last_and_layer_norm() -> None:
    # ConvNeXt: a stem of 4, then 7x7 each block, and 2x2 of stride 2 between the stages.
    found = ends(made_for_shapes("convnext_atto"))
    assert found["stem.0"] == (4, 4)
    assert found["stages.0"] == (4 + 2 * 6 * 4,) * 2
    assert found["stages.1"] == (52 + 4 + 2 * 6 * 8,) * 2


def test_attention_ends_it_with_a_sentence() -> None:
    found = receptive_fields("it", made_for_shapes("vit_tiny_patch16_224").eval(), (224, 224))
    assert [(layer.kind, layer.field) for layer in found.layers] == [("conv", (16, 16)), (STAGE, (16, 16))]
    assert found.end == (
        "From blocks.0.attn on every unit sees the whole picture: places are mixed with all others."
    )


class _Reversed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        return self.conv(self.conv(picture).flip(-1)[:, :3])


def test_what_is_not_known_ends_it_by_name() -> None:
    found = receptive_fields("it", _Reversed(), (16, 16))
    assert [layer.name for layer in found.layers if layer.kind != STAGE] == ["conv"]
    assert found.end == "No fields after there: the trace of fields stopped at the operation 'flip'."


def test_stages_are_names_up_to_the_first_number() -> None:
    assert stage_of("layer1.0.conv1") == "layer1"
    assert stage_of("stages.0.blocks.2.conv_dw") == "stages.0"
    assert stage_of("conv_stem") == "conv_stem"
    assert stage_of("features.denseblock1.denselayer2.conv1") == "features.denseblock1"


class Stack(nn.Module):
    """Windows one after another, with positive weights: no gradient vanishes by chance."""

    def __init__(self, windows: list[tuple[str, int, int, int, int]]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(_made(*window) for window in windows)
        with torch.no_grad():
            for weight in self.parameters():
                weight.fill_(1.0)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            picture = part(picture)
        return picture


def _made(kind: str, kernel: int, stride: int, dilation: int, padding: int) -> nn.Module:
    if kind == "conv":
        return nn.Conv2d(3, 3, kernel, stride, padding, dilation)
    if kind == "transposed":
        return nn.ConvTranspose2d(3, 3, kernel, stride, padding, 0, dilation=dilation)
    return nn.AvgPool2d(kernel, stride, min(padding, kernel // 2))


WINDOWS = st.lists(
    st.tuples(
        st.sampled_from(("conv", "conv", "pool")),
        st.integers(1, 4),
        st.integers(1, 3),
        st.integers(1, 2),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=3,
)


@given(WINDOWS)
@settings(max_examples=25, deadline=None)
def test_the_field_is_where_the_gradient_is(windows: list[tuple[str, int, int, int, int]]) -> None:
    model, side = Stack(windows), 130
    last = [layer for layer in receptive_fields("it", model, (side, side)).layers if layer.kind != STAGE][-1]
    picture = torch.ones(1, 3, side, side, requires_grad=True)
    output = model(picture)
    place = output.shape[-1] // 2
    output[0, :, place, place].sum().backward()
    rows = picture.grad.sum(dim=(0, 1, 3)).nonzero().flatten()
    low = last.start[0] + place * last.jump[0] - last.field[0] / 2
    # Strides larger than kernels leave gaps, but never at the ends.
    assert (int(rows[0]), int(rows[-1]) + 1) == (low, low + last.field[0])


def test_transposed_convolutions_see_at_most_the_field() -> None:
    windows = [("conv", 3, 2, 1, 1), ("transposed", 4, 2, 1, 1), ("conv", 3, 1, 1, 1)]
    model, side = Stack(windows), 120
    last = [layer for layer in receptive_fields("it", model, (side, side)).layers if layer.kind != STAGE][-1]
    assert last.jump == (1, 1)
    picture = torch.ones(1, 3, side, side, requires_grad=True)
    spans = []
    for place in (60, 61):
        picture.grad = None
        model(picture)[0, :, place, place].sum().backward()
        rows = picture.grad.sum(dim=(0, 1, 3)).nonzero().flatten()
        spans.append(int(rows[-1] - rows[0]) + 1)
    assert max(spans) <= last.field[0] <= max(spans) + 2


class _Branches(nn.Module):
    """Two branches of different reach that are added, and a third that is put beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow = nn.Conv2d(3, 3, 1)
        self.wide = nn.Conv2d(3, 3, 5, padding=2)
        self.last = nn.Conv2d(6, 3, 3, padding=1)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        both = functional.relu(self.narrow(picture) + self.wide(picture))
        return self.last(torch.cat([both, functional.max_pool2d(both, 3, 1, 1)], 1))


def test_branches_that_meet_see_what_the_larger_sees() -> None:
    found = {layer.name: layer.field[0] for layer in receptive_fields("it", _Branches(), (32, 32)).layers}
    assert found["narrow"] == 1
    assert found["wide"] == 5
    assert found["last"] == 5 + 2 + 2
