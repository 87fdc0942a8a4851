"""Which module of a model is running."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType

from torch import nn


class ModuleNames:
    """While entered, knows the innermost module of a model that runs; leaves no hooks behind.

    Mostly only modules with children are watched: an attention always has some (its projections), and the
    name wanted is that of the attention, not of a softmax or a dropout inside it.

    Parameters
    ----------
    model
        The model.
    on_enter
        Called whenever a module starts; may raise to stop the pass. Also an attribute, None for nothing.
    leaves
        Watch modules without children too.
    """

    def __init__(
        self, model: nn.Module, on_enter: Callable[[], None] | None = None, leaves: bool = False
    ) -> None:
        self._model = model
        self.on_enter = on_enter
        self._leaves = leaves
        self._running: list[str] = []
        self._handles: list = []

    @property
    def current(self) -> str:
        """Name of the innermost running module, such as ``"blocks.3.attn"``; empty outside of all."""
        inner = self._running[-1] if self._running else ""
        # A program has no modules that run, but may know of which it was made.
        return inner or getattr(self._model, "running", "")

    def __enter__(self) -> ModuleNames:
        for name, module in _named(self._model):
            if self._leaves or module._modules:
                self._handles.append(module.register_forward_pre_hook(partial(self._enter, name)))
                self._handles.append(module.register_forward_hook(self._leave, always_call=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _enter(self, name: str, module: nn.Module, args: object) -> None:
        self._running.append(name)
        if self.on_enter is not None:
            self.on_enter()

    def _leave(self, module: nn.Module, args: object, output: object) -> None:
        self._running.pop()


def _named(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield what `nn.Module.named_modules` does, without a generator for each module within one."""
    waiting, seen = [("", model)], set()
    while waiting:
        name, module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield name, module
        ahead = f"{name}." if name else ""
        children = [(ahead + own, child) for own, child in module._modules.items() if child is not None]
        waiting.extend(reversed(children))
