"""Checking an attention of an ONNX run against what the model really computed."""

from __future__ import annotations

import numpy as np
import torch

from viewer.attention.layer import Verdict
from viewer.attention.scores import QueryKeyScores, WeightScores
from viewer.backends.onnx_arrangement import Arrangement
from viewer.backends.onnx_found import Found
from viewer.backends.onnx_scores import Array, Look, operand_values, used_weights
from viewer.backends.torch_verdict import Check, check, check_rows, spread_rows

# Weights in 8 bits are off by half a step of 1/255, and by a step where their scale is rounded as well.
_ROUNDED = 1 / 100
_EXACT = 1e-4


def verdict(
    found: Found, scores: QueryKeyScores | WeightScores, arrangement: Arrangement, look: Look
) -> Verdict:
    """Compare rebuilt weights times values with the operation's real output."""
    context = _tensor(operand_values(found.context, arrangement, arrangement.end, look))
    if found.mixed:
        return check_rows(scores, context).verdict()
    try:
        if found.used:
            return _check_rounded(scores, *used_weights(found, arrangement, look), context)
        values = _tensor(operand_values(found.values, arrangement, arrangement.end, look))
        return check(scores, values, context).verdict()
    except RuntimeError as error:
        return Verdict(False, None, None, f"weights and values do not fit together ({error})")


def _check_rounded(
    scores: QueryKeyScores | WeightScores, used: Array, values: Array, context: torch.Tensor
) -> Verdict:
    """Check that rounded weights make the output, and that they are the weights shown but for rounding."""
    rows = spread_rows(scores.queries)
    weights = scores.weights(rows)
    rounded = _tensor(used[:, rows]).float()
    real = context[:, rows].float()
    rebuilt = torch.bmm(rounded, _tensor(values).float())
    largest = real.abs().amax().clamp_min(torch.finfo(torch.float32).tiny)
    # Integers come without their scale; the one that brings them nearest to the weights has to do.
    scale = (rounded * weights).sum() / (rounded * rounded).sum().clamp_min(torch.finfo(torch.float32).tiny)
    off = float((rounded * scale - weights).abs().amax())
    sums = (weights.sum(dim=-1) - 1).abs().amax()
    errors = torch.stack([(rebuilt - real).abs().amax() / largest, sums, real.amin(), real.amax()])
    doubt = "" if off <= _ROUNDED else f"the model rounds its weights by as much as {off:.2g}"
    return Check(errors, _EXACT).verdict(doubt)


def _tensor(array: Array) -> torch.Tensor:
    array = np.ascontiguousarray(array)
    if not np.issubdtype(array.dtype, np.floating):
        array = array.astype(np.float32)
    return torch.from_numpy(array if array.flags.writeable else array.copy())
