"""What is said of files that can't be opened, to the word."""

from __future__ import annotations

import gzip
import io
import os
import struct
import warnings
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.images.pictures import encode, noise, scene
from viewer import open_image
from viewer.errors import ImageError
from viewer.images.decode import MAX_PIXELS

FILES = {
    "jpg": ("JPEG", {"quality": 90}),
    "progressive.jpg": ("JPEG", {"quality": 90, "progressive": True}),
    "png": ("PNG", {}),
    "webp": ("WEBP", {"quality": 90}),
    "lossless.webp": ("WEBP", {"lossless": True}),
    "avif": ("AVIF", {"quality": 90}),
    "heic": ("HEIF", {"quality": 90}),
    "tif": ("TIFF", {}),
    "lzw.tif": ("TIFF", {"compression": "tiff_lzw"}),
    "gif": ("GIF", {}),
    "bmp": ("BMP", {}),
}


def a_zip():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("photo.jpg", b"x")
    return file.getvalue()


NOT_PICTURES = {
    "html": (
        b"\n<!DOCTYPE html>\n<html><body>404</body></html>",
        "an HTML page (perhaps an error page saved under the picture's name)",
    ),
    "svg": (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "an SVG drawing"),
    "xml": (b'\xef\xbb\xbf<?xml version="1.0"?><a/>', "an XML document"),
    "pdf": (b"%PDF-1.7\n", "a PDF document"),
    "zip": (a_zip(), "a ZIP archive (or a document or checkpoint packed as one)"),
    "gzip": (gzip.compress(b"x"), "a gzip archive"),
    "mp4": (
        b"\0\0\0\x18ftypmp42\0\0\0\0isommp42" + bytes(20),
        "an MP4 or QuickTime video",
    ),
    "avi": (b"RIFF\x10\0\0\0AVI LIST", "an AVI video"),
    "webm": (b"\x1a\x45\xdf\xa3" + bytes(8), "a Matroska or WebM video"),
    "psd": (b"8BPS\0\x01", "a Photoshop document"),
    "jxl": (b"\xff\x0a\xfa", "a JPEG XL picture"),
    "dicom": (bytes(128) + b"DICM", "a DICOM medical picture"),
    "zeros": (bytes(5000), "nothing but zero bytes"),
    "text": ("Nur ein Text über Bilder.".encode(), "text"),
    "long text": ("é".encode() * 4096, "text"),
    "utf-16": ("text".encode("utf-16"), "text"),
    "json": (b' {"error": "not found"}', "JSON text"),
    "lfs": (
        b"version https://git-lfs.github.com/spec/v1\n",
        "a Git LFS pointer, not the picture itself",
    ),
    "bmp letters": (b"BMW is a car maker with a longer history than this", "text"),
    "random": (b"\x01\x02\x03\xfe\xff\x00", "a file of an unknown kind"),
}


@pytest.mark.parametrize("what", NOT_PICTURES)
def test_a_jpg_that_is_something_else_says_what(tmp_path, what):
    data, name = NOT_PICTURES[what]
    path = tmp_path / "photo.jpg"
    path.write_bytes(data)
    with pytest.raises(ImageError) as caught:
        open_image(path)
    assert str(caught.value) == (
        f"{path} is not a picture that can be opened: it holds {name}. "
        "Save the picture as JPEG, PNG, WebP, AVIF, HEIC, TIFF, GIF or BMP."
    )


def test_missing_folder_and_empty(tmp_path):
    (tmp_path / "empty.png").touch()
    table = {
        tmp_path / "none.png": "does not exist. Check the name and the folder.",
        tmp_path / "empty.png" / "below.png": "does not exist. Check the name and the folder.",
        tmp_path: "is a folder, not a picture. "
        "A folder dropped on the window opens the pictures inside it, if there are any.",
        tmp_path / "empty.png": "is empty (0 bytes). Copy or download it again.",
        os.devnull: "is a device or pipe, not a file.",
        "a\0b.png": "can't be read: embedded null byte.",
        tmp_path / ("x" * 300): "can't be read: File name too long.",
    }
    for path, said in table.items():
        with pytest.raises(ImageError) as caught:
            open_image(path)
        assert str(caught.value) == f"{path} {said}"


