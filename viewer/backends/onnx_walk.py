"""Following places through an ONNX graph, node by node; what repeats on the same places is found once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx
from torch import Tensor

from viewer.backends.onnx_moves import CONTROLS, FROM_PLACED, move
from viewer.backends.onnx_places import UnknownPlace, has_place
from viewer.backends.onnx_rules import Setting, unplaced
from viewer.backends.position_call import Lost
from viewer.backends.position_memory import Remembered

Shape = tuple[int, ...]


def follow(
    nodes: Sequence[onnx.NodeProto],
    known: Mapping[str, Tensor],
    shapes: Mapping[str, Shape],
    control: Callable[[str], npt.NDArray[np.int64] | None],
    hand_on: Mapping[str, str],
    size: tuple[int, int],
) -> dict[str, Tensor | Lost]:
    """Move places through nodes in graph order.

    Parameters
    ----------
    nodes
        What to go through.
    known
        Places of the picture and of parameters.
    shapes
        Of every tensor, from a real run.
    control
        Values of small integer tensors by name.
    hand_on
        By output of an attention: its queries, whose lack of a place the output shares.
    size
        Height and width of the picture.

    Returns
    -------
    dict
        Places of every tensor; where an operator could not be followed, the reason, also for all that
        is made of its outputs.
    """
    walk = _Walk(known, shapes, control, hand_on, size)
    for node in nodes:
        walk.step(node)
    return walk.places


class _Walk:
    """What is known on the way through a graph; see `follow`."""

    def __init__(
        self,
        known: Mapping[str, Tensor],
        shapes: Mapping[str, Shape],
        control: Callable[[str], npt.NDArray[np.int64] | None],
        hand_on: Mapping[str, str],
        size: tuple[int, int],
    ) -> None:
        self.places: dict[str, Tensor | Lost] = dict(known)
        self._shapes, self._control, self._hand_on, self._size = shapes, control, hand_on, size
        self._ages: dict[str, int] = {}
        self._known = Remembered()
        # By number, which holds as long as `places` has all that were ever looked at.
        self._placed: dict[int, bool] = {}

    def step(self, node: onnx.NodeProto) -> None:
        """Find the places of a node's outputs, or why they are not known."""
        names = [name for name in node.output if name]
        inputs = [self.places.get(name) if name else None for name in node.input]
        controls = CONTROLS.get(node.op_type, ())
        lost = next(
            (one for at, one in enumerate(inputs) if isinstance(one, Lost) and at not in controls), None
        )
        if lost is None:
            lost = self._move(node, names, [None if isinstance(one, Lost) else one for one in inputs])
        if lost is not None:
            self.places.update(dict.fromkeys(names, lost))
        self._ages.update(dict.fromkeys(names, len(self._ages) + 1))

    def _move(
        self, node: onnx.NodeProto, names: Sequence[str], inputs: Sequence[Tensor | None]
    ) -> Lost | None:
        """Add the places of a node's outputs; return why not where they are not known."""
        shapes = [self._shapes[name] for name in names]
        queries = self.places.get(self._hand_on.get(names[0], "")) if names else None
        if isinstance(queries, Tensor) and not self._has_place(queries):
            # What gathers from everywhere sits nowhere itself.
            label = float(queries.imag.flatten()[0])
            self.places.update(
                (name, unplaced(shape, label)) for name, shape in zip(names, shapes, strict=True)
            )
            return None
        key = self._key(node, inputs, shapes)
        found = self._known.get(key)
        if found is None:
            setting = Setting(
                node=node,
                places=inputs,
                shapes=shapes,
                control=lambda at: self._control(node.input[at]) if node.input[at] else None,
                size=self._size,
                ages=[self._ages.get(name, 0) for name in node.input],
            )
            try:
                found = [self._known.same(places) for places in move(setting)]
            except UnknownPlace as error:
                return Lost(f"the operator {node.name or names[0]!r} {error}")
            self._known.add(key, inputs, found)
        self.places.update(zip(names, found, strict=False))
        return None

    def _key(
        self, node: onnx.NodeProto, inputs: Sequence[Tensor | None], shapes: Sequence[Shape]
    ) -> Hashable:
        """Return what decides on the places of a node's outputs."""
        blind = node.op_type in FROM_PLACED and any(
            one is not None and self._has_place(one) for one in inputs
        )
        marks = [
            one.shape if blind and at and one is not None and not self._has_place(one) else id(one)
            for at, one in enumerate(inputs)
        ]
        controls = [
            value.tobytes()
            for at in CONTROLS.get(node.op_type, ())
            if at < len(node.input) and node.input[at]
            and (value := self._control(node.input[at])) is not None
        ]  # fmt: skip
        ages = [self._ages.get(name, 0) for name in node.input] if len(node.input) > 1 else []
        order = sorted(range(len(ages)), key=ages.__getitem__)
        told = tuple(entry.SerializeToString() for entry in node.attribute)
        return (node.op_type, told, *marks, *controls, *order, *shapes)

    def _has_place(self, places: Tensor) -> bool:
        if id(places) not in self._placed:
            self._placed[id(places)] = has_place(places)
        return self._placed[id(places)]
