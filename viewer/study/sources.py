"""Where the pictures of a study come from: a folder, a ZIP or tar archive, a Parquet table, the samples.

Everything is listed lazily and in the same order each time; nothing is unpacked to disk. Held in memory are
the names of one folder, or the directory of one ZIP archive, never the pictures.
"""

from __future__ import annotations

import os
import os.path
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from viewer.errors import FileError
from viewer.images.samples import SAMPLES
from viewer.images.sources import IMAGE_SUFFIXES, kind_of
from viewer.study import tables
from viewer.study.entries import (
    MOST_BYTES,
    BadEntry,
    BytesEntry,
    CropEntry,
    Entry,
    FileEntry,
    SpanEntry,
    ZipEntry,
)
from viewer.study.names import SETTINGS

SAMPLE = "sample"
"""Instead of a folder: the shipped photographs, each whole and in three crops."""

_CROPS = {
    "whole": (0.0, 0.0, 1.0, 1.0),
    "left": (0.0, 0.0, 0.6, 1.0),
    "right": (0.4, 0.0, 1.0, 1.0),
    "middle": (0.25, 0.25, 0.75, 0.75),
}
_PACKED_TARS = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_ARCHIVES = (".zip", ".tar", ".parquet", *_PACKED_TARS)
_NESTED = (
    "is an archive inside an archive, which is not gone through: unpack the outer one, or take this one out"
)
_DAMAGE = (tarfile.TarError, OSError, EOFError, zlib.error, zipfile.BadZipFile)


@dataclass(frozen=True)
class Source:
    """The pictures of one study.

    Attributes
    ----------
    path
        A folder, an archive, a table, or `SAMPLE`.
    """

    path: str

    def absolute(self) -> Source:
        """Return it as it is found from any folder."""
        return self if self.path == SAMPLE else Source(str(Path(self.path).resolve()))

    def check(self) -> None:
        """Refuse what can be no source at all.

        Raises
        ------
        FileError
            If it is missing or of another kind; the text says what would do.
        """
        if self.path == SAMPLE:
            return
        path = Path(self.path)
        try:
            self._check(path)
        except OSError as error:
            raise FileError(path, f"can't be read ({error.strerror or error})") from error

    def _check(self, path: Path) -> None:
        if os.path.isdir(self.path):  # noqa: PTH112 - no error for endless names
            os.scandir(path).close()
            return
        if not os.path.isfile(self.path):  # noqa: PTH113
            raise FileError(path, "does not exist", "Give a folder, a zip, a tar or a Parquet file.")
        opener = _opener(path)
        if opener is tables.rows:
            tables.count(path)
        elif opener is None:
            picture = "is a single picture" if kind_of(path) == "image" else "is neither folder nor archive"
            raise FileError(path, picture, "A study takes a folder, a zip, a tar or a Parquet file.")

    def entries(self) -> Iterator[Entry]:
        """Yield every picture; a damaged archive gives a `BadEntry` where it ends.

        Files are taken by their content or ending, entries of archives by their ending; hidden ones are left
        out, and so are the folders of studies. An archive inside a folder is gone through like a subfolder;
        one inside an archive is not, and gives a `BadEntry`.
        """
        if self.path == SAMPLE:
            yield from _samples()
        elif os.path.isdir(self.path):  # noqa: PTH112
            yield from _folder(Path(self.path))
        else:
            yield from _archive(Path(self.path), "")

    def count(self) -> int | None:
        """Return how many entries there are; None where only unpacking everything would tell."""
        if self.path != SAMPLE and os.path.isdir(self.path):  # noqa: PTH112
            total = 0
            closed: list[OSError] = []
            for found in _files(Path(self.path), closed.append):
                more = _count_archive(found) if _is_archive(found) else 1
                if more is None:
                    return None
                total += more
            return total + len(closed)
        return len(SAMPLES) * len(_CROPS) if self.path == SAMPLE else _count_archive(Path(self.path))


def _samples() -> Iterator[Entry]:
    for sample in SAMPLES:
        for name, box in _CROPS.items():
            yield CropEntry(f"{sample.name} ({name})", sample.path, box)


def _folder(top: Path) -> Iterator[Entry]:
    closed: list[OSError] = []
    for path in _files(top, closed.append):
        name = path.relative_to(top).as_posix()
        if _is_archive(path):
            yield from _archive(path, f"{name}/")
        else:
            yield FileEntry(name, path)
    for error in closed:
        name = Path(error.filename).relative_to(top).as_posix()
        yield BadEntry(name, -1, f"is a folder that can't be read ({error.strerror})")


