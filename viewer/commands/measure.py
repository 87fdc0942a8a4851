"""``patchreach measure``: distance, entropy and prefix mass of every head, for many pictures."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viewer.attention.sweep import measure_record
from viewer.backends.opening import open_model
from viewer.commands.console import Notes, job, say
from viewer.errors import ExportError, PatchreachError
from viewer.export import provenance, tables
from viewer.export.writing import check_target, write_atomically
from viewer.images.decode import open_image

if TYPE_CHECKING:
    from viewer.attention.record import AttentionRecord
    from viewer.backends.model import Model


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
        check_target(options.output)
    notes = Notes()
    with job() as opening:
        model = open_model(options.model, options.weights, options.image_size, options.device, opening)
    notes.say(model.notes)
    entries: list[dict[str, Any]] = []
    record = None
    for image in options.images:
        try:
            record, entry = _measure(model, image, options.protocol, notes)
            entries.append(entry)
        except PatchreachError as error:
            say(error if image in str(error) else f"{image}: {error}")
    if record is not None:
        _write(entries, format, options.output, record)
    if not entries:
        return 2
    return 1 if len(entries) < len(options.images) else 0


def _format(options: Namespace) -> tables.TableFormat:
    if options.format is None:
        return "table" if options.output is None else tables.format_of(options.output)
    if options.format == "parquet" and options.output is None and sys.stdout.isatty():
        raise ExportError("Parquet is no text for a terminal; name a file with -o.")
    return options.format


def _measure(model: Model, path: str, protocol: str, notes: Notes) -> tuple[AttentionRecord, dict[str, Any]]:
    image = open_image(path)
    with job() as work:
        record = model.attend(image, work)
        measures = measure_record(record, work.step)
    notes.say((*(f"{path}: {note}" for note in image.notes), *record.notes))
    return record, tables.entry(record, measures, protocol)


def _write(
    entries: list[dict[str, Any]], format: tables.TableFormat, path: Path | None, last: AttentionRecord
) -> None:
    # All records come from one model, so the last one's provenance holds for the table but for its picture.
    facts = {key: value for key, value in provenance.of_record(last).items() if key != "image"}
    content = tables.encode(entries, format, facts)
    if path is not None:
        write_atomically(path, content)
    elif format == "parquet":
        sys.stdout.buffer.write(content)
    else:
        sys.stdout.write(content.decode())
