"""Taking the weights out of a TorchScript archive without running any code from it.

Such an archive is a ZIP with a pickle of the module tree (``data.pkl``), storages as plain bytes under
``data/``, and source code under ``code/`` that PyTorch's own loader compiles and, for modules with a
``__setstate__``, runs. Here the pickle is read with a table of what it may name, and the code not at all.
"""

from __future__ import annotations

import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from viewer.errors import ModelFileError

_STORAGES = {
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
# What wraps lists and typed values in these pickles; each gives back its first argument.
_WRAPPERS = (
    "build_intlist", "build_tensorlist", "build_doublelist", "build_boollist", "build_tensor_from_id",
    "restore_type_tag",
)  # fmt: skip
_DEEPEST = 100
_MOST_NAMES = 200_000


class _Refused(Exception):
    """The archive asks for something that weights have no need of; the text is a clause about the file."""


class _Module:
    """Stands for a module, whatever its class: it keeps the state and does nothing with it."""

    state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    """Builds modules, tensors and lists, and refuses everything else.

    Parameters
    ----------
    archive
        An open ZIP.
    prefix
        Its top folder, with the slash.
    """

    def __init__(self, archive: zipfile.ZipFile, prefix: str) -> None:
        super().__init__(archive.open(f"{prefix}data.pkl"))
        self._archive = archive
        self._prefix = prefix
        self._storages: dict[str, Tensor] = {}

    def find_class(self, module: str, name: str) -> object:
        """Return what a name in the pickle stands for; each time anew, so that a pickle can't change it."""
        if module == "__torch__" or module.startswith("__torch__."):
            return type("_Module", (_Module,), {})
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if module == "torch.jit._pickle" and name in _WRAPPERS:
            return lambda value, *kind: value
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda *args: _tensor(*args)
        raise _Refused(
            f"is a TorchScript program that holds {module}.{name}, which only its own code can read"
        )

    def persistent_load(self, pid: object) -> Tensor:
        """Return a storage of the archive as a flat tensor, checked against the length it shall have."""
        kind, dtype, key, _device, count = pid  # type: ignore[misc]
        if kind != "storage" or not isinstance(dtype, torch.dtype) or not isinstance(count, int) or count < 0:
            raise _Refused("is a damaged TorchScript program")
        if key not in self._storages:
            info = self._archive.getinfo(f"{self._prefix}data/{key}")
            # Stored as it is, so that no small file unpacks into a large one.
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != count * dtype.itemsize:
                raise _Refused(
                    f"is a damaged TorchScript program: storage {key} has another length than told"
                )
            data = bytearray(self._archive.read(info))
            self._storages[key] = (
                torch.frombuffer(data, dtype=dtype) if count else torch.empty(0, dtype=dtype)
            )
        storage = self._storages[key]
        if (storage.dtype, len(storage)) != (dtype, count):
            raise _Refused(f"is a damaged TorchScript program: storage {key} is told in two ways")
        return storage


def _tensor(storage: Tensor, offset: int, size: tuple, stride: tuple, *rest: object) -> Tensor:
    """Return a view of a storage, kept inside it."""
    numbers = (offset, *size, *stride)
    if not isinstance(storage, Tensor) or any(type(number) is not int or number < 0 for number in numbers):
        raise _Refused("is a damaged TorchScript program")
    reach = sum((count - 1) * step for count, step in zip(size, stride, strict=True))
    if 0 not in size and offset + reach >= len(storage):
        raise _Refused("is a damaged TorchScript program: a tensor reaches past its storage")
    return storage.as_strided(size, stride, offset)


def read_torchscript(path: Path) -> dict[str, Tensor]:
    """Read the weights of a TorchScript program (OpenAI's CLIP files are such); its code does not run.

    Parameters
    ----------
    path
        The archive.

    Returns
    -------
    dict
        Dotted attribute names to tensors on the CPU.

    Raises
    ------
    ModelFileError
        If it is damaged, or keeps weights in a form that only its own code could read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            pickles = [name for name in archive.namelist() if name.split("/")[1:] == ["data.pkl"]]
            if len(pickles) != 1:
                raise _Refused("is a damaged TorchScript program")
            prefix = pickles[0].removesuffix("data.pkl")
            if archive.getinfo(pickles[0]).compress_type != zipfile.ZIP_STORED:
                raise _Refused("is a damaged TorchScript program")
            order = f"{prefix}byteorder"
            if order in archive.namelist() and archive.read(order).strip() != b"little":
                raise _Refused("is a TorchScript program of a big-endian machine")
            root = _Unpickler(archive, prefix).load()
        state = dict(_named(root))
    except _Refused as error:
        raise ModelFileError(path, str(error)) from error
    # A pickle that is none can make an unpickler raise nearly anything.
    except Exception as error:
        raise ModelFileError(path, "is a damaged TorchScript program") from error
    if not state:
        raise ModelFileError(path, "is a TorchScript program without weights")
    return state


def _named(root: object) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a module tree with dotted names."""
    waiting, seen = [("", root, 0)], 0
    while waiting:
        prefix, module, depth = waiting.pop()
        if not isinstance(module, _Module) or not isinstance(module.state, dict):
            name = prefix.rstrip(".") or "the whole"
            raise _Refused(
                f"is a TorchScript program in which only its own code can read the state of {name}"
            )
        for name, value in module.state.items():
            seen += 1
            if depth > _DEEPEST or seen > _MOST_NAMES:
                raise _Refused("is a TorchScript program whose modules are nested without end")
            if isinstance(value, Tensor):
                yield f"{prefix}{name}", value
            elif isinstance(value, _Module):
                waiting.append((f"{prefix}{name}.", value, depth + 1))
