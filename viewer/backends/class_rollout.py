"""Class rollout of any PyTorch model: gradients of attention below the model's own code.

Going backward, a fused attention is handed the gradient of its output and its values, which give that of its
weights, ``dy/dA = dy/dO V^T``; an un-fused one's softmax is handed the gradient of the weights themselves.
Both name the forward operation by the memory of its result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from viewer.attention.class_rollout import ClassRollout, Relevance
from viewer.attention.rollout import why_no_rollout
from viewer.backends.torch_model import TorchModel
from viewer.backends.torch_ops import named_arguments, op_name, tensors_in
from viewer.backends.torch_tap import AttentionTap
from viewer.errors import MapError

if TYPE_CHECKING:
    from viewer.attention.record import AttentionRecord
    from viewer.backends.layer_plans import Planned
    from viewer.backends.model import Job, Model, ModelInput

KIND = "class rollout"
_FUSED_BACKWARD = ("_scaled_dot_product_", "_backward")
_SOFTMAX_BACKWARD = "_softmax_backward_data"


def why_no_class_rollout(record: AttentionRecord, start: int = 0, target: int | None = None) -> str:
    """Return why a record's model has no class rollout, as a clause; empty if it should have one.

    Parameters
    ----------
    record
        What the model left behind.
    start
        First layer that is in.
    target
        Number of the class; None for the model's best, which only a model that knows its classes has.
    """
    if record.provenance.backend == "onnx":
        return "it needs gradients, which ONNX Runtime does not compute; open the same weights in PyTorch"
    if record.output is None or record.output.ndim != 1:
        return "the model's output is no list of classes"
    if target is None and record.prediction is None:
        return "the model does not say that its outputs are classes; choose one by its number"
    if target is not None and not 0 <= target < len(record.output):
        return f"there is no class {target}; the model has {len(record.output)}, from 0 on"
    if record.what_if:
        return "it is worked out for the model as it is, not for a what-if"
    return why_no_rollout(record.layers, start)


def class_rollout(
    model: Model, record: AttentionRecord, image: ModelInput, target: int, start: int, job: Job
) -> ClassRollout:
    """Run a model once forward and backward and follow a class back through its attention.

    Parameters
    ----------
    model
        That made `record` of `image`.
    record
        Says where the tokens are.
    image
        As for `viewer.backends.model.Model.attend`.
    target
        Number of the class.
    start
        First layer that is in.
    job
        Told of progress; cancels.

    Raises
    ------
    MapError
        If it is not defined or gradients can't be had, with the reason.
    InputError, Cancelled
        As `viewer.backends.model.Model.attend`.
    """
    why = why_no_class_rollout(record, start, target)
    if why:
        raise MapError(KIND, why)
    if not isinstance(model, TorchModel):
        raise MapError(KIND, f"it needs gradients, which {type(model).__name__} does not give")

    def look(module: nn.Module, picture: Tensor, planned: Planned) -> _Backward:
        return _run(module, picture, planned, target, start, job)

    found = model.runner.watched(model.tensor_of(image, job), job, look)
    return ClassRollout(
        found.relevance.relevance.cpu().numpy(),
        record.layers[start].query_layout,
        start,
        target,
        found.readers.cpu().numpy(),
        model.labels[target] if target < len(model.labels) else "",
    )


def _run(
    module: nn.Module, picture: Tensor, planned: Planned, target: int, start: int, job: Job
) -> _Backward:
    """Run forward and backward; the passes themselves can't be divided, so progress goes by layers."""
    count = len(planned.layers)
    # Not the picture itself, in case the model writes into its input.
    leaf = picture.detach().clone().requires_grad_()
    tap = AttentionTap(
        on_layer=lambda found: job.step("Running forward", min(1.0, found / max(count, 1)) / 2)
    )
    forward = _Forward(tap)
    with torch.enable_grad():
        with tap, forward:
            output = next(tensors_in(_values(module(leaf.clone()))))
        if not output.requires_grad:
            raise MapError(KIND, "the model computes its output in a way that gradients do not pass")
        if len(tap.layers) != count:
            raise MapError(KIND, "its attention runs in another way where gradients are kept")
        backward = _Backward(tap, forward.results, planned, start, job)
        with backward:
            torch.autograd.grad(output[0, target], leaf, allow_unused=True)
    if backward.relevance is None or backward.expected >= start:
        raise MapError(KIND, f"no gradient reaches the attention of layer {backward.expected}")
    return backward


