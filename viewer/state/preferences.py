"""What is remembered from one session to the next, in one JSON file of the person's own."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar, get_args

from viewer.state.display import DisplayValue, Protocol, Scale, Theme, Unit
from viewer.state.requests import Ground, ModelRequest, View, parse_size, size_text
from viewer.state.selection import Direction, Fusion

_Item = TypeVar("_Item", str, ModelRequest)

VERSION = 1
_RECENT = 12
_CHOICES: dict[str, tuple[str, ...]] = {
    "protocol": get_args(Protocol),
    "unit": get_args(Unit),
    "scale": get_args(Scale),
    "theme": get_args(Theme),
    "fusion": get_args(Fusion),
    "direction": get_args(Direction),
    "view": (*get_args(View), "table"),
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
        raw = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(raw, dict):
            raise ValueError("not an object")
    except FileNotFoundError:
        return Preferences()
    except OSError:
        return Preferences()
    except ValueError:
        _put_aside(path)
        return Preferences()
    return _read(raw)


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
        found = json.loads(path.read_text(encoding="utf-8"))["version"]
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return found if isinstance(found, int) else 0


def _put_aside(path: Path) -> None:
    try:
        path.replace(path.with_name("settings.damaged.json"))
    except OSError:
        return


def _read(raw: dict[str, Any]) -> Preferences:
    default = Preferences()
    top = _plain(raw, default)
    display = _plain(_section(raw, "display"), default.display)
    export = _plain(_section(raw, "export"), default.export)
    return replace(
        default,
        **top,
        display=replace(default.display, **_in_range(display)),
        export=replace(default.export, **_in_range(export)),
        splitters={
            name: tuple(sizes)
            for name, sizes in _section(raw, "splitters").items()
            if isinstance(sizes, list) and all(type(size) is int and size >= 0 for size in sizes)
        },
        recent_models=tuple(_models(raw.get("recent_models"))),
        recent_images=tuple(path for path in _list(raw.get("recent_images")) if isinstance(path, str)),
    )


def _plain(raw: dict[str, Any], default: Preferences | DisplayValue | ExportChoices) -> dict[str, Any]:
    """Take the texts, numbers and switches of a section that have the right type and a known value."""
    found = {}
    for item in fields(default):
        now, value = getattr(default, item.name), raw.get(item.name)
        if isinstance(now, float) and type(value) is int:
            value = float(value)
        if type(value) is not type(now) or not isinstance(value, str | bool | int | float):
            continue
        if value in _CHOICES.get(item.name, (value,)):
            found[item.name] = value
    return found


def _in_range(values: dict[str, Any]) -> dict[str, Any]:
    """Drop numbers that no control of the window could have set."""
    allowed = {"opacity": (0.0, 1.0), "ring": (0, 99), "factor": (1, 4)}
    return {
        name: value
        for name, value in values.items()
        if name not in allowed or allowed[name][0] <= value <= allowed[name][1]
    }


def _models(raw: object) -> list[ModelRequest]:
    found = []
    for item in _list(raw):
        if not isinstance(item, dict) or not isinstance(item.get("model"), str):
            continue
        weights, device = item.get("weights"), item.get("device", "auto")
        try:
            size = parse_size(str(item.get("image_size", "")))
        except ValueError:
            size = None
        found.append(
            ModelRequest(
                item["model"],
                weights if isinstance(weights, str) else None,
                size,
                device if isinstance(device, str) else "auto",
            )
        )
    return found


def _section(raw: dict[str, Any], name: str) -> dict[str, Any]:
    value = raw.get(name)
    return value if isinstance(value, dict) else {}


def _list(raw: object) -> list[Any]:
    return raw if isinstance(raw, list) else []


def _latest(item: _Item, items: tuple[_Item, ...]) -> tuple[_Item, ...]:
    return (item, *(other for other in items if other != item))[:_RECENT]
