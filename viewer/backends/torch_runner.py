"""Running a PyTorch model once and taking its attention."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from viewer.backends.layer_plans import Planned, plan_layers
from viewer.backends.model import Job
from viewer.backends.positions import PositionTrace
from viewer.backends.program_errors import stopped
from viewer.backends.torch_batches import BatchPlan, prove
from viewer.backends.torch_fastpath import fast_path_off
from viewer.backends.torch_names import ModuleNames
from viewer.backends.torch_ops import tensors_in
from viewer.backends.torch_origin import VIEWS
from viewer.backends.torch_streams import Streams
from viewer.backends.torch_tap import AttentionTap
from viewer.backends.verdicts import same_output
from viewer.backends.what_if import note
from viewer.backends.what_if_attention import Place
from viewer.backends.what_if_run import noted, run_changed
from viewer.errors import Cancelled, InputError, LayoutError, NoAttentionError, PatchreachError

if TYPE_CHECKING:
    from viewer.attention.layer import AttentionLayer
    from viewer.backends.torch_sizes import SizedModels
    from viewer.backends.what_if import Change

_Seen = TypeVar("_Seen")

# Largest difference between tapped and untapped output, relative to the largest output: none is expected,
# but some accelerators add in another order each time.
_SAME_OUTPUT = 1e-5
# Not every device raises OutOfMemoryError (MPS and the CPU do not).
_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


@dataclass(frozen=True, eq=False)
class Run:
    """What a forward pass left behind.

    Attributes
    ----------
    layers
        In forward order.
    output
        The model's own, float32 on the CPU.
    unchanged
        Whether tapping left it alone; None where it was not compared.
    notes
        Sentences on softmaxes that are no layer, and on changes.
    features
        float32 (width,) on the CPU, see `AttentionRecord.features`.
    """

    layers: tuple[AttentionLayer, ...]
    output: Tensor
    unchanged: bool | None
    notes: tuple[str, ...] = ()
    features: Tensor | None = None


@dataclass(frozen=True, eq=False)
class _Plan:
    """What was found out at an input size: layers, whether tapping left the output alone, and its validity.

    `notes` tell what is no layer, `places` where the layers are. It holds for passes of the same
    `signature`, unless where tokens go `depends` on the picture's values.
    """

    planned: Planned
    unchanged: bool
    notes: tuple[str, ...]
    signature: int
    depends: bool
    places: tuple[Place, ...]


class TorchRunner:
    """A model, its device, and what was found out about it at each input size.

    Safe to use from several threads: passes wait for one another.

    Parameters
    ----------
    name
        What to call the model in errors.
    sizes
        The model; it is moved to the device.
    device
        "cpu", "cuda:0", "mps".
    """

    def __init__(self, name: str, sizes: SizedModels, device: str) -> None:
        self.name = name
        self.sizes = sizes
        self.device = device
        self.notes: tuple[str, ...] = ()
        self._plans: dict[tuple[int, int], _Plan] = {}
        self._batches: dict[tuple[int, int, int], BatchPlan | None] = {}
        self._lock = threading.Lock()
        try:
            sizes.move(device)
        except RuntimeError as error:
            self._fall_back(error)

    def run(self, picture: Tensor, job: Job, changes: Sequence[Change] = ()) -> Run:
        """Run the model on a float32 (1, 3, H, W) tensor, with changes (a what-if) or as it is.

        Raises
        ------
        InputError, NoAttentionError, LayoutError, Cancelled
            As `viewer.backends.model.Model.attend`.
        """
        with self._lock:
            try:
                return self._run(picture, job, changes)
            except RuntimeError as error:
                self._fall_back(error)
                return self._run(picture, job, changes)

    def together(
        self, pictures: Tensor, count: int, job: Job
    ) -> tuple[tuple[AttentionLayer, ...], tuple[bool, ...]] | None:
        """Run the model once on several pictures; see `BatchPlan.run`.

        None where that can't be done, or can't be told apart: not with this model, not with so many, not with
        these. One at a time then shows what is the matter, if anything is.

        Parameters
        ----------
        pictures
            float32 (n, 3, H, W).
        count
            Pictures in a batch, at least `n`.
        job
            Cancels.

        Raises
        ------
        Cancelled
            If the job was cancelled.
        """
        with self._lock:
            try:
                return self._together(pictures, count, job)
            except Cancelled:
                raise
            except Exception:  # whatever a model raises that is not made for batches, or for want of memory
                self._batches[(pictures.shape[-2], pictures.shape[-1], count)] = None
                return None

    def _together(
        self, pictures: Tensor, count: int, job: Job
    ) -> tuple[tuple[AttentionLayer, ...], tuple[bool, ...]] | None:
        size = (pictures.shape[-2], pictures.shape[-1])
        model, key = self.sizes.at(size), (*size, count)
        if key in self._batches and self._batches[key] is None:
            return None
        with torch.inference_mode(False), torch.no_grad(), fast_path_off():
            pictures = self._given(model, pictures)
            if size not in self._plans:
                self._first(model, pictures[:1], size, job)
            plan = self._plans.get(size)
            if plan is None or plan.depends:
                return None
            if key not in self._batches or self._batches[key].planned is not plan.planned:
                self._batches[key] = prove(model, plan.planned, plan.signature, pictures, count, job)
            proven = self._batches[key]
            found = None if proven is None else proven.run(model, pictures, job)
        if found is None or plan.unchanged:
            return found
        return found[0], (False,) * len(pictures)

    def watched(
        self, picture: Tensor, job: Job, look: Callable[[nn.Module, Tensor, Planned], _Seen]
    ) -> _Seen:
        """Hand the model to a function that runs it in its own way; no other pass runs meanwhile.

        Parameters
        ----------
        picture
            float32 (1, 3, H, W).
        job
            Told of progress; cancels.
        look
            Gets the module at the picture's size, the picture as it takes it, and what is known of layers.

        Raises
        ------
        InputError, NoAttentionError, LayoutError, Cancelled
            As `run`.
        """
        with self._lock:
            try:
                return self._watched(picture, job, look)
            except RuntimeError as error:
                self._fall_back(error)
                return self._watched(picture, job, look)

    def _watched(
        self, picture: Tensor, job: Job, look: Callable[[nn.Module, Tensor, Planned], _Seen]
    ) -> _Seen:
        size = (picture.shape[-2], picture.shape[-1])
        if size not in self._plans:
            self._run(picture, job, ())
        if size not in self._plans:
            raise InputError(f"{self.name} gives numbers that are not finite for this picture.")
        module = self.sizes.at(size)
        with torch.inference_mode(False), fast_path_off():
            return look(
                module,
                picture.to(self.device, next(module.parameters()).dtype),
                self._plans[size].planned,
            )

    def _fall_back(self, error: RuntimeError) -> None:
        """Move to the CPU if the device ran out of memory; raise the error again if it is another one."""
        if not _wants_memory(error):
            raise error
        if self.device == "cpu":
            raise InputError(
                f"{self.name} needs more memory than there is for a picture of this size."
            ) from error
        self.notes = (
            f"The device {self.device} ran out of memory; {self.name} went on on the CPU, which is slower.",
        )
        self._plans.clear()
        self._batches.clear()
        self.device = "cpu"
        self.sizes.move("cpu")
        torch.cuda.empty_cache()

    def _run(self, picture: Tensor, job: Job, changes: Sequence[Change]) -> Run:
        size = (picture.shape[-2], picture.shape[-1])
        model = self.sizes.at(size)
        # In inference mode composite operations would arrive undivided, so leave it where a caller is in it.
        with torch.inference_mode(False), torch.no_grad(), fast_path_off():
            picture = self._given(model, picture)
            if changes:
                return self._changed(model, picture, size, job, changes)
            if size not in self._plans:
                return self._first(model, picture, size, job)
            plan = self._plans[size]
            if plan.depends:
                with ModuleNames(model) as names:
                    tap, planned, output, _ = self._traced(model, picture, job, names)
                return _run(planned, tap, output, plan.unchanged, plan.notes)
            expected = len(plan.planned.layers)
            tap = AttentionTap(
                on_layer=lambda found: job.step(f"Running {self.name}", min(1.0, found / expected)),
                streams=Streams(wanted=plan.planned.streams),
            )
            job.step(f"Running {self.name}", 0.0)
            with tap:
                output = _tensor(model(picture))
            if tap.signature != plan.signature:
                # The model goes another way for this picture: nothing found out before holds.
                return self._first(model, picture, size, job)
            return _run(plan.planned, tap, output, plan.unchanged, plan.notes)

    def _given(self, model: nn.Module, pictures: Tensor) -> Tensor:
        """Return pictures where the model is, in its precision."""
        pictures = pictures.to(self.device, next(model.parameters()).dtype)
        return pictures.clone() if pictures.is_inference() else pictures

    def _first(self, model: nn.Module, picture: Tensor, size: tuple[int, int], job: Job) -> Run:
        """Run untapped, then tapped and traced, and remember what that showed."""
        with ModuleNames(model, lambda: job.step(f"Running {self.name} untapped")) as names:
            plain = self._untapped(model, picture)
            names.on_enter = None
            tap, planned, output, depends = self._traced(model, picture, job, names)
        notes = (*planned.notes, *(f"Left out: {sentence}" for sentence in tap.other))
        run = _run(planned, tap, output, same_output(plain, output, _SAME_OUTPUT), notes)
        # Numbers that are not finite compare equal whatever was done, so the next picture is compared again.
        if bool(plain.isfinite().all()):
            places = tuple(
                Place(found.site, found.scores.heads, layer)
                for layer, found in zip(planned.layers, tap.layers, strict=True)
                if layer is not None
            )
            self._plans[size] = _Plan(planned, run.unchanged, notes, tap.signature, depends, places)
        return run

    def _untapped(self, model: nn.Module, picture: Tensor) -> Tensor:
        """Return the output of a model that is left to itself, so that what it raises is its own."""
        try:
            return _tensor(model(picture))
        except PatchreachError:
            raise
        except Exception as error:  # architectures fail in any way at sizes that were not thought of
            if _wants_memory(error):
                raise
            raise stopped(self.name, picture, error) from error

    def _changed(
        self, model: nn.Module, picture: Tensor, size: tuple[int, int], job: Job, changes: Sequence[Change]
    ) -> Run:
        """Run with changes, which need to know where the untouched model attends."""
        if size not in self._plans:
            self._first(model, picture, size, job)
        plan = self._plans.get(size)
        if plan is None or plan.depends:
            why = "its numbers are not finite" if plan is None else "its tokens go elsewhere for each picture"
            raise InputError(f"What if: nothing can be changed in {self.name}, as {why}.")
        expected = len(plan.places)
        tap, output = run_changed(
            *(model, self.name, picture, changes, plan.places),
            lambda found: job.step(f"Running {self.name}, changed", min(1.0, found / expected)),
            Streams(wanted=plan.planned.streams),
        )
        # The tap of a changed model is compared with nothing: it is that of the untouched model, which was.
        unchanged = None if plan.unchanged else False
        run = _run(plan.planned, tap, _tensor(output), unchanged, (*plan.notes, note(changes)))
        return replace(run, layers=noted(run.layers, changes, model))

    def _traced(
        self, model: nn.Module, picture: Tensor, job: Job, names: ModuleNames
    ) -> tuple[AttentionTap, Planned, Tensor, bool]:
        """Run tapped and traced; return the tap, the layers, the output, and `PositionTrace.depends`."""
        trace = PositionTrace(picture, chain(model.named_parameters(), model.named_buffers()))
        with AttentionTap(
            names,
            trace,
            lambda found: job.step(f"Tracing {self.name}, layer {found}"),
            Streams(trace),
        ) as tap:
            output = _tensor(model(picture))
        unmet = [
            f"{module or 'an attention'} changes its weights between softmax and values"
            for module in tap.unmet
        ]
        if tap.mixes.reasons or unmet:
            raise LayoutError(self.name, [*tap.mixes.reasons, *unmet][0])
        if not tap.layers:
            census = {name: count for name, count in tap.census.items() if name not in VIEWS}
            raise NoAttentionError(self.name, census, instead=[*tap.other, *_linear(tap.bilinear)])
        return tap, plan_layers(self.name, tap.layers, trace), output, trace.depends


def _wants_memory(error: Exception) -> bool:
    """Return whether there was not enough memory; not every device has an error of its own for that."""
    text = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or any(phrase in text for phrase in _NO_MEMORY)


def _linear(products: int) -> list[str]:
    """Return a sentence on products of features that no softmax follows."""
    if not products:
        return []
    found = "1 product multiplies" if products == 1 else f"{products} products multiply"
    return [f"{found} its features with one another, and no softmax follows, as in linear attention."]


def _run(
    planned: Planned, tap: AttentionTap, output: Tensor, unchanged: bool | None, notes: tuple[str, ...]
) -> Run:
    """Join what is known of a model with what a pass left behind."""
    features = tap.features(output)
    if features is not None:
        features = features.float().reshape(-1, features.shape[-1]).mean(dim=0).cpu()
    return Run(planned.joined(tap.layers), output.float().cpu(), unchanged, notes, features)


def _tensor(output: object) -> Tensor:
    """Return a model's output, the first tensor of several."""
    return next(tensors_in(list(output.values()) if isinstance(output, dict) else output))
