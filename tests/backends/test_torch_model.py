"""Attending: pictures, arrays and tensors of every size, what is refused, and what is remembered."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
from torch import nn

from tests.backends.timm_zoo import ZOO, attending, build, picture, randomize
from viewer import open_image, open_model
from viewer.attention.record import Provenance
from viewer.attention.scores import storage_bytes
from viewer.backends.model import Job
from viewer.backends.timm_model import wrap
from viewer.backends.torch_runner import TorchRunner
from viewer.backends.torch_sizes import SizedModels
from viewer.errors import Cancelled, InputError, NoAttentionError
from viewer.images.preprocess import prepare

DINOV2 = "vit_small_patch14_dinov2"


@pytest.fixture(scope="module")
def dinov2():
    return attending(DINOV2, build(DINOV2))


@pytest.fixture
def photo():
    generator = np.random.default_rng(0)
    return generator.integers(0, 256, (90, 140, 3), dtype=np.uint8)


def test_picture_array_and_tensor_agree(dinov2, photo, tmp_path):
    from PIL import Image

    file = tmp_path / "photo.png"
    Image.fromarray(photo).save(file)
    image = open_image(file)
    prepared = prepare(image, dinov2.preprocessing)
    records = [dinov2.attend(given) for given in (image, photo, torch.from_numpy(prepared.tensor))]
    for record in records:
        np.testing.assert_array_equal(record.layers[1].matrix(2), records[0].layers[1].matrix(2))
        assert record.input_size == (56, 56)
    from_file, from_array, from_tensor = records
    np.testing.assert_array_equal(from_file.seen, prepared.seen)
    assert from_file.box == prepared.box
    assert (from_file.provenance.image, from_file.provenance.image_sha256) == (str(file), image.sha256)
    assert from_array.provenance.image == ""
    assert (from_tensor.seen, from_tensor.box) == (None, None)
    assert from_file.provenance.preprocessing.startswith("56x56, center")
    assert (from_file.provenance.backend, from_file.provenance.device) == ("torch", "cpu")


def test_output_is_the_models_own(dinov2):
    tensor = picture(dinov2)
    with torch.no_grad():
        expected = dinov2.module(tensor)[0].numpy()
    record = dinov2.attend(tensor)
    np.testing.assert_array_equal(record.output, expected)
    assert record.output.dtype == np.float32
    assert record.prediction is None  # DINOv2 is no classifier


def test_second_picture_is_like_the_first(dinov2):
    first, second, again = (dinov2.attend(picture(dinov2, seed)) for seed in (1, 2, 1))
    np.testing.assert_array_equal(first.layers[0].matrix(0), again.layers[0].matrix(0))
    assert not np.allclose(first.layers[0].matrix(0), second.layers[0].matrix(0))
    assert [layer.name for layer in again.layers] == ["blocks.0.attn", "blocks.1.attn"]
    assert again.verified
    assert again.output_unchanged


def test_classes_have_imagenet_names():
    model = attending("vit", build("vit_tiny_patch16_224"))
    tensor = picture(model)
    best = model.attend(tensor).prediction
    with torch.no_grad():
        probabilities = model.module(tensor).softmax(-1)[0]
    top = probabilities.topk(5)
    assert best.probabilities == pytest.approx(top.values.tolist(), abs=1e-6)
    names = timm.data.ImageNetInfo("imagenet-1k")
    assert best.labels == tuple(names.index_to_description(index) for index in top.indices.tolist())


def test_a_clip_tower_names_no_class():
    model = attending("clip", build("vit_base_patch32_clip_224.openai"))
    assert model.module.num_classes == 512
    assert model.attend(torch.zeros(1, 3, 224, 224)).prediction is None


@pytest.mark.parametrize("size", [(28, 28), (70, 42), (14, 98)])
def test_sizes_that_are_multiples_of_the_patch(dinov2, photo, size):
    record = dinov2.sized(size).attend(photo)
    assert record.input_size == size
    assert record.seen.shape == (*size, 3)
    assert record.grid == (size[0] // 14, size[1] // 14)
    assert record.verified


# timm's resampling of bias tables warns about the way it indexes.
@pytest.mark.filterwarnings("ignore:torch.searchsorted", "ignore:Using a non-tuple sequence")
@pytest.mark.parametrize("name", ZOO)
def test_other_sizes_equal_a_model_made_for_them(name):
    """Positions and bias tables come out as if timm had loaded the weights at that size."""
    patch = build(name).patch_embed.feat_ratio()
    module = build(name, img_size=patch * 4)
    size = (patch * 3, patch * 5)
    arguments = {**ZOO[name][0], "depth": 2, "img_size": size}
    made = timm.create_model(name, pretrained=False, **arguments).eval()
    convert = sys.modules[type(made).__module__].checkpoint_filter_fn
    made.load_state_dict(convert(module.state_dict(), made))
    tensor = torch.randn(1, 3, *size)
    found = attending(name, module).sized(size).attend(tensor)
    expected = attending(name, made).attend(tensor)
    assert found.grid == (3, 5)
    for one, other in zip(found.layers, expected.layers, strict=True):
        np.testing.assert_allclose(one.matrix(0), other.matrix(0), rtol=0, atol=1e-5)


def test_windows_at_a_size_they_do_not_divide_say_nothing_but_pad():
    """Windows are filled up at 104 px, and so is the last row where patches are merged; nothing warns."""
    net = timm.create_model(
        "swin_tiny_patch4_window7_224", embed_dim=24, depths=(1, 2, 1, 1), num_heads=(1, 2, 2, 4)
    )
    model = wrap("swin", net, "cpu", Provenance("swin")).sized((104, 136))
    record = model.attend(np.random.default_rng(0).integers(0, 255, (104, 136, 3), np.uint8))
    assert [layer.query_layout.grid for layer in record.layers] == [
        *((26, 34), (13, 17), (13, 17), (7, 9), (4, 5)),
    ]
    assert record.verified
    assert "padding" in record.layers[0].key_layout.prefix_names
    merged = record.layers[3].key_layout
    # Row 6 is made of row 12 and padding: it stands on what there is of it.
    assert merged.positions[merged.token((6, 0))].tolist() == pytest.approx([100, 8])
    assert merged.positions[merged.token((5, 0))].tolist() == pytest.approx([88, 8])


def test_sizes_share_weights_and_leave_the_model_alone(dinov2):
    before = {key: value.clone() for key, value in dinov2.module.state_dict().items()}
    other = dinov2.runner.sizes.at((84, 84))
    assert other.blocks[0].attn.qkv.weight is dinov2.module.blocks[0].attn.qkv.weight
    assert other.pos_embed.shape == (1, 37, 384)
    for key, value in dinov2.module.state_dict().items():
        assert torch.equal(value, before[key])


def test_whole_pictures_keep_their_aspect(dinov2, photo):
    whole = dinov2.sized("whole")
    record = whole.attend(photo)
    rows, columns = record.grid
    assert rows * columns <= 16
    assert columns > rows
    assert record.box == (0, 0, 140, 90)
    tall = whole.attend(np.ascontiguousarray(photo.transpose(1, 0, 2)))
    assert tall.grid == (columns, rows)


def test_a_model_of_one_size_says_beforehand_that_it_takes_nothing_whole(dinov2, photo):
    assert dinov2.why_not_whole == ""
    name = "cait_xxs24_224"
    module = timm.create_model(name, pretrained=False, depth=2, img_size=64).eval()
    model = wrap(name, module, "cpu", Provenance(name))
    assert model.why_not_whole == f"{name} takes only pictures of 64x64 pixels, so it can't take them whole."
    for ask in (
        lambda: model.sized("whole"),
        lambda: model.with_preprocessing(replace(model.preprocessing, crop_mode="whole")),
    ):
        with pytest.raises(InputError) as caught:
            ask()
        assert str(caught.value) == model.why_not_whole
    assert model.attend(photo).input_size == (64, 64)


def test_sizes_the_model_can_not_take(dinov2):
    with pytest.raises(InputError) as caught:
        dinov2.sized(60)
    assert str(caught.value) == (
        f"{DINOV2} takes pictures whose height and width are multiples of its 14x14 pixel patch, not 60x60; "
        "the nearest is 56x56."
    )
    with pytest.raises(InputError, match="multiples of its 14x14 pixel patch, not 56x57"):
        dinov2.attend(torch.zeros(1, 3, 56, 57))
    with pytest.raises(InputError, match="multiples"):
        dinov2.sized((14, 0))


@pytest.mark.parametrize(("name", "size"), [("crossvit_tiny_240", 96), ("mvitv2_tiny", 200)])
def test_a_size_that_an_architecture_itself_fails_at_is_a_sentence(name, size):
    # timm makes these at such sizes and they break off as they run, each with another kind of error.
    module = timm.create_model(name, pretrained=False, img_size=size)
    model = wrap(name, module, "cpu", Provenance(name), size=(size, size))
    with pytest.raises(InputError, match=f"^{name} could not run on a picture of {size}x{size} pixels: "):
        model.attend(torch.zeros(1, 3, size, size))


@pytest.mark.parametrize("wrong", [0, -14, (14, -14), (1, 2, 3), "large", 1.5])
def test_what_is_no_input_size(wrong):
    with pytest.raises(InputError, match="is no input size; give a number, a height and a width, or 'whole'"):
        open_model("vit_tiny_patch16_224", image_size=wrong)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (torch.zeros(1, 1, 56, 56), r"shape \(1, 3, height, width\), not float32 of shape \(1, 1, 56, 56\)"),
        (torch.zeros(2, 3, 56, 56), r"takes one preprocessed picture"),
        (torch.zeros(3, 56, 56), r"of shape \(3, 56, 56\)"),
        (torch.zeros(1, 3, 56, 56, dtype=torch.uint8), "not uint8"),
        (torch.full((1, 3, 56, 56), torch.nan), "NaN or infinite"),
        (np.zeros((56, 56), np.uint8), r"not a uint8 array of shape \(56, 56\)"),
        (np.zeros((56, 56, 3), np.float32), "not a float32 array"),
        ("cat.png", "not str"),
        (None, "not NoneType"),
    ],
)
def test_inputs_that_are_none(dinov2, given, sentence):
    with pytest.raises(InputError, match=sentence):
        dinov2.attend(given)


def test_layout_other_than_nchw(dinov2):
    with pytest.raises(InputError, match="takes its input as NCHW, not NHWC"):
        dinov2.with_preprocessing(replace(dinov2.preprocessing, layout="NHWC"))


def test_models_without_attention_are_refused_with_their_census():
    module = timm.create_model("resnet10t").eval()
    model = wrap("resnet10t", module, "cpu", Provenance("resnet10t"))
    with pytest.raises(NoAttentionError) as caught:
        model.attend(torch.zeros(1, 3, *model.preprocessing.size))
    convolutions = sum(isinstance(part, nn.Conv2d) for part in module.modules())
    assert caught.value.census["convolution"] == convolutions
    assert f"It is a convolutional network: {convolutions} convolutions, " in str(caught.value)
    assert "1 matrix product" in str(caught.value)
    assert "addmm" not in str(caught.value)


@pytest.mark.parametrize("known", [False, True])
def test_cancel_takes_effect_within_a_layer(known):
    module = build("vit_tiny_patch16_224", depth=8)
    model = attending("vit", module)
    tensor = picture(model)
    if known:
        model.attend(tensor)
    ran = []
    for index, block in enumerate(module.blocks):
        block.register_forward_hook(lambda *_, index=index: ran.append(index))

    def progress(doing, share):
        if ran and ran[-1] == 2:
            job.cancel()

    job = Job(progress)
    with pytest.raises(Cancelled):
        model.attend(tensor, job)
    assert max(ran) <= 3
    assert len(ran) <= 4
    # Nothing is left behind: the next one works.
    assert model.attend(tensor).verified


def test_progress_runs_up_to_1(dinov2):
    dinov2.attend(picture(dinov2))
    told = []
    dinov2.attend(picture(dinov2), Job(lambda *step: told.append(step)))
    shares = [share for _, share in told if share is not None]
    assert shares == [0.0, 0.5, 1.0]


def test_record_is_a_tenth_of_full_attention_and_owns_its_memory():
    module = timm.create_model(DINOV2, pretrained=False, depth=1, img_size=518).eval()
    randomize(module)
    record = attending(DINOV2, module).attend(torch.randn(1, 3, 518, 518))
    scores = record.layers[0].scores
    full = 4 * scores.heads * scores.queries * scores.keys
    assert (scores.heads, scores.queries) == (6, 1370)
    assert storage_bytes(scores.tensors) / full == pytest.approx(0.0934, abs=1e-4)


def test_inference_mode_of_the_caller_does_not_matter(dinov2):
    expected = dinov2.attend(picture(dinov2))
    with torch.inference_mode():
        record = dinov2.attend(picture(dinov2))
    np.testing.assert_array_equal(record.layers[1].matrix(0), expected.layers[1].matrix(0))


def test_several_threads_may_attend_at_once(dinov2):
    expected = [dinov2.attend(picture(dinov2, seed)).layers[1].matrix(0) for seed in range(4)]
    fresh = attending(DINOV2, build(DINOV2))
    found = [None] * 4

    def work(seed):
        found[seed] = fresh.attend(picture(fresh, seed)).layers[1].matrix(0)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(np.stack(found), np.stack(expected))


class _SmallDevice(nn.Module):
    """A model that finds no room until it has been moved to the CPU again, as on a full graphics card."""

    def __init__(self, inner, error):
        super().__init__()
        self.inner, self.error = inner, error
        self.moves = []

    def to(self, device):
        self.moves.append(device)
        return self

    def forward(self, x):
        if self.moves[-1] != "cpu":
            raise self.error
        return self.inner(x)


class _OnCpu(TorchRunner):
    """A runner whose device is a name only, for machines that have no other."""

    def _run(self, tensor, job, changes):
        device, self.device = self.device, "cpu"
        try:
            return super()._run(tensor, job, changes)
        finally:
            self.device = device


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("MPS backend out of memory (MPS allocated: 2.00 GB)"),
    ],
)
def test_out_of_memory_falls_back_to_the_cpu_with_a_notice(dinov2, error):
    module = _SmallDevice(build(DINOV2), error)
    runner = _OnCpu("model", SizedModels("model", module, (56, 56)), "cuda:0")
    model = replace(dinov2, runner=runner, name="model")
    record = model.attend(picture(dinov2))
    assert module.moves == ["cuda:0", "cpu"]
    assert (model.device, record.provenance.device) == ("cpu", "cpu")
    notice = "The device cuda:0 ran out of memory; model went on on the CPU, which is slower."
    assert notice in record.notes
    assert notice in model.notes
    expected = dinov2.attend(picture(dinov2))
    np.testing.assert_array_equal(record.layers[1].matrix(0), expected.layers[1].matrix(0))


def test_out_of_memory_on_the_cpu_is_a_sentence(dinov2):
    class Full(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return x.new_empty(1 << 60)

    runner = TorchRunner("model", SizedModels("model", Full(), (56, 56)), "cpu")
    with pytest.raises(InputError, match="model needs more memory than there is"):
        replace(dinov2, runner=runner).attend(torch.zeros(1, 3, 56, 56))


@pytest.mark.parametrize("size", [None, (48, 80), "whole"])
def test_open_model_with_a_checkpoint_and_a_size(tmp_path, photo, size):
    trained = timm.create_model("vit_tiny_patch16_224", pretrained=False)
    randomize(trained)
    path = tmp_path / "weights.pth"
    torch.save(trained.state_dict(), path)
    model = open_model("vit_tiny_patch16_224", weights=path, image_size=size, device="cpu")
    record = model.attend(photo)
    assert (model.name, model.backend, model.device) == ("vit_tiny_patch16_224", "torch", "cpu")
    assert record.provenance.weights == str(path)
    assert len(record.provenance.model_sha256) == 64
    assert len(record.layers) == 12
    assert record.verified
    expected = {None: (224, 224), (48, 80): (48, 80), "whole": record.input_size}[size]
    assert record.input_size == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vit_tiny_patch16_224", ((0.5,) * 3, (0.5,) * 3, "bicubic", 0.9, "center")),
        ("deit_tiny_patch16_224", ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "bicubic", 0.9, "center")),
        ("vit_base_patch16_siglip_224", ((0.5,) * 3, (0.5,) * 3, "bicubic", 0.9, "center")),
    ],
)
def test_preprocessing_is_the_models_own_configuration(name, expected):
    how = attending(name, timm.create_model(name, depth=1)).preprocessing
    assert (how.mean, how.std, how.interpolation, how.crop_pct, how.crop_mode) == expected
    assert (how.size, how.assumed) == ((224, 224), "")
