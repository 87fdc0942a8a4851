"""The theoretical receptive field of every layer of a PyTorch network, read from one forward pass.

As the position trace does, this follows the operations below the model's code, so it needs no class of a
network to be known; the numbers in the tensors do not matter, and may not even be there (device "meta").
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from viewer.backends import field_rules
from viewer.backends.field_rules import Step
from viewer.backends.fields import Companion, Seen, Whole, picture
from viewer.backends.network_fields import MIXED, Collector, NetworkFields, layer, stage_of
from viewer.backends.position_call import Lost
from viewer.backends.torch_fastpath import fast_path_off
from viewer.backends.torch_names import ModuleNames
from viewer.backends.torch_ops import op_name, tensors_in


def receptive_fields(name: str, model: nn.Module, size: tuple[int, int]) -> NetworkFields:
    """Follow one forward pass.

    Parameters
    ----------
    name
        What to call the network.
    model
        In evaluation mode, on any device.
    size
        Height and width of the input in pixels; fields do not depend on it.
    """
    trace, _ = _followed(model, size)
    return NetworkFields(name, "torch", trace.collector.rows(), trace.end)


def module_fields(model: nn.Module, size: tuple[int, int], names: Iterable[str]) -> dict[str, Seen]:
    """Return what the units of some modules' outputs see; modules whose output has no field are left out."""
    return _followed(model, size, names)[1]


def _followed(
    model: nn.Module, size: tuple[int, int], watched: Iterable[str] = ()
) -> tuple[FieldTrace, dict[str, Seen]]:
    """Follow one forward pass; return its trace, and what the outputs of the watched modules see."""
    parameter = next(model.parameters(), torch.empty(0))
    found: dict[str, Seen] = {}
    modules = dict(model.named_modules())

    def take(name: str, _module: nn.Module, _args: object, output: object) -> None:
        seen = next((trace.seen(tensor) for tensor in tensors_in(output)), None)
        if isinstance(seen, Seen):
            found[name] = seen

    with (
        torch.inference_mode(False),
        torch.no_grad(),
        fast_path_off(),
        ModuleNames(model, leaves=True) as names,
        ExitStack() as hooks,
    ):
        image = torch.zeros((1, 3, *size), device=parameter.device, dtype=parameter.dtype)
        for name in watched:
            if name in modules:
                handle = modules[name].register_forward_hook(partial(take, name))
                hooks.callback(handle.remove)
        with FieldTrace(image, names) as trace:
            model(image)
    return trace, found


class FieldTrace(TorchDispatchMode):
    """Follows fields through the operations of a forward pass.

    Parameters
    ----------
    image
        The model's input, (1, channels, height, width).
    names
        Says which module runs.

    Attributes
    ----------
    collector
        Takes the layers.
    end
        Where and why fields end, see `NetworkFields.end`.
    """

    def __init__(self, image: Tensor, names: ModuleNames) -> None:
        super().__init__()
        self.collector = Collector()
        self.end = ""
        self._names = names
        self._known: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._known[image] = picture(((), (), (0,), (1,)))

    def seen(self, tensor: Tensor) -> Companion | None:
        """Return what the units of a tensor see; None for one that stems from no picture."""
        return self._known.get(tensor)

    def __torch_dispatch__(
        self, func: torch._ops.OpOverload, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        """Run an operation and find what its results see."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        inputs = [tensor for tensor in tensors_in((*args, *kwargs.values())) if tensor in self._known]
        if inputs:
            self._follow(Step(func, args, kwargs, list(tensors_in(result)), self._known.get), inputs)
        return result

    def _follow(self, step: Step, inputs: list[Tensor]) -> None:
        known = [self._known[tensor] for tensor in inputs]
        lost = next((companion for companion in known if isinstance(companion, Lost)), None)
        seen = [companion for companion in known if isinstance(companion, Seen)]
        if lost is not None:
            found: list[Companion | None] = [lost] * len(step.outputs)
        elif not seen:
            found = [_of_whole(known)] * len(step.outputs)
        else:
            found = field_rules.apply(step)
            self._tell(step, found)
        for output, companion in zip(step.outputs, found, strict=False):
            self._put(step, output, companion)

    def _put(self, step: Step, output: Tensor, companion: Companion | None) -> None:
        if companion is None:
            self._known.pop(output, None)
            return
        self._known[output] = companion
        root = output._base if output._is_view() else None
        if step.func._schema.is_mutable and root is not None and _parted(self._known.get(root), companion):
            self._known[root] = Lost(f"a part of a map was written to by {op_name(step.func)!r}")

    def _tell(self, step: Step, found: list[Companion | None]) -> None:
        """Take the layer that an operation is, and note where fields end."""
        where, first = self._names.current, found[0] if found else None
        if isinstance(first, Seen):
            windows = field_rules.windows_of(step)
            if windows is not None:
                self.collector.add(layer(where, windows.kind, first, windows.sizes), stage_of(where))
            if not first.blocks:
                self.collector.passed(stage_of(where), first)
        elif not self.end and isinstance(first, Lost):
            self.end = f"No fields after {where or 'there'}: {first.reason}."
        elif not self.end and isinstance(first, Whole) and not first.uniform:
            self.end = MIXED.format(where or "there")


def _of_whole(known: list[Companion]) -> Whole:
    return next((one for one in known if isinstance(one, Whole) and not one.uniform), known[0])


def _parted(root: Companion | None, written: Companion) -> bool:
    """Return whether a part of a map now sees something else than the rest."""
    both = isinstance(root, Seen) and isinstance(written, Seen)
    return both and (root.field != written.field or root.jump != written.jump)
