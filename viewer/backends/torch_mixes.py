"""Noticing attention whose map is not what the model uses: outputs of several attentions mixed."""

from __future__ import annotations

from torch import Tensor

from viewer.backends.tensor_map import TensorMap
from viewer.backends.torch_ops import all_tensors, tensors_in
from viewer.backends.torch_origin import VIEWS

# What leaves an output or a map the attention's own, but for a factor or some of its heads.
_PARTS = VIEWS | {
    "div",
    "index",
    "index_select",
    "mul",
    "neg",
    "select",
    "slice",
    "split",
    "split_with_sizes",
}
_PARTS |= {"unbind", "unsafe_split"}
SUMS = {
    "add": "added", "addcmul": "added", "lerp": "added", "maximum": "compared", "minimum": "compared",
    "sub": "subtracted", "rsub": "subtracted",
}  # fmt: skip


class Mixes:
    """Follows weights and outputs of attentions until something else is made of them.

    `reasons` tells, as clauses, where two of them were put together: differential attention subtracts
    either the weights or, with fused kernels, the outputs.
    """

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self._what: TensorMap[str] = TensorMap()

    def watch(self, tensor: Tensor, what: str) -> None:
        """Follow a tensor; `what` names its kind: "weights" or "outputs"."""
        self._what[tensor] = what

    def follow(self, name: str, args: tuple, result: object, module: str) -> None:
        """See what an operation makes of the tensors that are followed."""
        if not self._what or (name not in _PARTS and name not in SUMS):
            return
        known = {id(tensor): tensor for tensor in all_tensors(args) if tensor in self._what}
        if not known:
            return
        what = self._what[next(iter(known.values()))]
        if name in SUMS and len(known) > 1:
            self.reasons.append(
                f"the {what} of two attentions are {SUMS[name]} in {module or 'the model'}, "
                "so neither map is what the model uses alone"
            )
        elif name in _PARTS and len(known) == 1:
            for output in tensors_in(result):
                self._what[output] = what
