"""What a study costs over plain batched inference, and that its memory stays the same."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from viewer.backends.model import Job
from viewer.images.decode import open_image
from viewer.images.preprocess import prepare
from viewer.study.engines import default_batch, default_models, default_workers
from viewer.study.measuring import Opening
from viewer.study.models_engine import ModelsEngine
from viewer.study.running import Plan, begin, run
from viewer.study.sources import Source

ROOT = Path(__file__).parents[2]
_IMAGES, _BATCH, _ROUNDS = 24, 8, 2


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """JPEG files of 640 x 480 pixels, as data sets have them."""
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(_IMAGES):
        squares = np.random.default_rng(number).integers(0, 255, (15, 20, 3), np.uint8)
        picture = Image.fromarray(squares).resize((640, 480), Image.Resampling.BICUBIC)
        picture.save(folder / f"{number:02d}.jpg", quality=90)
    return folder


def openings(tmp_path):
    import timm
    from safetensors.torch import save_file

    torch.manual_seed(0)
    net = timm.create_model("vit_small_patch14_dinov2", pretrained=False, img_size=224)
    save_file(net.state_dict(), tmp_path / "s14.safetensors")
    return {
        "torch": Opening("vit_small_patch14_dinov2", str(tmp_path / "s14.safetensors"), 224, "cpu"),
        "onnx": Opening("sample", device="cpu"),
    }


def plain_run(model, backend):
    """Return a function that runs the plain model on a batch, float32 (n, 3, 224, 224)."""
    if backend == "torch":
        import timm

        # The model's own module is at its own size.
        module = timm.create_model(model.name, pretrained=False, img_size=224).eval()

        def forward(batch):
            with torch.no_grad():
                module(torch.from_numpy(batch))

        return forward
    import onnxruntime

    session = onnxruntime.InferenceSession(model.file.path, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda batch: session.run(None, {name: batch})


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_a_study_has_at_least_0_6_of_the_throughput_of_plain_batched_inference(
    backend, pictures, tmp_path, capsys
):
    opening = openings(tmp_path)[backend]
    as_by_default = default_models("cpu"), default_workers(), 32, default_batch("cpu")
    engine = ModelsEngine(opening, "renormalized", *as_by_default)
    forward = plain_run(opening.open(), backend)
    how = opening.open().preprocessing

    def plain():
        paths = sorted(pictures.iterdir())
        for start in range(0, _IMAGES, _BATCH):
            batch = [prepare(open_image(path), how).tensor for path in paths[start : start + _BATCH]]
            forward(np.concatenate(batch))

    def study(number):
        plan = Plan(Source(str(pictures)), opening, "renormalized", tmp_path / f"{number}")
        with begin(plan, engine, Job()) as store:
            started = time.perf_counter()
            assert run(store, plan, engine, Job()).done == _IMAGES
            return time.perf_counter() - started

    plain()
    study("warm")
    plains, studies = [], []
    # In turns, so that what else the machine does falls on both; the least is the cost without it.
    for number in range(_ROUNDS):
        started = time.perf_counter()
        plain()
        plains.append(time.perf_counter() - started)
        studies.append(study(number))
    engine.__exit__(None, None, None)
    ratio = min(plains) / min(studies)
    with capsys.disabled():
        print(
            f"\nViT-S/14 at 224 ({backend}), {_IMAGES} JPEG: plain {_IMAGES / min(plains):.1f} images/s, "
            f"study {_IMAGES / min(studies):.1f} images/s, ratio {ratio:.2f}"
        )
    assert ratio >= 0.6


_MEMORY = """
import resource, sys
from pathlib import Path
import torch
from viewer.backends.model import Job
from viewer.study.engines import LocalEngine
from viewer.study.measuring import Opening
from viewer.study.running import Plan, begin, run
from viewer.study.sources import Source
from viewer.study.summary import summarize

if __name__ == "__main__":
    torch.set_num_threads(1)
    source, weights, output = sys.argv[1:]
    opening = Opening("test_vit", weights, 64, "cpu")
    plan = Plan(Source(source), opening, "renormalized", Path(output))
    engine = LocalEngine(opening, plan.protocol, 1)
    with begin(plan, engine, Job()) as store:
        advance = run(store, plan, engine, Job())
        summarize(store)
    print(advance.done, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.timeout(1800)
@pytest.mark.skipif(sys.platform == "win32", reason="the peak is read the POSIX way")
def test_memory_does_not_grow_with_the_number_of_images(tmp_path, capsys):
    import timm
    from safetensors.torch import save_file

    torch.manual_seed(0)
    save_file(timm.create_model("test_vit", pretrained=False).state_dict(), tmp_path / "tiny.safetensors")
    (tmp_path / "memory.py").write_text(_MEMORY)
    peaks = []
    for count in (100, 1000):
        folder = tmp_path / f"{count}"
        folder.mkdir()
        for number in range(count):
            pixels = np.random.default_rng(number).integers(0, 255, (64, 64, 3), np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png", compress_level=0)
        command = [sys.executable, str(tmp_path / "memory.py"), str(folder)]
        command += [str(tmp_path / "tiny.safetensors"), str(tmp_path / f"study{count}")]
        environment = {"PYTHONPATH": str(ROOT), "PATH": "", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        images, peak = map(int, done.stdout.split())
        assert images == count
        peaks.append(peak)
    with capsys.disabled():
        least, most = (f"{peak / 1e3:.0f} MB" for peak in peaks)
        print(f"\npeak memory of a study: 100 images {least}, 1000 images {most}")
    assert peaks[1] <= 1.03 * peaks[0]
