"""The shipped pictures and icon."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from viewer import open_image
from viewer.images.samples import SAMPLES
from viewer.shipped import resource


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_each_opens_is_small_and_is_credited(sample):
    image = open_image(sample.path)
    assert min(image.pixels.shape[:2]) >= 224
    assert image.pixels.std() > 30
    assert image.notes == ()
    assert sample.path.stat().st_size < 150_000
    credits = resource("images", "LICENSES.md").read_text(encoding="utf-8")
    row = next(line for line in credits.splitlines() if f"`{sample.path.name}`" in line)
    maker, terms = sample.credit.split(", ")
    assert maker in row
    assert terms in row


def test_every_shipped_picture_is_listed():
    shipped = {path.name for path in resource("images").iterdir() if path.suffix != ".md"}
    assert shipped == {sample.path.name for sample in SAMPLES}


def test_the_icon_is_there_in_both_forms():
    assert "<svg" in resource("icons", "patchreach.svg").read_text(encoding="utf-8")
    with Image.open(resource("icons", "patchreach.png")) as icon:
        assert icon.size == (256, 256)
        pixels = np.asarray(icon.convert("RGBA"))
    assert pixels[0, 0, 3] == 0, "the corners are round"
    assert tuple(pixels[190, 30, :3]) == (255, 140, 66), "the bright patch"
