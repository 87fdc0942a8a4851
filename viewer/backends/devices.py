"""Where models run: devices of PyTorch, execution providers of ONNX Runtime."""

from __future__ import annotations

from viewer.errors import DeviceError

_PROVIDERS = {
    "cuda": "CUDAExecutionProvider",
    "mps": "CoreMLExecutionProvider",
    "cpu": "CPUExecutionProvider",
}
_KNOWN = "auto, cpu, cuda, cuda:0, cuda:1, ... and mps"


def torch_devices() -> tuple[str, ...]:
    """Return the devices PyTorch can use here, best first: ``("cuda:0", "cpu")``."""
    import torch

    found = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append("mps")
    return (*found, "cpu")


def torch_device(asked: str) -> str:
    """Return the device to use.

    Parameters
    ----------
    asked
        "auto" (the best there is), "cpu", "cuda", "cuda:1", "mps".

    Raises
    ------
    DeviceError
        If it is not there; the text lists those that are.
    """
    kind, _ = _split(asked)
    there = torch_devices()
    if kind == "auto":
        return there[0]
    wanted = "cuda:0" if asked == "cuda" else asked
    if wanted not in there:
        raise DeviceError(f"PyTorch finds no device {asked!r} here; it finds {', '.join(there)}.")
    return wanted


def onnx_providers(asked: str) -> tuple[str, list[object]]:
    """Return the device to use and ONNX Runtime's providers for it, the CPU always last as the fallback.

    Parameters
    ----------
    asked
        As for `torch_device`.

    Returns
    -------
    tuple
        The device's name, and what `onnxruntime.InferenceSession` takes as `providers`.

    Raises
    ------
    DeviceError
        If the installed ONNX Runtime has no provider for it; the text lists what it has.
    """
    from viewer.backends.quiet_runtime import onnxruntime

    kind, index = _split(asked)
    there = onnxruntime.get_available_providers()
    if kind == "auto":
        kind = next(name for name, provider in _PROVIDERS.items() if provider in there)
    provider = _PROVIDERS[kind]
    if provider not in there:
        names = [name for name, known in _PROVIDERS.items() if known in there]
        raise DeviceError(
            f"ONNX Runtime finds no device {asked!r} here; it finds {', '.join(names)}"
            f" (its providers: {', '.join(there)})."
        )
    if kind == "cpu":
        return "cpu", [provider]
    first: object = (provider, {"device_id": index}) if kind == "cuda" else provider
    return f"cuda:{index}" if kind == "cuda" else kind, [first, _PROVIDERS["cpu"]]


def _split(asked: str) -> tuple[str, int]:
    """Return kind and index of a device's name, having checked it."""
    if not isinstance(asked, str):
        raise DeviceError(f"{asked!r} is no device; devices are {_KNOWN}.")
    kind, colon, index = asked.partition(":")
    wrong_index = bool(colon) and not (kind == "cuda" and index.isdecimal())
    if kind not in ("auto", *_PROVIDERS) or wrong_index:
        raise DeviceError(f"{asked!r} is no device; devices are {_KNOWN}.")
    return kind, int(index or 0)
