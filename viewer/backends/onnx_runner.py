"""Running a tapped ONNX model on a device, and on the CPU when the device fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from viewer.attention.layer import AttentionLayer
from viewer.backends.model import Job
from viewer.backends.onnx_file import OnnxFile
from viewer.backends.onnx_graph import Graph
from viewer.backends.onnx_patterns import Found
from viewer.backends.onnx_session import RuntimeErrors, plain_reason, ran_out_of_memory
from viewer.backends.onnx_tap import Tap
from viewer.errors import InputError, ModelFileError

_CPU = ("CPUExecutionProvider",)


@dataclass(frozen=True, eq=False)
class OnnxRun:
    """What one run left.

    Attributes
    ----------
    layers
        Attention of the first picture.
    outputs
        The model's own outputs by name.
    unchanged
        Whether the tap leaves them as they are.
    """

    layers: tuple[AttentionLayer, ...]
    outputs: dict[str, npt.NDArray[Any]]
    unchanged: bool


class OnnxRunner:
    """A tapped model and the device it runs on.

    Parameters
    ----------
    name
        Of the model, for messages.
    file, graph, found
        The model and its attention.
    image
        Name of the picture's input.
    device, providers
        Where to run, see `viewer.backends.devices.onnx_providers`.

    Raises
    ------
    ModelFileError
        If ONNX Runtime can't run the model even on the CPU.
    """

    def __init__(
        self,
        name: str,
        file: OnnxFile,
        graph: Graph,
        found: Sequence[Found],
        image: str,
        device: str,
        providers: Sequence[object],
    ) -> None:
        self._name = name
        self.device = device
        self.notes: tuple[str, ...] = ()
        try:
            self._tap = Tap(name, file, graph, found, image, providers)
        except ModelFileError as error:
            if device == "cpu":
                raise
            self._tap = Tap(name, file, graph, found, image, _CPU)
            self._now_on_cpu(f"could not be started ({error.problem})")
        self._check_provider()

    def run(self, feed: npt.NDArray[Any], layout: str, job: Job) -> OnnxRun:
        """Run on copies of one picture.

        Raises
        ------
        InputError
            If the model can't take this input.
        LayoutError, Cancelled
            As `Tap.run`.
        """
        try:
            return OnnxRun(*self._tap.run(feed, layout, job))
        except (MemoryError, *RuntimeErrors) as error:
            if self.device == "cpu":
                raise InputError(self._refusal(feed, error)) from error
            reason = "ran out of memory" if ran_out_of_memory(error) else f"failed ({plain_reason(error)})"
        self._tap.move_to(_CPU)
        self._now_on_cpu(reason)
        return self.run(feed, layout, job)

    def _refusal(self, feed: npt.NDArray[Any], error: Exception) -> str:
        shape = "x".join(str(size) for size in feed.shape)
        if ran_out_of_memory(error):
            return (
                f"{self._name} needs more memory than there is for an input of {shape}. Take a smaller size."
            )
        return f"{self._name} can't take an input of {shape}: {plain_reason(error)}."

    def _check_provider(self) -> None:
        """Notice when ONNX Runtime went to the CPU silently, as it does where libraries are missing."""
        if self.device != "cpu" and self._tap.provider == _CPU[0]:
            self._tap.move_to(_CPU)
            self._now_on_cpu("is not usable by ONNX Runtime here")

    def _now_on_cpu(self, reason: str) -> None:
        self.notes = (*self.notes, f"{self.device} {reason}; {self._name} runs on the CPU.")
        self.device = "cpu"
