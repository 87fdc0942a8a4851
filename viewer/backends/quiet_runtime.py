"""ONNX Runtime with its telemetry off; imported from here only, so that it never runs with it on."""

from __future__ import annotations

import os

# Read while the library loads: later is too late to keep it from creating its store in the user's cache.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime

# For releases that know no such variable.
onnxruntime.disable_telemetry_events()

__all__ = ["onnxruntime"]
