"""Devices are chosen, and missing ones refused with the list of those that are there."""

from __future__ import annotations

import onnxruntime
import pytest
import torch

from viewer import open_model
from viewer.backends.devices import onnx_providers, torch_device, torch_devices
from viewer.errors import DeviceError


def test_auto_takes_the_best_there_is():
    best = "cuda:0" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert torch_device("auto") == best
    assert torch_devices()[0] == best
    assert torch_devices()[-1] == "cpu"


def test_cpu_is_always_there():
    assert torch_device("cpu") == "cpu"
    assert onnx_providers("cpu") == ("cpu", ["CPUExecutionProvider"])


def test_every_device_found_can_be_asked_for():
    for device in torch_devices():
        assert torch_device(device) == device


@pytest.mark.parametrize("asked", ["cuda:99", "cuda:7"])
def test_a_missing_device_lists_those_there(asked):
    with pytest.raises(DeviceError) as caught:
        torch_device(asked)
    assert str(caught.value) == (
        f"PyTorch finds no device {asked!r} here; it finds {', '.join(torch_devices())}."
    )
    with pytest.raises(DeviceError, match=f"finds no device '{asked}'"):
        open_model("vit_tiny_patch16_224", device=asked)


@pytest.mark.parametrize("asked", ["gpu", "cuda:x", "cuda:", "cpu:1", "mps:0", "", "CUDA"])
def test_what_is_no_device_is_refused(asked):
    for choose in (torch_device, onnx_providers):
        with pytest.raises(DeviceError, match="is no device; devices are auto, cpu, cuda"):
            choose(asked)


def test_onnx_auto_takes_a_provider_that_is_installed():
    device, providers = onnx_providers("auto")
    there = onnxruntime.get_available_providers()
    names = [provider if isinstance(provider, str) else provider[0] for provider in providers]
    assert set(names) <= set(there)
    assert names[-1] == "CPUExecutionProvider"
    assert device == "cpu" or len(names) == 2


@pytest.mark.parametrize(
    ("asked", "provider"), [("cuda:1", "CUDAExecutionProvider"), ("mps", "CoreMLExecutionProvider")]
)
def test_onnx_provider_of_a_device(asked, provider):
    if provider not in onnxruntime.get_available_providers():
        with pytest.raises(DeviceError, match=r"ONNX Runtime finds no device .* it finds .*cpu"):
            onnx_providers(asked)
        return
    device, providers = onnx_providers(asked)
    assert device == asked
    assert providers[0] in (provider, (provider, {"device_id": 1}))
