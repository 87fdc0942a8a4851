"""Where a figure or table comes from: written into the file, and read from it again."""

from __future__ import annotations

import datetime
import json
import logging
import platform
import re
import stat
from collections.abc import Callable
from importlib import metadata as installed
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from xml.etree import ElementTree

from viewer.state.averaged import Averaged
from viewer.version import __version__

if TYPE_CHECKING:
    from viewer.attention.record import AttentionRecord
    from viewer.state.requests import View
    from viewer.state.scene import SceneValue

FORMAT = 1
"""Raised whenever what is written changes its meaning."""

KEY = "patchreach"
"""Name of the PNG text chunk and of the Parquet schema's metadata."""

_BACKEND_PACKAGES = {
    "torch": ("torch", "timm"),
    "onnx": ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnx"),
}
_CREATOR = f"Patchreach {__version__}"
_SILENCE = logging.NullHandler()
_PUBLIC = re.compile(r"hf:[^/]+/[^/]+|torchvision/\w+(\.\w+)?")  # names with a slash that is no folder's
_MOST = 1 << 20  # bytes of provenance that are read at all
_DESCRIPTION = "{http://purl.org/dc/elements/1.1/}description"


def of_record(record: AttentionRecord) -> dict[str, Any]:
    """Return model, picture, preprocessing, versions and time of a record, ready for JSON.

    Files are named without their folders: a figure is given to others, whom those do not concern. With the
    hash the very file is found again (`viewer.export.whereabouts`).
    """
    found = record.provenance
    return {
        "patchreach": __version__,
        "format": FORMAT,
        "created": now(),
        "versions": versions(found.backend),
        "model": {
            "name": model_name(found.model),
            "sha256": found.model_sha256,
            "weights": file_name(found.weights),
            "backend": found.backend,
            "device": found.device,
            "input_size": list(record.input_size),
            "verified": record.verified,
        },
        "image": {"name": file_name(found.image), "sha256": found.image_sha256},
        "preprocessing": found.preprocessing,
        "what_if": list(record.what_if),
    }


def _averaged(scene: SceneValue) -> dict[str, int]:
    """Return over how many pictures effective fields are averaged, where there are any."""
    images = [found.images for found in scene.document.maps.values() if isinstance(found, Averaged)]
    return {"averaged_pictures": images[-1]} if images else {}


def of_scene(scene: SceneValue, view: View) -> dict[str, Any]:
    """Return what a figure is made from, with everything needed to show the same again, ready for JSON."""
    selection, display = scene.selection, scene.display
    return {
        **of_record(scene.document.record),
        **_averaged(scene),
        "view": view,
        "selection": {
            "query": selection.query,
            "pins": list(selection.pins),
            "layer": selection.shown.layer,
            "head": selection.shown.head,
            "fusion": selection.fusion,
            "direction": selection.direction,
        },
        "display": {
            "protocol": display.protocol,
            "unit": display.unit,
            "scale": display.scale,
            "colormap": display.colormap,
            "opacity": display.opacity,
            "fade": display.fade,
            "grid": display.grid,
            "ring": display.ring,
            "theme": display.theme,
            "map": display.map,
            "rollout_fusion": display.rollout_fusion,
            "start_layer": display.start_layer,
            "map_class": display.map_class,
            "x_measure": display.x_measure,
            "y_measure": display.y_measure,
            "kinds": display.kinds,
            "compare": model_name(display.compare),
            "compare_weights": file_name(display.compare_weights) if display.compare else "",
            "stage": display.stage,
            "likeness": display.likeness,
            "likeness_of": display.likeness_of,
            "likeness_heads": display.likeness_heads,
        },
    }


def now() -> str:
    """Return the time as provenance has it, in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def file_name(text: str) -> str:
    """Return the name of a file without its folders."""
    return Path(text).name or text


def model_name(text: str) -> str:
    """Return what a model is opened by without folders: "net.onnx", "hf:ORG/NAME", "torchvision/NAME"."""
    return text if _PUBLIC.fullmatch(text) else file_name(text)


def versions(backend: str) -> dict[str, str]:
    """Return the versions of what computed the numbers."""
    found = {"patchreach": __version__, "python": platform.python_version()}
    packages = {name: _version(name) for name in ("numpy", *_BACKEND_PACKAGES.get(backend, ()))}
    return {**found, **{name: version for name, version in packages.items() if version}}


def _version(package: str) -> str:
    """Return a version; empty if it is not installed, as ONNX Runtime comes in packages of several names."""
    try:
        return installed.version(package)
    except installed.PackageNotFoundError:
        return ""


def metadata(facts: dict[str, Any], title: str, format: str) -> dict[str, Any]:
    """Return facts as the metadata that Matplotlib writes into a PNG, SVG or PDF."""
    text = to_text(facts)
    if format == "png":
        return {"Title": title, "Software": _CREATOR, "Creation Time": facts["created"], KEY: text}
    if format == "svg":
        return {"Title": title, "Creator": _CREATOR, "Date": facts["created"], "Description": text}
    return {
        "Title": title,
        "Creator": _CREATOR,
        "Subject": "Attention of a Vision Transformer",
        "Keywords": text,
    }


def to_text(facts: dict[str, Any]) -> str:
    """Return facts as one line of ASCII, which every metadata field of every format can hold."""
    return json.dumps(facts, separators=(",", ":"))


def read_provenance(path: str | Path) -> dict[str, Any] | None:
    """Read what a figure was made from.

    Parameters
    ----------
    path
        A PNG, SVG or PDF.

    Returns
    -------
    dict or None
        As `of_scene` made it, its values not checked (see `viewer.export.restore`); None if the file is
        none of Patchreach's figures, is damaged, or was written by a later version that means other things.
    """
    try:
        # Reading a pipe or a device may never end.
        if not stat.S_ISREG(Path(path).stat().st_mode):
            return None
        with Path(path).open("rb") as file:
            start = file.read(1024)
            file.seek(0)
            reader = _reader(start)
            text = reader(file) if reader else None
        facts = json.loads(text) if text and len(text) <= _MOST else None
    # The file may be anything at all, and parsers raise anything at all: such a file is no figure of ours.
    except Exception:
        return None
    if not isinstance(facts, dict) or not isinstance(facts.get("patchreach"), str):
        return None
    return facts if facts.get("format") == FORMAT else None


def _reader(start: bytes) -> Callable[[IO[bytes]], str | None] | None:
    """Choose by content: browsers and mail programs rename files."""
    if start.startswith(b"\x89PNG\r\n\x1a\n"):
        return _read_png
    if start.startswith(b"%PDF-"):
        return _read_pdf
    return _read_svg if b"<svg" in start else None


def _read_png(file: IO[bytes]) -> str | None:
    from PIL.PngImagePlugin import PngImageFile

    # Only the header is read: no pixel of a picture that may be huge is decoded here.
    text = PngImageFile(file).info.get(KEY)
    return text if isinstance(text, str) else None


def _read_svg(file: IO[bytes]) -> str | None:
    start = file.read(_MOST)
    if b"<!ENTITY" in start:
        return None
    parser = ElementTree.XMLPullParser(("end",))
    parser.feed(start)
    for _, element in parser.read_events():
        if element.tag == _DESCRIPTION:
            return element.text
    return None


def _read_pdf(file: IO[bytes]) -> str | None:
    from pypdf import PdfReader

    # It would write to stderr of every oddity of a file that may be none of ours.
    logging.getLogger("pypdf").addHandler(_SILENCE)
    information = PdfReader(file).metadata
    return None if information is None else information.get("/Keywords")
