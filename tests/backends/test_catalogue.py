"""Models by name: what there is, what comes near, and what happens without a network."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
import time

import pytest
import safetensors.torch
import timm
import torch

from viewer import open_model
from viewer.backends.catalogue import check_name, model_names, names_not_shown, near_names
from viewer.backends.model import Job
from viewer.errors import (
    Cancelled,
    CheckpointError,
    NoAttentionError,
    OfflineError,
    UnknownModelError,
)


def test_names_hold_every_family_and_the_sample_first():
    names = model_names()
    assert names[0] == "sample"
    for name in (
        "vit_base_patch16_224",
        "deit_tiny_distilled_patch16_224",
        "vit_small_patch14_reg4_dinov2.lvd142m",
        "vit_small_patch16_dinov3",
        "eva02_tiny_patch14_224",
        "beit_base_patch16_224",
        "vit_relpos_small_patch16_224",
        "vit_base_patch16_siglip_224",
        "vit_base_patch32_clip_224.openai",
    ):
        assert name in names
    assert len(names) == len(set(names))
    assert "resnet50" not in names


def test_patterns():
    assert all("dinov2" in name for name in model_names("DINOv2"))
    assert model_names("vit_tiny_patch16_22?") == ("vit_tiny_patch16_224",)
    assert model_names("deit_*_distilled_*384") == ("deit_base_distilled_patch16_384",)
    assert model_names("nothing like it") == ()
    # Numbers sort as numbers.
    patches = [name for name in model_names("vit_base_patch*_224") if "." not in name]
    assert patches.index("vit_base_patch8_224") < patches.index("vit_base_patch16_224")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("vit_smal_patch16_224", "vit_small_patch16_224"),
        ("vit_small_patch14_dino2", "vit_small_patch14_dinov2"),
        ("deit_tiny", "deit_tiny_patch16_224"),
        ("vit_small_patch16_224.dinov", "vit_small_patch16_224.dino"),
        ("ViT_Base_Patch16_224", "vit_base_patch16_224"),
    ],
)
def test_wrong_names_get_near_ones(wrong, meant):
    assert meant in near_names(wrong)
    with pytest.raises(UnknownModelError) as caught:
        open_model(wrong)
    assert meant in caught.value.candidates
    assert meant in str(caught.value)


def test_a_name_near_nothing():
    with pytest.raises(UnknownModelError, match=r"^No model is called 'qqqqqq', and no such file exists\.$"):
        open_model("qqqqqq")


def test_known_names_pass_whatever_their_family():
    check_name("vit_tiny_patch16_224")
    check_name("resnet50")
    check_name("vit_small_patch16_224.dino")


def test_no_trained_weights_is_refused():
    with pytest.raises(CheckpointError, match=r"has no trained weights to download.*--weights FILE"):
        open_model("vit_base_patch16_18x2_224")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Point the hub's client at an address and an empty cache."""
    from huggingface_hub import constants

    def point(address):
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)

    return point


def test_offline_says_the_two_ways_out_and_soon(hub):
    hub("http://127.0.0.1:9")
    started = time.monotonic()
    with pytest.raises(OfflineError) as caught:
        open_model("vit_tiny_patch16_224")
    assert time.monotonic() - started < 8
    text = str(caught.value)
    assert text.startswith(
        "vit_tiny_patch16_224 could not be downloaded: there is no network connection to the model hub. Two"
    )
    assert text.endswith(
        "Two ways out: join it with a checkpoint on this computer "
        "(--model vit_tiny_patch16_224 --weights FILE), or open the sample model (--model sample)."
    )


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("resnet50", NoAttentionError, "It is a convolutional network."),
        ("vgg16.tv_in1k", NoAttentionError, "It is a convolutional network."),
    ],
)
def test_families_with_nothing_to_show_are_refused_without_a_download(hub, name, error, words):
    hub("http://127.0.0.1:9")
    with pytest.raises(error) as caught:
        open_model(name)
    assert words in str(caught.value)
    assert "Errno" not in str(caught.value)


def test_names_that_exist_but_can_not_be_shown():
    assert "resnet50" in names_not_shown("*resnet*")
    assert "swin_tiny_patch4_window7_224" in model_names()
    assert not set(names_not_shown("")) & set(model_names())
    assert names_not_shown("no such model") == ()


class _Hub(http.server.BaseHTTPRequestHandler):
    """A hub with one file, and a pause in the middle of it that a test may ask for."""

    content = b""
    pause = 0.0
    silent = 0.0

    def _headers(self):
        time.sleep(self.silent)
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.send_header("ETag", f'"{hashlib.sha256(self.content).hexdigest()}"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.end_headers()

    def do_HEAD(self):
        self._headers()

    def do_GET(self):
        if not self.path.endswith("model.safetensors"):
            self.send_error(404)
            return
        self._headers()
        try:
            half = len(self.content) // 2
            self.wfile.write(self.content[:half])
            self.wfile.flush()
            time.sleep(self.pause)
            self.wfile.write(self.content[half:])
        except OSError:
            pass  # the client went away, which is what cancelling is

    def log_message(self, *args):
        pass


@pytest.fixture
def local_hub(hub):
    handler = type("Handler", (_Hub,), {})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hub(f"http://127.0.0.1:{server.server_port}")
    yield handler
    server.shutdown()
    server.server_close()
    thread.join()


def test_pretrained_weights_are_fetched_with_progress_and_kept(local_hub):
    torch.manual_seed(5)
    trained = timm.create_model("vit_tiny_patch16_224", pretrained=False)
    local_hub.content = safetensors.torch.save(trained.state_dict())
    told = []
    model = open_model("vit_tiny_patch16_224", device="cpu", job=Job(lambda *step: told.append(step)))
    for key, value in model.module.state_dict().items():
        assert torch.equal(value, trained.state_dict()[key])
    assert model.provenance.model_sha256 == hashlib.sha256(local_hub.content).hexdigest()
    assert ("Downloading vit_tiny_patch16_224", 0.0) in told
    assert any(doing == "Loading vit_tiny_patch16_224" for doing, _ in told)
    record = model.attend(torch.zeros(1, 3, 224, 224))
    assert record.grid == (14, 14)
    assert len(record.prediction.labels) == 5
    assert sum(record.prediction.probabilities) <= 1

    local_hub.content = b""  # from now on the cache has to do
    again = open_model("vit_tiny_patch16_224", device="cpu")
    assert torch.equal(again.module.cls_token, trained.cls_token)


def test_a_download_can_be_cancelled_half_way(local_hub):
    local_hub.content = bytes(30_000_000)
    local_hub.pause = 5.0
    shares = []

    def progress(doing, share):
        shares.append(share)
        if share is not None and share > 0.3:
            job.cancel()

    job = Job(progress)
    started = time.monotonic()
    with pytest.raises(Cancelled):
        open_model("vit_tiny_patch16_224", job=job)
    assert time.monotonic() - started < 4
    assert 0.3 < max(share for share in shares if share is not None) <= 0.6


def test_a_hub_that_never_answers_is_given_up(local_hub):
    local_hub.content = json.dumps({}).encode()
    local_hub.silent = 15.0
    started = time.monotonic()
    with pytest.raises(OfflineError, match="could not be downloaded"):
        open_model("vit_tiny_patch16_224")
    assert time.monotonic() - started < 9
