"""Telling models that open alone from weights that need an architecture, without opening either."""

from __future__ import annotations

from pathlib import Path

from viewer.backends.checkpoint_files import is_exported, is_scripted

_PROGRAMS = (".pt", ".pth", ".bin", ".ckpt")
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


def opens_alone(path: Path) -> bool:
    """Return whether something is a program, or a folder that transformers saved a model to.

    Parameters
    ----------
    path
        Any file or folder; of files only the list of their parts is read.
    """
    suffix = path.suffix.lower()
    try:
        if path.is_dir():
            return (path / "config.json").is_file() and any((path / name).is_file() for name in _WEIGHTS)
        if suffix in (".onnx", ".pt2"):
            return True
        return suffix in _PROGRAMS and path.is_file() and (is_scripted(path) or is_exported(path))
    except (OSError, ValueError):  # a name no file can have, a folder that is closed
        return False
