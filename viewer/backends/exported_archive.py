"""Reading a program that `torch.export` saved (.pt2), as the plain data that it is.

Such an archive is a ZIP: ``models/NAME.json`` lists the operators of the program one after another,
``data/weights`` and ``data/constants`` hold tensors as bare bytes beside a JSON table of their shapes.
PyTorch's own loader unpickles whatever calls itself a pickled weight or an example input, evaluates shapes
as Python expressions and compiles Python text made from the file's names. None of that is needed here, and
nothing of it is done: JSON is parsed, bytes become tensors, and anything else is refused.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from viewer.errors import ModelFileError

DTYPES = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    9: torch.complex32,
    10: torch.complex64,
    11: torch.complex128,
    12: torch.bool,
    13: torch.bfloat16,
}
"""Element types as the format numbers them."""

_FORMAT = 8
_STRIDED = 7
_AGAIN = "Export the model again: `torch.export.save(torch.export.export(model.eval(), (picture,)), FILE)`."


@dataclass(frozen=True, eq=False)
class ExportedArchive:
    """What an archive holds.

    Attributes
    ----------
    module
        The program: ``graph`` (inputs, nodes, outputs, shapes) and ``signature`` (what each input is).
    tensors
        Weights and constants by their names.
    """

    module: dict[str, Any]
    tensors: dict[str, Tensor]


def read_exported(path: Path) -> ExportedArchive:
    """Read an archive without running any code from it.

    Raises
    ------
    ModelFileError
        If it is damaged, of another format, or keeps something in a form that only code could read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _Reader(path, archive).read()
    except ModelFileError:
        raise
    # Tables that lack an entry or hold another kind of value than the format says.
    except (
        *(zipfile.BadZipFile, OSError, ValueError, LookupError, TypeError, AttributeError),
        *(RuntimeError, OverflowError, RecursionError, NotImplementedError),
    ) as error:
        raise ModelFileError(path, "is a damaged exported program", _AGAIN) from error


class _Reader:
    """Takes one archive apart."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path = path
        self._archive = archive
        self._names = archive.namelist()
        self._stored: dict[tuple[str, torch.dtype], Tensor] = {}

    def read(self) -> ExportedArchive:
        tops = {name.partition("/")[0] for name in self._names}
        if any(name.rpartition("/")[2] == "serialized_exported_program.json" for name in self._names):
            raise self._refuse(
                "was exported by a release of PyTorch before 2.7, in a format of its own", _AGAIN
            )
        if len(tops) != 1 or len(set(self._names)) != len(self._names):
            raise self._refuse("is a damaged exported program")
        top = tops.pop()
        models = [
            name for name in self._names if name.startswith(f"{top}/models/") and name.endswith(".json")
        ]
        if not models and any("/aotinductor/" in name for name in self._names):
            raise self._refuse(
                "is a program compiled to machine code (AOTInductor), in which no attention can be seen",
                _AGAIN,
            )
        if len(models) != 1:
            raise self._refuse(f"holds {len(models)} exported programs instead of one")
        program = self._json(models[0])
        found = program["schema_version"]["major"]
        if found != _FORMAT:
            raise self._refuse(
                f"is an exported program of format {found}, and Patchreach reads format {_FORMAT}", _AGAIN
            )
        name = models[0].rpartition("/")[2].removesuffix(".json")
        tensors = self._tensors(f"{top}/data/weights/", f"{name}_weights_config.json")
        tensors |= self._tensors(f"{top}/data/constants/", f"{name}_constants_config.json")
        return ExportedArchive(program["graph_module"], tensors)

    def _tensors(self, folder: str, table: str) -> dict[str, Tensor]:
        tensors = {}
        for name, entry in self._json(folder + table)["config"].items():
            if entry["use_pickle"] or entry["tensor_meta"] is None:
                raise self._refuse(
                    f"holds a pickled Python object ({name}), and opening such an object can run any code",
                    "Save the program with plain dense tensors as its weights and constants.",
                )
            tensors[name] = self._tensor(name, folder + entry["path_name"], entry["tensor_meta"])
        return tensors

    def _tensor(self, name: str, file: str, meta: dict[str, Any]) -> Tensor:
        """Return a view of a stored tensor, kept inside it."""
        dtype = DTYPES.get(meta["dtype"])
        if dtype is None or meta["layout"] != _STRIDED:
            raise self._refuse(f"holds weights of a kind that Patchreach can't load ({name})")
        size, stride = ([_whole(number) for number in meta[key]] for key in ("sizes", "strides"))
        offset = _whole(meta["storage_offset"])
        if 0 in size:
            return torch.empty(size, dtype=dtype)
        stored = self._storage(file, dtype)
        reach = offset + sum((count - 1) * step for count, step in zip(size, stride, strict=True))
        if reach >= len(stored):
            raise self._refuse(f"is a damaged exported program: {name} reaches past its storage")
        return stored.as_strided(size, stride, offset)

    def _storage(self, file: str, dtype: torch.dtype) -> Tensor:
        if (file, dtype) not in self._stored:
            data = self._bytes(file)
            self._stored[file, dtype] = torch.frombuffer(bytearray(data), dtype=dtype)
        return self._stored[file, dtype]

    def _json(self, name: str) -> Any:  # noqa: ANN401
        return json.loads(self._bytes(name))

    def _bytes(self, name: str) -> bytes:
        info = self._archive.getinfo(name)
        # Stored as it is, so that no small file unpacks into a large one.
        if info.compress_type != zipfile.ZIP_STORED:
            raise self._refuse("is a damaged exported program: it is compressed, and these never are")
        return self._archive.read(info)

    def _refuse(self, problem: str, advice: str = "") -> ModelFileError:
        return ModelFileError(self._path, problem, advice)


def _whole(number: dict[str, Any]) -> int:
    """Return a whole number that stands in a table of shapes.

    Raises
    ------
    ValueError
        If it is none, or negative.
    """
    value = number["as_int"]
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no size")
    return value
