"""``patchreach models --coverage``: what becomes of each family of models, as a table in Markdown."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

import timm
import torch

from viewer import streams
from viewer.attention.layer import AttentionLayer
from viewer.attention.layout import TokenLayout
from viewer.backends.coverage import Covered, cover, families, modules_of
from viewer.backends.model import Job
from viewer.commands.console import job, say
from viewer.export.writing import check_target, write_atomically

# So many modules are named where none was meant that there is.
_NEAR = 3
_COLUMNS = ("timm module", "model", "parameters", "layers", "kind", "from", "grids", "positions", "verdict")


def run(options: Namespace) -> int:
    """Run a model of each family whose name fits, and write the table line by line.

    Returns
    -------
    int
        0; 1 if some could not be run; 2 if there is no such family.
    """
    names = families(options.pattern)
    if not names:
        say(_nothing(options.pattern))
        return 2
    if options.output is not None:
        check_target(options.output)
    rows: list[Covered] = []
    lines: list[str] = []
    with job() as progress:
        for line in _table(names, progress, rows):
            lines.append(line)
            if options.output is None:
                streams.write(f"{line}\n")
    if options.output is not None:
        write_atomically(options.output, ("\n".join(lines) + "\n").encode())
    for row in rows:
        if row.failed:
            say(f"{row.model or row.family} could not be run: {row.refusal}")
    return int(any(row.failed for row in rows))


def _nothing(pattern: str) -> str:
    """Say that no module's name fits, and what was meant perhaps: modules of models, or names alike."""
    near = modules_of(pattern) or get_close_matches(pattern, timm.list_modules(), _NEAR, 0.5)
    modules = ", ".join(near[:_NEAR])
    if modules_of(pattern):
        found = f"; models so called are of {modules}"
    else:
        found = f"; near ones are {modules}" if modules else "; such a name is 'levit'"
    return f"--coverage takes names of timm's modules (families of models), and none fits {pattern!r}{found}."


def _table(names: Iterable[str], progress: Job, rows: list[Covered]) -> Iterator[str]:
    """Yield the lines; what they tell of is added to `rows`."""
    yield "# What becomes of each family of models"
    yield ""
    versions = f"timm {timm.__version__}, torch {torch.__version__.partition('+')[0]}"
    yield (
        "Made by `patchreach models --coverage`: of each module of timm the smallest model that attends, "
        f"with random weights, on the CPU ({versions})."
    )
    yield ""
    yield _line(_COLUMNS)
    yield _line("---" for _ in _COLUMNS)
    for name in names:
        rows.append(cover(name, progress))
        yield _line(_cells(rows[-1]))
    yield ""
    yield summary(rows)


def summary(rows: list[Covered]) -> str:
    """Return in a sentence how many families attend, and what of them is verified."""
    attending = [row for row in rows if row.attends]
    verified = [row for row in attending if row.record is not None and row.record.verified]
    shown = [row for row in attending if row.record is not None]
    share = f" ({len(verified) / len(attending):.0%})" if attending else ""
    doubted, refused = len(shown) - len(verified), len(attending) - len(shown)
    return (
        f"Modules: {len(rows)}; attending with a softmax: {len(attending)}. Of these verified: "
        f"{len(verified)}{share}, shown but not verified: {doubted}, refused: {refused}."
    )


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _cells(row: Covered) -> list[str]:
    start = [row.family, row.model, f"{row.parameters / 1e6:.1f} M"]
    if row.record is None:
        how = "failed" if row.failed else "refused" if row.attends else "no softmax attention"
        return [*start, "", "", "", "", "", f"{how}: {row.refusal}"]
    layers = row.record.layers
    return [
        *start,
        str(len(layers)),
        _distinct(layer.kind for layer in layers),
        _distinct(layer.scores.how for layer in layers),
        _distinct(_grid(layer) for layer in layers if layer.key_layout.placed),
        _positions(layers),
        _verdict(row),
    ]


def _positions(layers: tuple[AttentionLayer, ...]) -> str:
    without = [layer for layer in layers if not layer.key_layout.placed]
    if not without:
        return "traced"
    reasons = _distinct(layer.note for layer in without)
    return reasons if len(without) == len(layers) else f"traced; in {len(without)} layers {reasons}"


def _verdict(row: Covered) -> str:
    record = row.record
    doubts = [layer.verdict.reason for layer in record.layers if not layer.verdict.verified]
    if record.output_unchanged is False:
        doubts.append("the tap changed the model's output")
    text = "verified" if record.verified else f"not verified: {_distinct(doubts)}"
    notes = [layer.note for layer in record.layers if layer.key_layout.placed and layer.note]
    return "; ".join([text, *dict.fromkeys(notes), *record.notes])


def _grid(layer: AttentionLayer) -> str:
    keys = _size(layer.key_layout)
    sides = dict.fromkeys([_size(layer.query_layout) if layer.query_layout.placed else "pool", keys])
    groups = f" in {layer.scores.groups} groups" if layer.scores.groups > 1 else ""
    return " to ".join(sides) + groups


def _size(layout: TokenLayout) -> str:
    return f"{layout.grid[0]}x{layout.grid[1]}"


def _distinct(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))
