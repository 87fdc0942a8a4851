"""One picture of a study, wherever it lies: small enough to be sent to the process that reads it."""

from __future__ import annotations

import hashlib
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from viewer.errors import ImageError
from viewer.images.decode import DecodedImage, open_image

MOST_BYTES = 1 << 29
"""Larger entries of an archive are refused, before or while they are unpacked: 512 MiB."""

_STORED, _DEFLATED = 0, 8
_ENCRYPTED = 0x1
_LOCAL_HEADER = struct.Struct("<4s22sHH")


class Entry(Protocol):
    """A picture of a study.

    Attributes
    ----------
    name
        Path below the folder, or inside the archive, with slashes; what the results call it.
    place
        Number of the entry in its archive, from 0, since a name may come twice there; -1 in a folder.
    """

    name: str
    place: int

    def open(self) -> DecodedImage:
        """Read and decode it.

        Raises
        ------
        ImageError
            If it is no picture, damaged, or too large.
        """


def digest(name: str, place: int) -> bytes:
    """Return 24 ASCII bytes that stand for one entry: of a million, two agree once in 10^17 times."""
    text = f"{place}:{name}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=12).hexdigest().encode()


@dataclass(frozen=True)
class FileEntry:
    """A file of a folder."""

    name: str
    path: Path
    place: int = -1

    def open(self) -> DecodedImage:
        """See `Entry.open`."""
        return open_image(self.path, self.name)


@dataclass(frozen=True)
class CropEntry:
    """A part of a picture file; `box` is left, top, right, bottom as shares of its sides."""

    name: str
    path: Path
    box: tuple[float, float, float, float]
    place: int = -1

    def open(self) -> DecodedImage:
        """See `Entry.open`."""
        whole = open_image(self.path).pixels
        height, width = whole.shape[:2]
        left, top, right, bottom = (
            round(share * side) for share, side in zip(self.box, (width, height) * 2, strict=True)
        )
        return open_image(whole[top:bottom, left:right], self.name)


@dataclass(frozen=True)
class SpanEntry:
    """A stretch of a larger file that holds a picture's bytes as they are: in a tar, say."""

    name: str
    place: int
    path: Path
    offset: int
    size: int

    def open(self) -> DecodedImage:
        """See `Entry.open`."""
        check_size(self.name, self.size)
        data = _read_span(self.name, self.path, self.offset, self.size)
        return open_image(data, self.name)


@dataclass(frozen=True)
class ZipEntry:
    """A member of a ZIP archive.

    Attributes
    ----------
    offset
        Of its local header.
    packed, size
        Bytes in the archive, and unpacked, as the archive's directory has them.
    method, flags, crc
        From the same place.
    """

    name: str
    place: int
    path: Path
    offset: int
    packed: int
    size: int
    method: int
    flags: int
    crc: int

    def open(self) -> DecodedImage:
        """See `Entry.open`."""
        check_size(self.name, max(self.size, self.packed))
        if self.flags & _ENCRYPTED:
            raise ImageError(self.name, "is encrypted in its archive", "Unpack the archive yourself.")
        if self.method not in (_STORED, _DEFLATED):
            problem = f"is packed by a rare method (number {self.method}) in its archive"
            raise ImageError(self.name, problem, "Pack the archive anew, as ordinary ZIP (deflate).")
        header = _read_span(self.name, self.path, self.offset, _LOCAL_HEADER.size)
        magic, _, name_length, extra_length = _LOCAL_HEADER.unpack(header)
        if magic != b"PK\x03\x04":
            raise ImageError(self.name, "is not where the archive's directory says: the archive is damaged")
        start = self.offset + _LOCAL_HEADER.size + name_length + extra_length
        data = _read_span(self.name, self.path, start, self.packed)
        if self.method == _DEFLATED:
            data = self._inflated(data)
        if zlib.crc32(data) != self.crc:
            raise ImageError(self.name, "is damaged in its archive: its checksum is wrong")
        return open_image(data, self.name)

    def _inflated(self, data: bytes) -> bytes:
        # Never more than the directory promised, whatever the stream goes on to hold.
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            found = unpacker.decompress(data, self.size + 1)
        except zlib.error as error:
            raise ImageError(self.name, f"is damaged in its archive ({error})") from error
        if len(found) != self.size:
            raise ImageError(self.name, "has another size than its archive says: the archive is damaged")
        return found


@dataclass(frozen=True)
class BytesEntry:
    """A picture whose bytes had to be read already: of a compressed tar, or of a table."""

    name: str
    place: int
    data: bytes

    def open(self) -> DecodedImage:
        """See `Entry.open`."""
        return open_image(self.data, self.name)


@dataclass(frozen=True)
class BadEntry:
    """An entry that can't be read at all, and why, as a clause."""

    name: str
    place: int
    problem: str

    def open(self) -> DecodedImage:
        """Raise `ImageError`."""
        raise ImageError(self.name, self.problem)


def check_size(name: str, size: int) -> None:
    """Refuse an entry that is larger than any picture that can be decoded.

    Raises
    ------
    ImageError
        If it has more than `MOST_BYTES`.
    """
    if size > MOST_BYTES:
        raise ImageError(
            name, f"holds {size / 1e6:,.0f} MB", f"The limit is {MOST_BYTES / 1e6:.0f} MB for one picture."
        )


def _read_span(name: str, path: Path, offset: int, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(size)
    except OSError as error:
        raise ImageError(name, f"can't be read: {error.strerror or error}") from error
    if len(data) < size:
        raise ImageError(name, f"is cut off: its archive {path.name} ends before it does")
    return data