def _files(top: Path, closed: Callable[[OSError], None]) -> Iterator[Path]:
    """Yield pictures and archives below a folder, by name, without following linked folders.

    `closed` is told of each folder that can't be read.
    """
    for folder, below, files in os.walk(top, onerror=closed):
        if SETTINGS in files:
            below.clear()
            continue
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(files):
            path = Path(folder) / name
            if not name.startswith(".") and (_is_archive(path) or kind_of(path) == "image"):
                yield path


def _is_archive(path: Path) -> bool:
    return _named_archive(path.name)


def _named_archive(name: str) -> bool:
    return name.lower().endswith(_ARCHIVES)


def _archive(path: Path, prefix: str) -> Iterator[Entry]:
    last = -1
    try:
        open_entries = _opener(path)
        if open_entries is None:
            yield BadEntry(f"{prefix or path.name}".rstrip("/"), -1, "is not the archive its name says")
            return
        for entry in open_entries(path, prefix):
            last = entry.place
            yield entry
    except _DAMAGE as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        place = "at its beginning" if last < 0 else f"after entry {last}"
        yield BadEntry(prefix.rstrip("/") or path.name, last + 1, f"is damaged or cut off {place} ({reason})")
    except FileError as error:
        yield BadEntry(prefix.rstrip("/") or path.name, last + 1, error.problem)


def _opener(path: Path) -> Callable[[Path, str], Iterator[Entry]] | None:
    """Return what lists the entries of an archive, by its content; None if it is none."""
    if path.exists() and not path.is_file():
        return None  # a pipe would be waited for
    with path.open("rb") as file:
        head = file.read(4)
    if head == b"PAR1":
        return tables.rows
    if head in (b"PK\x03\x04", b"PK\x05\x06"):
        return _zip
    if tarfile.is_tarfile(path):
        return _tar
    return _zip if zipfile.is_zipfile(path) else None


def _count_archive(path: Path) -> int | None:
    try:
        opener = _opener(path)
        if opener is tables.rows:
            return tables.count(path)
        if opener is _tar and _is_packed(path):
            return None
        return sum(1 for _ in _archive(path, ""))
    except (OSError, FileError):
        return 1  # its one bad entry


def _is_wanted(name: str) -> bool:
    """Return whether an archive's entry is a picture by its ending, or an archive, which is to be told of."""
    parts = name.split("/")
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in parts if part not in (".", ".."))
    picture = os.path.splitext(parts[-1])[1].lower() in IMAGE_SUFFIXES  # noqa: PTH122
    return not hidden and (picture or _named_archive(name))


def _zip(path: Path, prefix: str) -> Iterator[Entry]:
    with zipfile.ZipFile(path) as archive:
        for place, info in enumerate(archive.infolist()):
            if info.is_dir() or not _is_wanted(info.filename):
                continue
            if _named_archive(info.filename):
                yield BadEntry(prefix + info.filename, place, _NESTED)
            else:
                yield ZipEntry(
                    *(prefix + info.filename, place, path, info.header_offset, info.compress_size),
                    *(info.file_size, info.compress_type, info.flag_bits, info.CRC),
                )


def _is_packed(path: Path) -> bool:
    """Return whether a tar has to be unpacked to be read."""
    try:
        with tarfile.open(path, "r:"):
            return False
    except tarfile.TarError:
        return True


def _tar(path: Path, prefix: str) -> Iterator[Entry]:
    packed = _is_packed(path)
    with tarfile.open(path, "r|*" if packed else "r:") as archive:
        for place, info in enumerate(archive):
            # It would keep every header it has met.
            archive.members = []
            name = info.name.removeprefix("./")
            if not info.isreg() or not _is_wanted(name):
                continue
            if _named_archive(name):
                yield BadEntry(prefix + name, place, _NESTED)
            elif info.issparse():
                yield BadEntry(prefix + name, place, "is stored with holes in its archive (a sparse file)")
            elif not packed:
                yield SpanEntry(prefix + name, place, path, info.offset_data, info.size)
            else:
                yield _unpacked(archive, info, prefix + name, place)


def _unpacked(archive: tarfile.TarFile, info: tarfile.TarInfo, name: str, place: int) -> Entry:
    if info.size > MOST_BYTES:
        return BadEntry(name, place, f"holds {info.size / 1e6:,.0f} MB, more than one picture may")
    file = archive.extractfile(info)
    return BytesEntry(name, place, file.read() if file else b"")
