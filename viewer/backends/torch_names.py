"""Which module of a model is running."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType

from torch import nn


class ModuleNames:
    """While entered, knows the innermost module of a model that runs; leaves no hooks behind.

    Only modules with children are watched: an attention always has some (its projections), and the name
    wanted is that of the attention, not of a softmax or a dropout inside it.

    Parameters
    ----------
    model
        The model.
    on_enter
        Called whenever a module starts; may raise to stop the pass.
    """

    def __init__(self, model: nn.Module, on_enter: Callable[[], None] = lambda: None) -> None:
        self._model = model
        self._on_enter = on_enter
        self._running: list[str] = []
        self._handles: list = []

    @property
    def current(self) -> str:
        """Name of the innermost running module, such as ``"blocks.3.attn"``; empty outside of all."""
        inner = self._running[-1] if self._running else ""
        # A program has no modules that run, but may know of which it was made.
        return inner or getattr(self._model, "running", "")

    def __enter__(self) -> ModuleNames:
        for name, module in self._model.named_modules():
            if next(module.children(), None) is not None:
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
        self._on_enter()

    def _leave(self, module: nn.Module, args: object, output: object) -> None:
        self._running.pop()