def test_a_web_address_is_not_fetched():
    with pytest.raises(ImageError, match="is a web address, not a file") as caught:
        open_image("https://example.org/cat.jpg")
    assert caught.value.advice == (
        "Patchreach fetches nothing from the web: download the picture and open the file."
    )


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no permission bits")
def test_no_permission(tmp_path):
    path = tmp_path / "secret.png"
    path.write_bytes(encode(noise(), "PNG"))
    path.chmod(0)
    folder = tmp_path / "closed"
    folder.mkdir(mode=0)
    root = os.geteuid() == 0
    try:
        if root:  # nothing is closed to root: be nobody for a moment
            for parent in list(tmp_path.parents)[:3]:
                parent.chmod(parent.stat().st_mode | 0o011)
            tmp_path.chmod(0o755)
            os.seteuid(65534)
        with pytest.raises(ImageError) as caught:
            open_image(path)
        assert str(caught.value) == (
            f"{path} can't be read: permission denied. Ask for permission to read it."
        )
        with pytest.raises(ImageError, match="can't be read: permission denied"):
            open_image(folder / "cat.png")
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o700)


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (
            np.zeros((4, 5, 3), np.float32),
            "is a 4x5x3 array of float32. A picture is a uint8 array of height x width x 3, values 0 to 255.",
        ),
        (
            np.zeros((3, 4, 5), np.uint8),
            "is a 3x4x5 array of uint8. A picture is a uint8 array of height x width x 3, values 0 to 255.",
        ),
        (
            np.zeros((1, 4, 5, 3), np.uint8),
            "is a 1x4x5x3 array of uint8. A picture is a uint8 array of height x width x 3, values 0 to 255.",
        ),
        (np.zeros((0, 5, 3), np.uint8), "is an empty array (0x5x3)."),
    ],
)
def test_arrays_that_are_no_picture(array, said):
    with pytest.raises(ImageError) as caught:
        open_image(array)
    assert str(caught.value) == f"array {said}"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("jpg", "holds a JPEG picture cut off after {half}."),
        ("progressive.jpg", "holds a JPEG picture cut off after {half}."),
        ("png", "holds a PNG picture cut off after {half}."),
        ("webp", "holds a WebP picture cut off after {half} of {whole}."),
        ("avif", "holds an AVIF picture cut off after {half} of {whole}."),
        ("heic", "holds a HEIC picture cut off after {half} of {whole}."),
        ("tif", "holds a TIFF picture cut off after {half}."),
        ("gif", "holds a GIF picture cut off after {half}."),
        ("bmp", "holds a BMP picture cut off after {half} of {whole}."),
    ],
)
def test_half_a_file_is_called_cut_off(tmp_path, name, said):
    fmt, options = FILES[name]
    data = encode(noise(), fmt, **options)
    half = data[: len(data) // 2]
    path = tmp_path / f"half.{name}"
    path.write_bytes(half)
    said = said.format(half=f"{len(half) / 1000:.1f} kB", whole=f"{len(data) / 1000:.1f} kB")
    with pytest.raises(ImageError) as caught:
        open_image(path)
    assert str(caught.value) == f"{path} {said} Copy or download it again."


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")  # remarks on damaged TIFF directories
@pytest.mark.parametrize("name", FILES)
def test_no_cut_gives_a_half_picture(name):
    fmt, options = FILES[name]
    data = encode(scene(), fmt, **options)
    full = open_image(data).pixels
    refused = 0
    for length in range(0, len(data), max(1, len(data) // 200)):
        try:
            image = open_image(data[:length])
        except ImageError:  # noqa: PERF203
            refused += 1
        else:
            np.testing.assert_array_equal(image.pixels, full)
    assert refused > 150


def png_header(width, height):
    """A PNG that claims a size and holds nothing of it."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n\0\0\0\x0d"
        + header
        + struct.pack(">I", zlib.crc32(header))
        + b"\0\0\0\0IDAT\x35\xaf\x06\x1e"
    )


def claims(fmt, width, height):
    """A small valid file whose header claims another size."""
    data = bytearray(encode(noise(16, 16), fmt))
    if fmt == "JPEG":
        struct.pack_into(">HH", data, data.index(b"\xff\xc0") + 5, height, width)
    elif fmt == "GIF":
        struct.pack_into("<HH", data, 6, width, height)
    elif fmt == "BMP":
        struct.pack_into("<ii", data, 18, width, height)
    return bytes(data)


@pytest.mark.parametrize("fmt", ["PNG", "JPEG", "GIF", "BMP"])
def test_a_decompression_bomb_is_refused_by_its_header(fmt):
    data = png_header(60000, 50000) if fmt == "PNG" else claims(fmt, 60000, 50000)
    with pytest.raises(ImageError) as caught:
        open_image(data, "bomb")
    assert str(caught.value) == (
        "bomb is a picture of 60000 x 50000 pixels (3000 megapixels). "
        "The limit is 178 megapixels: shrink it first."
    )


def test_the_limit_itself_is_allowed():
    assert MAX_PIXELS == 178_000_000
    with pytest.raises(ImageError, match=r"holds a PNG picture (that is )?cut off"):
        open_image(png_header(17800, 10000))
    with pytest.raises(ImageError, match="The limit is 178 megapixels"):
        open_image(png_header(17800, 10001))


def test_an_unreadable_kind_names_the_decoders_reason():
    data = bytearray(encode(noise(), "BMP"))
    struct.pack_into("<I", data, 30, 77)  # a compression that does not exist
    with pytest.raises(ImageError) as caught:
        open_image(bytes(data), "odd.bmp")
    assert str(caught.value) == (
        "odd.bmp holds a BMP picture that is cut off, damaged or of a rare kind "
        "(Unsupported BMP compression (77)). Copy or download it again. Or save it again as PNG or JPEG."
    )


def test_errors_carry_their_facts(tmp_path):
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"%PDF-1.4")
    with pytest.raises(ImageError) as caught:
        open_image(path)
    assert caught.value.path == str(path)
    assert caught.value.problem == "is not a picture that can be opened: it holds a PDF document"


MAGICS = [
    b"\xff\xd8\xff\xe0",
    b"\x89PNG\r\n\x1a\n",
    b"RIFF\x20\0\0\0WEBPVP8 ",
    b"GIF89a",
    b"II*\0\x08\0\0\0",
    b"BM" + bytes(12) + b"\x28\0\0\0",
    b"\0\0\0\x18ftypavif\0\0\0\0",
    b"\0\0\0\x18ftypheic\0\0\0\0",
    b"",
]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(MAGICS), st.binary(max_size=300))
@example(b"", b"")
@example(b"\xff\xd8\xff", b"")
def test_any_bytes_give_a_picture_or_a_sentence(magic, rest):
    try:
        image = open_image(magic + rest)
    except ImageError as error:
        assert str(error).startswith("image data ")
        assert str(error).endswith(".")
    else:
        assert image.pixels.dtype == np.uint8
        assert image.pixels.shape[2] == 3
        assert image.pixels.size


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(FILES)), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=6))
def test_flipped_bytes_give_a_picture_or_a_sentence(name, flips):
    fmt, options = FILES[name]
    data = bytearray(encode(scene(12, 16), fmt, **options))
    for where, value in flips:
        data[int(where * (len(data) - 1))] = value
    try:
        image = open_image(bytes(data))
    except ImageError as error:
        assert str(error).startswith("image data ")
    else:
        assert image.pixels.ndim == 3
        assert image.pixels.shape[2] == 3
        assert image.pixels.size


def test_nothing_that_a_damaged_file_holds_reaches_the_terminal(capfd):
    generator = np.random.default_rng(0)
    warned = 0
    for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits"):
        whole = encode(noise(24, 24), "TIFF", compression=compression)
        for _ in range(60):
            data = bytearray(whole)
            for where in generator.integers(0, len(data), 4):
                data[where] = generator.integers(256)
            try:
                warned += any("the decoder warns: " in note for note in open_image(bytes(data)).notes)
            except ImageError:
                warned += 0
    assert warned
    assert capfd.readouterr() == ("", "")


def test_decoding_in_many_threads_leaves_the_filters_as_they_were():
    before, show = list(warnings.filters), warnings.showwarning
    data = encode(noise(64, 64), "TIFF")
    with ThreadPoolExecutor(8) as pool:
        images = list(pool.map(open_image, [data] * 200))
    assert all(image.notes == () for image in images)
    assert (warnings.filters, warnings.showwarning) == (before, show)


def test_a_warning_is_a_note_of_the_picture_that_caused_it():
    data = bytearray(encode(noise(8, 8), "TIFF"))
    count = struct.unpack_from("<H", data, struct.unpack_from("<I", data, 4)[0])[0]
    first = struct.unpack_from("<I", data, 4)[0] + 2
    [row] = [at for at in range(first, first + 12 * count, 12) if data[at : at + 2] == b"\x16\x01"]
    struct.pack_into("<I", data, row + 4, 3)  # three numbers of rows a strip
    with warnings.catch_warnings(record=True) as others:
        warnings.simplefilter("always")
        assert any(note.startswith("the decoder warns: ") for note in open_image(bytes(data)).notes)
        assert others == []
        warnings.warn("of another", UserWarning, stacklevel=1)
    assert [str(other.message) for other in others] == ["of another"]
