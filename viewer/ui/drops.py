"""What a drop or the clipboard holds: files, pictures as data, and what can't be taken, in a sentence."""

from __future__ import annotations

import os.path
import re
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QMimeData, QUrl
from PySide6.QtGui import QImage

from viewer.errors import ImageError

# Bytes as the other program has them are better than Qt's own conversion: they keep profile and orientation.
_PICTURES = ("image/png", "image/jpeg", "image/webp", "image/avif", "image/tiff", "image/gif", "image/bmp")
_DATA_URL = re.compile(r"data:image/[\w.+-]+(?:;[\w=-]+)*,[\w%+/=.~!*'()-]+")


@dataclass(frozen=True)
class Dropped:
    """What came in.

    Attributes
    ----------
    paths
        Files and folders.
    pictures
        Bytes of picture files (a `QImage`'s as PNG), or ``data:`` addresses that hold such bytes.
    problems
        A sentence for each thing that can't be taken.
    """

    paths: tuple[Path, ...] = ()
    pictures: tuple[bytes | str, ...] = ()
    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.paths or self.pictures or self.problems)


def welcome(mime: QMimeData) -> bool:
    """Return whether a drag holds anything that could be opened, without reading its data."""
    return (
        mime.hasUrls() or mime.hasImage() or any(mime.hasFormat(kind) for kind in _PICTURES) or mime.hasHtml()
    )


def read(mime: QMimeData) -> Dropped:
    """Take what a drop or the clipboard holds.

    A browser offers the same picture in several forms at once (address, markup, pixels): one of them is
    taken, the one that is nearest to the original file.
    """
    urls = mime.urls() if mime.hasUrls() else []
    paths = tuple(Path(url.toLocalFile()) for url in urls if url.isLocalFile())
    texts = [
        url.toString(QUrl.ComponentFormattingOption.FullyEncoded) for url in urls if not url.isLocalFile()
    ]
    embedded = _DATA_URL.findall("\n".join(texts))
    problems = tuple(_refusal(text) for text in texts if not _DATA_URL.match(text))
    if paths or embedded:
        return Dropped(paths, tuple(embedded), problems)
    picture = (
        _offered(mime) or next(iter(_DATA_URL.findall(f"{mime.html()}\n{mime.text()}")), b"") or _pixels(mime)
    )
    if picture:
        return Dropped(pictures=(picture,))
    return Dropped(paths=tuple(_named_files(mime.text())) if not texts else (), problems=problems)


def _offered(mime: QMimeData) -> bytes:
    """Return the bytes of a picture file, in the first format that is offered."""
    for kind in _PICTURES:
        if mime.hasFormat(kind):
            return mime.data(kind).data()
    return b""


def _pixels(mime: QMimeData) -> bytes:
    image = mime.imageData() if mime.hasImage() else None
    if not isinstance(image, QImage) or image.isNull():
        return b""
    data = QByteArray()
    buffer = QBuffer(data)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")
    return data.data()


def _named_files(text: str) -> list[Path]:
    """Return the files that pasted lines of text name, if every line names one."""
    lines = [line.strip().strip("\"'") for line in text.splitlines() if line.strip()]
    usable = [line for line in lines if len(line) < 4096 and "\0" not in line]
    paths = [Path(os.path.expanduser(line)) for line in usable]  # noqa: PTH111 - see `_exists`
    return paths if paths and len(paths) == len(lines) and all(map(_exists, paths)) else []


def _exists(path: Path) -> bool:
    # Neither this nor `expanduser` may raise, whatever text was pasted; pathlib's do.
    return path.is_absolute() and os.path.exists(path)  # noqa: PTH110


def _refusal(address: str) -> str:
    """Say why an address can't be opened."""
    from viewer.images.sources import path_from_url

    try:
        path_from_url(address)
    except ImageError as error:
        return str(error)
    return f"{address} can't be opened."
