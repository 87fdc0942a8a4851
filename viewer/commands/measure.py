"""``patchreach measure``: distance, entropy and prefix mass of every head, for many pictures."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from viewer import streams
from viewer.attention.sweep import measure_record
from viewer.backends.opening import open_model
from viewer.backends.what_if_model import with_changes
from viewer.commands.console import Notes, job, say
from viewer.errors import Cancelled, ExportError, PatchreachError
from viewer.export import provenance, tables
from viewer.export.what_if_table import what_if_entry
from viewer.export.writing import check_target, write_atomically
from viewer.images.decode import open_image
from viewer.state.what_if import compare

if TYPE_CHECKING:
    from viewer.backends.model import Model


class _Measured(NamedTuple):
    """One picture's measures and where they come from, both ready for JSON."""

    entry: dict[str, Any]
    facts: dict[str, Any]


def run(options: Namespace) -> int:
    """Measure every picture that can be opened; the others are named on stderr.

    Returns
    -------
    int
        0 if all were measured, 1 if some, 2 if none.

    Raises
    ------
    PatchreachError
        If nothing can be done at all: no such model, no place for the output.
    """
    format = _format(options)
    if options.output is not None:
        check_target(options.output, (*options.images, options.model, options.weights))
    notes = Notes()
    with job() as opening:
        model = open_model(options.model, options.weights, options.image_size, options.device, opening)
    notes.say(model.notes)
    if options.what_if:
        with_changes(model, options.what_if)  # of no picture can it be had if it can't be had at all
    found = [_measure(model, image, options, notes) for image in options.images]
    measured = [one for one in found if one is not None]
    if not measured:
        return 2
    _write(measured, format, options.output)
    return 1 if len(measured) < len(found) else 0


def _format(options: Namespace) -> tables.TableFormat:
    if options.format is None:
        return "table" if options.output is None else tables.format_of(options.output)
    if options.format == "parquet" and options.output is None and sys.stdout and sys.stdout.isatty():
        raise ExportError("Parquet is no text for a terminal; name a file with -o.")
    return options.format


def _measure(model: Model, path: str, options: Namespace, notes: Notes) -> _Measured | None:
    """Measure one picture; None if that can't be done, which is said on stderr."""
    try:
        image = open_image(path)
        with job() as work:
            record = model.attend(image, work)
            measures = measure_record(record, work.step)
            result = (
                compare(model, image, options.what_if, record, measures, work) if options.what_if else None
            )
    except Cancelled:
        raise
    except PatchreachError as error:
        say(error if path in str(error) else f"{path}: {error}")
        return None
    record = record if result is None else result.after
    doubts = (
        f"{path}: layer {layer.index} is not verified: {layer.verdict.reason}"
        for layer in record.layers
        if not layer.verdict.verified
    )
    notes.say((*(f"{path}: {note}" for note in image.notes), *record.notes, *doubts))
    # The record itself would hold the queries and keys of every picture in memory.
    if result is None:
        found = tables.entry(record, measures, options.protocol)
    else:
        found = what_if_entry(result, options.protocol)
    return _Measured(found, provenance.of_record(record))


def _write(measured: list[_Measured], format: tables.TableFormat, path: Path | None) -> None:
    facts = {**measured[0].facts, "image": [one.facts["image"] for one in measured]}
    content = tables.encode([one.entry for one in measured], format, facts)
    if path is not None:
        write_atomically(path, content)
    else:
        streams.write(content if format == "parquet" else content.decode())
