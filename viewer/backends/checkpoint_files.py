"""Reading checkpoint files, safely, and saying what a file is that is none."""

from __future__ import annotations

import argparse
import json
import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from viewer.backends.file_kind import foreign_kind, require_regular
from viewer.backends.pickled_module import SAFE_WAYS, is_pickled_module
from viewer.errors import ModelFileError

if TYPE_CHECKING:
    from torch import Tensor

SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
"""Files that may hold a state dict."""

# Where training programs keep weights inside a checkpoint, the best to look at first.
_NESTS = (
    "state_dict_ema", "model_ema", "teacher", "model", "state_dict", "module", "student", "net", "backbone",
    "encoder",
)  # fmt: skip
_DEEPEST_NEST = 16
_SAVE_WEIGHTS = (
    "Where you trust the file, load it in Python yourself and save its weights alone, with "
    "`torch.save(model.state_dict(), FILE)` or `safetensors.torch.save_file(model.state_dict(), FILE)`."
)


def read_state(path: Path) -> dict[str, Tensor]:
    """Read the weights in a checkpoint without running any code from it.

    Parameters
    ----------
    path
        .safetensors, .pth, .pt or .bin; what counts is what the file holds, not its name.

    Returns
    -------
    dict
        Parameter names, as they are in the file, to tensors on the CPU.

    Raises
    ------
    ModelFileError
        If it is missing, empty, cut off, or no checkpoint; the text says what it really is.
    """
    require_regular(path, "a checkpoint")
    try:
        head = _head(path)
        if _safetensors_header(head):
            return _read_safetensors(path)
        if head.startswith(b"PK"):
            return _read_archive(path)
        if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
            return _unwrap(path, _load(path))
    except OSError as error:
        raise ModelFileError(path, f"can't be read ({error.strerror or error})") from error
    clause, advice = foreign_kind(path)
    raise ModelFileError(path, clause or "is no checkpoint that PyTorch or safetensors knows", advice)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(16)


