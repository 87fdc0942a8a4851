"""Opening models of Hugging Face transformers: from a folder, or by their name on the hub.

transformers is an optional extra, looked for only when one of its models is asked for. The class comes from a
table of ours and the weights from safetensors files alone, so no code that lies beside a model is run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from viewer.attention.record import Provenance
from viewer.backends import hugging_face_pictures
from viewer.backends.devices import torch_device
from viewer.backends.downloads import fetch_files
from viewer.backends.hashing import sha256_of
from viewer.backends.hugging_face_towers import FAMILIES, Family, own_size, patch_px_of, prepare
from viewer.backends.torch_model import TorchModel
from viewer.backends.torch_runner import TorchRunner
from viewer.backends.torch_sizes import SizedModels
from viewer.errors import CheckpointError, InputError, ModelFileError

if TYPE_CHECKING:
    from viewer.backends.model import Job
    from viewer.backends.opening import ImageSize

PREFIX = "hf:"
"""What the names of models on the hub begin with."""

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_LARGEST = 1 << 20  # bytes of a configuration
# What may be missing from a checkpoint: no attention depends on it.
_UNNEEDED = ("pooler", "mask_token")
# Settings that make transformers fetch or run something besides the weights.
_DROPPED = ("auto_map", "attn_implementation", "_attn_implementation", "_attn_implementation_internal")


def open_hugging_face(name: str, image_size: ImageSize, device: str, job: Job) -> TorchModel:
    """Open a model of transformers.

    Parameters
    ----------
    name
        A folder with config.json and safetensors files, or ``"hf:ORG/NAME"`` (``@revision`` may follow).
    image_size, device, job
        As for `viewer.backends.opening.open_model`.

    Raises
    ------
    ModelFileError, CheckpointError, OfflineError, DeviceError, InputError, NoAttentionError, LayoutError
        Each with a text meant for a person.
    """
    where = torch_device(device)
    _require_transformers(name)
    job.step(f"Opening {name}", None)
    folder = Path(name) if not name.startswith(PREFIX) else _fetched(name, job)
    told = _configuration(folder, name)
    family = _family(name, told)
    job.step(f"Loading {name}", None)
    model = load(folder, name, told, family)
    provenance = Provenance(name, sha256_of(_weight_files(folder), job), "", "torch")
    return wrap(name, model, family, folder, where, provenance).sized(image_size)


def wrap(
    name: str, model: nn.Module, family: Family, folder: Path, device: str, provenance: Provenance
) -> TorchModel:
    """Make a model that has its weights ready to attend; `folder` may hold its image processor's settings."""
    patch, own = patch_px_of(model.config), own_size(model.config)
    if own is not None and min(own) < 1:
        raise ModelFileError(folder / "config.json", f"has {own[0]}x{own[1]} pixels for the size of pictures")
    try:
        how = hugging_face_pictures.preprocessing_in(folder, name, own, patch)
    except InputError as error:
        raise ModelFileError(folder, f"has a size of pictures that can't be: {error}".rstrip(".")) from error
    prepare(model, family)
    if not family.resizes and own is not None and how.size != own:
        raise InputError(
            f"{name} takes pictures of {own[0]}x{own[1]} pixels, but its image processor makes them "
            f"{how.size[0]}x{how.size[1]}."
        )
    runner = TorchRunner(name, SizedModels(name, model.eval(), how.size), device)
    notes = (family.note,) if family.note else ()
    return TorchModel(name, how, runner, provenance, _labels(model), notes)


def load(folder: Path, name: str, told: dict[str, Any], family: Family, attention: str = "sdpa") -> nn.Module:
    """Make the model and load its weights, in float32.

    Parameters
    ----------
    told
        What config.json says.
    attention
        ``"sdpa"`` or ``"eager"``.
    """
    import transformers

    saved = (told.get("architectures") or [""])[0]
    kind = getattr(transformers, saved if saved in family.others else family.backbone)
    settings = _settings(folder, told)
    try:
        with _quiet():
            config = kind.config_class.from_dict(settings)
            model, info = kind.from_pretrained(
                folder,
                config=config,
                local_files_only=True,
                use_safetensors=True,
                dtype=torch.float32,
                attn_implementation=attention if kind._supports_sdpa else "eager",
                output_loading_info=True,
            )
    except Exception as error:  # a damaged configuration can make transformers raise nearly anything
        if "ignore_mismatched_sizes" in str(error):
            # Its own words point at a report that is not shown.
            raise CheckpointError(
                folder,
                f"has weights of other shapes than those of the {kind.__name__} that config.json describes",
                "Both must come from the same model.",
            ) from error
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".:")
        raise ModelFileError(folder, f"can't be loaded by transformers ({reason})") from error
    _require_weights(folder, kind.__name__, info)
    return model