def _values(output: object) -> object:
    return list(output.values()) if isinstance(output, dict) else output


class _Forward(TorchDispatchMode):
    """Notes where the result of each attention of a tapped pass lies; entered inside the tap."""

    def __init__(self, tap: AttentionTap) -> None:
        super().__init__()
        self._tap = tap
        self.results: dict[int, int] = {}

    def __torch_dispatch__(
        self, func: torch._ops.OpOverload, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        """Run an operation, through the tap."""
        before = self._tap.sites
        result = func(*args, **(kwargs or {}))
        if self._tap.sites > before:
            self.results[next(tensors_in(result)).data_ptr()] = before
        return result


class _Backward(TorchDispatchMode):
    """Takes each layer's gradients as they come, the last layer's first.

    Attributes
    ----------
    relevance
        Of the layers so far; None before the last layer came.
    readers
        int64, the tokens whose output of the last layer matters.
    expected
        Number of the layer that comes next.
    """

    def __init__(
        self, tap: AttentionTap, results: dict[int, int], planned: Planned, start: int, job: Job
    ) -> None:
        super().__init__()
        kept = [found for plan, found in zip(planned.layers, tap.layers, strict=True) if plan is not None]
        self._by_site = {found.site: (layer, found.scores) for layer, found in enumerate(kept)}
        self._results, self._start, self._job, self._count = results, start, job, len(kept)
        self.expected = len(kept) - 1
        self.relevance: Relevance | None = None
        self.readers = torch.empty(0, dtype=torch.int64)

    def __torch_dispatch__(
        self, func: torch._ops.OpOverload, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        """Run an operation and take what it is given."""
        kwargs, name = kwargs or {}, op_name(func)
        if name == _SOFTMAX_BACKWARD:
            given = named_arguments(func, args, kwargs)
            self._take(given["output"], lambda: _of_softmax(given))
        elif name.startswith(_FUSED_BACKWARD[0]) and name.endswith(_FUSED_BACKWARD[1]):
            given = named_arguments(func, args, kwargs)
            self._take(given["out"], lambda: _of_fused(given))
        return func(*args, **kwargs)

    def _take(self, result: Tensor, gradients: Callable[[], _Gradient]) -> None:
        site = self._results.get(result.data_ptr())
        if site not in self._by_site:
            return
        layer, scores = self._by_site[site]
        if layer < self._start:
            return
        if layer != self.expected:
            raise MapError(KIND, f"the gradient of layer {layer} comes before that of layer {self.expected}")
        self._job.step(f"Weighting layer {layer}", 1 - 0.5 * (layer + 1) / self._count)
        found = gradients()
        weights = scores.weights if found.weights is None else lambda rows: found.weights[:, rows].float()
        if self.relevance is None:
            self.readers = torch.nonzero(found.read).flatten()
            self.relevance = Relevance(self.readers, scores.queries)
        self.relevance.take(lambda rows: weights(rows) * found.of(rows), scores.heads)
        self.expected -= 1


class _Gradient:
    """The gradient of one layer's weights, made for some queries at a time.

    Parameters
    ----------
    of
        Gives float32 (heads, rows, keys).
    read
        bool (queries,), whose output matters.
    weights
        The weights that it is the gradient of, (heads, queries, keys); None for those that were tapped.
    """

    def __init__(self, of: Callable[[slice], Tensor], read: Tensor, weights: Tensor | None = None) -> None:
        self.of, self.read, self.weights = of, read, weights


def _of_softmax(given: dict[str, Any]) -> _Gradient:
    gradient, weights = (
        side.reshape(-1, *side.shape[-2:]) for side in (given["grad_output"], given["output"])
    )
    read = (gradient != 0).any(dim=2).any(dim=0)
    return _Gradient(lambda rows: gradient[:, rows].float(), read, weights)


def _of_fused(given: dict[str, Any]) -> _Gradient:
    gradient = given.get("grad_out", given.get("grad_out_"))
    value = given["value"]
    # Values may serve several heads.
    if value.shape[-3] != gradient.shape[-3]:
        value = value.repeat_interleave(gradient.shape[-3] // value.shape[-3], dim=-3)
    gradient, value = (side.reshape(-1, *side.shape[-2:]).float() for side in (gradient, value))
    read = (gradient != 0).any(dim=2).any(dim=0)
    return _Gradient(lambda rows: gradient[:, rows] @ value.mT, read)
