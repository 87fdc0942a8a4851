"""The choices a person has, each one a field of state; menus and controls both offer them from this table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from viewer.state.axes import LAYER, choices
from viewer.state.display import Display
from viewer.state.maps import MAPS
from viewer.state.selection import Selection

# The names of `viewer.state.colormaps.COLORMAPS`, a test holds them equal: importing that file would load the
# colour tables before the window is on the screen.
_COLORMAPS = ("viridis", "cividis", "inferno", "magma", "plasma", "batlow")

# So many 3x3 convolutions reach from corner to corner of a 14 x 14 grid.
MOST_RINGS = 13


@dataclass(frozen=True)
class Choice:
    """One choice.

    Attributes
    ----------
    field
        Name of the field in `SelectionValue` or `DisplayValue`.
    label
        What is chosen.
    tip
        What it means, in a sentence.
    options
        Each value with the words for it.
    """

    field: str
    label: str
    tip: str
    options: tuple[tuple[str, str], ...]


SELECTION_CHOICES = (
    Choice(
        "direction",
        "Direction",
        "Whether the map shows what the query attends to, or which patches attend to it.",
        (("from", "what it attends to"), ("to", "who attends to it")),
    ),
    Choice(
        "fusion",
        "Heads together",
        "How the heads of a layer become one map where no single head is selected.",
        (("mean", "mean of heads"), ("max", "maximum of heads"), ("min", "minimum of heads")),
    ),
)
MAP_CHOICE = Choice(
    "map",
    "Map",
    "\n".join(["What the picture shows.", *(f"{row.words.capitalize()}: {row.tip}" for row in MAPS)]),
    tuple((row.kind, row.words) for row in MAPS),
)
ROLLOUT_FUSION = Choice(
    "rollout_fusion",
    "Heads",
    "How the heads of each layer become one before the layers are multiplied.",
    (("mean", "mean"), ("max", "maximum"), ("min", "minimum")),
)
DISPLAY_CHOICES = (
    MAP_CHOICE,
    Choice(
        "colormap",
        "Colours",
        "Perceptually even colour maps, safe for colour-blind readers.",
        tuple((name, name) for name in _COLORMAPS),
    ),
    Choice(
        "scale",
        "Colour scale",
        "One scale for all heads keeps a faint head faint; per head stretches each to its own maximum.",
        (("shared", "shared by all"), ("per head", "each its own")),
    ),
    Choice(
        "unit",
        "Distance in",
        "Unit of the attention distance: pixels of the model's input, or patches.",
        (("px", "pixels"), ("patches", "patches")),
    ),
    Choice(
        "protocol",
        "Protocol",
        "Renormalized: of the attention spent on patches, how far does it go. Original: as published, "
        "attention on prefix tokens counts as distance 0.",
        (("renormalized", "renormalized"), ("original", "original")),
    ),
    Choice(
        "y_measure",
        "Scatter: upwards",
        "What the scatter has along its vertical axis.",
        choices(),
    ),
    Choice(
        "x_measure",
        "Scatter: across",
        "What the scatter has along its horizontal axis.",
        ((LAYER, LAYER), *choices()),
    ),
    Choice(
        "likeness_of",
        "Likeness of",
        "Whether layers are compared, or the heads of the shown layer.",
        (("layers", "layers"), ("heads", "heads of the shown layer")),
    ),
    Choice(
        "likeness",
        "Likeness by",
        "Cosines of attention maps as they are, or without the means of their columns.",
        (("plain", "plain cosine"), ("centred", "cosine, column means removed")),
    ),
    Choice(
        "theme", "Theme", "Colours and type size.", (("light", "light"), ("dark", "dark"), ("talk", "talk"))
    ),
)


def chosen(holder: Selection | Display, choice: Choice) -> str:
    """Return the value that is chosen now."""
    return getattr(holder.value, choice.field)


def choose(holder: Selection | Display, choice: Choice, value: str) -> None:
    """Choose a value."""
    holder.set(replace(holder.value, **{choice.field: value}))
