"""What a file that is no model really is, told from its first bytes."""

from __future__ import annotations

import stat
from pathlib import Path

from viewer.errors import ModelFileError

_STARTS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"version https://git-lfs.github.com/spec/v1", "is a Git LFS pointer"),
    (0, b"PK\x03\x04", "is a ZIP archive (PyTorch checkpoints are such archives)"),
    (0, b"\x80\x02", "is a Python pickle (old PyTorch checkpoints are)"),
    (0, b"\x89HDF", "is an HDF5 file (Keras models are)"),
    (4, b"TFL3", "is a TensorFlow Lite model"),
    (4, b"ORTM", "is a model in ONNX Runtime's own ORT format"),
    (0, b"GGUF", "is a GGUF model"),
    (0, b"\x89PNG", "is a PNG picture"),
    (0, b"\xff\xd8\xff", "is a JPEG picture"),
    (0, b"\x1f\x8b", "is gzip-compressed"),
    (0, b"7z\xbc\xaf", "is a 7-Zip archive"),
    (0, b"%PDF", "is a PDF document"),
)

_ADVICE = {
    "is a Git LFS pointer": "Fetch the real file with `git lfs pull`.",
    "is a web page": "The download link led to a page instead of the file; download the file itself.",
    "is a model in ONNX Runtime's own ORT format": "Open the .onnx file it was made from.",
}


_NOT_FILES = (
    (stat.S_ISFIFO, "is a named pipe"),
    (stat.S_ISSOCK, "is a socket"),
    (stat.S_ISCHR, "is a device"),
    (stat.S_ISBLK, "is a device"),
)


def require_regular(path: Path, wanted: str) -> None:
    """See, without opening it, whether something is a file that has an end.

    Parameters
    ----------
    path
        As the person named it.
    wanted
        What it should be: "a checkpoint".

    Raises
    ------
    ModelFileError
        If it does not exist, can't be asked for, or is a folder, pipe, socket or device.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ModelFileError(path, "does not exist") from error
    except (OSError, ValueError) as error:  # too long a name, no permission, a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelFileError(path, f"can't be read ({reason})") from error
    if stat.S_ISDIR(mode):
        raise ModelFileError(path, f"is a folder, not {wanted}")
    if not stat.S_ISREG(mode):
        kind = next((clause for test, clause in _NOT_FILES if test(mode)), "is a special file")
        raise ModelFileError(path, f"{kind}, not {wanted}")


def foreign_kind(path: Path) -> tuple[str, str]:
    """Say what a file is that turned out not to be the model it was taken for.

    Parameters
    ----------
    path
        An existing file.

    Returns
    -------
    tuple of str
        A clause ("is a web page") and what to do about it as a sentence; both empty where nothing is known.
    """
    with path.open("rb") as file:
        head = file.read(512)
    if not head:
        return "is empty (0 bytes)", "Copy or download it again."
    clause = next((text for at, mark, text in _STARTS if head[at : at + len(mark)] == mark), "")
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not clause and text.startswith((b"<!doctype html", b"<html", b"<?xml", b"<head")):
        clause = "is a web page"
    if not clause and len(head) > 9 and head[8:9] == b"{" and head[7] == 0:
        clause = "is a safetensors file"
    if not clause and text.startswith((b"{", b"[")):
        clause = "is JSON text"
    return clause, _ADVICE.get(clause, "")
