"""The steps of the lesson "How far can a patch see?"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from viewer.state import lesson_looks as looks
from viewer.state import lesson_words as words

if TYPE_CHECKING:
    from viewer.state.documents import ImageDocument
    from viewer.state.lesson_stage import StageName
    from viewer.state.requests import View
    from viewer.state.scene import SceneValue
    from viewer.state.selection import HeadRef, SelectionValue

Column = Literal["hops", "brightness", "score", "exponential", "share"]

TITLE = "How far can a patch see?"


@dataclass(frozen=True)
class Step:
    """One step: what it says, what it shows, and what it needs.

    Attributes
    ----------
    name
        Short, and fit to be part of a file's name.
    title
        Its headline.
    stage
        What has to be loaded.
    look
        What is selected at its beginning.
    words
        What it says of the moment on the screen, a sentence or two a paragraph.
    display
        Fields of `DisplayValue` it sets; all others but theme and colours are as at first.
    view
        What its slide has beside the words.
    named
        The heads that its words name, which its slide marks on the scatter.
    hint
        What can be tried in the window, as a sentence; slides leave it out.
    columns
        What is listed of the nine keys, none for no list. Where "hops" are, a stack of convolutions is
        stepped through; where "brightness" is, it can be changed.
    """

    name: str
    title: str
    stage: StageName
    look: Callable[[ImageDocument], SelectionValue]
    words: Callable[[SceneValue], words.Paragraphs]
    display: dict[str, object] = field(default_factory=dict)
    view: View = "overlay"
    named: Callable[[ImageDocument], tuple[HeadRef, ...]] = looks.no_heads
    hint: str = ""
    columns: tuple[Column, ...] = ()


_NINE = {"unit": "patches", "grid": True, "opacity": 0.7}
_PATCHES = {"unit": "patches"}

STEPS: tuple[Step, ...] = (
    Step(
        "nine-patches",
        "Nine patches and one question",
        "nine patches",
        looks.at_the_corner,
        words.question,
        _NINE,
        hint="Point at another patch: now that one asks.",
    ),
    Step(
        "shares",
        "From scores to shares",
        "nine patches",
        looks.at_the_corner,
        words.shares,
        _NINE,
        hint="Point at patch 1: a dark patch gives all nine nearly the same.",
        columns=("score", "exponential", "share"),
    ),
    Step(
        "hop-by-hop",
        "A convolution goes hop by hop",
        "nine patches",
        looks.at_the_corner,
        words.hop_by_hop,
        {**_NINE, "ring": 1},
        hint="Stack convolutions with + and −, or with R and Shift+R.",
        columns=("hops", "share"),
    ),
    Step(
        "content",
        "Content beats proximity",
        "nine patches",
        looks.at_the_corner,
        words.content,
        _NINE,
        hint="Click a square to make its patch dark or bright, or drag for anything between.",
        columns=("brightness", "score", "share"),
    ),
    Step(
        "from-eye-to-eye",
        "The same in a trained model",
        "sample",
        looks.at_the_eye,
        words.trained,
        {**_PATCHES, "ring": 1},
        hint="Point at the other eye, or choose another head on the right.",
    ),
    Step(
        "early-and-near",
        "Some early heads work like a convolution",
        "sample",
        looks.at_most_local,
        words.early,
        {**_PATCHES, "ring": 1},
        hint="Point anywhere: the head goes along. Compare the rows of small maps.",
    ),
    Step(
        "near-and-far",
        "One model mixes near and far",
        "sample",
        looks.at_most_mixed,
        words.mixed,
        _PATCHES,
        "scatter",
        looks.nearest_and_farthest,
        hint="Point at a dot to see what that head looks at.",
    ),
    Step(
        "what-distance-hides",
        "What distance does not tell",
        "sample",
        looks.at_most_on_prefix,
        words.limits,
        _PATCHES,
        "scatter",
        looks.misjudged,
        hint="Change the protocol above the scatter, and watch the dots of pale heads fall.",
    ),
)


def slide_name(index: int, suffix: str) -> str:
    """Return what the file of a step's slide is called: "3-hop-by-hop.png"."""
    return f"{index + 1}-{STEPS[index].name}{suffix}"
