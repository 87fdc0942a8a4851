"""A model with changes, wherever a model is taken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from viewer.backends.what_if import WHY_NOT_ONNX, why_not
from viewer.errors import InputError

if TYPE_CHECKING:
    from viewer.backends.model import Model
    from viewer.backends.what_if import Change


def with_changes(model: Model, changes: Iterable[Change]) -> Model:
    """Return a model whose `attend` leaves records of the changed model; it shares the weights.

    With no changes this is the model as it was opened.

    Raises
    ------
    InputError
        If it is no PyTorch model; the text says what to do.
    """
    from viewer.backends.torch_model import TorchModel

    if not isinstance(model, TorchModel):
        raise InputError(why_not(model.name, model.backend) or WHY_NOT_ONNX)
    return replace(model, changes=tuple(changes))
