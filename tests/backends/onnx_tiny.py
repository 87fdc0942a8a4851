"""The tiny graph around each pattern: two heads on a 2 x 3 grid, its numbers, and what it gives by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper, parser

from viewer.backends.onnx_model import open_onnx

HEADS, TOKENS, WIDTH = 2, 6, 4
# A 2 x 3 grid of 4-pixel patches; queries, keys and values are three channel groups of one 1x1 convolution.
HEAD = f"""
<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
tiny (float[1, 3, 8, 12] picture) => (float[1, {TOKENS}, {HEADS * WIDTH}] out)
{{
  grid = Conv <kernel_shape = [4, 4], strides = [4, 4]> (picture, patch_weight)
  flat = Reshape (grid, flat_shape)
  tokens = Transpose <perm = [0, 2, 1]> (flat)
  q3 = MatMul (tokens, query_weight)
  k3 = MatMul (tokens, key_weight)
  v3 = MatMul (tokens, value_weight)
  q4 = Reshape (q3, split)
  k4 = Reshape (k3, split)
  v4 = Reshape (v3, split)
  q = Transpose <perm = [0, 2, 1, 3]> (q4)
  k = Transpose <perm = [0, 2, 1, 3]> (k4)
  v = Transpose <perm = [0, 2, 1, 3]> (v4)
  kt = Transpose <perm = [0, 2, 3, 1]> (k4)
"""
TAIL = """
  context4 = Transpose <perm = [0, 2, 1, 3]> (context)
  out = Reshape (context4, joined)
}
"""
RNG = np.random.default_rng(0)
WIDE = HEADS * WIDTH
CONSTANTS: dict[str, np.ndarray] = {
    "patch_weight": RNG.normal(0, 0.2, (WIDE, 3, 4, 4)).astype(np.float32),
    "query_weight": RNG.normal(0, 0.5, (WIDE, WIDE)).astype(np.float32),
    "key_weight": RNG.normal(0, 0.5, (WIDE, WIDE)).astype(np.float32),
    "value_weight": RNG.normal(0, 1, (WIDE, WIDE)).astype(np.float32),
    "flat_shape": np.array([1, WIDE, TOKENS]),
    "split": np.array([1, TOKENS, HEADS, WIDTH]),
    "joined": np.array([1, TOKENS, WIDE]),
    "half": np.array(0.5, np.float32),
    "two": np.array([2.0], np.float32),
    "zero": np.array(0.0, np.float32),
    "per_head": np.array([0.25, 1.5], np.float32).reshape(1, HEADS, 1, 1),
    "bias": RNG.normal(0, 1, (1, HEADS, TOKENS, TOKENS)).astype(np.float32),
    "allowed": (np.arange(TOKENS * TOKENS).reshape(1, 1, TOKENS, TOKENS) % 3 != 1),
    "forbidden": (np.arange(TOKENS * TOKENS).reshape(1, 1, TOKENS, TOKENS) % 3 == 1),
    "by_row": np.array([1, HEADS, 2, TOKENS // 2, WIDTH]),
    "flat_rows": np.array([HEADS * 2, TOKENS // 2, WIDTH]),
    "flat_logits": np.array([HEADS * 2, TOKENS // 2, TOKENS // 2]),
    "row_logits": np.array([1, HEADS, 2, TOKENS // 2, TOKENS // 2]),
    "row_bias": RNG.normal(0, 1, (2, TOKENS // 2, TOKENS // 2)).astype(np.float32),
    "whole": np.array([1, HEADS, TOKENS, WIDTH]),
    "rows": np.array([1, HEADS * TOKENS, TOKENS]),
    "square": np.array([1, HEADS, TOKENS, TOKENS]),
    "mixer": np.array([[0.8, -0.3], [0.4, 0.9]], np.float32),
    "leading": np.array([0]),
    "tenth": np.array(0.1, np.float32),
    "middle": np.array(128, np.uint8),
    "step": np.array(1 / 255, np.float32),
    "no_offset": np.array(0, np.uint8),
    "minus_infinity": np.array(-np.inf, np.float32),
}
PICTURE = RNG.normal(0, 1, (1, 3, 8, 12)).astype(np.float32)


def build(body: str, path: Path, check: bool = True) -> Path:
    """Write the tiny model with a body between projections and output."""
    # Older versions of ONNX Runtime round no numbers at opset 23 yet.
    head = HEAD.replace('"" : 23', '"" : 21') if "QuantizeLinear" in body else HEAD
    model = parser.parse_model(head + body + TAIL)
    used = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in CONSTANTS.items() if name in used
    )
    if check:
        onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    return path


def projections() -> tuple[np.ndarray, np.ndarray]:
    """Return queries and keys in float64, (heads, tokens, width)."""
    patches = PICTURE.astype(np.float64).reshape(3, 2, 4, 3, 4).transpose(1, 3, 0, 2, 4).reshape(TOKENS, -1)
    tokens = patches @ CONSTANTS["patch_weight"].reshape(WIDE, -1).T
    return tuple(
        (tokens @ CONSTANTS[f"{name}_weight"]).reshape(TOKENS, HEADS, WIDTH).transpose(1, 0, 2)
        for name in ("query", "key")
    )


def softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def product() -> np.ndarray:
    queries, keys = projections()
    return queries @ keys.swapaxes(-1, -2)


BIAS, ALLOWED = CONSTANTS["bias"][0].astype(np.float64), CONSTANTS["allowed"][0]
PLAIN = "s = MatMul (q, kt)\n"
FINISH = "p = Softmax <axis = -1> (z)\n context = MatMul (p, v)\n"


def before(*lines: str) -> str:
    """Put operators between logits `s` and softmax input `z`."""
    return "\n".join([PLAIN, *lines, FINISH])


def after(lines: str, weights: str) -> str:
    """Put operators between the softmax `p` and the product with the values."""
    return f"{PLAIN} p = Softmax <axis = -1> (s)\n {lines}\n context = MatMul ({weights}, v)"


def masked(logits: np.ndarray) -> np.ndarray:
    return np.where(ALLOWED, logits, -np.inf)


# name: (body of the graph, logits it must amount to)


def attend(body: str, tmp_path: Path):
    return open_onnx(build(body, tmp_path / "tiny.onnx")).attend(torch.from_numpy(PICTURE))
