"""Every kind of source gives the same pictures, and says what is wrong with the rest."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from tests.study.conftest import draw
from viewer.errors import FileError, ImageError
from viewer.study.entries import BadEntry, ZipEntry
from viewer.study.names import SETTINGS
from viewer.study.sources import SAMPLE, Source


def names(source):
    return [entry.name for entry in Source(str(source)).entries()]


def pixels(source):
    return {entry.name: entry.open().pixels for entry in Source(str(source)).entries()}


@pytest.fixture
def files(tmp_path):
    """Three encoded pictures by name, in an order that is not the alphabet's."""
    found = {}
    for name, seed in (("b/2.png", 2), ("a.jpg", 1), ("c.webp", 3)):
        path = tmp_path / f"{seed}{Path(name).suffix}"
        found[name] = draw(path, seed).read_bytes()
        path.unlink()
    return found


def tar_of(path, files, mode="w"):
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def zip_of(path, files, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def parquet_of(path, columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=2)
    return path


def test_a_folder_is_gone_through_by_name_without_hidden_files_or_studies(tmp_path):
    for name in ("b.png", "a.png", ".hidden.png", "sub/c.png", ".git/d.png", "study/figure.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        draw(tmp_path / name, 1)
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / "study" / SETTINGS).write_text("{}")
    assert names(tmp_path) == ["a.png", "b.png", "sub/c.png"]
    assert Source(str(tmp_path)).count() == 3


@pytest.mark.parametrize("kind", ["zip", "stored.zip", "tar", "tar.gz", "parquet", "struct.parquet"])
def test_every_archive_gives_the_very_pixels(kind, files, tmp_path):
    path, texts, data = tmp_path / f"set.{kind}", list(files), list(files.values())
    if kind.endswith("zip"):
        zip_of(path, files, zipfile.ZIP_STORED if "stored" in kind else zipfile.ZIP_DEFLATED)
    elif kind.startswith("tar"):
        tar_of(path, files, "w:gz" if "gz" in kind else "w")
    elif kind == "parquet":
        parquet_of(path, {"label": [1, 2, 3], "file_name": texts, "image": data})
    else:
        rows = [{"bytes": one, "path": name} for name, one in files.items()]
        parquet_of(path, {"image": rows, "thumbnail": [b"", b"", b""]})
    folder = tmp_path / "folder"
    for name, one in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(one)
    expected, found = pixels(folder), pixels(path)
    assert list(found) == texts
    for name in texts:
        np.testing.assert_array_equal(found[name], expected[name])
    assert Source(str(path)).count() == (None if kind == "tar.gz" else 3)
    assert not list(tmp_path.glob("*.png"))


def test_an_archive_inside_a_folder_is_gone_through_too(files, tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    for shard in range(2):
        tar_of(folder / f"{shard}.tar", files)
    draw(folder / "x.png", 1)
    assert names(folder) == [*(f"{shard}.tar/{name}" for shard in range(2) for name in files), "x.png"]
    assert Source(str(folder)).count() == 7


@pytest.mark.parametrize("outer", ["zip", "tar", "tar.gz"])
@pytest.mark.parametrize("inner", ["zip", "TAR", "tar.gz", "tgz", "parquet"])
def test_an_archive_inside_an_archive_is_told_and_left_out(outer, inner, files, tmp_path):
    packed = zip_of(tmp_path / "inner.zip", files).read_bytes()
    kept = {f"deep/shard.{inner}": packed, "a.jpg": files["a.jpg"], f".hidden.{inner}": packed}
    folder = tmp_path / "shards"
    folder.mkdir()
    path = folder / f"outer.{outer}"
    zip_of(path, kept) if outer == "zip" else tar_of(path, kept, "w:gz" if outer == "tar.gz" else "w")
    nested, picture = Source(str(folder)).entries()
    with pytest.raises(ImageError) as refused:
        nested.open()
    assert str(refused.value).startswith(f"outer.{outer}/deep/shard.{inner} is an archive inside an archive")
    assert picture.name == f"outer.{outer}/a.jpg"
    assert Source(str(folder)).count() == (None if outer == "tar.gz" else 2)


def test_a_webdataset_gives_its_pictures_alone(files, tmp_path):
    data = files["a.jpg"]
    path = tar_of(tmp_path / "w.tar", {"01.jpg": data, "01.cls": b"3", "02.json": b"{}", "02.jpg": data})
    assert names(path) == ["01.jpg", "02.jpg"]
    assert [entry.place for entry in Source(str(path)).entries()] == [0, 3]


def test_entries_travel_between_processes_and_are_small(files, tmp_path):
    for path in (zip_of(tmp_path / "a.zip", files), tar_of(tmp_path / "a.tar", files)):
        for entry in Source(str(path)).entries():
            again = pickle.loads(pickle.dumps(entry))
            assert again == entry
            assert len(pickle.dumps(entry)) < 1000


def test_a_name_that_comes_twice_is_two_entries(files, tmp_path):
    path = tmp_path / "twice.tar"
    with tarfile.open(path, "w") as archive:
        for data in (files["a.jpg"], files["b/2.png"]):
            info = tarfile.TarInfo("same.jpg")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    found = list(Source(str(path)).entries())
    assert [(one.name, one.place) for one in found] == [("same.jpg", 0), ("same.jpg", 1)]
    assert found[0].open().pixels.shape != found[1].open().pixels.shape


def test_samples_are_sixteen_and_differ():
    found = [entry.open() for entry in Source(SAMPLE).entries()]
    assert Source(SAMPLE).count() == len(found) == 16
    assert len({image.sha256 for image in found}) == 16


# -- what is wrong --


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("missing", None, "does not exist"),
        ("one.png", "picture", "is a single picture"),
        ("some.txt", b"text", "is neither folder nor archive"),
        ("empty.zip", b"", "is neither folder nor archive"),
    ],
)
def test_what_is_no_source_is_refused_with_a_sentence(name, content, said, tmp_path):
    path = tmp_path / name
    if content == "picture":
        draw(path, 1)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(FileError, match=said):
        Source(str(path)).check()


