"""Every format a picture comes in, with known pixels."""

from __future__ import annotations

import hashlib
import io
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pillow_heif
import pytest
from PIL import Image

from tests.images.pictures import encode, noise, scene
from viewer import open_image

LOSSLESS = {
    "png": ("PNG", {}),
    "interlaced.png": ("PNG", {"compress_level": 0}),
    "bmp": ("BMP", {}),
    "webp": ("WEBP", {"lossless": True}),
    "tiff": ("TIFF", {}),
    "lzw.tif": ("TIFF", {"compression": "tiff_lzw"}),
    "deflate.tif": ("TIFF", {"compression": "tiff_adobe_deflate"}),
    "heic": ("HEIF", {"quality": -1, "chroma": 444, "matrix_coefficients": 0}),
}
LOSSY = {
    "jpg": ("JPEG", {"quality": 95, "subsampling": 0}),
    "progressive.jpeg": ("JPEG", {"quality": 95, "subsampling": 0, "progressive": True}),
    "webp": ("WEBP", {"quality": 95}),
    "avif": ("AVIF", {"quality": 95}),
    "heic": ("HEIF", {"quality": 95}),
    "jpeg.tif": ("TIFF", {"compression": "jpeg", "quality": 95}),
}


@pytest.mark.parametrize("name", LOSSLESS)
def test_lossless_formats_keep_every_pixel(tmp_path, name):
    pixels = noise()
    fmt, options = LOSSLESS[name]
    path = tmp_path / f"picture.{name}"
    path.write_bytes(encode(pixels, fmt, **options))
    image = open_image(path)
    np.testing.assert_array_equal(image.pixels, pixels)
    assert (image.name, image.path, image.notes) == (path.name, path, ())
    assert image.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", LOSSY)
def test_lossy_formats_stay_close(name):
    pixels = scene()
    fmt, options = LOSSY[name]
    image = open_image(encode(pixels, fmt, **options), f"picture.{name}")
    error = np.abs(image.pixels.astype(int) - pixels)
    assert image.pixels.shape == pixels.shape
    assert error.mean() < 4
    assert image.notes == ()
    assert image.path is None


def test_gif_keeps_its_palette():
    indices = np.arange(256, dtype=np.uint8).reshape(16, 16)
    palette = noise(1, 256, seed=3)[0]
    picture = Image.fromarray(indices)
    picture.putpalette(palette.tobytes())
    np.testing.assert_array_equal(open_image(encode(picture, "GIF")).pixels, palette[indices])


@pytest.mark.parametrize("fmt", ["GIF", "PNG", "WEBP", "AVIF", "TIFF"])
def test_the_first_of_several_frames_is_taken_and_said(fmt):
    colours = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
    frames = [Image.new("RGB", (32, 24), colour) for colour in colours]
    lossless = {"WEBP": {"lossless": True}, "AVIF": {"quality": 100}}.get(fmt, {})
    image = open_image(encode(frames[0], fmt, save_all=True, append_images=frames[1:], **lossless))
    assert np.abs(image.pixels.astype(int) - colours[0]).max() <= 2
    assert image.notes == ("the first of 3 pages" if fmt == "TIFF" else "the first of 3 frames",)


def test_the_main_picture_of_a_heic_file_is_taken_and_said():
    frames = [Image.new("RGB", (64, 64), colour) for colour in ("red", "lime")]
    data = encode(frames[0], "HEIF", save_all=True, append_images=frames[1:], primary_index=1, quality=95)
    image = open_image(data)
    assert np.abs(image.pixels.astype(int) - (0, 255, 0)).max() < 8
    assert image.notes == ("the main one of 2 pictures",)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("fmt", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_every_exif_orientation_ends_upright(fmt, orientation):
    upright = np.kron(np.array([[40, 80, 120], [160, 200, 240]], np.uint8), np.ones((16, 16), np.uint8))
    # What a camera stores so that the tag's turn gives back the upright picture (EXIF 2.3, tag 0x0112).
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.T,
        6: np.rot90(upright, 1),
        7: upright[::-1, ::-1].T,
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"WEBP": {"lossless": True}, "JPEG": {"quality": 100}}.get(fmt, {})
    image = open_image(encode(np.ascontiguousarray(stored), fmt, exif=exif, **options))
    assert image.pixels.shape == (32, 48, 3)
    assert np.abs(image.pixels[..., 0].astype(int) - upright).max() <= 1


@pytest.mark.parametrize("fmt", ["HEIF", "AVIF"])
def test_orientation_of_heic_and_avif_is_applied_once(fmt):
    upright = scene(48, 80)
    exif = Image.Exif()
    exif[0x0112] = 6
    image = open_image(
        encode(np.ascontiguousarray(np.rot90(upright, 1)), fmt, exif=exif.tobytes(), quality=95)
    )
    assert np.abs(image.pixels.astype(int) - upright).mean() < 4


def test_damaged_exif_does_not_cost_the_picture():
    pixels = noise(8, 8)
    image = open_image(encode(pixels, "PNG", exif=b"Exif\0\0II*\0\xff\xff\xff\x7f"))
    np.testing.assert_array_equal(image.pixels, pixels)


