"""Running a TorchScript program from a file, once it was seen to do nothing but compute.

PyTorch's loader compiles the source code in the archive and runs some of it: every class may have a
``__setstate__`` of its own. So before anything is handed to it,

- the archive is copied member by member, so that both readers see the same files;
- no code in it may so much as name what runs while it is loaded, or objects of other libraries.

What is loaded then is compiled, but nothing has run yet. The compiled graph of every method is read before
the first one does, and every operator in it must be one that merely computes (`plain_operators`).
"""

from __future__ import annotations

import io
import pickle
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from viewer.backends.plain_operators import is_plain
from viewer.backends.program_errors import Refused, stopped
from viewer.backends.torch_fastpath import UNPACKED
from viewer.backends.torch_ops import FUSED, SOFTMAX, op_name
from viewer.backends.torchscript_names import attention_modules

# What runs while a program is loaded or called; and objects that other libraries define.
_FORBIDDEN = (b"__setstate__", b"__getstate__", b"torch.classes", b"_hooks__", b"__del__")
_LARGEST_CODE = 1 << 26  # bytes
_ATTENDING = FUSED | SOFTMAX | frozenset(UNPACKED)


class _Watch(TorchDispatchMode):
    """Sees the operations of a pass before any tap does, and says which module attends.

    Parameters
    ----------
    modules
        That attend, one after another; empty where that is not known.

    Attributes
    ----------
    running
        Name of the module that attended last.
    error
        What stopped an operation: the interpreter turns it into an error that does not say it.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        super().__init__()
        self.running = ""
        self.error: Exception | None = None
        self._coming = iter(modules)

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401
        types: object,
        args: tuple = (),
        kwargs: dict | None = None,
    ) -> object:
        """Run an operation."""
        if op_name(func) in _ATTENDING:
            self.running = next(self._coming, "")
        try:
            return func(*args, **(kwargs or {}))
        except Exception as error:
            self.error = self.error or error
            raise


class ScriptedProgram(nn.Module):
    """A TorchScript program as a module.

    Its own modules can't be watched while they run, so they are kept out of sight of whoever walks modules.

    Parameters
    ----------
    path
        A TorchScript archive.

    Raises
    ------
    Refused
        If it might do anything but compute with tensors.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.__dict__["_program"] = _load(path)
        self._file = path
        self._modules_that_attend = attention_modules(self._program)
        self._watch = _Watch(())

    @property
    def running(self) -> str:
        """Name of the module of the original model that attended last; empty where it is not known."""
        return self._watch.running

    def forward(self, picture: Tensor) -> Tensor:
        """Run the program on (1, 3, H, W).

        Raises
        ------
        InputError
            If it can't take a picture of that size.
        """
        self._watch = _Watch(self._modules_that_attend)
        with self._watch as watch:
            try:
                return self._program(picture)
            except (RuntimeError, torch.jit.Error) as error:
                cause = watch.error or error
                if not isinstance(cause, (RuntimeError, torch.jit.Error)):
                    raise cause from None
                raise stopped(self._file, picture, cause) from error

    def named_parameters(self, *args: object, **kwargs: object) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the program's parameters."""
        return self._program.named_parameters(*args, **kwargs)

    def named_buffers(self, *args: object, **kwargs: object) -> Iterator[tuple[str, Tensor]]:
        """Yield the program's buffers."""
        return self._program.named_buffers(*args, **kwargs)

    def to(self, *args: Any, **kwargs: Any) -> ScriptedProgram:  # noqa: ANN401
        """Move the program to another device."""
        self._program.to(*args, **kwargs)
        return self


def _load(path: Path) -> torch.jit.ScriptModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, the files stay
        try:
            program = torch.jit.load(_copied(path), map_location="cpu")
        except Refused:
            raise
        except Exception as error:  # a damaged file can make the loader raise nearly anything
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise Refused(f"is a TorchScript program that this PyTorch can't load ({reason})") from error
        for _, module in program.named_modules():
            for method in module._c._method_names():
                _check(module._c._get_method(method).graph)
    inputs = [given.name for given in program.forward.schema.arguments[1:] if not given.has_default_value()]
    if len(inputs) != 1:
        listing = ", ".join(inputs) or "none"
        raise Refused(f"is a TorchScript program with {len(inputs)} inputs ({listing}), not a single picture")
    return program.eval()


def _copied(path: Path) -> io.BytesIO:
    """Return the archive anew, as this reader sees it, with its code looked through."""
    copy = io.BytesIO()
    try:
        with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w") as anew:
            names = archive.namelist()
            if len(set(names)) != len(names):
                raise Refused("is a damaged TorchScript program: two of its parts have the same name")
            for info in archive.infolist():
                # Only code is compressed; no small file unpacks into a large one.
                if info.compress_type != zipfile.ZIP_STORED and info.file_size > _LARGEST_CODE:
                    raise Refused("is a damaged TorchScript program: its weights are compressed")
                data = archive.read(info)
                if info.filename.endswith((".py", ".pkl")):
                    _check_code(data)
                anew.writestr(info.filename, data)
    except (zipfile.BadZipFile, OSError) as error:
        raise Refused("is a damaged TorchScript program") from error
    copy.seek(0)
    return copy


def _check_code(code: bytes) -> None:
    found = next((word.decode() for word in _FORBIDDEN if word in code), None)
    if found is not None:
        raise Refused(
            "is a TorchScript program with code that runs when it is opened, or that is not PyTorch's "
            f"({found})"
        )


def _check(graph: Any) -> None:  # noqa: ANN401
    """See that a graph and all that it calls only compute."""
    whole = graph.copy()
    torch._C._jit_pass_inline(whole)
    waiting = [whole]
    while waiting:
        for node in waiting.pop().nodes():
            kind = node.kind()
            if not is_plain(kind):
                raise Refused(
                    f"is a TorchScript program that uses {kind}, and only PyTorch's plain tensor operators "
                    "are run"
                )
            waiting.extend(node.blocks())


class _Shape(tuple):
    """Stands for a tensor of which only the shape matters."""


class _Shapes(pickle.Unpickler):
    """Reads which tensors a program was traced with, as shapes, and refuses everything else."""

    def find_class(self, module: str, name: str) -> object:
        """Return what a name in the pickle stands for."""
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, size, *rest: _Shape(size)
        if (module, name) == ("torch.jit._pickle", "restore_type_tag"):
            return lambda value, kind: value
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if module == "torch" and name.endswith("Storage"):
            return name
        raise pickle.UnpicklingError(f"{module}.{name} is no shape")

    def persistent_load(self, pid: object) -> None:
        """Return nothing for the numbers of a tensor."""


def recorded_size(path: Path) -> tuple[int, int] | None:
    """Return height and width in pixels of the picture that a program was traced with, None if not recorded.

    Tracing keeps the shapes of its example inputs beside the program, not their values.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            found = [name for name in archive.namelist() if name.split("/")[1:] == ["traced_inputs.pkl"]]
            inputs = _Shapes(io.BytesIO(archive.read(found[0]))).load()["forward"] if found else ()
        pictures = [shape for shape in inputs if isinstance(shape, _Shape) and len(shape) == 4]
        return (int(pictures[0][2]), int(pictures[0][3])) if pictures else None
    # A pickle that is none can make an unpickler raise nearly anything; then nothing is recorded.
    except Exception:
        return None
