"""How kinds of heads are drawn and said: a shape and a colour each, and the numbers that decided."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from viewer.attention.kinds import head_kinds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from viewer.attention.kinds import HeadKind
    from viewer.attention.layer import AttentionLayer
    from viewer.attention.sweep import LayerMeasures
    from viewer.state.palette import Palette


@dataclass(frozen=True)
class KindMark:
    """What the dots of a kind look like.

    Attributes
    ----------
    kind
        As `viewer.attention.kinds` names it.
    sign
        In a legend of words.
    symbol, marker
        Name of the shape in pyqtgraph and in Matplotlib.
    light, dark
        Its colour on a light and on a dark ground.
    """

    kind: str
    sign: str
    symbol: str
    marker: str
    light: str
    dark: str

    def colour(self, palette: Palette) -> str:
        """Return its colour in a theme."""
        return self.dark if palette.dark else self.light


# Shapes as well as colours, which are Okabe and Ito's: they keep apart for every kind of colour vision.
KIND_MARKS = (
    KindMark("local", "■", "s", "s", "#0072b2", "#56b4e9"),
    KindMark("positional", "▲", "t1", "^", "#8a5a00", "#f0e442"),
    KindMark("global", "●", "o", "o", "#b8860b", "#e69f00"),
    KindMark("content", "★", "star", "*", "#333333", "#dddddd"),
    KindMark("sink", "▼", "t", "v", "#a03c7c", "#e08cc0"),
    KindMark("undefined", "×", "x", "x", "#777777", "#999999"),
)


def mark_of(kind: HeadKind) -> KindMark:
    """Return what the dot of a head looks like."""
    return next(mark for mark in KIND_MARKS if mark.kind == kind.kind)


def counted(kinds: Iterable[HeadKind]) -> tuple[tuple[KindMark, int], ...]:
    """Return the marks of the kinds there are, with how many heads have each."""
    found = Counter(kind.kind for kind in kinds)
    return tuple((mark, found[mark.kind]) for mark in KIND_MARKS if found[mark.kind])


def kind_words(kind: HeadKind) -> str:
    """Return a kind with what decided it: "local. Does what a convolution could: ..."."""
    return f"{kind.kind}. {kind.reason}"


def kinds_of(layers: Iterable[tuple[AttentionLayer, LayerMeasures]]) -> tuple[HeadKind, ...]:
    """Return the kind of every head of some layers, in order."""
    return tuple(kind for layer, measured in layers for kind in head_kinds(layer, measured))
