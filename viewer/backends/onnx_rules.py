"""What each kind of ONNX operator does to the places of elements (see `positions`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
import torch
from torch import Tensor

from viewer.backends.onnx_graph import attribute
from viewer.backends.onnx_places import NO_LABEL, UnknownPlace, combined, has_place
from viewer.backends.position_math import PADDING_LABEL, compact, joined, mean_of, mean_place, shrink
from viewer.backends.position_math import unplaced as without_place
from viewer.backends.position_rules import product_place


@dataclass(frozen=True, eq=False)
class Setting:
    """What a rule knows besides its operands.

    Attributes
    ----------
    node
        The operator.
    places
        Of each input; None for one that is absent.
    shapes
        Of each output that is there, as they were in a real run.
    control
        Values of small integer inputs (indices, axes), by input position; None where there is no such input.
    size
        Height and width of the picture.
    ages
        Of each input, in which order they were made.
    """

    node: onnx.NodeProto
    places: Sequence[Tensor | None]
    shapes: Sequence[tuple[int, ...]]
    control: Callable[[int], npt.NDArray[np.int64] | None]
    size: tuple[int, int]
    ages: Sequence[int] = ()

    def operands(self, *which: int) -> list[tuple[Tensor, int]]:
        """Return inputs with their ages (see `onnx_places.combined`); all that are there by default."""
        ages = self.ages or range(len(self.places))
        chosen = which or range(len(self.places))
        return [(self.places[at], ages[at]) for at in chosen if self.places[at] is not None]

    def given(self, name: str, at: int) -> Sequence[int] | None:
        """Return integers that are an attribute in older opsets and an input in newer ones."""
        found = attribute(self.node, name)
        if found is None and at < len(self.node.input) and self.node.input[at]:
            found = self.control(at)
        return None if found is None else [int(value) for value in np.atleast_1d(found)]


Rule = Callable[[Setting], "Tensor | tuple[Tensor, ...]"]


def unplaced(shape: Sequence[int], label: float = NO_LABEL) -> Tensor:
    """Return the places of a parameter: nowhere."""
    return without_place(shape, int(label))


def elementwise(at: Setting) -> Tensor:
    """Merge the operands; the condition of a choice has no say."""
    operands = at.operands(1, 2) if at.node.op_type == "Where" else at.operands()
    return combined(operands, at.shapes[0])


def integer_sum(at: Setting) -> Tensor:
    """Merge the operands of a sum or product of integers, each followed by its scale and zero point."""
    return combined(at.operands(0, 3), at.shapes[0])


def skip(at: Setting) -> tuple[Tensor, ...]:
    """Merge what is added before a normalization; the sum itself may be handed out, too."""
    merged = combined(at.operands(0, 1), at.shapes[0])
    return tuple(merged if shape == at.shapes[0] else unplaced(shape) for shape in at.shapes)


def keep(at: Setting) -> Tensor:
    """Hand on the first input."""
    return at.places[0]


def reshape(at: Setting) -> Tensor:
    """Give another shape."""
    places, shape = at.places[0], at.shapes[0]
    if places.ndim > 1 and len(shape) > 1 and places.stride(-1) == 0 and places.shape[-1] == shape[-1]:
        # Channels stay and share their places: no need to move each of them.
        return compact(places[..., :1].reshape(*shape[:-1], 1)).expand(shape)
    places = places.reshape(shape)
    return places if 0 in places.stride() else compact(places)


def transpose(at: Setting) -> Tensor:
    """Exchange axes."""
    places = at.places[0]
    return places.permute(attribute(at.node, "perm") or tuple(range(places.ndim))[::-1])


def expand(at: Setting) -> Tensor:
    """Repeat."""
    return at.places[0].expand(at.shapes[0])


def concat(at: Setting) -> Tensor:
    """Put side by side."""
    return _joined(at, [places for places in at.places if places is not None])


def integer_concat(at: Setting) -> Tensor:
    """Put side by side what is followed by its scale and zero point; those of the result come first."""
    return _joined(at, list(at.places[2::3]))


def _joined(at: Setting, parts: Sequence[Tensor]) -> Tensor:
    parts = [part for part in parts if part.numel()]
    return joined(parts, int(attribute(at.node, "axis")) % len(at.shapes[0]), at.shapes[0])


def split(at: Setting) -> tuple[Tensor, ...]:
    """Cut into parts."""
    axis = int(attribute(at.node, "axis", 0))
    return at.places[0].split([shape[axis] for shape in at.shapes], axis)


def cut(at: Setting) -> Tensor:
    """Take a slice."""
    places = at.places[0]
    starts, ends, axes, steps = (
        at.given(name, n + 1) for n, name in enumerate(("starts", "ends", "axes", "steps"))
    )
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        chosen = range(*slice(start, None if step < 0 and end < -places.shape[axis] else end, step).indices(
            places.shape[axis]
        ))  # fmt: skip
        if step > 0 and len(chosen):
            places = places.narrow(axis, chosen[0], chosen[-1] + 1 - chosen[0])
            every = [slice(None)] * places.ndim
            every[axis] = slice(None, None, step)
            places = places[tuple(every)]
        else:
            places = places.index_select(axis, torch.tensor(list(chosen), dtype=torch.int64))
    return places


def gather(at: Setting) -> Tensor:
    """Take by index along an axis."""
    axis = int(attribute(at.node, "axis", 0))
    places = at.places[0]
    indices = torch.from_numpy(np.array(at.control(1), np.int64)).flatten() % max(places.shape[axis], 1)
    return compact(shrink(places, [n for n in range(places.ndim) if n != axis % places.ndim])
                   .index_select(axis, indices).expand(_with(places.shape, axis, len(indices)))
                   .reshape(at.shapes[0]))  # fmt: skip


def _with(shape: Sequence[int], axis: int, size: int) -> list[int]:
    changed = list(shape)
    changed[axis] = size
    return changed


def gather_elements(at: Setting) -> Tensor:
    """Take each element by an index of its own."""
    axis = int(attribute(at.node, "axis", 0))
    indices = torch.from_numpy(np.array(at.control(1), np.int64)) % max(at.places[0].shape[axis], 1)
    return compact(at.places[0].gather(axis, indices))


def gather_several(at: Setting) -> Tensor:
    """Take by tuples of indices into the first axes."""
    if int(attribute(at.node, "batch_dims", 0)):
        raise UnknownPlace("is a GatherND within batches, which no rule covers")
    indices = torch.from_numpy(np.array(at.control(1), np.int64))
    return compact(at.places[0][tuple(indices.unbind(-1))])


def put_several(at: Setting) -> Tensor:
    """Set what tuples of indices point to."""
    places = at.places[0].clone(memory_format=torch.contiguous_format)
    indices = torch.from_numpy(np.array(at.control(1), np.int64))
    if str(attribute(at.node, "reduction", "none")) != "none":
        raise UnknownPlace("is a ScatterND that adds up, which no rule covers")
    places[tuple(indices.unbind(-1))] = at.places[2]
    return compact(places)


def pad(at: Setting) -> Tensor:
    """Give no place to padding, also where it mirrors what is inside."""
    pads = at.given("pads", 1)
    places = at.places[0]
    axes = at.given("axes", 3) or range(places.ndim)
    widths = [(0, 0)] * places.ndim
    for n, axis in enumerate(axes):
        widths[axis] = (pads[n], pads[n + len(axes)])
    amounts = [width for pair in reversed(widths) for width in pair]
    few = shrink(places, [axis for axis in range(places.ndim) if widths[axis] == (0, 0)])
    padded = torch.constant_pad_nd(few, amounts, complex(torch.nan, PADDING_LABEL))
    return compact(padded).expand(at.shapes[0])


def tile(at: Setting) -> Tensor:
    """Repeat the whole."""
    return compact(at.places[0].repeat([int(count) for count in at.control(1)]))


def reduce(at: Setting) -> Tensor:
    """Average what is taken together; a mean over the picture has no place."""
    places = at.places[0]
    axes = at.given("axes", 1)
    if not axes and attribute(at.node, "noop_with_empty_axes", 0):
        return places
    taken = list(axes or range(places.ndim))
    if at.node.op_type in ("ReduceMean", "QLinearReduceMean"):
        mean = mean_of(places, taken, True, at.size)
    else:
        mean = mean_place(places, taken, True)
    return mean.reshape(at.shapes[0])


def over_channels(at: Setting) -> Tensor:
    """Average all positions, which is what global pooling takes together; a mean of all has no place."""
    places = at.places[0]
    dims = list(range(2, places.ndim))
    if at.node.op_type == "GlobalMaxPool":
        return mean_place(places, dims, keepdim=True).expand(at.shapes[0])
    return mean_of(places, dims, True, at.size).expand(at.shapes[0])


def product(at: Setting) -> Tensor:
    """Multiply matrices."""
    return multiplied(at, 0, 1)


def integer_product(at: Setting) -> Tensor:
    """Multiply matrices of integers, each followed by its scale and zero point."""
    return multiplied(at, 0, 3)


def packed_product(at: Setting) -> Tensor:
    """Multiply with a matrix that is packed in a way of its own."""
    return mean_place(at.places[0], (-1,), keepdim=True).expand(at.shapes[0])


def multiplied(at: Setting, first: int, second: int) -> Tensor:
    """Keep the places of the left side's rows; of columns where parameters are multiplied with them."""
    left, right = at.places[first], at.places[second]
    left = left.mT if attribute(at.node, "transA", 0) else left
    right = right.mT if attribute(at.node, "transB", 0) else right
    if left.ndim == 1 or right.ndim == 1:
        side = left if has_place(left) or right.ndim == 1 else right
        place = mean_place(side, (-1 if side is left else max(-2, -side.ndim),), keepdim=False)
        return place.expand(at.shapes[0])
    if has_place(left) or not has_place(right):
        return product_place(left, right if has_place(right) else None).expand(at.shapes[0])
    # Parameters times columns: kept if each column is one place (channels first), else a mixture.
    columns = mean_place(right, (-2,), keepdim=True)
    if not torch.allclose(torch.view_as_real(columns.expand(right.shape).resolve_conj().clone()),
                          torch.view_as_real(right.resolve_conj().clone()), rtol=0, atol=0.01,
                          equal_nan=True):  # fmt: skip
        return mean_place(left, (-1,), keepdim=True).expand(at.shapes[0])
    return columns.expand(at.shapes[0])


