"""Finding where tokens sit, by pushing pixel coordinates through a model beside its data.

Every tensor that stems from the picture has a companion of the same shape that says of each element where on
the picture it sits: ``y + 1j * x`` in pixels of the model's input. Elements that stem from a parameter alone
have no place: their real part is NaN, their imaginary part the number of that parameter (0: none known).
Companions are never written to, and repeat along a dimension with stride 0 wherever they can.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from viewer.backends import position_rules
from viewer.backends.position_call import Call, Lost, stopped
from viewer.backends.position_math import MEAN_LABEL, PADDING_LABEL, compact, mean_place, shrink, unplaced
from viewer.backends.position_rules import laid_out
from viewer.backends.torch_ops import tensors_in

# Tokens of different heads or channels must sit at the same place to within this many pixels.
_AGREEMENT = 0.5

PADDING = "padding"
"""What stands in for a parameter's name where windows were filled up."""
MEAN = "mean"
"""What stands in for a parameter's name where tokens are a mean over the whole picture."""
STAND_INS = {PADDING_LABEL: PADDING, MEAN_LABEL: MEAN}
"""What tokens without a place are called that stem from no parameter, by label."""
CHANNELS = Lost("its channels attend to one another, not its tokens")


class PositionTrace:
    """Follows coordinates through the operations of one forward pass.

    `depends` becomes true when elements go where the picture's own values send them (an index computed from
    it, a number of it read by Python): then another picture needs a trace of its own.

    Parameters
    ----------
    picture
        The model's input, (1, channels, height, width).
    parameters
        Names and tensors of what a model has learned (and its buffers).

    Attributes
    ----------
    size
        Height and width of the picture.
    """

    def __init__(self, picture: Tensor, parameters: Iterable[tuple[str, Tensor]]) -> None:
        self._companions: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._labels: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._ages: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._clock = itertools.count(1)
        self._names = [""]
        self.depends = False
        self._made: WeakIdKeyDictionary = WeakIdKeyDictionary()  # by Python during the pass
        for name, parameter in parameters:
            self._labels[parameter] = len(self._names)
            self._names.append(name)
        height, width = self.size = picture.shape[-2:]
        y, x = torch.arange(height) + 0.5, torch.arange(width) + 0.5
        self._companions[picture] = torch.complex(*torch.meshgrid(y, x, indexing="ij")).expand(picture.shape)

    def follow(
        self, name: str, func: torch._ops.OpOverload, args: tuple, kwargs: dict, result: object
    ) -> None:
        """Find the companions of an operation's results."""
        inputs = list(tensors_in((*args, *kwargs.values())))
        outputs = list(tensors_in(result))
        if name == "lift_fresh":
            self._made.update((output, True) for output in outputs)
        known = [self._companions[tensor] for tensor in inputs if tensor in self._companions]
        if not known:
            self._hand_on_label(name, inputs, outputs)
            return
        lost = next((companion for companion in known if isinstance(companion, Lost)), None)
        if lost is None:
            rule = position_rules.rule_for(name, func)
            self.depends |= (
                name == "_local_scalar_dense"
                or rule is position_rules.order
                or (position_rules.sends(rule) and self._sends(tensors_in((*args[1:], *kwargs.values()))))
            )
            if rule is None:
                lost = stopped(name)
            else:
                found = rule(
                    Call(func, args, kwargs, outputs, self._companion, self._label, self._age, self.size)
                )
        for output, companion in zip(outputs, found if lost is None else [lost] * len(outputs), strict=False):
            self._set(output, companion)
        if func._schema.is_mutable:
            for output in outputs:
                self._write_through(output)

    def _set(self, tensor: Tensor, companion: Tensor | Lost | None) -> None:
        if companion is None:
            self._companions.pop(tensor, None)
        else:
            self._companions[tensor] = companion
            self._ages.setdefault(tensor, next(self._clock))

    def _write_through(self, written: Tensor) -> None:
        """Tell the tensors that share memory with one that was written to."""
        root = written._base if written._is_view() else written
        if root is None:
            return
        views = [tensor for tensor in self._companions if tensor is not written and tensor._base is root]
        if written is root and not views:
            return
        companions = [self._companion(tensor) for tensor in (root, written)]
        lost = next((companion for companion in companions if isinstance(companion, Lost)), None)
        if lost is None and any(tensor.dtype != root.dtype for tensor in (written, *views)):
            lost = Lost("something was written to through a view of another type")
        if lost is not None:
            for tensor in (root, *views):
                self._companions[tensor] = lost
            return
        whole = laid_out(self._full(root), root)
        if written is not root:
            _part(whole, root, written).copy_(self._full(written))
            self._companions[root] = compact(whole)
        for view in views:
            self._companions[view] = compact(_part(whole, root, view))

    def tokens(self, tensor: Tensor, dim: int = -2) -> Tensor | Lost:
        """Return where the tokens of queries, keys, values or outputs sit.

        Parameters
        ----------
        tensor
            (..., tokens, channels), or with `dim` -1 (..., channels, tokens).
        dim
            Along which the tokens lie, -2 or -1.

        Returns
        -------
        torch.Tensor or Lost
            complex64 (stacked, tokens), one row for each index of the leading dimensions; `CHANNELS` where it
            is the channels that have a place, and the tokens have none.
        """
        lead = tensor.shape[:-2].numel()
        companion = self._companion(tensor)
        if companion is None:
            return unplaced((lead, tensor.shape[dim]), self._label(tensor))
        if isinstance(companion, Lost):
            return companion
        companion = companion if dim == -2 else companion.mT
        shape = companion.shape
        few = shrink(companion)
        places = mean_place(few, (-1,), keepdim=True)
        if few.shape[-1] > 1 and _differ(few, places):
            if _differ(few, mean_place(few, (-2,), keepdim=True)):
                return Lost("the channels of one token look at different places")
            return CHANNELS
        if places.shape[:-2].numel() == 1:
            return places.reshape(1, -1).expand(lead, shape[-2])
        return places[..., 0].expand(shape[:-1]).reshape(lead, shape[-2])

    def follows(self, tensor: Tensor | None) -> bool:
        """Return whether a tensor stems from the picture, whether or not its places are still known."""
        return tensor in self._companions

    def _sends(self, indices: Iterable[Tensor]) -> bool:
        """Return whether indices stem from the picture, or from Python, which may have read it."""
        return any(
            index in self._companions or index in self._made
            for index in indices
            if not index.is_floating_point()
        )

    def parameter_name(self, label: int) -> str:
        """Return the name of the parameter that a token without a place stems from; may be empty."""
        return STAND_INS[label] if label in STAND_INS else self._names[label]

    def _full(self, tensor: Tensor) -> Tensor:
        companion = self._companions.get(tensor)
        return unplaced(tensor.shape, self._label(tensor)) if companion is None else companion

    def _companion(self, tensor: Tensor) -> Tensor | Lost | None:
        return self._companions.get(tensor)

    def _age(self, tensor: Tensor) -> int:
        return self._ages.get(tensor, 0)

    def _label(self, tensor: Tensor) -> int:
        return self._labels.get(tensor, 0)

    def _hand_on_label(self, name: str, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """Call what is made of parameters alone after the first; a projection has its bias before it."""
        candidates = inputs[1:] if name in ("addmm", "baddbmm") else inputs
        label = next((self._labels[tensor] for tensor in candidates if tensor in self._labels), 0)
        if label:
            for output in outputs:
                self._labels[output] = label


def _part(whole: Tensor, root: Tensor, view: Tensor) -> Tensor:
    """Return the part of a companion, laid out as its tensor, that belongs to a view of that tensor."""
    return whole.as_strided(view.shape, view.stride(), view.storage_offset() - root.storage_offset())


def _differ(companion: Tensor, places: Tensor) -> bool:
    """Return whether elements sit elsewhere than at some places; those without a place do not count."""
    return bool(((companion - places).abs() > _AGREEMENT).any())
