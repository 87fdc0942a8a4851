"""What measuring every head costs over the plain fused forward pass, and the arithmetic of a hover."""

from __future__ import annotations

import time

import numpy as np
import pytest
import timm
import torch

from tests.attention.builders import layer_of, random_scores, record_of
from viewer.attention.layout import TokenLayout
from viewer.attention.query import attention_from, attention_to
from viewer.attention.record import Provenance
from viewer.attention.sweep import measure_record
from viewer.backends.timm_model import wrap

ROUNDS = 5


def seconds(work) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


# All measures of a head together. Of 3.0 times the plain pass at 518 px, likeness has 0.6 to itself; at
# 224 px a study must reach 0.6 of plain throughput.
@pytest.mark.parametrize(
    ("name", "side", "most"),
    [
        ("vit_small_patch14_dinov2", 518, 2.4),
        ("vit_base_patch14_dinov2", 518, 2.2),
        ("vit_small_patch14_dinov2", 224, 1.6),
    ],
    ids=["S/14 at 518", "B/14 at 518", "S/14 at 224"],
)
@pytest.mark.timeout(900)
def test_attending_and_measuring_over_the_plain_forward_pass(name, side, most, capsys):
    torch.manual_seed(0)
    module = timm.create_model(name, pretrained=False, img_size=side)
    model = wrap(name, module, "cpu", Provenance(name))
    picture = torch.randn(1, 3, side, side)
    record = model.attend(picture)
    measure_record(record)
    with torch.no_grad():
        module(picture)
    plain, attend, measure = [], [], []
    # In turns, so that what else the machine does falls on all; the least is the cost without it.
    for _ in range(ROUNDS if side > 300 else 4 * ROUNDS):
        with torch.no_grad():
            plain.append(seconds(lambda: module(picture)))
        attend.append(seconds(lambda: model.attend(picture)))
        measure.append(seconds(lambda: measure_record(record)))
    ratio = (min(attend) + min(measure)) / min(plain)
    with capsys.disabled():
        print(
            f"\n{name} at {side}x{side}: plain {min(plain):.3f} s, attend {min(attend):.3f} s, "
            f"measure {min(measure):.3f} s ({min(measure) / min(plain):.3f}); "
            f"attend and measure {ratio:.3f} of plain"
        )
    assert ratio <= most


# Half of what a hover may take until it is painted (16 and 25 ms); painting has the other half. A hover reads
# 25 or 50 MB of keys or queries from memory, and that takes its time. This thread does it all, so its own
# processor time is what counts, not the turns that other programs take meanwhile.
@pytest.mark.benchmark(timer=time.thread_time)
@pytest.mark.parametrize(("heads", "most"), [(6, 8.0), (12, 12.5)], ids=["S/14", "B/14"])
@pytest.mark.parametrize("direction", ["from", "to"])
def test_arithmetic_of_a_hover(heads, most, direction, benchmark, capsys):
    layout = TokenLayout.regular((37, 37), (14, 14), ["cls"])
    layers = [layer_of(random_scores(i, heads, 1370, dimension=64), layout, index=i) for i in range(12)]
    record = record_of(*layers)
    measures = measure_record(record)
    patches = iter(np.random.default_rng(0).integers(0, 37, (1000, 2)).tolist())

    def hover():
        patch = tuple(next(patches))
        return attention_from(record, patch) if direction == "from" else attention_to(record, measures, patch)

    benchmark.pedantic(hover, rounds=300, warmup_rounds=20)
    p95 = 1000 * np.percentile(benchmark.stats.stats.data, 95)
    with capsys.disabled():
        print(
            f"\nhover arithmetic, {heads} heads x 12 layers, {direction}: 95th percentile {p95:.2f} ms of "
            f"processor time ({p95 / most:.2f} of what is allowed)"
        )
    assert p95 <= most
