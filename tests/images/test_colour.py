"""Colour profiles against conversions computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageCms

from tests.images.pictures import (
    P3_XYZ,
    SRGB_XYZ,
    black_ink_profile,
    encode,
    grey_profile,
    icc_profile,
    noise,
    to_srgb_by_hand,
)
from viewer import open_image

LOSSLESS = [("PNG", {}), ("TIFF", {}), ("WEBP", {"lossless": True})]


@pytest.mark.parametrize(("fmt", "options"), LOSSLESS)
def test_wide_gamut_becomes_srgb(fmt, options):
    pixels = noise()
    profile = icc_profile(P3_XYZ, name="Display P3 (test)")
    image = open_image(encode(pixels, fmt, icc_profile=profile, **options))
    # Near black the power law is steep: a little more than rounding.
    assert np.abs(image.pixels - to_srgb_by_hand(pixels, P3_XYZ)).max() <= 2
    assert np.abs(image.pixels.astype(int) - pixels).max() > 20, "the profile must matter in this test"
    assert image.notes == ("colours converted from Display P3 (test) to sRGB",)


def test_swapped_primaries_swap_the_channels():
    pixels = noise()
    image = open_image(encode(pixels, "PNG", icc_profile=icc_profile(SRGB_XYZ[:, ::-1], name="swapped")))
    assert np.abs(image.pixels - to_srgb_by_hand(pixels[..., ::-1], SRGB_XYZ)).max() <= 2
    assert image.notes == ("colours converted from swapped to sRGB",)


@pytest.mark.parametrize("fmt", ["HEIF", "AVIF"])
def test_profiles_of_heic_and_avif_are_used(fmt):
    pixels = np.full((64, 64, 3), (200, 100, 50), np.uint8)
    image = open_image(encode(pixels, fmt, icc_profile=icc_profile(P3_XYZ), quality=95))
    assert np.abs(image.pixels - to_srgb_by_hand(pixels, P3_XYZ)).max() <= 6
    assert np.abs(image.pixels[0, 0].astype(int) - (200, 100, 50)).max() > 12


def test_linear_grey_becomes_srgb_grey():
    grey = np.arange(256, dtype=np.uint8).reshape(16, 16)
    image = open_image(encode(grey, "PNG", icc_profile=grey_profile(1.0, "linear")))
    expected = to_srgb_by_hand(np.repeat(grey[..., None], 3, axis=2), SRGB_XYZ, gamma=1.0)
    assert np.abs(image.pixels - expected).max() <= 1
    assert image.notes == ("colours converted from linear to sRGB",)


@pytest.mark.parametrize("fmt", ["JPEG", "TIFF"])
def test_inks_follow_their_profile(fmt):
    inks = np.zeros((4, 16, 64), np.uint8)
    inks[0, :, 16:32] = 255
    inks[1:3, :, 32:48] = 255
    inks[3, :, 48:] = 255
    picture = Image.merge("CMYK", [Image.fromarray(ink) for ink in inks])
    options = {"quality": 100} if fmt == "JPEG" else {}
    image = open_image(encode(picture, fmt, icc_profile=black_ink_profile(), **options))
    assert np.abs(image.pixels[8, 8::16].astype(int) - [[255] * 3, [255] * 3, [255] * 3, [0] * 3]).max() <= 2
    assert image.notes == ("colours converted from only black prints to sRGB",)


def test_an_srgb_profile_changes_no_pixel():
    pixels = noise()
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    image = open_image(encode(pixels, "PNG", icc_profile=srgb))
    np.testing.assert_array_equal(image.pixels, pixels)
    assert image.notes == ()


def test_a_profile_applies_before_transparency():
    pixels = np.array([[[200, 100, 50, 128]]], np.uint8)
    image = open_image(encode(pixels, "PNG", icc_profile=icc_profile(P3_XYZ)))
    expected = 255 - (255 - to_srgb_by_hand(pixels[..., :3], P3_XYZ)) * 128 / 255
    assert np.abs(image.pixels - expected).max() <= 2
    assert image.notes == ("colours converted from test colours to sRGB", "transparency put over white")


def test_palette_pictures_use_their_profile():
    picture = Image.fromarray(np.array([[0, 1]], np.uint8))
    picture.putpalette([200, 100, 50, 20, 120, 220])
    image = open_image(encode(picture, "PNG", icc_profile=icc_profile(P3_XYZ)))
    expected = to_srgb_by_hand(np.array([[[200, 100, 50], [20, 120, 220]]]), P3_XYZ)
    assert np.abs(image.pixels - expected).max() <= 2


def test_a_damaged_profile_is_said_and_ignored():
    pixels = noise()
    for broken in (b"not a profile", icc_profile(P3_XYZ)[:200]):
        image = open_image(encode(pixels, "PNG", icc_profile=broken))
        np.testing.assert_array_equal(image.pixels, pixels)
        assert image.notes == ("the colour profile is damaged and was ignored",)


def test_a_profile_for_other_colours_is_said_and_ignored():
    grey = noise()[..., 0]
    image = open_image(encode(grey, "PNG", icc_profile=icc_profile(P3_XYZ, name="wide")))
    np.testing.assert_array_equal(image.pixels[..., 0], grey)
    assert image.notes == ("the colour profile (wide) is for RGB pictures, not this one, and was ignored",)
    lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    image = open_image(encode(noise(), "PNG", icc_profile=lab))
    np.testing.assert_array_equal(image.pixels, noise())
    assert "is for Lab pictures, not this one, and was ignored" in image.notes[0]


def test_a_profile_of_sixteen_bit_grey_is_said_and_ignored():
    image = open_image(encode(np.array([[0, 65535]], np.uint16), "PNG", icc_profile=icc_profile(SRGB_XYZ)))
    assert image.notes[1] == "the colour profile is not used with values that had to be scaled"
