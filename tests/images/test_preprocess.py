"""Preprocessing against timm's own evaluation transform, bit for bit, and where on the picture it looked."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from timm.data import create_transform

from tests.images.pictures import noise
from viewer import open_image
from viewer.errors import InputError
from viewer.images import preprocess
from viewer.images.preprocess import Preprocessing, prepare, whole_size
from viewer.images.samples import SAMPLES

CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
SIZES = [(224, 224), (336, 336), (224, 320)]
SHAPES = [(1, 1), (5, 7), (64, 64), (224, 224), (255, 257), (333, 500), (151, 3)]


def timm_tensor(pixels, how):
    transform = create_transform(
        input_size=(3, *how.size),
        is_training=False,
        interpolation=how.interpolation,
        mean=how.mean,
        std=how.std,
        crop_pct=how.crop_pct,
        crop_mode=how.crop_mode,
    )
    return transform(Image.fromarray(pixels)).numpy()[None]


@pytest.mark.parametrize("crop_mode", ["center", "border", "squash"])
@pytest.mark.parametrize("crop_pct", [0.875, 0.9, 1.0])
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_photographs_equal_timm_to_the_bit(sample, crop_pct, crop_mode):
    image = open_image(sample.path)
    for size, interpolation in itertools.product(SIZES, ["bicubic", "bilinear"]):
        how = Preprocessing(size, CLIP_MEAN, CLIP_STD, interpolation, crop_pct, crop_mode)
        np.testing.assert_array_equal(prepare(image, how).tensor, timm_tensor(image.pixels, how))


@pytest.mark.parametrize("crop_mode", ["center", "border", "squash"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_odd_shapes_equal_timm_to_the_bit(shape, crop_mode):
    for pixels in (noise(*shape), noise(*shape[::-1])):
        for size, crop_pct in itertools.product(SIZES, [0.875, 1.0]):
            how = Preprocessing(size, crop_pct=crop_pct, crop_mode=crop_mode)
            prepared = prepare(open_image(pixels), how)
            np.testing.assert_array_equal(prepared.tensor, timm_tensor(pixels, how))


@pytest.mark.parametrize("interpolation", ["nearest", "lanczos", "box", "hamming"])
def test_other_filters_equal_timm(interpolation):
    how = Preprocessing((112, 112), interpolation=interpolation, crop_pct=0.95)
    np.testing.assert_array_equal(
        prepare(open_image(noise(150, 101)), how).tensor, timm_tensor(noise(150, 101), how)
    )


@pytest.mark.parametrize("shape", [(2000, 1), (1, 2000)], ids=str)
def test_a_strip_of_2000_to_1_equals_timm(shape):
    how = Preprocessing((112, 112), crop_pct=0.9)
    np.testing.assert_array_equal(
        prepare(open_image(noise(*shape)), how).tensor, timm_tensor(noise(*shape), how)
    )


@pytest.mark.parametrize("shape", [(60000, 1), (1, 60000), (3, 50000)], ids=str)
def test_a_longer_strip_needs_little_memory(shape):
    prepared = prepare(open_image(noise(*shape)), Preprocessing((224, 224), crop_pct=0.9))
    assert prepared.seen.shape == (224, 224, 3)
    left, top, right, bottom = prepared.box
    assert (left + right) / 2 == pytest.approx(shape[1] / 2, abs=0.01)
    assert (top + bottom) / 2 == pytest.approx(shape[0] / 2, abs=0.01)


@pytest.mark.parametrize("shape", [(300, 40), (40, 300), (700, 31)], ids=str)
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "lanczos"])
def test_computing_only_the_kept_part_is_within_two_steps(monkeypatch, shape, interpolation):
    how = Preprocessing((112, 112), interpolation=interpolation, crop_pct=0.9)
    image = open_image(noise(*shape))
    whole = prepare(image, how)
    monkeypatch.setattr(preprocess, "_MOST_RESIZED_PIXELS", 0)
    part = prepare(image, how)
    assert part.box == whole.box
    assert np.abs(part.seen.astype(int) - whole.seen).max() <= 2


def test_a_strip_too_thin_for_a_border_keeps_one_row():
    how = Preprocessing((64, 64), mean=(1, 0.5, 0), crop_mode="border")
    prepared = prepare(open_image(np.zeros((1, 2000, 3), np.uint8)), how)
    lines = prepared.seen[:, 32]
    assert (lines == (255, 128, 0)).all(axis=1).sum() == 63
    assert (lines == 0).all(axis=1).sum() == 1


def test_seen_is_the_tensor_before_normalization():
    image = open_image(SAMPLES[0].path)
    how = Preprocessing((112, 168), crop_pct=0.9)
    prepared = prepare(image, how)
    back = prepared.tensor[0].transpose(1, 2, 0) * np.array(how.std) + how.mean
    np.testing.assert_array_equal(np.rint(back * 255).astype(np.uint8), prepared.seen)
    assert prepared.tensor.dtype == np.float32
    assert prepared.tensor.flags.c_contiguous


def test_nhwc_holds_the_same_numbers():
    image = open_image(noise(90, 120))
    nchw = prepare(image, Preprocessing((64, 80))).tensor
    nhwc = prepare(image, Preprocessing((64, 80), layout="NHWC")).tensor
    assert nhwc.shape == (1, 64, 80, 3)
    np.testing.assert_array_equal(nhwc.transpose(0, 3, 1, 2), nchw)


@pytest.mark.parametrize("value_range", [(0.0, 1.0), (0.0, 255.0), (-1.0, 1.0)])
def test_value_range_is_what_black_and_white_become(value_range):
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[:, 4:] = 255
    how = Preprocessing((8, 8), (0, 0, 0), (1, 1, 1), value_range=value_range)
    tensor = prepare(open_image(pixels), how).tensor
    assert (tensor[..., 0] == value_range[0]).all()
    assert (tensor[..., 7] == value_range[1]).all()


def test_mean_and_deviation_are_in_the_units_of_the_range():
    image = open_image(noise(64, 64))
    unit = prepare(image, Preprocessing((32, 32), CLIP_MEAN, CLIP_STD)).tensor
    mean, std = tuple(255 * m for m in CLIP_MEAN), tuple(255 * s for s in CLIP_STD)
    full = prepare(image, Preprocessing((32, 32), mean, std, value_range=(0, 255))).tensor
    np.testing.assert_allclose(full, unit, rtol=0, atol=2e-6)


def test_the_border_has_the_mean_colour_in_any_range():
    image = open_image(noise(20, 64))
    unit = prepare(image, Preprocessing((64, 64), crop_mode="border"))
    assert tuple(unit.seen[0, 0]) == (124, 116, 104)
    full = Preprocessing((64, 64), (123.675, 116.28, 103.53), crop_mode="border", value_range=(0, 255))
    np.testing.assert_array_equal(prepare(image, full).seen, unit.seen)


@settings(max_examples=80, deadline=None)
@given(
    st.integers(40, 300),
    st.integers(40, 300),
    st.sampled_from([(64, 64), (48, 96), (112, 112)]),
    st.sampled_from([0.8, 0.875, 1.0]),
    st.sampled_from(["center", "squash", "border", "whole"]),
)
def test_the_box_leads_from_seen_back_to_the_picture(height, width, size, crop_pct, crop_mode):
    # Red grows with the column and green with the row: a seen pixel tells where it came from.
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([x * 255 / (width - 1), y * 255 / (height - 1), 0 * x], -1).round().astype(np.uint8)
    prepared = prepare(
        open_image(pixels), Preprocessing(size, (0, 0, 1), (1, 1, 1), "bilinear", crop_pct, crop_mode)
    )
    left, top, right, bottom = prepared.box
    rows, columns = np.mgrid[0 : size[0], 0 : size[1]]
    # Centres of pixels: column c of `seen` spans c to c + 1.
    at_x = left + (columns + 0.5) * (right - left) / size[1]
    at_y = top + (rows + 0.5) * (bottom - top) / size[0]
    inside = prepared.seen[..., 2] == 0  # the border is blue
    # Away from the picture's rim, where filters lean inwards.
    inside &= (at_x > 6) & (at_x < width - 6) & (at_y > 6) & (at_y < height - 6)
    told_x = prepared.seen[..., 0].astype(float) * (width - 1) / 255 + 0.5
    told_y = prepared.seen[..., 1].astype(float) * (height - 1) / 255 + 0.5
    step = 1 + max(width, height) / 255
    assert inside.any()
    assert np.abs(told_x - at_x)[inside].max() <= step
    assert np.abs(told_y - at_y)[inside].max() <= step


def test_a_marker_is_found_where_the_box_says():
    pixels = np.zeros((300, 500, 3), np.uint8)
    pixels[100:104, 260:264] = 255  # centre at (262, 102)
    prepared = prepare(open_image(pixels), Preprocessing((224, 224), crop_pct=0.875))
    assert prepared.box == pytest.approx((250 - 131.25, 150 - 131.25, 250 + 131.25, 150 + 131.25), abs=0.6)
    weight = prepared.seen[..., 0].astype(float)
    row, column = (np.indices(weight.shape) * weight).sum(axis=(1, 2)) / weight.sum() + 0.5
    left, top, right, bottom = prepared.box
    assert left + column * (right - left) / 224 == pytest.approx(262, abs=0.05)
    assert top + row * (bottom - top) / 224 == pytest.approx(102, abs=0.05)


def test_exact_boxes():
    image = open_image(noise(100, 200))
    assert prepare(image, Preprocessing((50, 50))).box == (50, 0, 150, 100)
    assert prepare(image, Preprocessing((50, 50), crop_pct=0.5)).box == (75, 25, 125, 75)
    assert prepare(image, Preprocessing((50, 50), crop_mode="squash")).box == (0, 0, 200, 100)
    assert prepare(image, Preprocessing((50, 50), crop_mode="border")).box == (0, -48, 200, 152)
    assert prepare(image, Preprocessing((50, 100), crop_mode="whole", crop_pct=0.5)).box == (0, 0, 200, 100)


def test_whole_crops_nothing():
    pixels = noise(60, 90)
    how = Preprocessing((40, 60), crop_mode="whole", crop_pct=0.875)
    prepared = prepare(open_image(pixels), how)
    expected = np.asarray(Image.fromarray(pixels).resize((60, 40), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(prepared.seen, expected)


@pytest.mark.parametrize(
    ("picture", "size", "multiple", "expected"),
    [
        ((100, 100), (224, 224), 14, (224, 224)),
        ((300, 451), (224, 224), 14, (182, 266)),
        ((451, 300), (224, 224), 14, (266, 182)),
        ((512, 512), (224, 320), 16, (256, 256)),
        ((1, 2000), (224, 224), 14, (14, 3584)),
        ((1, 1), (224, 224), (16, 8), (224, 224)),
        ((400, 200), (10, 10), 16, (16, 16)),
    ],
)
def test_whole_size(picture, size, multiple, expected):
    assert whole_size(picture, size, multiple) == expected


@given(st.integers(1, 4000), st.integers(1, 4000), st.sampled_from([(224, 224), (518, 518), (224, 320)]))
def test_whole_size_is_never_larger_and_keeps_the_aspect(height, width, size):
    rows, columns = (side / 14 for side in whole_size((height, width), size, 14))
    budget = size[0] * size[1] // 196
    assert rows == int(rows)
    assert columns == int(columns)
    assert rows * columns <= budget
    if 0.25 <= height / width <= 4:
        assert abs(np.log(rows / columns / (height / width))) < 0.13
        assert rows * columns > 0.8 * budget


def test_unknown_names_are_refused():
    image = open_image(noise(8, 8))
    with pytest.raises(ValueError, match="interpolation 'cubic' is none of nearest, bilinear"):
        prepare(image, Preprocessing((8, 8), interpolation="cubic"))
    with pytest.raises(ValueError, match="crop mode 'fit' is none of center"):
        prepare(image, Preprocessing((8, 8), crop_mode="fit"))


def test_inputs_that_would_take_all_memory_are_refused():
    assert Preprocessing((4096, 4096)).size == (4096, 4096)
    with pytest.raises(InputError, match="99984 x 99984 pixels is too large; the limit"):
        replace(Preprocessing((224, 224)), size=(99984, 99984))