def test_a_cut_off_tar_gives_what_it_has_and_says_where_it_ends(files, tmp_path):
    path = tar_of(tmp_path / "cut.tar.gz", files, "w:gz")
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:1500]))
    *_, bad = Source(str(path)).entries()
    assert isinstance(bad, BadEntry)
    with pytest.raises(ImageError, match=r"cut\.tar\.gz is damaged or cut off"):
        bad.open()
    plain = tar_of(tmp_path / "cut.tar", files)
    plain.write_bytes(plain.read_bytes()[:700])
    first, *_ = Source(str(plain)).entries()
    with pytest.raises(ImageError, match=r"cut off: its archive cut\.tar ends before it does"):
        first.open()


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = zip_of(tmp_path / "bomb.zip", {"bomb.png": b"\0" * 10_000_000})
    (entry,) = Source(str(path)).entries()
    # The directory may promise little; no more than that is unpacked.
    lying = ZipEntry(**{**vars(entry), "size": 1000})
    with pytest.raises(ImageError, match="another size than its archive says"):
        lying.open()
    with pytest.raises(ImageError, match=r"holds 1,000 MB.*The limit is 537 MB"):
        ZipEntry(**{**vars(entry), "size": 10**9}).open()


def test_damage_inside_a_zip_costs_that_entry_alone(files, tmp_path):
    path = zip_of(tmp_path / "a.zip", files, zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    data[data.index(files["a.jpg"]) + 200] ^= 1
    path.write_bytes(data)
    good, bad, other = Source(str(path)).entries()
    assert good.open().pixels.size
    assert other.open().pixels.size
    with pytest.raises(ImageError, match=r"a\.jpg is damaged in its archive: its checksum is wrong"):
        bad.open()


def test_encrypted_and_rarely_packed_members_are_named(files, tmp_path):
    path = zip_of(tmp_path / "a.zip", files, zipfile.ZIP_LZMA)
    entry = next(Source(str(path)).entries())
    with pytest.raises(ImageError, match=r"rare method \(number 14\)"):
        entry.open()
    with pytest.raises(ImageError, match="is encrypted"):
        ZipEntry(**{**vars(entry), "flags": 1}).open()
    header = struct.unpack("<4s", path.read_bytes()[:4])
    assert header == (b"PK\x03\x04",)


def test_a_table_without_pictures_is_named_with_its_columns(tmp_path):
    path = parquet_of(tmp_path / "t.parquet", {"text": ["a"], "number": [1]})
    (entry,) = Source(str(path)).entries()
    with pytest.raises(ImageError, match="has no column of pictures; its columns are text, number"):
        entry.open()
    with pytest.raises(FileError, match=r"no column of pictures.*Call the column .* `image`"):
        Source(str(path)).check()
    assert Source(str(tmp_path)).count() == 1
    path = parquet_of(tmp_path / "t.parquet", {"image": [None, b"no picture"]})
    first, second = Source(str(path)).entries()
    with pytest.raises(ImageError, match="row 0 is an empty cell"):
        first.open()
    with pytest.raises(ImageError, match="row 1 is not a picture"):
        second.open()


def test_columns_of_one_name_are_refused_with_it(files, tmp_path):
    path, data = tmp_path / "t.parquet", pyarrow.array(list(files.values()))
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays([data, data], names=["image", "image"]), path)
    with pytest.raises(FileError, match="has several columns that are called image"):
        Source(str(path)).check()


@pytest.mark.parametrize("kind", ["large_string", "dictionary"])
def test_names_of_a_table_are_taken_from_any_column_of_text(kind, files, tmp_path):
    texts = pyarrow.array(list(files))
    texts = texts.dictionary_encode() if kind == "dictionary" else texts.cast(pyarrow.large_string())
    path = parquet_of(tmp_path / "t.parquet", {"image": list(files.values()), "file_name": texts})
    assert names(path) == list(files)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes have names here")
def test_a_pipe_that_is_called_like_an_archive_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.zip")
    draw(tmp_path / "b.png", 1)
    pipe, picture = Source(str(tmp_path)).entries()
    with pytest.raises(ImageError, match=r"a\.zip is not the archive its name says"):
        pipe.open()
    assert picture.name == "b.png"
    assert Source(str(tmp_path)).count() == 2


@pytest.mark.skipif(os.mkdir not in os.supports_dir_fd, reason="no path can be too long here")
def test_a_folder_that_cannot_be_read_is_named(tmp_path):
    draw(tmp_path / "a.png", 1)
    within = os.open(tmp_path, os.O_RDONLY)
    for _ in range(20):  # deeper than any path may be long
        os.mkdir("d" * 240, dir_fd=within)
        deeper = os.open("d" * 240, os.O_RDONLY, dir_fd=within)
        os.close(within)
        within = deeper
    os.close(within)
    picture, folder = Source(str(tmp_path)).entries()
    assert picture.name == "a.png"
    with pytest.raises(ImageError, match=r"d is a folder that can't be read \(File name too long\)"):
        folder.open()
    assert Source(str(tmp_path)).count() == 2
