"""Changes made to a model while it runs: what there is, how one is written, and how it is told.

Every such change is a what-if: an intervention on a model that was not trained with it. This module knows
neither PyTorch nor a model; `what_if_attention` and `what_if_blocks` carry the changes out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from viewer.errors import quoted

NOT_TRAINED = "an intervention on a model that was not trained with it"
"""What every changed record, table and figure says of itself."""

NO_GRADIENTS = "it takes gradients of the model as it is, not of the changed one; show the views before"
"""Why a record of a changed model has none of the maps that are made with gradients, as a clause."""

SKIPPED = "its block is skipped, so the model makes no use of what is shown here"
"""Stands in the note of every layer whose block is skipped, as a clause."""

WHY_NOT_ONNX = (
    "What-ifs need the model in PyTorch: an ONNX graph is run as it is, and nothing can be changed inside. "
    "Open its PyTorch form: a timm name (with --weights FILE where you have the checkpoint), a transformers "
    "folder, or a .pt2 or TorchScript program."
)

WHY_NOT_WORKED = (
    "The worked example is one attention over nine patches, with no blocks to change. Change its patches' "
    "brightness instead, in the lesson's fourth step."
)

_DIGITS = 6  # after the point, of any number
_RUN = r"\s*([0-9]{1,4})(?:\s*-\s*([0-9]{1,4}))?\s*"  # of layers or heads
_MOST = 9999  # layers, heads or hops that anybody could mean


def why_not(name: str, backend: str) -> str:
    """Return why a model can't be changed, as sentences; empty where it can.

    Parameters
    ----------
    name, backend
        Of the model, see `viewer.backends.model.Model`.
    """
    if name == "worked-example":
        return WHY_NOT_WORKED
    return WHY_NOT_ONNX if backend == "onnx" else ""


@dataclass(frozen=True)
class Amount:
    """The number that a kind of change takes.

    Attributes
    ----------
    name, unit
        As it is written, and what it counts ("" for a pure number).
    low, high, default
        Ends, both allowed, and what is taken where none is given.
    whole
        Whether it is a whole number.
    idle
        At which the change does nothing; None where that depends on the model.
    """

    name: str
    unit: str
    low: float
    high: float
    default: float
    whole: bool = False
    idle: float | None = None


@dataclass(frozen=True)
class Kind:
    """A kind of change.

    Attributes
    ----------
    name, words
        As it is written on the command line, and in the field's words.
    of_heads
        Whether it may be made to some heads alone.
    of_blocks
        Whether it changes a whole block, not the attention itself.
    amount
        Its number, if it takes one.
    source
        Where it is from.
    """

    name: str
    words: str
    of_heads: bool
    of_blocks: bool = False
    amount: Amount | None = None
    source: str = ""


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            *("cb", "Context Broadcasting", False, True),
            Amount("strength", "", 0.0, 1.0, 0.5, idle=0.0),
            "after the MLP x becomes (1 - s) x + s mean of all tokens; paper: s = 0.5 (arXiv 2210.08457)",
        ),
        Kind("uniform", "uniform attention", True, source="the same weight on every key within reach"),
        Kind(
            *("local", "attention within hops", True, False),
            Amount("hops", "hops", 0, _MOST, 1, whole=True),
            "Chebyshev hops on the layer's grid; prefix tokens stay within reach and reach all",
        ),
        Kind("skip", "block skipped", False, True, source="its output is its input"),
        Kind("head-removed", "head removed", True, source="the head's output is zero"),
        Kind(
            *("temperature", "temperature", True, False),
            Amount("t", "", 0.01, 100.0, 2.0, idle=1.0),
            "logits are divided by it: above 1 flatter, below 1 sharper; what is masked stays masked",
        ),
    )
}
"""By name, in the order in which they are offered."""


@dataclass(frozen=True)
class Change:
    """One change.

    Attributes
    ----------
    kind
        A name of `KINDS`.
    layers, heads
        Which, counted from 0 and ascending; empty for all.
    amount
        The number of the kind; None for kinds without one.

    Raises
    ------
    ValueError
        If there is no such kind, or the amount or the heads are none it takes; the message is for a person.
    """

    kind: str
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    amount: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"there is no change {quoted(self.kind)}; there are {', '.join(KINDS)}")
        kind = KINDS[self.kind]
        if self.heads and not kind.of_heads:
            raise ValueError(f"{kind.name} changes whole blocks, so it takes no heads")
        amount = self.amount
        if kind.amount is None:
            if amount is not None:
                raise ValueError(f"{kind.name} takes no number")
            return
        if amount is None:
            amount = kind.amount.default
        elif not kind.amount.low <= amount <= kind.amount.high or (kind.amount.whole and amount % 1):
            what = "a whole number" if kind.amount.whole else "a number"
            raise ValueError(
                f"{kind.amount.name} of {kind.name} is {what} from {kind.amount.low:g} to "
                f"{kind.amount.high:g}, not {amount:g}"
            )
        object.__setattr__(self, "amount", round(float(amount), _DIGITS))

    @property
    def idle(self) -> bool:
        """Whether it changes nothing in any model."""
        amount = KINDS[self.kind].amount
        return amount is not None and amount.idle is not None and self.amount == amount.idle

    @property
    def text(self) -> str:
        """The change as it is written: ``"cb:layers=all,strength=0.5"``."""
        parts = [f"layers={_listed(self.layers)}"]
        kind = KINDS[self.kind]
        if kind.of_heads:
            parts.append(f"heads={_listed(self.heads)}")
        if kind.amount is not None:
            parts.append(f"{kind.amount.name}={self._amount}")
        return f"{self.kind}:{','.join(parts)}"

    @property
    def _amount(self) -> str:
        """The number as `parse` reads it, never with an exponent."""
        return f"{self.amount:.{_DIGITS}f}".rstrip("0").rstrip(".")

    @property
    def words(self) -> str:
        """The change as it is told: "head 2 of layer 3 removed"."""
        layers, heads = _counted("layer", self.layers), _counted("head", self.heads)
        where = f"in {layers}" if not self.heads else f"in {heads} of {layers}"
        if self.kind == "cb":
            return f"Context Broadcasting (strength {self._amount}) after the MLP of {layers}"
        if self.kind == "skip":
            return f"the block of {layers} skipped"
        if self.kind == "head-removed":
            return f"{heads} of {layers} removed"
        if self.kind == "local":
            return f"attention within {self._amount} {'hop' if self.amount == 1 else 'hops'} {where}"
        if self.kind == "temperature":
            return f"temperature {self._amount} {where}"
        return f"uniform attention {where}"

    def touches(self, layer: int) -> bool:
        """Return whether it is made to a layer."""
        return not self.layers or layer in self.layers


def sentence(changes: Iterable[Change]) -> str:
    """Return what stands in titles: "what if: uniform attention in layer 3; ..."; empty for no change."""
    words = "; ".join(change.words for change in changes)
    return f"what if: {words}" if words else ""


def note(changes: Iterable[Change]) -> str:
    """Return the sentence that goes with a changed record wherever it is shown."""
    words = sentence(changes)
    return f"{words[0].upper()}{words[1:]}. This is {NOT_TRAINED}."


def parse(text: str) -> Change:
    """Read a change: a kind, then a colon and settings parted by commas.

    ``layers`` (or ``layer``) and ``heads`` (or ``head``) take ``all``, numbers and ranges joined by ``+``
    (``0-3+7``); the number of a kind goes by its name: ``strength`` of cb, ``hops`` of local, ``t`` of
    temperature. Without ``layers`` all are meant; head-removed wants its heads named.

    Raises
    ------
    ValueError
        If it is none; the message is for a person.
    """
    name, settings = (part.strip() for part in text.partition(":")[::2])
    if name not in KINDS:
        raise ValueError(f"there is no change {quoted(name)}; there are {', '.join(KINDS)}")
    kind, found, given, before = KINDS[name], Change(name), set(), ""
    for setting in filter(None, (part.strip() for part in settings.split(","))):
        key, sign, value = (part.strip() for part in setting.partition("="))
        field = {"layer": "layers", "head": "heads"}.get(key, key)
        known = [
            "layers",
            *(["heads"] if kind.of_heads else []),
            *([kind.amount.name] if kind.amount else []),
        ]
        if before.startswith(("layer", "head")) and re.fullmatch(_RUN, setting):
            raise ValueError(f"a comma parts settings; join numbers with +: {before}+{setting}")
        if field not in known or not sign:
            raise ValueError(f"{name} has no setting {quoted(setting)}; it takes {', '.join(known)}")
        if field in given:
            raise ValueError(f"{field} of {name} is given twice")
        given.add(field)
        if field in ("layers", "heads"):
            found = replace(found, **{field: _numbers(field, value)})
        else:
            found = replace(found, amount=_number(f"{field} of {name}", value))
        before = setting
    if name == "head-removed" and "heads" not in given:
        raise ValueError("head-removed wants to know which: head-removed:layer=3,head=2, or heads=all")
    return found


def is_removed(texts: Iterable[str], layer: int, head: int) -> bool:
    """Return whether changes, as they are written, remove a head, so that the model makes no use of it."""
    return any(
        change.kind == "head-removed" and change.touches(layer) and (not change.heads or head in change.heads)
        for change in map(parse, texts)
    )


def _numbers(what: str, text: str) -> tuple[int, ...]:
    """Read ``all``, ``3``, ``0-3+7``."""
    if text == "all":
        return ()
    numbers: set[int] = set()
    for part in text.split("+"):
        found = re.fullmatch(_RUN, part)
        if found is None or (found[2] and int(found[2]) < int(found[1])):
            raise ValueError(f"{quoted(text)} names no {what}; write all, 3, 0-3 or 0-3+7")
        numbers.update(range(int(found[1]), int(found[2] or found[1]) + 1))
    return tuple(sorted(numbers))


def _number(what: str, text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?|\.[0-9]{1,6}", text):
        raise ValueError(f"{what} is {quoted(text)}, which is no plain number")
    return float(text)


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return ascending numbers as runs without gaps, (first, last)."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _listed(numbers: Sequence[int]) -> str:
    return "+".join(f"{a}" if a == b else f"{a}-{b}" for a, b in _runs(numbers)) or "all"


def _counted(what: str, numbers: Sequence[int]) -> str:
    if not numbers:
        return f"every {what}"
    listed = ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in _runs(numbers))
    return f"{what} {listed}" if len(numbers) == 1 else f"{what}s {listed}"
