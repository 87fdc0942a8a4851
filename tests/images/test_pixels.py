"""Every kind of pixel, to 8-bit RGB."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from tests.images.pictures import encode, noise
from viewer import open_image

OVER_WHITE = "transparency put over white"


def over_white(colours, opacity):
    return colours * (opacity / 255.0) + 255 * (1 - opacity / 255.0)


def test_opacity_goes_over_white():
    pixels = noise(channels=4)
    webp, heic = {"lossless": True, "exact": True}, {"quality": -1, "chroma": 444, "matrix_coefficients": 0}
    for fmt, options in (("PNG", {}), ("TIFF", {}), ("WEBP", webp), ("HEIF", heic)):
        image = open_image(encode(pixels, fmt, **options))
        assert np.abs(image.pixels - over_white(pixels[..., :3], pixels[..., 3:])).max() <= 1
        assert image.notes == (OVER_WHITE,)


def test_opacity_of_avif_goes_over_white():
    pixels = np.full((32, 32, 4), (200, 100, 50, 0), np.uint8)
    pixels[:, 16:, 3] = 255
    image = open_image(encode(pixels, "AVIF", quality=95))
    assert (image.pixels[:, :12] > 250).all()
    assert np.abs(image.pixels[:, 20:].astype(int) - (200, 100, 50)).max() < 6
    assert image.notes == (OVER_WHITE,)


def test_full_opacity_changes_nothing_and_is_not_mentioned():
    pixels = noise()
    image = open_image(encode(np.dstack([pixels, np.full(pixels.shape[:2], 255, np.uint8)]), "PNG"))
    np.testing.assert_array_equal(image.pixels, pixels)
    assert image.notes == ()


def test_grey_with_opacity():
    grey, opacity = noise(channels=2)[..., 0], noise(channels=2)[..., 1]
    image = open_image(encode(Image.merge("LA", [Image.fromarray(grey), Image.fromarray(opacity)]), "PNG"))
    assert np.abs(image.pixels[..., 1] - over_white(grey, opacity)).max() <= 1
    assert image.notes == (OVER_WHITE,)


@pytest.mark.parametrize("fmt", ["PNG", "GIF"])
def test_a_transparent_palette_colour_becomes_white(fmt):
    picture = Image.fromarray(np.array([[0, 1], [2, 1]], np.uint8))
    picture.putpalette([10, 20, 30, 0, 0, 0, 200, 100, 50])
    image = open_image(encode(picture, fmt, transparency=1))
    np.testing.assert_array_equal(
        image.pixels, [[[10, 20, 30], [255, 255, 255]], [[200, 100, 50], [255, 255, 255]]]
    )
    assert image.notes == (OVER_WHITE,)


def test_partly_transparent_palette():
    picture = Image.fromarray(np.array([[0, 1]], np.uint8))
    picture.putpalette([10, 20, 30, 100, 100, 100])
    image = open_image(encode(picture, "PNG", transparency=bytes([255, 51])))
    np.testing.assert_array_equal(image.pixels, [[[10, 20, 30], [224, 224, 224]]])


def test_a_transparent_colour_key_becomes_white():
    rgb = np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8)
    image = open_image(encode(rgb, "PNG", transparency=(4, 5, 6)))
    np.testing.assert_array_equal(image.pixels, [[[1, 2, 3], [255, 255, 255]]])
    grey = open_image(encode(np.array([[7, 9]], np.uint8), "PNG", transparency=7))
    np.testing.assert_array_equal(grey.pixels, [[[255] * 3, [9] * 3]])


@pytest.mark.parametrize("fmt", ["PNG", "TIFF", "BMP"])
def test_one_bit_is_black_and_white(fmt):
    bits = np.array([[True, False, True]])
    image = open_image(encode(Image.fromarray(bits), fmt))
    np.testing.assert_array_equal(image.pixels[..., 0], [[255, 0, 255]])
    assert image.notes == ()


@pytest.mark.parametrize("fmt", ["PNG", "TIFF", "BMP", "WEBP"])
def test_grey_has_three_equal_channels(fmt):
    grey = noise()[..., 0]
    image = open_image(encode(grey, fmt, **({"lossless": True} if fmt == "WEBP" else {})))
    np.testing.assert_array_equal(image.pixels, np.repeat(grey[..., None], 3, axis=2))
    assert image.notes == ()


@pytest.mark.parametrize("fmt", ["PNG", "TIFF"])
@pytest.mark.parametrize(
    ("values", "expected", "white"),
    [
        ([0, 257, 32896, 65535], [0, 1, 128, 255], 65535),
        ([0, 2048, 4095], [0, 128, 255], 4095),  # a 12-bit sensor
        ([0, 100, 255], [0, 100, 255], 255),
        ([0, 0], [0, 0], 255),
    ],
)
def test_sixteen_bit_grey_is_scaled_by_its_depth(fmt, values, expected, white):
    image = open_image(encode(np.array([values], np.uint16), fmt))
    np.testing.assert_array_equal(image.pixels[0, :, 1], expected)
    assert image.notes == (f"grey values scaled so that 0 is black and {white} is white",)


@pytest.mark.parametrize(
    ("values", "expected", "ends"),
    [
        (np.array([[-100, 0, 100]], np.int32), [0, 128, 255], "-100 is black and 100 is white"),
        (np.array([[0, 70000]], np.int32), [0, 255], "0 is black and 70000 is white"),
        (np.array([[0.0, 0.5, 1.0]], np.float32), [0, 128, 255], "0 is black and 1 is white"),
        (np.array([[0.0, 0.25, 0.5]], np.float32), [0, 64, 128], "0 is black and 1 is white"),
        (np.array([[-2.0, 0.0, 2.0]], np.float32), [0, 128, 255], "-2 is black and 2 is white"),
        (np.array([[5.0, 5.0]], np.float32), [0, 0], "5 is black and 5 is white"),
    ],
)
def test_wide_grey_values_are_scaled(values, expected, ends):
    image = open_image(encode(values, "TIFF"))
    np.testing.assert_array_equal(image.pixels[0, :, 0], expected)
    assert image.notes == (f"grey values scaled so that {ends}",)


def test_values_that_are_no_number_are_dark():
    image = open_image(encode(np.array([[np.nan, np.inf, 10.0, 20.0]], np.float32), "TIFF"))
    np.testing.assert_array_equal(image.pixels[0, :, 0], [0, 0, 0, 255])
    assert image.notes[0] == "values that are no finite number shown as the darkest"
    assert not open_image(encode(np.full((2, 2), np.nan, np.float32), "TIFF")).pixels.any()


@pytest.mark.parametrize("fmt", ["JPEG", "TIFF"])
def test_cmyk_without_a_profile(fmt):
    inks = np.zeros((16, 64, 4), np.uint8)
    inks[:, 16:32] = (255, 0, 0, 0)
    inks[:, 32:48] = (0, 255, 255, 0)
    inks[:, 48:] = (0, 0, 0, 255)
    options = {"quality": 100} if fmt == "JPEG" else {}
    image = open_image(encode(_cmyk(inks), fmt, **options))
    expected = [(255, 255, 255), (0, 255, 255), (255, 0, 0), (0, 0, 0)]
    assert np.abs(image.pixels[8, 8::16].astype(int) - expected).max() <= 3
    assert image.notes == ("CMYK inks turned to RGB by the plain rule, without a colour profile",)


def _cmyk(inks):
    return Image.merge("CMYK", [Image.fromarray(np.ascontiguousarray(inks[..., i])) for i in range(4)])


def test_lab_tiff():
    # L* = 53.6, a* = b* = 0 is mid grey (sRGB 128); L* = 54.3, a* = 80.8, b* = 69.9 is sRGB red under D50.
    lab = Image.merge(
        "LAB",
        [Image.fromarray(np.array([values], np.uint8)) for values in ([137, 138], [128, 209], [128, 198])],
    )
    image = open_image(encode(lab, "TIFF"))
    assert np.abs(image.pixels[0].astype(int) - [(128, 128, 128), (255, 0, 0)]).max() <= 6
    assert image.notes == ("colours converted from CIELAB to sRGB",)
