"""How much attending costs over the plain fused forward pass, and what a record weighs."""

from __future__ import annotations

import time

import pytest
import timm
import torch

from viewer.attention.record import Provenance
from viewer.attention.scores import storage_bytes
from viewer.backends.timm_model import wrap

_ROUNDS = 7


def _seconds(work):
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


@pytest.mark.parametrize("name", ["vit_small_patch14_dinov2", "vit_base_patch14_dinov2"])
def test_attend_costs_at_most_15_percent_over_the_plain_forward_pass(name, capsys):
    torch.manual_seed(0)
    module = timm.create_model(name, pretrained=False)
    model = wrap(name, module, "cpu", Provenance(name))
    picture = torch.randn(1, 3, 518, 518)
    first = _seconds(lambda: model.attend(picture))
    plain, tapped = [], []
    with torch.no_grad():
        module(picture)
    # In turns, so that what else the machine does falls on both; the least is the cost without it.
    for _ in range(_ROUNDS):
        with torch.no_grad():
            plain.append(_seconds(lambda: module(picture)))
        tapped.append(_seconds(lambda: model.attend(picture)))
    record = model.attend(picture)
    held = storage_bytes(tuple(tensor for layer in record.layers for tensor in layer.scores.tensors))
    full = sum(4 * layer.heads * layer.scores.queries * layer.scores.keys for layer in record.layers)
    ratio = min(tapped) / min(plain)
    with capsys.disabled():
        print(
            f"\n{name} at 518x518: plain {min(plain):.3f} s, attend {min(tapped):.3f} s, ratio {ratio:.3f}; "
            f"first attend {first:.3f} s; record {held / 1e6:.1f} MB, {held / full:.4f} of full attention"
        )
    assert record.verified
    assert ratio <= 1.15
    assert held <= full / 10
