"""What Patchreach makes of each family of models that timm has, tried on a small one of random weights."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import timm
import torch
from timm.data import resolve_model_data_config
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from viewer.attention.record import AttentionRecord, Provenance
from viewer.backends.model import Job
from viewer.backends.timm_model import wrap
from viewer.backends.torch_ops import FUSED, SOFTMAX, op_name
from viewer.errors import Cancelled, LayoutError, NoAttentionError, PatchreachError

# Parameters times pixels from which on a model is cut to two blocks where its constructor allows.
_LARGE = 3e13
_SHORT = {"depth": 2}
# So many models of a family are run in search of attention.
_RUNS = 4


@dataclass(frozen=True)
class Covered:
    """What was found in one model of a family.

    Attributes
    ----------
    family
        The module of timm.
    model
        Name of the model that was run; empty if none could be built.
    parameters
        Count, of the model as it was run.
    record
        Of a random picture; None if the model was refused.
    refusal
        Why it was refused, as sentences; empty if it was not.
    attends
        Whether it has softmax attention of queries to keys.
    failed
        Whether something went wrong that nobody foresaw.
    """

    family: str
    model: str
    parameters: int
    record: AttentionRecord | None
    refusal: str = ""
    attends: bool = True
    failed: bool = False


class _Size(NamedTuple):
    parameters: int
    name: str
    classes: frozenset[type]


def families(pattern: str = "") -> tuple[str, ...]:
    """Return the modules of timm that a pattern fits, as `viewer.backends.catalogue.model_names` has it."""
    wanted = pattern.lower()
    if not any(character in wanted for character in "*?["):
        wanted = f"*{wanted}*"
    return tuple(family for family in timm.list_modules() if fnmatch.fnmatchcase(family.lower(), wanted))


def modules_of(pattern: str) -> list[str]:
    """Return the modules of the models whose names a pattern fits, sorted."""
    names = timm.list_models(f"{pattern.lower().strip('*')}*") if pattern.strip("*") else []
    wanted = (name for name in names if fnmatch.fnmatchcase(name, pattern.lower()))
    return sorted({timm.model_entrypoint(name).__module__.rpartition(".")[2] for name in wanted})


def cover(family: str, job: Job) -> Covered:
    """Run the smallest model of a family that attends, or the smallest of all where none does.

    Raises
    ------
    Cancelled
        If the job was.
    """
    sizes, problem = _sizes(family, job)
    if not sizes:
        return Covered(family, "", 0, None, problem, failed=True)
    best: Covered | None = None
    for size in _with_softmax(sizes, job):
        found = _run(family, size, job)
        if found.attends and not found.failed:
            return found
        best = best or found
    return best or _run(family, sizes[0], job)


def _sizes(family: str, job: Job) -> tuple[list[_Size], str]:
    """Return the models of a family, the smallest first, and why others could not be made."""
    found, problem = [], ""
    for name in timm.list_models(module=family):
        job.step(f"Sizing {name}", None)
        try:
            model = _outline(name)
        except Exception as error:  # a table of everything goes on whatever a library does
            problem = _what(error)
            continue
        count = sum(weight.numel() for weight in model.parameters())
        found.append(_Size(count, name, frozenset(map(type, model.modules()))))
    return sorted(found, key=lambda size: (size.parameters, size.name)), problem


def _with_softmax(sizes: list[_Size], job: Job) -> Iterator[_Size]:
    """Yield the models that have a softmax, smallest first, but only those with layers not met before."""
    seen: frozenset[type] = frozenset()
    runs = 0
    for size in sizes:
        if size.classes <= seen or runs == _RUNS:
            continue
        seen |= size.classes
        job.step(f"Looking into {size.name}", None)
        if _has_softmax(size.name):
            runs += 1
            yield size


class _Unfilled(TorchDispatchMode):
    """Leaves tensors without memory as they are: to fill in numbers there would take time for nothing."""

    def __torch_dispatch__(
        self, func: torch._ops.OpOverload, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        if func._schema.is_mutable and isinstance(args[0], Tensor) and args[0].is_meta:
            return args[0]
        return func(*args, **(kwargs or {}))


class _Softmaxes(TorchDispatchMode):
    """Notes whether any operation is a softmax, or attention as a whole."""

    found = False

    def __torch_dispatch__(
        self, func: torch._ops.OpOverload, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        self.found |= op_name(func) in FUSED | SOFTMAX
        return func(*args, **(kwargs or {}))


def _outline(name: str) -> nn.Module:
    """Make a model whose weights take no memory."""
    with torch.device("meta"), _Unfilled():
        return timm.create_model(name).eval()


def _has_softmax(name: str) -> bool:
    model = _outline(name)
    picture = torch.empty(1, *resolve_model_data_config(model)["input_size"], device="meta")
    with torch.no_grad(), _Softmaxes() as softmaxes:
        try:
            model(picture)
        except Exception:  # it reads its own numbers, and without memory there are none
            return True
    return softmaxes.found


def _run(family: str, size: _Size, job: Job) -> Covered:
    job.step(f"Running {size.name}", None)
    covered = partial(Covered, family, size.name, size.parameters)
    try:
        model, name = _made(size)
        count = sum(weight.numel() for weight in model.parameters())
        covered = partial(Covered, family, name, count)
        opened = wrap(name, model, "cpu", Provenance(name))
        picture = torch.randn(1, 3, *opened.preprocessing.size, generator=torch.Generator().manual_seed(1))
        return covered(opened.attend(picture, job))
    except Cancelled:
        raise
    except NoAttentionError as error:
        # The first sentence says what the table says of many.
        return covered(None, str(error).partition(" can find. ")[2], attends=False)
    except LayoutError as error:
        return covered(None, f"{error.reason}.")
    except PatchreachError as error:
        return covered(None, str(error))
    except Exception as error:  # a table of everything goes on whatever a library does
        return Covered(family, size.name, size.parameters, None, _what(error), failed=True)


def _made(size: _Size) -> tuple[nn.Module, str]:
    """Make a model with seeded random weights, and say what to call it."""
    height, width = resolve_model_data_config(_outline(size.name))["input_size"][-2:]
    name, model = size.name, None
    torch.manual_seed(0)
    if size.parameters * height * width > _LARGE:
        with suppress(TypeError):  # it has no such argument
            model = timm.create_model(name, **_SHORT)
            name = f"{name} of 2 blocks"
    if model is None:
        model = timm.create_model(name)
    _unlike(model)
    return model.eval(), name


def _unlike(model: nn.Module) -> None:
    """Give noise to weights that start out all alike: a bias of zeros would show nothing."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.numel() > 1 and bool(weight.amin() == weight.amax()):
                weight.add_(torch.randn(weight.shape), alpha=0.02)


def _what(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
