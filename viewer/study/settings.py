"""What is studied and how: written once into the study's folder, and compared when it is taken up again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from viewer.attention.distance import Protocol
from viewer.attention.measures import MEASURES
from viewer.errors import FileError
from viewer.study.names import SETTINGS
from viewer.version import __version__

if TYPE_CHECKING:
    from viewer.study.measuring import Opening

FORMAT = 1
"""Raised whenever what is written changes its meaning."""

_MOST = 1 << 24  # bytes of settings that are read at all
_MOST_HEADS = 9999  # of a layer
_NEEDED = {"mean_distance_px", "prefix_mass"}  # by the finding, and by the colour of the dots


@dataclass(frozen=True)
class Settings:
    """The settings of a study; `facts` is what its file holds.

    Attributes
    ----------
    facts
        JSON object: ``source``, ``opening``, ``protocol``, ``measures``, and what
        `viewer.study.measuring.probe` tells of the model.
    """

    facts: dict[str, Any]

    @classmethod
    def of(cls, source: str, opening: Opening, protocol: Protocol, probed: dict[str, Any]) -> Settings:
        """Return the settings of a new study."""
        return cls(
            {
                "patchreach": __version__,
                "format": FORMAT,
                "source": source,
                "opening": opening.to_facts(),
                "protocol": protocol,
                "measures": [measure.name for measure in MEASURES],
                **probed,
            }
        )

    @property
    def protocol(self) -> Protocol:
        """Of the distances."""
        return self.facts["protocol"]

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the measures, in the order of the values."""
        return tuple(self.facts["measures"])

    @property
    def heads(self) -> tuple[int, ...]:
        """Number of heads of each layer."""
        return tuple(layer["heads"] for layer in self.facts["layers"])

    @property
    def layer_of(self) -> list[int]:
        """Layer of each head, in the order of the values."""
        return [layer for layer, heads in enumerate(self.heads) for _ in range(heads)]

    @property
    def head_of(self) -> list[int]:
        """Number of each head in its layer, in the same order."""
        return [head for heads in self.heads for head in range(heads)]

    def differences(self, other: Settings) -> list[str]:
        """Say what the other has differently, as clauses; empty where both make the same numbers."""
        found = []
        for words, path in _COMPARED.items():
            mine, others = (_at(one.facts, path) for one in (self, other))
            if mine != others:
                found.append(f"the {words} was {_short(mine)} and is {_short(others)} now")
        return found


_COMPARED = {
    "source": ("source",),
    "model's SHA-256": ("model", "sha256"),
    "backend": ("model", "backend"),
    "preprocessing": ("preprocessing",),
    "protocol": ("protocol",),
    "list of measures": ("measures",),
    "number of heads in each layer": ("layers",),
}


def _at(facts: dict[str, Any], path: tuple[str, ...]) -> object:
    value: Any = facts
    for key in path:
        value = value[key]
    if path == ("model", "sha256") and not value:
        value = facts["model"]["name"]  # pretrained weights have no file of their own
    return [layer["heads"] for layer in value] if path == ("layers",) else value


def _short(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def read(folder: Path) -> Settings:
    """Read the settings of a study.

    Raises
    ------
    FileError
        If the folder holds no study, or one that a later version wrote.
    """
    path = folder / SETTINGS
    try:
        with path.open("rb") as file:
            facts = json.loads(file.read(_MOST))
    except FileNotFoundError as error:
        raise FileError(folder, f"holds no study (no {SETTINGS})") from error
    except (OSError, ValueError) as error:
        raise FileError(path, f"can't be read ({getattr(error, 'strerror', None) or error})") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise FileError(path, "was written by another version of Patchreach", "Study the pictures anew.")
    wrong = next((name for name, fits in _FITS.items() if not fits(facts.get(name))), "")
    if wrong:
        raise FileError(path, f"is damaged: {wrong!r} is missing, or not as Patchreach writes it")
    return Settings(facts)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_numbers(values: Iterable[object]) -> bool:
    """Return whether these are numbers, or None where there is no number."""
    return all(value is None or type(value) in (int, float) for value in values)


def _are_measures(value: object) -> bool:
    known = {measure.name for measure in MEASURES}
    if not isinstance(value, list) or not all(map(_is_text, value)):
        return False
    return len(set(value)) == len(value) and _NEEDED <= set(value) <= known


def _is_model(value: object) -> bool:
    return isinstance(value, dict) and all(
        _is_text(value.get(name)) for name in ("name", "sha256", "weights", "backend")
    )


def _is_layer(value: object) -> bool:
    if not isinstance(value, dict) or not all(_is_text(value.get(name)) for name in ("name", "kind")):
        return False
    heads, uniform = value.get("heads"), value.get("uniform")
    fits = type(heads) is int and 0 <= heads <= _MOST_HEADS
    return fits and isinstance(uniform, dict) and _are_numbers(uniform.values())


def _are_layers(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_layer, value))


def _are_lines(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(line, list) and _are_numbers(line) for line in value.values()
    )


# How to go on with the study is looked at when somebody wants to.
_FITS: dict[str, Callable[[object], bool]] = {
    "source": _is_text,
    "protocol": lambda value: value in get_args(Protocol),
    "measures": _are_measures,
    "model": _is_model,
    "preprocessing": _is_text,
    "layers": _are_layers,
    "convolution": _are_lines,
    "notes": lambda value: isinstance(value, list) and all(map(_is_text, value)),
}


def is_study(path: Path) -> bool:
    """Return whether a folder holds a study."""
    try:
        return (path / SETTINGS).is_file()
    except (OSError, ValueError):
        return False