def _settings(folder: Path, told: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the vision model, without those that make transformers do something else."""
    inner = told.get("vision_config", told)
    if not isinstance(inner, dict):
        raise ModelFileError(folder / "config.json", "has no settings of a vision model")
    return {key: value for key, value in inner.items() if key not in _DROPPED}


def _require_weights(folder: Path, kind: str, info: dict[str, Any]) -> None:
    """Refuse a checkpoint that lacks weights on which attention depends."""
    missing = [key for key in info["missing_keys"] if not any(part in key for part in _UNNEEDED)]
    if missing:
        shown = ", ".join(sorted(missing)[:4])
        more = f", ... {len(missing) - 4} more" if len(missing) > 4 else ""
        raise CheckpointError(
            folder,
            f"lacks {len(missing)} of the weights of a {kind} ({shown}{more})",
            missing=missing,
            unexpected=sorted(info["unexpected_keys"]),
        )


def _require_transformers(name: str) -> None:
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        raise ModelFileError(
            name,
            "needs Hugging Face transformers, which is not installed",
            'Install it: `python -m pip install "patchreach[transformers]"`.',
        ) from error


def _fetched(name: str, job: Job) -> Path:
    """Return the folder in the hub's cache that holds a model, downloaded if need be."""
    repository = name.removeprefix(PREFIX)
    [config] = fetch_files(name, repository, ("config.json",), job)
    fetch_files(name, repository, hugging_face_pictures.FILES, job, required=False)
    weights = fetch_files(name, repository, (_WEIGHTS,), job, required=False)
    if not weights:
        [index] = fetch_files(name, repository, (_INDEX,), job)
        fetch_files(name, repository, _shards(index), job)
    return config.parent


def _configuration(folder: Path, name: str) -> dict[str, Any]:
    """Read config.json.

    Raises
    ------
    ModelFileError
        If it is missing or no such configuration.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ModelFileError(
            name, "is a folder, not a checkpoint, and without the config.json of a transformers model"
        )
    try:
        told = json.loads(path.read_text(encoding="utf-8")) if path.stat().st_size < _LARGEST else None
    except (OSError, ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise ModelFileError(path, "is no configuration of a model")
    return told


def _family(name: str, told: dict[str, Any]) -> Family:
    kind = told.get("model_type")
    if kind is None and isinstance(told.get("architecture"), str):
        raise ModelFileError(
            name,
            "holds a timm model",
            f"Open it by its name: --model {told['architecture']} --weights {Path(name) / _WEIGHTS}",
        )
    if kind not in FAMILIES:
        what = f"a transformers model of type {kind!r}" if kind else "no transformers model: it names no type"
        raise ModelFileError(name, f"is {what}", f"These can be opened: {', '.join(FAMILIES)}.")
    if "quantization_config" in told:
        raise ModelFileError(name, "has quantized weights, which Patchreach can't load")
    if told.get("use_timm_backbone") or told.get("use_pretrained_backbone"):
        raise ModelFileError(
            name, "takes its backbone from another library (timm)", "Open that by its timm name."
        )
    return FAMILIES[kind]


def _shards(index: Path) -> tuple[str, ...]:
    """Return the files that weights are spread over."""
    try:
        files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise ModelFileError(index, "is no list of weight files") from error
    return tuple(sorted(Path(str(file)).name for file in files))


def _weight_files(folder: Path) -> list[Path]:
    index = folder / _INDEX
    return [folder / file for file in (_shards(index) if index.is_file() else (_WEIGHTS,))]


def _labels(model: nn.Module) -> list[str]:
    """Return the names of a classifier's classes; nothing for a model that is no classifier."""
    if not type(model).__name__.endswith(("ForImageClassification", "WithTeacher")):
        return []
    names = model.config.id2label
    return [str(names.get(index, f"class {index}")) for index in range(model.config.num_labels)]


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what transformers says of loading from the terminal; what matters is said in errors and notes."""
    from transformers.utils import logging

    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()
