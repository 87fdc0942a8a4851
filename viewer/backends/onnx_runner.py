"""Running a tapped ONNX model on a device, and on the CPU when the device fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from viewer.backends.model import Job
from viewer.backends.onnx_found import OnnxProgram
from viewer.backends.onnx_session import RuntimeErrors, plain_reason, ran_out_of_memory
from viewer.backends.onnx_tap import OnnxRun, Tap
from viewer.errors import InputError, ModelFileError

_CPU = ("CPUExecutionProvider",)


class OnnxRunner:
    """A tapped model and the device it runs on.

    Parameters
    ----------
    program
        The model and its attention.
    device, providers
        Where to run, see `viewer.backends.devices.onnx_providers`.

    Raises
    ------
    ModelFileError
        If ONNX Runtime can't run the model even on the CPU.
    """

    def __init__(self, program: OnnxProgram, device: str, providers: Sequence[object]) -> None:
        self.program = program
        self._name = program.name
        self.device = device
        self.notes: tuple[str, ...] = ()
        try:
            self._tap = Tap(program, providers)
        except ModelFileError as error:
            if device == "cpu":
                raise
            self._tap = Tap(program, _CPU)
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
            return self._tap.run(feed, layout, job)
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