def test_sixteen_bit_colour_is_reduced_and_said():
    deep = np.array([[[0, 32768, 65535], [256, 512, 1023]]], np.uint16)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in deep)
    image = open_image(_png(2, 1, depth=16, colour=2, rows=rows))
    np.testing.assert_array_equal(image.pixels, (deep >> 8).astype(np.uint8))
    assert image.notes == ("16 bits a channel reduced to 8",)


def test_sixteen_bit_colour_tiff_is_reduced_and_said():
    deep = np.array([[[0, 32768, 65535], [256, 512, 1023]]], "<u2")
    image = open_image(_tiff(2, 1, bits=16, strip=deep.tobytes()))
    np.testing.assert_array_equal(image.pixels, (deep >> 8).astype(np.uint8))
    assert image.notes == ("16 bits a channel reduced to 8",)


def test_ten_bit_heic_is_reduced_and_said():
    deep = scene().astype(np.uint16) * 257
    file = io.BytesIO()
    pillow_heif.encode("RGB;16", (64, 48), deep.tobytes(), file, quality=95)
    image = open_image(file.getvalue())
    assert np.abs(image.pixels.astype(int) - scene()).mean() < 4
    assert image.notes == ("10 bits a channel reduced to 8",)


def test_a_raw_files_thumbnail_is_said_to_be_one():
    image = open_image(_tiff(1, 1, bits=8, strip=b"abc", subfile=1))
    np.testing.assert_array_equal(image.pixels, [[list(b"abc")]])
    assert image.notes == ("a small preview of a larger picture that can't be opened",)


def test_the_first_picture_of_a_multi_picture_jpeg():
    frames = [Image.new("RGB", (32, 24), colour) for colour in ("red", "lime")]
    image = open_image(encode(frames[0], "MPO", save_all=True, append_images=frames[1:]), "phone.jpg")
    assert np.abs(image.pixels.astype(int) - (255, 0, 0)).max() < 3
    assert image.notes == ("the first of 2 pictures",)


def test_a_picture_under_another_formats_name_opens_with_a_note(tmp_path):
    path = tmp_path / "photo.jpg"
    path.write_bytes(encode(noise(), "PNG"))
    image = open_image(path)
    np.testing.assert_array_equal(image.pixels, noise())
    assert image.notes == ("named .jpg but holds a PNG picture",)
    path = tmp_path / "photo.png"
    path.write_bytes(encode(scene(), "AVIF"))
    assert open_image(path).notes == ("named .png but holds an AVIF picture",)


def test_a_picture_without_an_ending_opens(tmp_path):
    path = tmp_path / "download"
    path.write_bytes(encode(noise(), "PNG"))
    assert open_image(str(path)).notes == ()


def test_arrays_are_taken_as_they_are():
    pixels = noise()
    image = open_image(pixels)
    np.testing.assert_array_equal(image.pixels, pixels)
    assert image.name == "array"
    assert image.sha256 == hashlib.sha256(pixels.tobytes()).hexdigest()
    pixels[:] = 0
    assert image.pixels.any(), "a later change of the caller's array must not reach the picture"


def test_arrays_may_be_grey_or_have_opacity_or_strides():
    pixels = noise()
    np.testing.assert_array_equal(open_image(pixels[..., 0]).pixels, np.repeat(pixels[..., :1], 3, axis=2))
    np.testing.assert_array_equal(open_image(pixels[..., :1]).pixels, np.repeat(pixels[..., :1], 3, axis=2))
    np.testing.assert_array_equal(open_image(pixels[::-2, ::3, ::-1]).pixels, pixels[::-2, ::3, ::-1])
    clear = np.dstack([pixels, np.zeros(pixels.shape[:2], np.uint8)])
    image = open_image(clear)
    assert (image.pixels == 255).all()
    assert image.notes == ("transparency put over white",)


def test_many_threads_decode_at_once():
    files = [
        encode(noise(seed=seed), fmt, **options) for seed in range(4) for fmt, options in LOSSLESS.values()
    ]
    with ThreadPoolExecutor(8) as pool:
        images = list(pool.map(open_image, files * 4))
    expected = [noise(seed=seed) for seed in range(4) for _ in LOSSLESS] * 4
    for image, pixels in zip(images, expected, strict=True):
        np.testing.assert_array_equal(image.pixels, pixels)


@pytest.mark.parametrize("fmt", ["PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF", "HEIF", "AVIF"])
def test_pillows_warning_about_large_pictures_is_not_heard(monkeypatch, fmt):
    data = encode(scene(), fmt)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)  # `Image.open` would warn
    assert open_image(data).pixels.shape == (48, 64, 3)


def _tiff(width, height, bits, strip, subfile=0):
    """Write an RGB TIFF by hand, for kinds that Pillow does not write."""
    entries = [
        (254, 4, 1, subfile),
        (256, 4, 1, width),
        (257, 4, 1, height),
        (258, 3, 3, 8),  # at offset 8: three times the depth
        (259, 3, 1, 1),
        (262, 3, 1, 2),
        (273, 4, 1, 14),
        (277, 3, 1, 3),
        (278, 4, 1, height),
        (279, 4, 1, len(strip)),
    ]
    directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *e) for e in entries)
    depths = struct.pack("<HHH", bits, bits, bits)
    return b"II*\0" + struct.pack("<I", 14 + len(strip)) + depths + strip + directory + bytes(4)


def _png(width, height, depth, colour, rows):
    """Write a PNG by hand, for kinds that Pillow does not write."""

    def chunk(kind, content):
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
