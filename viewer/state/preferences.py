"""What is remembered from one session to the next, in one JSON file of the person's own."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar, get_args

from viewer.state.display import (
    Centring,
    DisplayValue,
    Likened,
    LikenedHeads,
    MapKind,
    Protocol,
    RolloutFusion,
    Scale,
    Theme,
    Unit,
)
from viewer.state.requests import Ground, ImageSize, ModelRequest, View, parse_size, size_text
from viewer.state.selection import Direction, Fusion

_Item = TypeVar("_Item", str, ModelRequest)

VERSION = 1
_RECENT = 12
_LARGEST = 1 << 24  # pixels; Qt takes no larger numbers than 31 bits
_CHOICES: dict[str, tuple[str, ...]] = {
    "protocol": get_args(Protocol),
    "unit": get_args(Unit),
    "scale": get_args(Scale),
    "theme": get_args(Theme),
    "fusion": get_args(Fusion),
    "direction": get_args(Direction),
    "map": get_args(MapKind),
    "rollout_fusion": get_args(RolloutFusion),
    "likeness": get_args(Centring),
    "likeness_of": get_args(Likened),
    "likeness_heads": get_args(LikenedHeads),
    "view": (*get_args(View), "table", "likeness table"),
    "ground": get_args(Ground),
}


@dataclass(frozen=True)
class ExportChoices:
    """What was chosen last in the export dialog."""

    view: str = "overlay"
    suffix: str = ".png"
    factor: int = 2
    title: bool = True
    ground: str = "light"
    folder: str = ""


@dataclass(frozen=True)
class Preferences:
    """Everything that is remembered.

    Attributes
    ----------
    display
        Display settings, theme included.
    fusion, direction
        As in `viewer.state.selection.SelectionValue`.
    geometry
        Place and size of the window as Qt writes them, base64.
    splitters
        Sizes of the parts of each splitter, by the splitter's name.
    recent_models, recent_images
        Latest first.
    folder
        Where the file dialogs start.
    export
        What was chosen last in the export dialog.
    """

    display: DisplayValue = field(default_factory=DisplayValue)
    fusion: str = "mean"
    direction: str = "from"
    geometry: str = ""
    splitters: dict[str, tuple[int, ...]] = field(default_factory=dict)
    recent_models: tuple[ModelRequest, ...] = ()
    recent_images: tuple[str, ...] = ()
    folder: str = ""
    export: ExportChoices = field(default_factory=ExportChoices)

    def with_model(self, request: ModelRequest) -> Preferences:
        """Remember a model that was opened."""
        return replace(self, recent_models=_latest(request, self.recent_models))

    def with_image(self, path: Path) -> Preferences:
        """Remember a picture that was opened, and its folder."""
        path = path.absolute()
        return replace(self, recent_images=_latest(str(path), self.recent_images), folder=str(path.parent))


def settings_path() -> Path:
    """Return where the file lies on this system; ``XDG_CONFIG_HOME`` and its likes are followed."""
    from platformdirs import user_config_path

    return user_config_path("patchreach", appauthor=False) / "settings.json"


def load(path: Path) -> Preferences:
    """Read what was remembered.

    A missing file gives the defaults; so does every single value that can't be used. A file that is not JSON
    is put aside as ``settings.damaged.json``, so that nothing a person wrote by hand is lost.
    """
    try:
        return _read(_content(path))
    except OSError:
        return Preferences()
    except ValueError:
        _put_aside(path)
        return Preferences()


def save(preferences: Preferences, path: Path) -> None:
    """Write what is to be remembered; the old file stays whole until the new one is.

    A file that a newer version wrote is left alone.

    Raises
    ------
    OSError
        If the folder can't be written to.
    """
    if _version(path) > VERSION:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = asdict(preferences)
    raw["version"] = VERSION
    for model, request in zip(raw["recent_models"], preferences.recent_models, strict=True):
        model["image_size"] = size_text(request.image_size)
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(json.dumps(raw, indent=1), encoding="utf-8")
    draft.replace(path)


def _version(path: Path) -> int:
    try:
        found = _content(path).get("version")
    except (OSError, ValueError):
        return 0
    return found if isinstance(found, int) else 0


def _content(path: Path) -> dict[str, Any]:
    """Return the object that a file holds.

    Raises
    ------
    OSError
        If there is no such file, or it can't be read.
    ValueError
        If it holds anything else.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError("no file")  # reading a pipe might never end
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(raw, dict):
        raise ValueError("not an object")
    return raw


