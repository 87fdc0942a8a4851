"""What a person asked for in the window, written to its file: a figure, slide or table of one moment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from viewer.attention.likeness import measure_likeness
from viewer.errors import ExportError
from viewer.export import figure, likeness_table, provenance, slide, tables
from viewer.export.writing import write_atomically
from viewer.state.likeness import keep, known
from viewer.state.requests import FigureRequest, SlideRequest, TableRequest
from viewer.state.scene import compose

if TYPE_CHECKING:
    from viewer.state.scene import SceneValue


def write(scene: SceneValue, request: FigureRequest | SlideRequest | TableRequest) -> Path:
    """Write a figure, a slide or a table, and return where to.

    Raises
    ------
    ExportError
        If there is nothing to write yet, or no such format.
    FileError
        If the file can't be written.
    """
    if isinstance(request, FigureRequest):
        return figure.save(_for(request, scene), request)
    if isinstance(request, SlideRequest):
        return slide.save(scene, request)
    document = scene.document
    if document is None or document.record is None or document.measures is None:
        raise ExportError("The picture is not measured yet; export the table when it is.")
    if request.what == "likeness":
        found = known(_compared(scene).document.measures)
        content = likeness_table.encode(document.record, found, tables.format_of(request.path))
        write_atomically(request.path, content)
        return request.path
    entry = tables.entry(document.record, document.measures, scene.display.protocol)
    # The window knows files by their whole paths, which do not concern whoever gets the table.
    entry |= {"image": provenance.file_name(entry["image"]), "model": provenance.model_name(entry["model"])}
    facts = provenance.of_record(document.record)
    write_atomically(request.path, tables.encode([entry], tables.format_of(request.path), facts))
    return request.path


def drawn(scene: SceneValue, request: FigureRequest) -> bytes:
    """Return a figure as a PNG's bytes.

    Raises
    ------
    ExportError
        If there is nothing to draw yet.
    """
    return figure.draw(_for(request, scene), request)


def _for(request: FigureRequest, scene: SceneValue) -> SceneValue:
    return _compared(scene) if request.view == "likeness" else scene


def _compared(scene: SceneValue) -> SceneValue:
    """Return the scene with the likeness of its maps, which nobody may have looked at yet."""
    document = scene.document
    if document is None or document.record is None or document.measures is None:
        return scene
    if known(document.measures) is None:
        keep(document.measures, measure_likeness(document.record, document.measures))
    return compose(document, scene.selection, scene.display, scene)
