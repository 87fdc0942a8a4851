"""``patchreach field``: which part of the picture each layer of a convolutional network sees."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from viewer import streams
from viewer.backends.networks import network_fields, open_network
from viewer.commands.console import job, say
from viewer.errors import ExportError, ImageError, InputError
from viewer.export import field_tables
from viewer.export.writing import check_target, write_atomically
from viewer.images.decode import open_image

if TYPE_CHECKING:
    from viewer.backends.model import Job
    from viewer.backends.network_fields import NetworkFields
    from viewer.export.field_tables import FieldFormat
    from viewer.images.decode import DecodedImage

_SUFFIXES = {".csv": "csv", ".json": "json", ".txt": "table"}


def run(options: Namespace) -> int:
    """List the layers of a network with their receptive fields.

    Returns
    -------
    int
        0; 1 if some pictures could not be opened, each named on stderr; 2 if none could.

    Raises
    ------
    PatchreachError
        If there is no such network, or no place for the output.
    """
    format = _format(options)
    if options.output is not None:
        of_network = (*options.effective, options.model, options.weights)
        check_target(options.output, (*of_network, options.beside, options.image, options.beside_weights))
    if (options.beside is None) != (options.image is None):
        raise InputError("--beside MODEL and --image IMAGE go together: heads reach how far on some picture.")
    if options.weights is not None and options.untrained:
        raise InputError("Give a checkpoint with --weights, or --untrained, not both.")
    images = _images(options.effective)
    if options.effective and not images:
        return 2
    with job() as work:
        fields = network_fields(options.model, options.image_size, work)
        entry = _effective(options, fields, images, work) if images else field_tables.entry(fields)
        if options.beside is not None:
            _beside(options, fields, entry, work)
    text = field_tables.encode(entry, format)
    if options.output is not None:
        write_atomically(options.output, text.encode())
    else:
        streams.write(text)
    return 1 if len(images) < len(options.effective) else 0


def _images(paths: Sequence[str]) -> list[DecodedImage]:
    """Open the pictures that can be opened; the others are named on stderr."""
    return [image for path in paths if (image := _image(path)) is not None]


def _image(path: str) -> DecodedImage | None:
    try:
        return open_image(path)
    except ImageError as error:
        say(error)
        return None


def _effective(
    options: Namespace, fields: NetworkFields, images: Sequence[DecodedImage], work: Job
) -> dict[str, Any]:
    from viewer.backends.effective_network import network_effective_fields

    network = open_network(
        options.model, options.weights, options.image_size, options.device, work, options.untrained
    )
    found = network_effective_fields(network, fields, images, work)
    return field_tables.entry(fields, found, network.weights)


def _beside(options: Namespace, fields: NetworkFields, entry: dict[str, Any], work: Job) -> None:
    """Compare the network's stages with the heads of a model on a picture."""
    from viewer.attention.sweep import measure_record
    from viewer.backends.opening import open_model
    from viewer.state import comparison
    from viewer.state.display import DisplayValue

    image = open_image(options.image)
    model = open_model(options.beside, options.beside_weights, None, options.device, work)
    record = model.attend(image, work)
    comparison.keep(fields)
    why = comparison.why_none(record, fields.name)
    if why:
        raise InputError(f"{options.beside} and {options.model} do not compare: {why}.")
    display = replace(DisplayValue(), compare=fields.name, protocol=options.protocol)
    found = comparison.levels(record, measure_record(record, work.step), display)
    field_tables.beside(entry, found, options.beside, options.image, options.protocol)


def _format(options: Namespace) -> FieldFormat:
    if options.format is not None:
        return options.format
    if options.output is None:
        return "table"
    suffix = Path(options.output).suffix.lower()
    if suffix not in _SUFFIXES:
        raise ExportError(f"{options.output}: name a .csv, .json or .txt file, or give --format.")
    return cast("FieldFormat", _SUFFIXES[suffix])
