"""The operators of an exported program, looked up by name and made ready to run."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from viewer.backends.exported_archive import DTYPES
from viewer.backends.plain_operators import is_plain
from viewer.backends.program_errors import Refused

_MEMORY_FORMATS = {
    1: torch.contiguous_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
    4: torch.preserve_format,
}
_NAMES = (
    "add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "pos", "pow", "eq", "ne", "lt", "le", "gt",
    "ge", "and_", "or_", "not_",
)  # fmt: skip
# What sizes that are known only at run time are computed with.
_ARITHMETIC: dict[str, Callable[..., object]] = {
    **{f"_operator.{name}": getattr(operator, name) for name in _NAMES},
    "torch.sym_float": float,
    "torch.sym_int": int,
    "torch.sym_max": max,
    "torch.sym_min": min,
    "torch.sym_not": operator.not_,
}
_SIZE = "torch.ops.aten.sym_size.int"
# They check what was assumed when the program was made; a wrong size fails in the operators themselves.
_CHECKS = re.compile(r"torch\.ops\.aten\.(_assert_\w+|sym_constrain_range\w*)\.\w+")
# Parts of a program that run without gradients or casts, and how many arguments stand before the part.
_PARTS = {
    "torch.ops.higher_order.wrap_with_set_grad_enabled": 1,
    "torch.ops.higher_order.wrap_with_autocast": 4,
}
_PLAIN = ("as_int", "as_bool", "as_string", "as_ints", "as_bools", "as_strings", "as_int_lists")
_LISTS = ("as_tensors", "as_optional_tensors", "as_sym_ints", "as_sym_bools", "as_sym_floats")

Values = dict[str, Any]


@dataclass(frozen=True)
class _Named:
    """A value that was computed before."""

    name: str


class _Device:
    """The device that the program runs on, wherever it was exported."""


_DEVICE = _Device()


@dataclass(frozen=True, eq=False)
class Step:
    """One operator of a program.

    Attributes
    ----------
    call
        The operator.
    given
        Its arguments in order, and by name.
    outputs
        What its results are called: a name, None, or a list of names for each.
    modules
        Names of the modules around it in the model that was exported, outermost first.
    """

    call: Callable[..., object]
    given: tuple[tuple, dict[str, object]]
    outputs: tuple
    modules: tuple[str, ...]

    def run(self, values: Values, device: torch.device) -> None:
        """Compute the outputs from what was computed before, and add them to it."""
        given, named = self.given
        found = self.call(
            *(_filled(argument, values, device) for argument in given),
            **{name: _filled(argument, values, device) for name, argument in named.items()},
        )
        results = (found,) if len(self.outputs) == 1 else found
        for name, result in zip(self.outputs, results, strict=True):
            if isinstance(name, list):
                values.update(zip(name, result, strict=True))
            elif name is not None:
                values[name] = result


def steps_of(nodes: Sequence[dict[str, Any]]) -> list[Step]:
    """Return the steps of a graph; whatever they name is looked up, nothing is run.

    Raises
    ------
    Refused
        If an operator does more than to compute with tensors.
    """
    return list(_steps(nodes))


def _steps(nodes: Sequence[dict[str, Any]]) -> Iterator[Step]:
    for node in nodes:
        target = node["target"]
        if _CHECKS.fullmatch(target):
            continue
        outputs = tuple(_output(output) for output in node["outputs"])
        modules = _modules(node["metadata"].get("nn_module_stack", ""))
        if target in _PARTS:
            yield Step(_part(node), (tuple(_part_inputs(node)), {}), outputs, modules)
            continue
        call = _operator(target)
        arguments = [(given["name"], _argument(given["arg"])) for given in node["inputs"]]
        if target.startswith("torch.ops."):
            named = dict(arguments)
            if named.get("train") is True or (named.get("training") is True):
                raise Refused("is a program that was exported in training mode, in which dropout is at work")
            yield Step(call, ((), named), outputs, modules)
        else:
            yield Step(call, (tuple(value for _, value in arguments), {}), outputs, modules)


def _operator(target: str) -> Callable[..., object]:
    """Look an operator up by its name in the file."""
    if target in _ARITHMETIC:
        return _ARITHMETIC[target]
    if target == _SIZE:
        return lambda self, dim: self.shape[dim]
    found = re.fullmatch(r"torch\.ops\.(\w+)\.(\w+)\.(\w+)", target)
    if found is None or not is_plain(f"{found[1]}::{found[2]}"):
        raise Refused(f"is a program that uses {target}, and only PyTorch's plain tensor operators are run")
    try:
        return getattr(getattr(torch.ops.aten, found[2]), found[3])
    except AttributeError:
        raise Refused(
            f"is a program that uses {target}, which this release of PyTorch does not know"
        ) from None


def _part(node: dict[str, Any]) -> Callable[..., object]:
    """Return a function that runs a part of the program."""
    before = _PARTS[node["target"]]
    switches = [given["arg"] for given in node["inputs"][:before]]
    if node["target"].endswith("autocast") and switches[2] != {"as_bool": False}:
        raise Refused("is a program that casts numbers automatically (autocast)")
    graph = node["inputs"][before]["arg"]["as_graph"]["graph"]
    names = [given["as_tensor"]["name"] for given in graph["inputs"]]
    steps = steps_of(graph["nodes"])
    wanted = [_argument(output) for output in graph["outputs"]]

    def run(device: torch.device, *given: object) -> object:
        values = dict(zip(names, given, strict=True))
        for step in steps:
            step.run(values, device)
        found = [_filled(output, values, device) for output in wanted]
        return found[0] if len(found) == 1 else found

    return run


def _part_inputs(node: dict[str, Any]) -> list[object]:
    return [_DEVICE, *(_argument(given["arg"]) for given in node["inputs"][_PARTS[node["target"]] + 1 :])]


def _argument(argument: dict[str, Any]) -> object:
    """Return an argument as a value, or as what stands for a value that is computed before."""
    [(kind, value)] = argument.items()
    if kind == "as_none":
        return None
    if kind == "as_float":
        return float(value)  # infinity and NaN are texts in JSON
    if kind == "as_floats":
        return [float(number) for number in value]
    if kind in _PLAIN:
        return value
    if kind == "as_tensor":
        return _Named(value["name"])
    if kind in ("as_sym_int", "as_sym_bool", "as_sym_float"):
        return _symbolic(value)
    if kind == "as_optional_tensor":
        return _argument(value)
    if kind in _LISTS:
        return [_listed(part) for part in value]
    if kind == "as_scalar_type" and value in DTYPES:
        return DTYPES[value]
    if kind == "as_memory_format" and value in _MEMORY_FORMATS:
        return _MEMORY_FORMATS[value]
    if kind == "as_layout":
        return torch.strided
    if kind == "as_device":
        return _DEVICE
    raise Refused(f"is a program with an argument of a kind that Patchreach does not know ({kind})")


def _listed(part: dict[str, Any]) -> object:
    if "name" in part:
        return _Named(part["name"])
    return _symbolic(part) if "as_name" in part else _argument(part)


def _symbolic(value: dict[str, Any]) -> object:
    return _Named(value["as_name"]) if "as_name" in value else next(iter(value.values()))


def _output(output: dict[str, Any]) -> object:
    [(kind, value)] = output.items()
    if kind == "as_tensor":
        return value["name"]
    if kind == "as_none":
        return None
    if kind == "as_tensors":
        return [part["name"] for part in value]
    if kind in ("as_sym_int", "as_sym_bool", "as_sym_float"):
        return value["as_name"]
    raise Refused(f"is a program with a result of a kind that Patchreach does not know ({kind})")


def _modules(stack: str) -> tuple[str, ...]:
    """Return the names of the modules around a node, outermost first.

    The file has "key,dotted.name,class" for each, with ";" between.
    """
    entries = [entry.split(",") for entry in stack.split(";")]
    return tuple(entry[1] for entry in entries if len(entry) == 3)


def _filled(argument: object, values: Values, device: torch.device) -> object:
    if isinstance(argument, _Named):
        return values[argument.name]
    if isinstance(argument, list):
        return [_filled(part, values, device) for part in argument]
    return device if argument is _DEVICE else argument


def patch_of(steps: Sequence[Step], shape_of: Callable[[str], Sequence[int]]) -> tuple[int, int] | None:
    """Return height and width of the patches that the first convolution cuts, None where it cuts none.

    Parameters
    ----------
    steps
        Of the program.
    shape_of
        Returns the shape of a named weight.
    """
    for step in steps:
        if step.call is torch.ops.aten.conv2d.default:
            named = step.given[1]
            stride = named.get("stride")
            kernel = tuple(shape_of(named["weight"].name)[2:])
            return kernel if isinstance(stride, list) and tuple(stride) == kernel else None
    return None
