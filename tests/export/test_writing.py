"""Files that appear whole or not at all, and never in the place of what they are made from."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from viewer.errors import FileError
from viewer.export.writing import check_target, write_atomically

no_links = pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")


def test_a_name_as_long_as_names_can_be(tmp_path):
    path = tmp_path / ("n" * 251 + ".png")
    for content in (b"first", b"second"):
        write_atomically(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "name",
    ["n" * 256 + ".png", "d/" * 3000 + "a.png", "zero\0.png", "file/a.png", "gone/a.png", "folder.png"],
)
def test_what_cannot_be_written_gives_a_sentence(tmp_path, name):
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "folder.png").mkdir()
    path = tmp_path / name
    for attempt in (check_target, lambda path: write_atomically(path, b"content")):
        with pytest.raises(FileError) as caught:
            attempt(path)
        assert str(caught.value).startswith(f"{path} can't be written")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder.png"]


@no_links
def test_links_that_lead_round_and_round_give_a_sentence(tmp_path):
    (tmp_path / "a.png").symlink_to(tmp_path / "b.png")
    (tmp_path / "b.png").symlink_to(tmp_path / "a.png")
    with pytest.raises(FileError, match=r"a\.png can.t be written .*links"):
        write_atomically(tmp_path / "a.png", b"content")


@no_links
def test_the_target_of_a_link_is_written(tmp_path):
    (tmp_path / "link.png").symlink_to(tmp_path / "real.png")
    for content in (b"first", b"second"):
        write_atomically(tmp_path / "link.png", content)
        assert (tmp_path / "real.png").read_bytes() == content
    assert (tmp_path / "link.png").is_symlink()


@no_links
def test_no_source_is_overwritten_under_any_name(tmp_path, monkeypatch):
    photo = tmp_path / "photo.png"
    photo.write_bytes(b"photograph")
    (tmp_path / "link.png").symlink_to(photo)
    os.link(photo, tmp_path / "same.png")
    monkeypatch.chdir(tmp_path)
    names = [photo, Path("photo.png"), Path("./sub/../photo.png"), Path("link.png"), Path("same.png")]
    (tmp_path / "sub").mkdir()
    for name in names:
        with pytest.raises(FileError, match="since it is made from that very file"):
            check_target(name, ("sample", None, "", str(photo)))
    check_target(tmp_path / "other.png", ("sample", None, "", str(photo), "n" * 300))
