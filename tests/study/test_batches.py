"""Studies whose model runs on several pictures at once: the numbers of those that take one at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.study.conftest import draw_ten
from tests.study.test_running import same
from viewer.backends.model import Job
from viewer.study.actor import Actor
from viewer.study.engines import LocalEngine
from viewer.study.measuring import Opening
from viewer.study.models_engine import ModelsEngine
from viewer.study.running import Plan, begin, run
from viewer.study.sources import Source
from viewer.study.summary import summarize


def study(opening, source, output, together, stop_after=None, **options):
    plan = Plan(Source(str(source)), opening, "renormalized", output, **options)
    engine, told = LocalEngine(opening, plan.protocol, 1, together), []
    with begin(plan, engine, Job()) as store:
        job = Job(lambda doing, share: told.append(doing) or (len(told) == stop_after and job.cancel()))
        try:
            run(store, plan, engine, job)
        except Exception:
            if stop_after is None:
                raise
    return store


def same_position(one, other):
    assert one.position().pictures == other.position().pictures
    for mine, others in zip(one.position().share(), other.position().share(), strict=True):
        np.testing.assert_allclose(mine, others, rtol=1e-5, atol=1e-7)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Ten pictures, and two files that are none."""
    folder = draw_ten(tmp_path_factory.mktemp("batches") / "pictures")
    (folder / "2-bad.png").write_bytes(b"")
    (folder / "4-bad.jpg").write_text("no picture")
    return folder


@pytest.fixture(scope="module")
def single(opening, source, tmp_path_factory):
    store = study(opening, source, tmp_path_factory.mktemp("single") / "study", 1)
    assert store.settings.facts["batch"] == 1
    return store


@pytest.mark.parametrize("together", [2, 4, 16])
def test_a_batch_changes_no_number_though_some_pictures_are_bad(opening, source, single, together, tmp_path):
    store = study(opening, source, tmp_path / "study", together, part=5)
    assert store.settings.facts["batch"] == together
    assert store.counts() == (10, 2)
    assert [one.name for one in store.failed()] == ["2-bad.png", "4-bad.jpg"]
    same(single, store, 1e-6)
    same_position(single, store)


def test_pictures_of_a_batch_go_through_the_model_once(opening, source, tmp_path):
    actor = Actor(opening, "renormalized", 1, 8)
    actor.probe()
    module, passes = actor._opened().runner.sizes.at((64, 64)), []
    module.register_forward_pre_hook(lambda _, given: passes.append(len(given[0])))
    entries = [entry for entry in Source(str(source)).entries() if "bad" not in entry.name]
    actor.results(entries[:8], (2,) * 6)
    assert passes == [8]


@pytest.mark.parametrize(("first", "then"), [(4, 1), (1, 4), (4, 3)])
def test_a_study_goes_on_with_another_batch(opening, source, single, first, then, tmp_path):
    stopped = study(opening, source, tmp_path / "study", first, stop_after=4, part=4)
    assert 0 < sum(stopped.counts()) < 12
    store = study(opening, source, tmp_path / "study", then, resume=True)
    assert store.counts() == (10, 2)
    same(single, store, 1e-6)
    same_position(single, store)


def test_whole_pictures_make_batches_of_their_own_sizes(opening, source, tmp_path):
    whole = replace(opening, image_size="whole")
    one, other = (study(whole, source, tmp_path / f"{together}", together) for together in (1, 4))
    same(one, other, 1e-6)


def test_copies_of_the_model_take_batches(opening, source, single, tmp_path):
    plan = Plan(Source(str(source)), opening, "renormalized", tmp_path / "copies")
    with ModelsEngine(opening, "renormalized", 2, 1, 3, 4) as engine, begin(plan, engine, Job()) as store:
        run(store, plan, engine, Job())
    assert store.settings.facts["batch"] == 4
    same(single, store, 1e-6)


def windows(tmp_path):
    """Return a small model with windows, on pictures of 112 x 112 pixels."""
    import timm
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    name = "swin_tiny_patch4_window7_224"
    save_file(timm.create_model(name, pretrained=False).state_dict(), tmp_path / "swin.safetensors")
    return Opening(name, str(tmp_path / "swin.safetensors"), 112, "cpu")


def test_windows_make_batches_too(source, tmp_path):
    opening = windows(tmp_path)
    one, other = (study(opening, source, tmp_path / f"{together}", together) for together in (1, 4))
    assert other.settings.facts["batch"] == 4
    means, others = summarize(one), summarize(other)
    for key in ("count", "mean", "sd", "se"):
        np.testing.assert_allclose(getattr(means, key), getattr(others, key), rtol=1e-6, atol=1e-6)
    # Quartiles are values of single pictures, in which what `offset_share` loses to float32 stays.
    np.testing.assert_allclose(means.quartiles, others.quartiles, rtol=1e-6, atol=1e-5)
    same_position(one, other)


def test_a_model_that_takes_one_picture_at_a_time_does_and_says_so(source, tmp_path):
    """An ONNX model runs as its graph was written, one picture at a time."""
    import timm
    import torch
    from safetensors.torch import save_file

    from viewer.export.study_results import write_results

    torch.manual_seed(0)
    save_file(timm.create_model("test_vit", pretrained=False).state_dict(), tmp_path / "v.safetensors")
    net = timm.create_model("test_vit", pretrained=False, img_size=64).eval()
    torch.onnx.export(net, (torch.zeros(1, 3, 64, 64),), tmp_path / "v.onnx", dynamo=True, verbose=False)
    store = study(Opening(str(tmp_path / "v.onnx"), device="cpu"), source, tmp_path / "study", 4)
    assert store.settings.facts["batch"] == 1
    assert store.counts() == (10, 2)
    write_results(store, "pictures")
    assert "| pictures in a pass of the model | one |" in (store.folder / "report.md").read_text()
