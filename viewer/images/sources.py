"""From what a person drops, pastes or names to files and pictures. Nothing is fetched from the web."""

from __future__ import annotations

import base64
import binascii
import os.path
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import unquote_to_bytes, urlsplit

from viewer.errors import ImageError
from viewer.images.decode import DecodedImage, open_image
from viewer.images.signatures import FORMATS, HEAD_BYTES, format_of

Kind = Literal["image", "model", "figure", "other"]

IMAGE_SUFFIXES = frozenset(suffix for kind in FORMATS for suffix in kind.suffixes)
"""Endings of picture files, lower case, for open dialogs."""
MODEL_SUFFIXES = frozenset({".onnx", ".safetensors", ".pth", ".pt", ".bin", ".pt2", ".ckpt"})
"""Endings of model and checkpoint files, lower case."""
FIGURE_SUFFIXES = frozenset({".svg", ".pdf"})
"""Endings of exported figures that are no pictures; an exported PNG is a picture as well."""

_MAX_DEPTH = 16


def expand_paths(paths: Iterable[str | Path]) -> list[Path]:
    """Put the files inside folders in the place of the folders.

    Parameters
    ----------
    paths
        Files and folders, in the order they were given.

    Returns
    -------
    list of Path
        Every file that was named, whatever it is, so that opening it can say what is wrong with it; of
        folders the pictures and models inside, in natural order ("2.png" before "10.png"), subfolders after
        files, down to 16 levels, without hidden ones and without following linked folders. A folder that
        holds nothing usable or can't be read stays itself in the list, for the same reason. No path comes
        twice.
    """
    found: dict[Path, None] = {}
    for path in map(Path, paths):
        if os.path.isdir(path):  # noqa: PTH112 - pathlib's raises for names that are too long, say
            found.update(dict.fromkeys(_walk(path, _MAX_DEPTH) or [path]))
        else:
            found[path] = None
    return list(found)


def kind_of(path: str | Path) -> Kind:
    """Tell what a file is for, by its content where it is a picture, otherwise by its ending.

    A file that has a picture's ending counts as one even when its content is something else: opening it
    says what. So does opening a pipe, a socket, a device, or what can't be looked at; none of them is read
    here, since that may take forever.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in IMAGE_SUFFIXES:
        return "image"
    if not _may_be_read(path):
        return "other"
    if suffix in MODEL_SUFFIXES:
        return "model"
    if suffix in FIGURE_SUFFIXES:
        return "figure"
    try:
        with path.open("rb") as file:
            return "image" if format_of(file.read(HEAD_BYTES)) else "other"
    except (OSError, ValueError):
        return "other"


def _may_be_read(path: Path) -> bool:
    """Return False for what is there but no file, and for what can't even be looked at."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False


def image_from_data_url(url: str, name: str = "dropped image") -> DecodedImage:
    """Decode a picture that came as a ``data:`` URL, base64 or percent-encoded.

    Raises
    ------
    ImageError
        If it is no such URL or holds no picture.
    """
    head, comma, body = url.strip().partition(",")
    if not comma or not head.lower().startswith("data:"):
        raise ImageError(name, "is not a data URL")
    data = unquote_to_bytes(body)
    if head.lower().endswith(";base64"):
        try:
            # Some programs break the lines or leave out the padding.
            packed = re.sub(rb"\s+", b"", data).rstrip(b"=")
            data = base64.b64decode(packed + b"=" * (-len(packed) % 4), validate=True)
        except binascii.Error as error:
            raise ImageError(
                name, "came as a data URL that is cut off or damaged", "Copy it again."
            ) from error
    return open_image(data, name)


def path_from_url(url: str) -> Path:
    """Return the path that a ``file://`` URL names.

    Raises
    ------
    ImageError
        For an address on the web, which is not fetched, and for any other scheme.
    """
    parts = urlsplit(url.strip())
    if parts.scheme == "file":
        from urllib.request import url2pathname  # late: it loads the whole of http

        server = f"//{parts.netloc}" if parts.netloc not in ("", "localhost") else ""
        return Path(url2pathname(server + parts.path))
    if parts.scheme in ("http", "https"):
        raise ImageError(
            url,
            "is a web address",
            "Patchreach fetches nothing from the web: save the picture and drop the file.",
        )
    raise ImageError(url, "is not the address of a file")


def _walk(folder: Path, depth: int) -> list[Path]:
    """Return pictures and models in a folder and below; the folder itself if it can't be read."""
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: _natural(entry.name))
    except OSError:
        return [folder]
    visible = [entry for entry in entries if not entry.name.startswith(".")]
    files = [entry for entry in visible if os.path.isfile(entry) and kind_of(entry) in ("image", "model")]  # noqa: PTH113
    return files + list(_below(visible, depth))


def _below(entries: list[Path], depth: int) -> Iterator[Path]:
    """Yield what the subfolders among some entries hold."""
    for entry in entries:
        if depth > 1 and os.path.isdir(entry) and not entry.is_symlink():  # noqa: PTH112
            yield from _walk(entry, depth - 1)


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Sort digits as numbers and letters without regard to case; the name itself decides between equals."""
    parts = re.split(r"([0-9]+)", name.casefold())
    key = [(0, int(part), "") if part[:1].isdecimal() else (1, 0, part) for part in parts if part]
    return [*key, (2, 0, name)]
