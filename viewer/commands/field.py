"""``patchreach field``: which part of the picture each layer of a convolutional network sees."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from viewer import streams
from viewer.backends.networks import network_fields
from viewer.commands.console import job
from viewer.errors import ExportError
from viewer.export import field_tables
from viewer.export.writing import check_target, write_atomically

if TYPE_CHECKING:
    from viewer.export.field_tables import FieldFormat

_SUFFIXES = {".csv": "csv", ".json": "json", ".txt": "table"}


def run(options: Namespace) -> int:
    """List the layers of a network with their receptive fields.

    Returns
    -------
    int
        0.

    Raises
    ------
    PatchreachError
        If there is no such network, or no place for the output.
    """
    format = _format(options)
    if options.output is not None:
        check_target(options.output, (options.model,))
    with job() as work:
        fields = network_fields(options.model, options.image_size, work)
    text = field_tables.encode(field_tables.entry(fields), format)
    if options.output is not None:
        write_atomically(options.output, text.encode())
    else:
        streams.write(text)
    return 0


def _format(options: Namespace) -> FieldFormat:
    if options.format is not None:
        return options.format
    if options.output is None:
        return "table"
    suffix = Path(options.output).suffix.lower()
    if suffix not in _SUFFIXES:
        raise ExportError(f"{options.output}: name a .csv, .json or .txt file, or give --format.")
    return cast("FieldFormat", _SUFFIXES[suffix])