def _safetensors_header(head: bytes) -> int:
    """Return the length of a safetensors header, 0 if it is none."""
    length = int.from_bytes(head[:8], "little")
    return length if head[8:9] == b"{" and 1 < length < 100_000_000 else 0


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    with path.open("rb") as file:
        length = _safetensors_header(file.read(16))
        file.seek(8)
        header = file.read(length)
    size = path.stat().st_size
    if len(header) == length:
        try:
            ends = [
                entry["data_offsets"][1]
                for name, entry in json.loads(header).items()
                if name != "__metadata__"
            ]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ModelFileError(path, "is a safetensors file whose header is damaged") from error
        if not all(isinstance(end, int) for end in ends):
            raise ModelFileError(path, "is a safetensors file whose header is damaged")
        length += max(ends, default=0)
    if size < 8 + length:
        raise _cut_off(path, f"holds only {size:,} of {8 + length:,} bytes")
    try:
        state = load_file(path)
    except (SafetensorError, LookupError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise ModelFileError(path, f"is a damaged safetensors file ({error})") from error
    return _unwrap(path, state)


def _read_archive(path: Path) -> dict[str, Tensor]:
    """Read PyTorch's ZIP format, whichever of its kinds it is."""
    members = _members(path)
    if not members:
        raise _cut_off(path, "is a ZIP archive without its end")
    if is_scripted(path):
        from viewer.backends.torchscript_weights import read_torchscript

        return read_torchscript(path)
    if _exported(members):
        raise ModelFileError(
            path,
            "is an exported PyTorch program (.pt2), not a checkpoint",
            f"It needs no architecture: --model {path}",
        )
    if not any(member.endswith("data.pkl") for member in members):
        raise ModelFileError(path, "is a ZIP archive without a PyTorch checkpoint in it")
    return _unwrap(path, _load(path))


def is_scripted(path: Path) -> bool:
    """Return whether a file is a TorchScript program."""
    return any(member.endswith("constants.pkl") for member in _members(path))


def is_exported(path: Path) -> bool:
    """Return whether a file is a program exported by `torch.export`."""
    return _exported(_members(path))


def _exported(members: Sequence[str]) -> bool:
    return any(member.endswith(("archive_format", "serialized_exported_program.json")) for member in members)


def _members(path: Path) -> list[str]:
    """Return the names inside a ZIP archive, none if it is no such archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return []


def _load(path: Path) -> object:
    import torch

    # Training programs keep their command line and NumPy numbers beside the weights: these can do no harm.
    harmless = [argparse.Namespace, np.dtype, *_numpy_numbers()]
    try:
        # An open file, as for a path torch.load goes by its suffix.
        with (
            torch.serialization.safe_globals(harmless),
            warnings.catch_warnings(),
            path.open("rb") as file,
        ):
            warnings.simplefilter("ignore")  # of pickles newer than PyTorch's own
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL ([\w.]+)", str(error)) or re.search(
            r"Unsupported (?:global|class) ([\w.]+)", str(error)
        )
        whole = is_pickled_module(path)
        if found is None and not whole:
            raise ModelFileError(path, "is a damaged PyTorch file or a pickle of another program") from error
        what = "a whole pickled model" if whole else "a pickled Python object"
        named = f" ({found[1]})" if found else ""
        raise ModelFileError(
            path,
            f"holds {what}{named}, and opening such an object can run any code",
            SAFE_WAYS if whole else _SAVE_WEIGHTS,
        ) from error
    except (RuntimeError, EOFError, ValueError) as error:
        raise _cut_off(path, "is a damaged or incomplete PyTorch file") from error


def _numpy_numbers() -> list[object]:
    """Return what NumPy needs to unpickle plain numbers."""
    scalar = np.float64(0).__reduce__()[0]
    kinds = [type(np.dtype(kind)) for kind in ("f4", "f8", "i4", "i8", "?")]
    # NumPy 1 and 2 keep the same function under different names; files hold either.
    return [
        scalar,
        (scalar, "numpy.core.multiarray.scalar"),
        (scalar, "numpy._core.multiarray.scalar"),
        *kinds,
    ]


def _unwrap(path: Path, found: object) -> dict[str, Tensor]:
    """Find the state dict in a checkpoint."""
    from torch import Tensor

    for _ in range(_DEEPEST_NEST):
        if not isinstance(found, Mapping):
            break
        tensors = {str(name): value for name, value in found.items() if isinstance(value, Tensor)}
        inner = next((found[nest] for nest in _NESTS if isinstance(found.get(nest), Mapping)), None)
        if inner is None or len(tensors) > 10:
            if tensors:
                return _plain(path, tensors)
            break
        found = inner
    else:
        raise ModelFileError(path, "is a checkpoint whose dictionaries are nested without end")
    kind = f"holds {type(found).__name__} instead of named weights"
    if isinstance(found, Mapping):
        kind = f"holds no weights, only {', '.join(map(str, list(found)[:5])) or 'an empty dictionary'}"
    raise ModelFileError(path, kind)


def _plain(path: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return weights, refusing those that are no plain arrays of numbers."""
    for name, tensor in tensors.items():
        kind = _special(tensor)
        if kind:
            raise ModelFileError(
                path,
                f"holds {kind} weights ({name}), which Patchreach can't load",
                "Save the model's weights as plain dense tensors.",
            )
    return tensors


def _special(tensor: Tensor) -> str:
    """Say what makes a tensor unfit to be loaded; nothing for a plain one."""
    import torch

    if tensor.is_meta:
        return "empty (meta)"
    if tensor.is_quantized:
        return "quantized"
    if tensor.is_nested:
        return "nested"
    return "" if tensor.layout is torch.strided else "sparse"


def _cut_off(path: Path, problem: str) -> ModelFileError:
    return ModelFileError(path, problem, "It was not copied or downloaded whole; fetch it again.")