def _put_aside(path: Path) -> None:
    try:
        path.replace(path.with_name("settings.damaged.json"))
    except OSError:
        return


def _read(raw: dict[str, Any]) -> Preferences:
    default = Preferences()
    top = _plain(raw, default)
    display = _plain(section(raw, "display"), default.display)
    export = _plain(section(raw, "export"), default.export)
    return replace(
        default,
        **top,
        display=replace(default.display, **_in_range(display)),
        export=replace(default.export, **_in_range(export)),
        splitters={
            name: tuple(sizes)
            for name, sizes in section(raw, "splitters").items()
            if _is_text(name) and isinstance(sizes, list) and all(map(_is_length, sizes))
        },
        recent_models=tuple(_models(raw.get("recent_models")))[:_RECENT],
        recent_images=tuple(filter(_is_text, _list(raw.get("recent_images"))))[:_RECENT],
    )


def _plain(raw: dict[str, Any], default: Preferences | DisplayValue | ExportChoices) -> dict[str, Any]:
    """Take the texts, numbers and switches of a section that have the right type and a known value."""
    found = {}
    for item in fields(default):
        now, value = getattr(default, item.name), raw.get(item.name)
        if isinstance(now, float) and type(value) is int and abs(value) < _LARGEST:
            value = float(value)
        if type(value) is not type(now) or not (_is_text(value) or isinstance(value, bool | int | float)):
            continue
        if _fits(item.name, value):
            found[item.name] = value
    return found


def _is_text(value: object) -> bool:
    """Return whether a value is text that could be a path: half of a surrogate pair or a zero byte can't."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        return False
    return True


def _fits(name: str, value: object) -> bool:
    """Return whether a value of the right type is one that the window could have set."""
    if name == "geometry":
        return value.isascii()
    if name == "colormap" and value != DisplayValue.colormap:
        from viewer.state.colormaps import COLORMAPS  # late: it loads the library of colours

        return value in COLORMAPS
    if name in ("compare", "compare_weights", "stage"):
        return not value  # reading a network's layers would hold up the start
    if name in ("start_layer", "map_class"):
        return False  # of the model that was open then
    if name in ("x_measure", "y_measure"):
        from viewer.state.axes import is_known

        return is_known(value, with_layer=name == "x_measure")
    return value in _CHOICES.get(name, (value,))


def _is_length(value: object) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def _in_range(values: dict[str, Any]) -> dict[str, Any]:
    """Drop numbers that no control of the window could have set."""
    allowed = {
        "opacity": (0.0, 1.0),
        "ring": (0, 99),
        "factor": (1, 4),
    }
    return {
        name: value
        for name, value in values.items()
        if name not in allowed or allowed[name][0] <= value <= allowed[name][1]
    }


def _models(raw: object) -> list[ModelRequest]:
    found = []
    for item in _list(raw):
        if not isinstance(item, dict) or not _is_text(item.get("model")):
            continue
        weights, size, device = item.get("weights"), item.get("image_size"), item.get("device")
        found.append(
            ModelRequest(
                item["model"],
                weights if _is_text(weights) else None,
                _image_size(size) if isinstance(size, str) else None,
                device if _is_text(device) else "auto",
            )
        )
    return found


def _image_size(text: str) -> ImageSize:
    try:
        return parse_size(text)
    except ValueError:
        return None


def section(raw: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a part of what was read from a file; empty where there is none."""
    value = raw.get(name)
    return value if isinstance(value, dict) else {}


def _list(raw: object) -> list[Any]:
    return raw if isinstance(raw, list) else []


def _latest(item: _Item, items: tuple[_Item, ...]) -> tuple[_Item, ...]:
    return (item, *(other for other in items if other != item))[:_RECENT]
