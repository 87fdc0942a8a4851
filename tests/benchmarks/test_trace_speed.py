"""What finding out where tokens sit and tapping attention within windows cost, in plain forward passes."""

from __future__ import annotations

import time

import pytest
import timm
import torch

from viewer.attention.record import Provenance
from viewer.backends.timm_model import wrap

_ROUNDS = 9


def _seconds(work):
    # Processor time: what else the machine does counts little.
    started = time.process_time()
    work()
    return time.process_time() - started


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", ["swin_tiny_patch4_window7_224", "vit_small_patch16_224", "hiera_tiny_224"])
def test_tracing_costs_at_most_two_plain_passes_and_tapping_windows_at_most_1_3(name, one_thread, capsys):
    torch.manual_seed(0)
    module = timm.create_model(name, pretrained=False)
    picture = torch.randn(1, 3, 224, 224)
    plain, tapped, first = [], [], []
    for _ in range(_ROUNDS):
        # Made anew, a model has nothing found out yet; the weights are the same.
        model = wrap(name, module, "cpu", Provenance(name))
        with torch.no_grad():
            plain.append(_seconds(lambda: module(picture)))
        first.append(_seconds(lambda model=model: model.attend(picture)))
        tapped.append(_seconds(lambda model=model: model.attend(picture)))
    # The first picture costs a plain pass, for comparison, and a tapped one; the rest is tracing.
    tracing = (min(first) - min(plain) - min(tapped)) / min(plain)
    ratio = min(tapped) / min(plain)
    with capsys.disabled():
        print(
            f"\n{name}: plain {min(plain):.3f} s, tapped {ratio:.2f} times that, tracing {tracing:.2f} passes"
        )
    assert tracing <= 2
    assert ratio <= 1.3
