"""Telling a pickled whole model from other pickles, without opening it."""

from __future__ import annotations

import io
import pickletools
import zipfile
from pathlib import Path

_MOST_BYTES = 1 << 26
# Every pickled `nn.Module` names its dictionaries of parameters and of modules.
_MARKS = frozenset({"_parameters", "_modules"})
# PyTorch's older format begins with three small pickles: a magic number, a version, the machine.
_PICKLES = 4

SAFE_WAYS = (
    "Two safe ways, where you trust the file: load it in Python yourself and save its weights alone, with "
    "`torch.save(model.state_dict(), FILE)`, to be joined with their architecture (--model NAME --weights "
    "FILE); or export it as a program, with "
    "`torch.export.save(torch.export.export(model.eval(), (picture,)), 'FILE.pt2')` or "
    "`torch.onnx.export(model.eval(), (picture,), 'FILE.onnx')`."
)
"""What to do about one, as a sentence."""


def is_pickled_module(path: Path) -> bool:
    """Return whether a file that PyTorch saved, in its ZIP format or the older one, holds a whole model."""
    texts = set()
    try:
        stream = io.BytesIO(_pickle_in(path))
        for _ in range(_PICKLES):
            texts |= {argument for _, argument, _ in pickletools.genops(stream) if isinstance(argument, str)}
    # Not that many pickles, or one that is none or ends early: what was seen until then counts.
    except (ValueError, LookupError, OSError, zipfile.BadZipFile, StopIteration):
        pass
    return texts >= _MARKS


def _pickle_in(path: Path) -> bytes:
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            return file.read(_MOST_BYTES)
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
        with archive.open(name) as file:
            return file.read(_MOST_BYTES)
