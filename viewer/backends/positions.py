"""Finding where tokens sit, by pushing pixel coordinates through a model beside its data.

Every tensor that stems from the picture has a companion of the same shape that says of each element where on
the picture it sits: ``y + 1j * x`` in pixels of the model's input. Elements that stem from a parameter alone
have no place: their real part is NaN, their imaginary part the number of that parameter (0: none known).
Companions are never written to, and repeat along a dimension with stride 0 wherever they can.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable

import torch
from torch import Tensor

from viewer.backends import position_rules
from viewer.backends.position_call import Call, Companions, Lost, Rule, stopped
from viewer.backends.position_math import MEAN_LABEL, PADDING_LABEL, compact, mean_place, shrink, unplaced
from viewer.backends.position_memory import Remembered
from viewer.backends.position_rules import laid_out
from viewer.backends.tensor_map import TensorMap
from viewer.backends.torch_ops import all_tensors, tensors_in, writes

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
        self._companions: TensorMap[Tensor | Lost] = TensorMap()
        self._labels: TensorMap[int] = TensorMap()
        # By number, which holds as long as a tensor has a companion.
        self._ages: dict[int, int] = {}
        self._clock = itertools.count(1)
        self.depends = False
        self._made: TensorMap[bool] = TensorMap()  # by Python during the pass
        self._known = Remembered()
        # With the companions, whose numbers tell them apart only while they live.
        self._tokens: dict[tuple[int, ...], tuple[Tensor | Lost, Tensor | None]] = {}
        self._parameters = [("", None), *parameters]
        # By number, too: above they are kept alive.
        self._learned = {id(tensor): at for at, (_, tensor) in enumerate(self._parameters) if at}
        height, width = self.size = picture.shape[-2:]
        y, x = torch.arange(height) + 0.5, torch.arange(width) + 0.5
        self._companions[picture] = torch.complex(*torch.meshgrid(y, x, indexing="ij")).expand(picture.shape)

    def follow(
        self,
        name: str,
        func: torch._ops.OpOverload,
        args: tuple,
        kwargs: dict,
        result: object,
        shape: Hashable,
    ) -> None:
        """Find the companions of an operation's results; `shape` is the `call_shape` of its arguments."""
        inputs = all_tensors((*args, *kwargs.values()) if kwargs else args)
        outputs = [result] if isinstance(result, Tensor) else list(tensors_in(result))
        if name == "lift_fresh":
            self._made.update((output, True) for output in outputs)
        known = [self._companions.get(tensor) for tensor in inputs]
        if not any(companion is not None for companion in known):
            self._hand_on_label(name, inputs, outputs)
            return
        found = next((companion for companion in known if isinstance(companion, Lost)), None)
        if found is None:
            call = Call(func, args, kwargs, outputs, self._companion, self._label, self._age, self.size)
            found = self._found(name, call, shape, inputs, known)
        self._take(outputs, [found] * len(outputs) if isinstance(found, Lost) else found)
        if writes(func):
            for output in outputs:
                self._write_through(output)

    def _found(
        self, name: str, call: Call, shape: Hashable, inputs: list[Tensor], known: list[Tensor | None]
    ) -> Companions | Lost:
        """Find the companions of the results of an operation; those of its inputs are known."""
        rule, sends, reads_more = position_rules.rule_for(name, call.func)
        sends = sends and len(inputs) > 1
        if name == "_local_scalar_dense" or rule is position_rules.order:
            self.depends = True
        elif sends:
            self.depends |= self._sends(inputs[1:])
        if rule is None:
            return stopped(name)
        key = None
        if not sends and not reads_more:
            key = (id(call.func), shape, *self._marks(rule, inputs, known))
            found = self._known.get(key)
            if found is not None:
                return found
        found = [self._known.same(companion) for companion in rule(call)]
        if key is not None:
            self._known.add(key, known, found)
        return found

    def _marks(self, rule: Rule, inputs: list[Tensor], known: list[Tensor | None]) -> list[int]:
        """Return numbers that tell apart what a rule may ask of the inputs of an operation."""
        marks = [id(companion) for companion in known]
        if rule is position_rules.join:
            marks += [self._label(tensor) for tensor in inputs]
        elif rule is position_rules.pointwise and len(inputs) > 1:
            ages = [self._age(tensor) for tensor in inputs]
            marks += sorted(range(len(ages)), key=ages.__getitem__)
        return marks

    def _take(self, outputs: list[Tensor], found: Companions) -> None:
        for output, companion in zip(outputs, found, strict=False):
            self._set(output, companion)

    def _set(self, tensor: Tensor, companion: Tensor | Lost | None) -> None:
        if companion is None:
            self._companions.pop(tensor, None)
        else:
            if tensor not in self._companions:
                self._ages[id(tensor)] = next(self._clock)
            self._companions[tensor] = companion

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
        if isinstance(companion, Lost):
            return companion
        key = (lead, tensor.shape[dim], self._label(tensor)) if companion is None else (id(companion), dim)
        if key not in self._tokens:
            places = unplaced(key[:2], key[2]) if companion is None else _token_places(companion, lead, dim)
            self._tokens[key] = places, companion
        return self._tokens[key][0]

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
        return STAND_INS[label] if label in STAND_INS else self._parameters[label][0]

    def _full(self, tensor: Tensor) -> Tensor:
        companion = self._companions.get(tensor)
        return unplaced(tensor.shape, self._label(tensor)) if companion is None else companion

    def _companion(self, tensor: Tensor) -> Tensor | Lost | None:
        return self._companions.get(tensor)

    def _age(self, tensor: Tensor) -> int:
        return self._ages.get(id(tensor), 0) if tensor in self._companions else 0

    def _label(self, tensor: Tensor) -> int:
        return self._learned.get(id(tensor)) or self._labels.get(tensor, 0)

    def _hand_on_label(self, name: str, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """Call what is made of parameters alone after the first; a projection has its bias before it."""
        candidates = inputs[1:] if name in ("addmm", "baddbmm") else inputs
        label = next(filter(None, map(self._label, candidates)), 0)
        if label:
            for output in outputs:
                self._labels[output] = label


def _token_places(companion: Tensor, lead: int, dim: int) -> Tensor | Lost:
    """Return where tokens sit, (lead, tokens), whose channels have these places."""
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


def _part(whole: Tensor, root: Tensor, view: Tensor) -> Tensor:
    """Return the part of a companion, laid out as its tensor, that belongs to a view of that tensor."""
    return whole.as_strided(view.shape, view.stride(), view.storage_offset() - root.storage_offset())


def _differ(companion: Tensor, places: Tensor) -> bool:
    """Return whether elements sit elsewhere than at some places; those without a place do not count."""
    return bool(((companion - places).abs() > _AGREEMENT).any())
