"""The list of the nine keys, as the lesson's panel and its slides have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from viewer.state.lesson_words import sum_of

if TYPE_CHECKING:
    from viewer.state.lesson_steps import Column, Step
    from viewer.state.scene import SceneValue

HEADINGS: dict[Column, str] = {
    "hops": "hops",
    "brightness": "brightness",
    "score": "score",
    "exponential": "e^score",
    "share": "share",
}


@dataclass(frozen=True)
class Row:
    """One key.

    Attributes
    ----------
    number
        Of the patch, 0 to 8.
    name
        Number and place: "5 (1, 2)".
    brightness
        0 to 1.
    texts
        What stands in each column.
    asks
        Whether it is the query's own patch.
    reached
        Whether the convolutions of this moment reach it.
    """

    number: int
    name: str
    brightness: float
    texts: tuple[str, ...]
    asks: bool
    reached: bool


@dataclass(frozen=True)
class Table:
    """The nine keys and their sum.

    Attributes
    ----------
    columns
        Which columns, in their order.
    rows
        A key each.
    sums
        What stands below each column; empty where there is nothing to add up.
    """

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    sums: tuple[str, ...]


def table(scene: SceneValue, step: Step) -> Table | None:
    """List the keys of the query on the screen; None where the step lists none."""
    if not step.columns:
        return None
    from viewer.attention.worked_example import GRID

    found = sum_of(scene)
    hops = scene.display.ring if "hops" in step.columns else max(key.hops for key in found.keys)
    rows = tuple(
        Row(
            key.number,
            "{} ({}, {})".format(key.number, *divmod(key.number, GRID[1])),
            key.brightness,
            tuple(_text(column, getattr(key, column)) for column in step.columns),
            key.number == found.query,
            key.hops <= hops,
        )
        for key in found.keys
    )
    total = {"exponential": f"{found.total:.2f}", "share": f"{sum(key.share for key in found.keys):.3f}"}
    return Table(step.columns, rows, tuple(total.get(column, "") for column in step.columns))


def _text(column: Column, value: float) -> str:
    decimals = {"hops": 0, "brightness": 2, "score": 3, "exponential": 2, "share": 3}[column]
    return f"{value:.{decimals}f}"
