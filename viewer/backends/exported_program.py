"""Running an exported program: its operators one after another, each by its name in PyTorch."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from viewer.backends.exported_archive import DTYPES, ExportedArchive
from viewer.backends.exported_graph import Values, patch_of, steps_of
from viewer.backends.program_errors import Refused, stopped

_KEPT = (
    ("parameter", "parameter_name"),
    ("buffer", "buffer_name"),
    ("tensor_constant", "tensor_constant_name"),
)


class ExportedProgram(nn.Module):
    """A program as a module, with the parameters that it came with.

    Parameters
    ----------
    name
        What to call it.
    archive
        What its file holds.

    Attributes
    ----------
    size
        Height and width in pixels of the picture that it was exported for.
    takes_sizes
        Whether it takes other sizes too; the module stays the same.
    patch_px
        Height and width of the patches that its first convolution cuts, None where it cuts none.
    running
        Name of the module of the original model that is being computed; empty outside of all.

    Raises
    ------
    Refused
        If the program uses anything but plain tensor operators, or takes anything but one colour picture.
    """

    def __init__(self, name: str, archive: ExportedArchive) -> None:
        super().__init__()
        self._called = name
        graph, signature = archive.module["graph"], archive.module["signature"]
        self._kept: dict[str, str] = {}
        self._input = self._take_inputs(signature["input_specs"], archive.tensors)
        self.size, self.takes_sizes = _picture(graph["tensor_values"][self._input])
        self._steps = steps_of(graph["nodes"])
        inner = {name for name, module in self.named_modules() if name and any(module.children())}
        # As in `torch_names`: the name wanted is that of the attention, not of a projection inside it.
        self._running = [
            next((name for name in reversed(step.modules) if name in inner), "") for step in self._steps
        ]
        self.patch_px = patch_of(self._steps, lambda name: self._tensor(self._kept[name]).shape)
        returned = [spec["user_output"]["arg"] for spec in signature["output_specs"] if "user_output" in spec]
        tensors = [found["as_tensor"]["name"] for found in returned if "as_tensor" in found]
        if not tensors:
            raise Refused("is an exported program that returns no tensor")
        self._output = tensors[0]
        self.running = ""

    def forward(self, picture: Tensor) -> Tensor:
        """Run the program on (1, 3, H, W).

        Raises
        ------
        InputError
            If it can't take a picture of that size.
        """
        values: Values = {name: self._tensor(kept) for name, kept in self._kept.items()}
        values[self._input] = picture
        try:
            for module, step in zip(self._running, self._steps, strict=True):
                self.running = module
                step.run(values, picture.device)
            if not isinstance(values[self._output], Tensor):
                raise TypeError("what it returns is no tensor")
            return values[self._output]
        # What a program was written for can't be known beforehand, nor whether somebody has tampered with it.
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise stopped(self._called, picture, error) from error
        finally:
            self.running = ""

    def _take_inputs(self, specs: list[dict[str, Any]], tensors: dict[str, Tensor]) -> str:
        """Keep the weights, and return the name of the one input that is left."""
        users = []
        for spec in specs:
            for kind, called in _KEPT:
                if kind in spec:
                    name = spec[kind][called]
                    self._kept[spec[kind]["arg"]["name"]] = name
                    self._keep(name, tensors[name], kind == "parameter")
                    break
            else:
                users.append(spec.get("user_input", {}).get("arg", {}).get("as_tensor", {}).get("name"))
        if len(users) != 1 or users[0] is None:
            raise Refused(f"is an exported program with {len(users)} inputs, not a single picture")
        return users[0]

    def _keep(self, name: str, tensor: Tensor, trained: bool) -> None:
        """Register a tensor under a dotted name, making the modules on the way."""
        module: nn.Module = self
        *parents, leaf = name.split(".")
        for parent in parents:
            if parent not in module._modules:
                module.add_module(parent, nn.Module())
            module = module._modules[parent]  # type: ignore[assignment]
        if trained:
            module.register_parameter(leaf, nn.Parameter(tensor, requires_grad=False))
        else:
            module.register_buffer(leaf, tensor)

    def _tensor(self, name: str) -> Tensor:
        module, _, leaf = name.rpartition(".")
        return getattr(self.get_submodule(module), leaf)


def _picture(meta: dict[str, Any]) -> tuple[tuple[int, int], bool]:
    """Return the size of a program's picture, and whether it takes others."""
    sizes = [
        size["as_int"] if "as_int" in size else size["as_expr"]["hint"]["as_int"] for size in meta["sizes"]
    ]
    dtype = DTYPES.get(meta["dtype"])
    if len(sizes) != 4 or dtype is None or not dtype.is_floating_point or sizes[1] != 3:
        raise Refused(
            f"is an exported program that takes {str(dtype).removeprefix('torch.')} of shape {tuple(sizes)}, "
            "not one colour picture (1, 3, height, width)"
        )
    if sizes[0] != 1 and "as_int" in meta["sizes"][0]:
        raise Refused(f"is an exported program that takes {sizes[0]} pictures at once, not one")
    return (sizes[2], sizes[3]), all("as_expr" in size for size in meta["sizes"][2:])
