"""What a checkpoint's configuration says of it: in its own metadata, or in a config.json beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viewer.backends.what_if import KINDS
from viewer.backends.what_if_blocks import broadcast_always
from viewer.errors import ModelFileError

if TYPE_CHECKING:
    from torch import nn

_KEY = "context_broadcasting"
_MOST = 1 << 20  # bytes of a config.json that are read at all
_WORDS = {"true": True, "false": False}  # metadata of safetensors are texts


@dataclass(frozen=True)
class CheckpointConfig:
    """What is said.

    Attributes
    ----------
    architecture
        timm's name of it; empty where it is not said.
    broadcasting
        Strength of the Context Broadcasting that the model was trained with; 0 for none.
    source
        Where the broadcasting is said: "its metadata" or "config.json beside it".
    """

    architecture: str = ""
    broadcasting: float = 0.0
    source: str = ""


def read_config(path: Path) -> CheckpointConfig:
    """Read what a checkpoint's configuration says; its own metadata goes before a config.json beside it.

    In config.json, as timm writes it, Context Broadcasting is an entry ``context_broadcasting`` of
    ``model_args`` or of the whole: true (the paper's strength, 0.5), false, or a strength from 0 to 1.

    Raises
    ------
    ModelFileError
        If it says of Context Broadcasting what can't be understood.
    """
    own, beside = _metadata(path), _beside(path)
    arguments = beside.get("model_args")
    merged = {**beside, **(arguments if isinstance(arguments, dict) else {})}
    architecture = own.get("architecture") or beside.get("architecture")
    source, said = ("its metadata", own) if _KEY in own else ("config.json beside it", merged)
    return CheckpointConfig(
        architecture if isinstance(architecture, str) else "",
        _strength(path, said.get(_KEY, False)),
        source,
    )


def _strength(path: Path, said: object) -> float:
    if isinstance(said, str):
        said = _WORDS.get(said.strip().lower(), said)
    if isinstance(said, bool):
        return KINDS["cb"].amount.default if said else 0.0
    try:
        strength = float(said)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        strength = -1.0
    if not 0 <= strength <= 1:
        raise ModelFileError(
            path,
            f"has a configuration that says {_KEY} {str(said)[:40]!r}, which is neither true, false nor a "
            "strength from 0 to 1",
        )
    return strength


def _metadata(path: Path) -> dict[str, Any]:
    """Return the metadata of a safetensors file; nothing of any other."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if file.read(1) != b"{" or length > 100 * _MOST:
            return {}
        file.seek(8)
        found = _parsed(file.read(length))
    metadata = found.get("__metadata__")
    return metadata if isinstance(metadata, dict) else {}


def _beside(path: Path) -> dict[str, Any]:
    try:
        config = path.with_name("config.json")
        return _parsed(config.read_bytes()) if config.stat().st_size <= _MOST else {}
    except OSError:  # mostly there is none
        return {}


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # another program's, then
        return {}
    return found if isinstance(found, dict) else {}


def apply_config(name: str, model: nn.Module, path: Path) -> tuple[str, ...]:
    """Make what a checkpoint was trained with part of the model that has its weights.

    Parameters
    ----------
    name, model
        The architecture, and the model.
    path
        The checkpoint.

    Returns
    -------
    tuple of str
        Sentences a person should read.

    Raises
    ------
    ModelFileError
        If the model has no place for it, or the configuration can't be understood.
    """
    config = read_config(path)
    if not config.broadcasting:
        return ()
    if not broadcast_always(model, config.broadcasting):
        raise ModelFileError(
            path,
            f"was trained with Context Broadcasting, as {config.source} says, but {name} has no MLP beside "
            "its attention that it could follow",
        )
    return (
        f"{path.name} was trained with Context Broadcasting (strength {config.broadcasting:g}), as "
        f"{config.source} says, so it is part of the model, after the MLP of every block.",
    )
