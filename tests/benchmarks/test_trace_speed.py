"""What finding out where tokens sit and tapping attention within windows cost, in plain forward passes."""

from __future__ import annotations

import time

import onnxruntime
import pytest
import timm
import torch

from tests.backends.onnx_wild import export
from viewer.attention.record import Provenance
from viewer.backends.model import Job
from viewer.backends.onnx_layout import plan_attention
from viewer.backends.onnx_model import open_onnx
from viewer.backends.onnx_probe import probe
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


# Of EfficientViT's thousand small operations each takes so little that following it can't take much less.
@pytest.mark.parametrize(
    ("name", "most", "tapping"),
    [
        ("swin_tiny_patch4_window7_224", 2, 1.3),
        ("vit_small_patch16_224", 2, 1.3),
        ("hiera_tiny_224", 2, 1.3),
        ("efficientvit_m0", 4, 4),
    ],
)
def test_tracing_costs_at_most_two_plain_passes_and_tapping_windows_at_most_1_3(
    name, most, tapping, one_thread, capsys
):
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
    assert tracing <= most
    assert ratio <= tapping


def test_tracing_an_export(one_thread, tmp_path, capsys):
    """Following its tokens costs little; ONNX Runtime takes longer to start on the graph than to run it."""
    torch.manual_seed(0)
    module = timm.create_model("swin_tiny_patch4_window7_224", pretrained=False).eval()
    picture = torch.randn(1, 3, 224, 224)
    path = export(module, (picture,), tmp_path / "swin.onnx")
    opened = open_onnx(path)
    program, feeds = opened.runner.program, {opened.input.name: picture.numpy()}
    session = onnxruntime.InferenceSession(path, _single_thread())
    plain, started, probed, planned, tapped = [], [], [], [], []
    for _ in range(_ROUNDS // 3):
        plain.append(_seconds(lambda: session.run(None, feeds)))
        started.append(_seconds(lambda: onnxruntime.InferenceSession(path, _single_thread())))
        found = []
        probed.append(_seconds(lambda found=found: found.append(probe(program, feeds, Job(), {}))))
        planned.append(_seconds(lambda found=found: plan_attention(program, "NCHW", *found[0])))
        opened.attend(picture)
        tapped.append(_seconds(lambda: opened.attend(picture)))
    unit = min(plain)
    probing, following, starting = (min(times) / unit for times in (probed, planned, started))
    with capsys.disabled():
        print(
            f"\nexported Swin-T: plain {unit:.3f} s, tapped {min(tapped) / unit:.2f} times that, following "
            f"tokens {following:.2f}, probing shapes {probing:.2f}, starting ONNX Runtime {starting:.2f}"
        )
    assert following <= 2
    # Of the older exporter's 3,400 nodes most compute shapes; ONNX Runtime goes through them once.
    assert following + probing <= 3


def _single_thread() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return options
