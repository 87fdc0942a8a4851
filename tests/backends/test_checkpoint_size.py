"""Checkpoints whose positions are of another input size than their architecture's usual one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

from viewer import open_image, open_model
from viewer.errors import CheckpointError, InputError

# Their positions are of one size; those of the others timm's own filters resample, or they have none.
_FIXED = {"levit_128s": 128, "pit_ti_224": 96, "hiera_tiny_224": 128}
_FREE = {"tnt_s_legacy_patch16_224": 96, "xcit_nano_12_p16_224": 96}


def checkpoint(folder: Path, name: str, size: int | tuple[int, int], **options: object) -> Path:
    torch.manual_seed(0)
    state = timm.create_model(name, pretrained=False, img_size=size, **options).state_dict()
    path = folder / f"{name}.safetensors"
    save_file({key: weight.contiguous() for key, weight in state.items()}, path)
    return path


@pytest.fixture
def picture() -> object:
    return open_image(np.random.default_rng(0).integers(0, 255, (150, 180, 3), np.uint8))


@pytest.mark.parametrize(("name", "size"), [*_FIXED.items(), *_FREE.items()])
def test_it_opens_at_its_size_as_timm_would_make_it(name: str, size: int, tmp_path: Path, picture) -> None:
    path = checkpoint(tmp_path, name, size)
    model = open_model(name, str(path), size, "cpu")
    record = model.attend(picture)
    assert record.input_size == (size, size)
    assert record.verified
    torch.manual_seed(0)
    known = timm.create_model(name, pretrained=False, img_size=size).eval()
    tensor = torch.rand(1, 3, size, size)
    with torch.no_grad():
        expected = known(tensor)[0].numpy()
    np.testing.assert_allclose(model.attend(tensor).output, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "size"), _FIXED.items())
@pytest.mark.parametrize("asked", [None, 160, "whole"])
def test_refused_at_any_other_it_names_its_size(name: str, size: int, asked, tmp_path: Path) -> None:
    path = checkpoint(tmp_path, name, size)
    with pytest.raises(CheckpointError) as refused:
        open_model(name, str(path), asked, "cpu")
    assert f"Its positions are of pictures of {size}x{size} pixels" in str(refused.value)
    assert f"(--image-size {size})" in str(refused.value)


# The first resamples positions of a square; the second takes them as they are.
@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "cait_xxs24_224"])
def test_a_grid_that_is_no_square_opens_at_its_size_only(name: str, tmp_path: Path, picture) -> None:
    path = checkpoint(tmp_path, name, (96, 160), num_classes=5)
    model = open_model(name, str(path), (96, 160), "cpu")
    record = model.attend(picture)
    assert (record.input_size, record.output.shape, record.verified) == ((96, 160), (5,), True)
    torch.manual_seed(0)
    known = timm.create_model(name, pretrained=False, img_size=(96, 160), num_classes=5).eval()
    tensor = torch.rand(1, 3, 96, 160)
    with torch.no_grad():
        expected = known(tensor)[0].numpy()
    np.testing.assert_allclose(model.attend(tensor).output, expected, rtol=1e-4, atol=1e-5)
    for asked in (None, (160, 160)):
        with pytest.raises(
            CheckpointError, match="of 60 patches of 16x16 pixels, which make no square"
        ) as no:
            open_model(name, str(path), asked, "cpu")
        assert "(--image-size HEIGHTxWIDTH)" in str(no.value)


def test_a_size_it_does_not_run_at_is_not_advised(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, "crossvit_tiny_240", 96)
    with pytest.raises(CheckpointError) as refused:
        open_model("crossvit_tiny_240", str(path), None, "cpu")
    assert str(refused.value).endswith(
        "Its positions are of pictures of 96x96 pixels, "
        "a size at which crossvit_tiny_240 is made but does not run."
    )


def test_classes_of_its_own_make_no_difference(tmp_path: Path, picture) -> None:
    path = checkpoint(tmp_path, "pit_ti_224", 96, num_classes=5)
    assert open_model("pit_ti_224", str(path), 96, "cpu").attend(picture).output.shape == (5,)
    with pytest.raises(CheckpointError, match="--image-size 96"):
        open_model("pit_ti_224", str(path), None, "cpu")


def test_what_fits_at_the_usual_size_takes_no_other(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, "pit_ti_224", 224)
    assert open_model("pit_ti_224", str(path), None, "cpu").preprocessing.size == (224, 224)
    with pytest.raises(InputError, match="takes pictures of 224x224 pixels, not 96x96"):
        open_model("pit_ti_224", str(path), 96, "cpu")


def test_of_another_architecture_no_size_is_named(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, "pit_ti_224", 96)
    for size in (None, 96):
        with pytest.raises(CheckpointError, match="another architecture") as refused:
            open_model("levit_128s", str(path), size, "cpu")
        assert "--image-size" not in str(refused.value)