def einsum(at: Setting) -> Tensor:
    """Keep the places of a sum of products along the indices that it keeps."""
    equation = str(attribute(at.node, "equation")).replace(" ", "")
    inputs, _, result = equation.partition("->")
    terms = inputs.split(",")
    if "." in equation or not result:
        raise UnknownPlace("multiplies tokens in a way that is not understood")
    which = min(range(len(terms)), key=lambda n: _rank(at.places[n], terms[n], result))
    letters, places = list(terms[which]), at.places[which]
    summed = [axis for axis, letter in enumerate(letters) if letter not in result]
    if summed:
        places = mean_place(places, summed, keepdim=False)
    kept = [letter for letter in letters if letter in result]
    places = places.permute([kept.index(letter) for letter in result if letter in kept])
    return places[tuple(slice(None) if letter in kept else None for letter in result)].expand(at.shapes[0])


def _rank(places: Tensor, term: str, result: str) -> tuple[bool, bool, bool]:
    """Put first whose places are handed on: that are there, alike where summed up, and those of queries."""
    summed = [axis for axis, letter in enumerate(term) if letter not in result and places.shape[axis] > 1]
    mixed = any(places.stride(axis) != 0 for axis in summed) and any(
        compact(places).stride(axis) != 0 for axis in summed
    )
    return not has_place(places), mixed, result[-2:-1] not in term


def attention(at: Setting) -> Tensor:
    """Hand on the query's place."""
    queries = at.places[0]
    if queries.ndim == 4 and len(at.places) > 2 and at.places[2] is not None and at.places[2].ndim == 4:
        return product_place(queries, at.places[2]).expand(at.shapes[0])
    # Queries, keys and values of a token may come in one tensor, (batch, tokens, heads, 3, channels).
    whole = mean_place(queries, list(range(2, queries.ndim)), keepdim=False)
    return whole[..., None].expand(at.shapes[0])


def nowhere(at: Setting) -> Tensor:
    """Give no place to numbers about tensors."""
    return unplaced(at.shapes[0])
