"""What bytes really are, whatever the file is called: pictures, and what turns up instead."""

from __future__ import annotations

import struct
from dataclasses import dataclass

HEAD_BYTES = 4096
"""How much of a file is enough to tell what it is."""


@dataclass(frozen=True)
class Format:
    """A picture format that can be decoded.

    Attributes
    ----------
    name
        What a person calls it.
    suffixes
        File name endings it goes by, lower case.
    plural
        What more than one picture in such a file is called.
    """

    name: str
    suffixes: tuple[str, ...]
    plural: str = "frames"

    @property
    def picture(self) -> str:
        """The name with its article: "an AVIF picture"."""
        return f"{'an' if self.name[0] in 'AEIO' else 'a'} {self.name} picture"


JPEG = Format("JPEG", (".jpg", ".jpeg", ".jpe", ".jfif", ".mpo"), "pictures")
PNG = Format("PNG", (".png", ".apng"))
WEBP = Format("WebP", (".webp",))
AVIF = Format("AVIF", (".avif", ".avifs"))
HEIC = Format("HEIC", (".heic", ".heif", ".heics", ".heifs", ".hif"), "pictures")
TIFF = Format("TIFF", (".tif", ".tiff"), "pages")
GIF = Format("GIF", (".gif",))
BMP = Format("BMP", (".bmp", ".dib"))

FORMATS = (JPEG, PNG, WEBP, AVIF, HEIC, TIFF, GIF, BMP)

_AVIF_BRANDS = {b"avif", b"avis"}
_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"}
_GENERIC_BRANDS = {b"mif1", b"msf1", b"mif2", b"miaf"}

