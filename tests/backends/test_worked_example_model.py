"""The worked example opens by its name, reads brightness from any picture, and keeps a model's contract."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from viewer import open_image, open_model
from viewer.attention.worked_example import DIAGONAL, explain
from viewer.backends.model import Job
from viewer.backends.what_if_model import with_changes
from viewer.backends.worked_example_model import brightness_of, picture_of
from viewer.errors import Cancelled, InputError
from viewer.shipped import resource


@pytest.fixture
def model():
    return open_model("worked-example")


def test_nine_squares_give_the_known_shares(model):
    record = model.attend(open_image(picture_of(DIAGONAL), "nine patches"))
    assert (record.grid, record.patch_px, record.prefix_tokens) == ((3, 3), (96.0, 96.0), 0)
    assert record.verified
    weights = record.layers[0].weights((0, 0))[0]
    np.testing.assert_allclose(weights[[0, 4, 8]], 0.298, atol=5e-4)
    np.testing.assert_allclose(weights[[1, 2, 3, 5, 6, 7]], 0.018, atol=5e-4)
    assert record.provenance.model == "worked-example"
    assert record.provenance.image == "nine patches"
    assert repr(model) == "<WorkedExampleModel: worked-example, torch on cpu, input 288 x 288 px>"


def test_brightness_survives_the_picture_to_half_a_grey_level(model):
    given = tuple(np.linspace(0, 1, 9).tolist())
    record = model.attend(open_image(picture_of(given)))
    read = [key.brightness for key in explain(record.layers[0], (1, 1)).keys]
    np.testing.assert_allclose(read, given, atol=0.5 / 255 + 1e-6)


def test_a_photograph_has_nine_brightnesses_too(model):
    record = model.attend(open_image(resource("images", "cat.jpg")))
    assert record.seen.shape == (288, 288, 3)
    brightness = brightness_of(record.seen)
    assert len(set(brightness)) == 9
    assert brightness[4] == pytest.approx(record.seen[96:192, 96:192].mean() / 255, abs=1e-6)
    assert record.verified


def test_size_is_any_that_three_divides():
    assert open_model("worked-example", image_size=(30, 60)).preprocessing.size == (30, 60)
    assert open_model("worked-example", image_size="whole").preprocessing.size == (288, 288)
    record = open_model("worked-example", image_size=30).attend(open_image(picture_of(DIAGONAL)))
    assert record.patch_px == (10.0, 10.0)
    with pytest.raises(InputError, match="divisible by 3, unlike 224 x 224 pixels"):
        open_model("worked-example", image_size=224)


def test_other_preprocessing_and_cancelling(model):
    other = model.with_preprocessing(replace(model.preprocessing, size=(60, 60), crop_mode="center"))
    assert other.attend(open_image(picture_of(DIAGONAL))).input_size == (60, 60)
    job = Job()
    job.cancel()
    with pytest.raises(Cancelled):
        model.attend(open_image(picture_of(DIAGONAL)), job)
    with pytest.raises(InputError, match="A model takes"):
        model.attend(np.zeros((3, 3), np.float32))


def test_what_it_lacks_is_said_of_it_and_not_of_other_models(model):
    layer = model.attend(open_image(picture_of(DIAGONAL))).layers[0]
    assert layer.no_norms == "the worked example is one attention, without a residual stream"
    with pytest.raises(InputError, match="one attention over nine patches, with no blocks to change"):
        with_changes(model, [])
