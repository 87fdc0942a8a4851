"""What people drop: files, folders, data of a browser, addresses."""

from __future__ import annotations

import base64
import os
import socket
import sys
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from tests.images.pictures import encode, noise
from viewer import open_image
from viewer.errors import ImageError
from viewer.images.sources import (
    expand_paths,
    image_from_data_url,
    kind_of,
    path_from_url,
)

PNG = encode(noise(8, 8), "PNG")


def lay_out(root, *names, content=PNG):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def test_folders_give_their_pictures_and_models_in_natural_order(tmp_path):
    lay_out(tmp_path, "10.png", "9.PNG", "b/2.jpg", "b/c/1.webp", "net.onnx", "scan", ".hidden.png")
    lay_out(tmp_path, "A2.tif", "a10.tif", ".git/x.png", "b/.thumbs/1.jpg")
    lay_out(tmp_path, "notes.txt", "table.csv", content=b"text")
    lay_out(tmp_path, "figure.svg", content=b"<svg/>")
    found = [path.relative_to(tmp_path).as_posix() for path in expand_paths([tmp_path])]
    assert found == ["9.PNG", "10.png", "A2.tif", "a10.tif", "net.onnx", "scan", "b/2.jpg", "b/c/1.webp"]


def test_named_files_stay_whatever_they_are_and_come_once(tmp_path):
    lay_out(tmp_path, "notes.txt", content=b"text")
    lay_out(tmp_path, "in/1.png", ".dot.png")
    named = [tmp_path / "notes.txt", str(tmp_path / "missing.png"), tmp_path / ".dot.png"]
    paths = expand_paths([*named, tmp_path / "in", tmp_path / "in" / "1.png"])
    assert [path.name for path in paths] == ["notes.txt", "missing.png", ".dot.png", "1.png"]


def test_a_folder_with_nothing_usable_stays_so_that_opening_it_says_why(tmp_path):
    lay_out(tmp_path, "empty/readme.txt", content=b"text")
    assert expand_paths([tmp_path / "empty"]) == [tmp_path / "empty"]


def test_depth_is_bounded_and_linked_folders_are_not_followed(tmp_path):
    lay_out(tmp_path, "/".join("d" * 15) + "/in.png", "/".join("d" * 16) + "/out.png", "real/1.png")
    (tmp_path / "real" / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert [path.name for path in expand_paths([tmp_path])] == ["in.png", "1.png"]


@pytest.mark.skipif(not hasattr(os, "seteuid") or os.geteuid() != 0, reason="changes the user id")
def test_a_closed_folder_stays_in_the_list_for_another_user(tmp_path):
    lay_out(tmp_path, "open/1.png", "closed/2.png")
    (tmp_path / "closed").chmod(0)
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    os.seteuid(65534)
    try:
        assert expand_paths([tmp_path]) == [tmp_path / "closed", tmp_path / "open" / "1.png"]
        with pytest.raises(ImageError, match="closed can't be read: permission denied"):
            open_image(tmp_path / "closed")
    finally:
        os.seteuid(0)


def test_kinds(tmp_path):
    lay_out(tmp_path, "no-ending", "photo.jpeg", "photo.bak")
    lay_out(tmp_path, "page.jpg", "page", "a.pdf", "m.safetensors", "M.ONNX", content=b"<html>")
    kinds = {path.name: kind_of(path) for path in tmp_path.iterdir()}
    assert kinds == {
        "no-ending": "image",
        "photo.jpeg": "image",
        "photo.bak": "image",
        "page.jpg": "image",  # opening it says that it is a page
        "page": "other",
        "a.pdf": "figure",
        "m.safetensors": "model",
        "M.ONNX": "model",
    }
    assert kind_of(tmp_path / "missing") == "other"
    assert kind_of(tmp_path / "no-ending") == "image"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names there")
@pytest.mark.timeout(20)
@pytest.mark.parametrize("ending", ["", ".png", ".onnx", ".pth", ".svg", ".pdf", ".txt"])
def test_what_is_no_file_is_never_read(tmp_path, ending, monkeypatch):
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    pipe, address, device = Path(f"pipe{ending}"), Path(f"socket{ending}"), Path(f"device{ending}")
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(address))
        for path in (pipe, address, device):
            assert kind_of(path) == ("image" if ending == ".png" else "other")
            with pytest.raises(ImageError) as caught:
                open_image(path)
            assert str(caught.value) == f"{path} is a device or pipe, not a file."
    assert expand_paths([tmp_path]) == [tmp_path]


LONG = "n" * 300
UNUSABLE = [LONG, f"{LONG}.png", f"{LONG}.onnx", "p/" * 3000 + "a.png", "zero\0.pth", "\ud800.onnx"]


@pytest.mark.parametrize("name", UNUSABLE, ids=range(len(UNUSABLE)))
def test_names_that_no_system_takes_get_a_sentence(tmp_path, name):
    path = tmp_path / name
    assert expand_paths([path, tmp_path]) == [path, tmp_path]
    assert kind_of(path) == ("image" if name.endswith(".png") else "other")
    with pytest.raises(ImageError, match="can't be read: "):
        open_image(path)


def test_bytes_of_the_clipboard():
    image = open_image(PNG, "pasted image")
    np.testing.assert_array_equal(image.pixels, noise(8, 8))
    assert image.name == "pasted image"
    with pytest.raises(ImageError, match=r"^pasted image is empty"):
        open_image(b"", "pasted image")


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64," + base64.b64encode(PNG).decode(),
        "data:image/png;base64," + base64.b64encode(PNG).decode().rstrip("="),
        "DATA:image/png;charset=x;BASE64," + quote(base64.encodebytes(PNG)),
        "data:," + quote(PNG),
        " data:image/jpeg;base64," + base64.b64encode(PNG).decode() + "\n",
    ],
)
def test_data_urls(url):
    np.testing.assert_array_equal(image_from_data_url(url).pixels, noise(8, 8))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("data:image/png;base64,@@@", "came as a data URL that is cut off or damaged. Copy it again."),
        ("data:image/png;base64,", "is empty (0 bytes). Copy or download it again."),
        ("http://a/b.png", "is not a data URL."),
        ("data:image/png", "is not a data URL."),
    ],
)
def test_data_urls_that_hold_nothing(url, said):
    with pytest.raises(ImageError) as caught:
        image_from_data_url(url)
    assert str(caught.value) == f"dropped image {said}"


@pytest.mark.skipif(sys.platform == "win32", reason="other paths there")
def test_file_urls(tmp_path):
    path = tmp_path / "größe 100% #1.png"
    assert path_from_url(path.as_uri()) == path
    assert path_from_url(f"file://localhost{quote('/a b')}\r\n").as_posix() == "/a b"


def test_web_addresses_are_not_fetched():
    with pytest.raises(ImageError) as caught:
        path_from_url("https://example.org/cat.jpg")
    assert str(caught.value) == (
        "https://example.org/cat.jpg is a web address. "
        "Patchreach fetches nothing from the web: save the picture and drop the file."
    )
    with pytest.raises(ImageError, match="blob:x is not the address of a file"):
        path_from_url("blob:x")