# What else has been found under a picture's name; the first that fits counts.
_OTHERS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"%PDF-", "a PDF document"),
    (0, b"PK\x03\x04", "a ZIP archive (or a document or checkpoint packed as one)"),
    (0, b"PK\x05\x06", "an empty ZIP archive"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (0, b"Rar!\x1a\x07", "a RAR archive"),
    (0, b"\xfd7zXZ\x00", "an xz archive"),
    (4, b"1AY&SY", "a bzip2 archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x1a\x45\xdf\xa3", "a Matroska or WebM video"),
    (0, b"OggS", "an Ogg audio or video file"),
    (0, b"ID3\x03", "an MP3 audio file"),
    (0, b"ID3\x04", "an MP3 audio file"),
    (0, b"8BPS", "a Photoshop document"),
    (0, b"\xff\x0a", "a JPEG XL picture"),
    (0, b"\x00\x00\x00\x0cJXL \r\n\x87\n", "a JPEG XL picture"),
    (0, b"\x00\x00\x00\x0cjP  \r\n\x87\n", "a JPEG 2000 picture"),
    (0, b"\xff\x4f\xff\x51", "a JPEG 2000 picture"),
    (0, b"\x00\x00\x01\x00", "a Windows icon"),
    (0, b"%!PS", "a PostScript drawing"),
    (0, b"FUJIFILMCCD-RAW", "a camera raw picture"),
    (0, b"IIU\x00", "a camera raw picture"),
    (0, b"qoif", "a QOI picture"),
    (0, b"\x76\x2f\x31\x01", "an OpenEXR picture"),
    (0, b"#?RADIANCE", "a Radiance HDR picture"),
    (0, b"DDS |\x00\x00\x00", "a DirectDraw texture"),
    (128, b"DICM", "a DICOM medical picture"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (0, b"SQLite format 3\x00", "an SQLite database"),
    (0, b"\x80\x02", "a Python pickle"),
    (0, b"\x80\x04", "a Python pickle"),
    (0, b"\x7fELF", "a program"),
    (0, b"MZ\x90\x00", "a Windows program"),
    (0, b"version https://git-lfs", "a Git LFS pointer, not the picture itself"),
)


def format_of(head: bytes) -> Format | None:
    """Tell a picture format from the first bytes; None for anything that is not decoded here.

    Parameters
    ----------
    head
        The first `HEAD_BYTES` of the file, or all of it.
    """
    if head[:3] == b"\xff\xd8\xff":
        return JPEG
    if head[:8] == b"\x89PNG\r\n\x1a\n":
        return PNG
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return WEBP
    if head[:6] in (b"GIF87a", b"GIF89a"):
        return GIF
    if head[:4] in (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+"):
        return TIFF
    # Two letters are little: the size of a known header has to follow.
    if head[:2] == b"BM" and len(head) >= 18 and head[14] in (12, 16, 40, 52, 56, 64, 108, 124):
        return BMP
    brands = _brands(head)
    if brands & _AVIF_BRANDS:
        return AVIF
    if brands & _HEIC_BRANDS or (brands and brands <= _GENERIC_BRANDS):
        return HEIC
    return None


def describe(head: bytes) -> str:
    """Say what bytes are that are no picture: "an HTML page", "text", "a file of an unknown kind".

    Parameters
    ----------
    head
        The first `HEAD_BYTES` of the file, or all of it; at least one byte.
    """
    for offset, magic, what in _OTHERS:
        if head[offset : offset + len(magic)] == magic:
            return what
    if head[:4] == b"RIFF" and len(head) >= 12:
        return {b"AVI ": "an AVI video", b"WAVE": "a WAV audio file"}.get(head[8:12], "a RIFF media file")
    if _brands(head):
        return "an MP4 or QuickTime video"
    if not head.strip(b"\x00"):
        return "nothing but zero bytes"
    return _describe_text(head)


def whole_length(data: bytes, kind: Format) -> int | None:
    """Return how many bytes the file should have by what it says of itself; None where it does not say.

    Parameters
    ----------
    data
        The file, possibly cut off.
    kind
        Its format.
    """
    if kind is WEBP and len(data) >= 12:
        return struct.unpack_from("<I", data, 4)[0] + 8
    if kind is BMP and len(data) >= 6:
        return struct.unpack_from("<I", data, 2)[0] or None
    if kind in (AVIF, HEIC):
        return _boxes_end(data)
    return None


def lacks_end(data: bytes, kind: Format) -> bool:
    """Tell whether a JPEG, PNG or GIF file lacks the mark that closes it, or a TIFF file its directory."""
    if kind is JPEG:
        return b"\xff\xd9" not in data[-65536:]
    if kind is PNG:
        return b"IEND" not in data[-65536:]
    if kind is GIF:
        return not data.rstrip(b"\x00").endswith(b";")
    if kind is TIFF and len(data) >= 8:
        order = "<" if data[:2] == b"II" else ">"
        return struct.unpack_from(f"{order}I", data, 4)[0] + 2 > len(data)
    return False


def _brands(head: bytes) -> set[bytes]:
    """Return the brands of an ISO media file (HEIC, AVIF, MP4, MOV); empty for anything else."""
    if len(head) < 12 or head[4:8] != b"ftyp":
        return set()
    size = min(struct.unpack_from(">I", head)[0], len(head))
    # Bytes 12 to 16 are the minor version.
    return {head[8:12]} | {head[at : at + 4] for at in range(16, size - 3, 4)}


def _boxes_end(data: bytes) -> int | None:
    """Walk the top level boxes of an ISO media file and return where the last one ends."""
    at = 0
    while at + 8 <= len(data):
        size = struct.unpack_from(">I", data, at)[0]
        if size == 1 and at + 16 <= len(data):
            size = struct.unpack_from(">Q", data, at + 8)[0]
        if size < 8:
            return None  # 0: the box runs to the end of the file, wherever that is
        at += size
    return at


def _describe_text(head: bytes) -> str:
    """Tell kinds of text apart; "a file of an unknown kind" for what is no text."""
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    # The head may end in the middle of a character.
    text = head.decode(encoding, errors="replace").rstrip("\ufffd")
    if "\ufffd" in text or any(character < " " and character not in "\t\n\r\f" for character in text):
        return "a file of an unknown kind"
    start = text.lstrip().lower()
    if "<svg" in start:
        return "an SVG drawing"
    if start.startswith(("<!doctype html", "<html", "<head", "<body")) or "<html" in start[:1000]:
        return "an HTML page (perhaps an error page saved under the picture's name)"
    if start.startswith("<?xml"):
        return "an XML document"
    if start.startswith(("{", "[")):
        return "JSON text"
    if start.startswith("data:image/"):
        return "a data URL as text"
    return "text"
